"""The commands that the campaigns interrupt, each of them small, and the folder that they start in."""

import json
import pathlib
from collections.abc import Callable, Mapping

import click
import numpy as np

# Imported here, before a process is forked; nothing of them is used before.
import tensorflow  # noqa: F401
from absl import flags

import bert_flow_tf.api
import bert_flow_tf.encoder.convert.saved_models
import bert_flow_tf.evaluation.plots
import bert_flow_tf.serving.export
import bert_flow_tf.training.scoring
import bert_flow_tf.training.train  # noqa: F401
from bert_flow_tf import cli, run_siamese
from tests.bert_flow_tf import small_runs
from tests.small_bert import write_small_bert

_TINY = pathlib.Path(__file__).parents[1] / "golden" / "data" / "bert_tiny"
_TRAIN = {
    "task_name": "STS-B",
    "data_dir": "glue/STS-B",
    "output_parent_dir": "runs",
    "exp_name": "run",
    "bert_hub": "encoder",
    "max_seq_length": 10,
    "train_batch_size": 8,
    "log_every_step": 1,
    "save_checkpoints_steps": 2,
    "do_train": True,
    "do_predict": True,
}
_FLOW = {"flow": 1, "flow_loss": 1, "flow_model_config": "small_flow.json", "flow_learning_rate": 0.01}
_FROZEN = _TRAIN | _FLOW | {"num_examples": 0, "num_train_epochs": 3.0, "use_full_for_training": 1}
_TUNED = _TRAIN | {"learning_rate": 1e-3, "num_train_epochs": 2.0}


def _run_siamese(settings: Mapping[str, object]) -> Callable[[], int]:
    def run() -> int:
        values = flags.FlagValues()
        run_siamese.define_flags(values)
        return run_siamese.main(values(["run_siamese", *small_runs.as_flags(settings)]), values)

    return run


def _bert_flow(*arguments: str) -> Callable[[], int]:
    def run() -> int:
        try:
            cli.main.main([*arguments], standalone_mode=False)
        except click.exceptions.Exit as end:
            return end.exit_code
        return 0

    return run


COMMANDS: dict[str, Callable[[], int]] = {
    "flow": _run_siamese(_FROZEN),
    "dropout": _run_siamese(_TUNED),
    "semi": _run_siamese(_TUNED | _FLOW | {"num_examples": 6}),
    "early": _run_siamese(_TUNED | {"early_stopping": True, "do_eval": True}),
    "predict": _run_siamese(_FROZEN | {"exp_name": "finished", "do_train": False, "do_predict_on_dev": True}),
    "fit": _bert_flow(
        *("fit", "--bert_hub", "encoder", "--input", "sentences.txt", "--out", "out/model", "--num_train_epochs", "2"),
    ),
    "encode": _bert_flow("encode", "--model", "runs/finished", "--input", "sentences.txt", "--out", "out/e.npy"),
    "convert": _bert_flow("convert", "--tf1_checkpoint", "tf1", "--out", "out/encoder"),
    "to_tf1": _bert_flow("convert", "--run", "runs/finished", "--to_tf1", "--out", "out/tf1"),
    "export": _bert_flow("export", "--model", "runs/finished", "--out", "out/exported", "--version", "1"),
    "calibrate": _bert_flow(
        *("calibrate", "--model", "runs/finished", "--glue_dir", "glue", "--methods", "none,whitening"),
        *("--out", "out/calibrations.json"),
    ),
    "lexical": _bert_flow(
        *(
            "analyze",
            "lexical",
            "--model",
            "runs/finished",
            "--glue_dir",
            "glue",
            "--split",
            "dev",
            "--out",
            "out/study",
        ),
    ),
    "report": _bert_flow("report", "--runs", "runs", "--out", "out/report"),
}


def prepare(folder: pathlib.Path) -> int:
    """Fills the folder with what the commands read; gives the exit status of the run that is part of it."""
    from bert_flow_tf.encoder.convert.from_tf1 import convert_tf1

    write_small_bert(_TINY, folder / "tf1")
    # With dropout, which a run that resumes must draw again.
    config = json.loads((folder / "tf1" / "bert_config.json").read_text())
    config |= {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.3}
    (folder / "tf1" / "bert_config.json").write_text(json.dumps(config))
    convert_tf1(folder / "tf1" / "bert_model.ckpt", folder / "encoder")
    small_runs.write_stsb(folder / "glue" / "STS-B", [f"w{i}" for i in range(25)])
    rows = [line.split("\t") for line in (folder / "glue/STS-B/test.tsv").read_text().splitlines()[1:]]
    gold = "".join("\t".join(["-"] * 4 + [f"{i % 5}.0", *row[-2:]]) + "\n" for i, row in enumerate(rows))
    (folder / "glue/STS-B/sts-test.csv").write_text(gold)
    small_runs.small_flow_file(folder)
    rng = np.random.default_rng(0)
    lines = [" ".join(f"w{n}" for n in rng.integers(25, size=rng.integers(2, 9))) for _ in range(80)]
    (folder / "sentences.txt").write_text("".join(f"{line}\n" for line in lines))
    return _run_siamese(_FROZEN | {"exp_name": "finished"})()
