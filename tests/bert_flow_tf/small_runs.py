"""Little tasks, settings and command lines, for tests of whole runs."""

import dataclasses
import glob
import io
import json
import logging as python_logging
import os
import pathlib
import socket
import subprocess
import sys
from contextlib import redirect_stderr

import numpy as np
import tensorflow as tf
from absl import flags, logging

from bert_flow_tf import run_siamese
from bert_flow_tf.common.errors import exit_status
from bert_flow_tf.original.settings import RunSettings
from bert_flow_tf.tasks.senteval import SUBSETS
from glow.config import GlowConfig

_ORIGIN = ["index", "genre", "filename", "year", "old_index", "source1", "source2"]
STSB_HEADER = [*_ORIGIN, "sentence1", "sentence2", "score"]
MNLI_HEADER = [
    *("index", "promptID", "pairID", "genre"),
    *"----",
    "sentence1",
    "sentence2",
    "label1",
    "gold_label",
]
NLI_LABELS = ("contradiction", "entailment", "neutral")
TINY_WORDS = [f"w{i}" for i in range(50)]
SMALL_WORDS = ["The", "the", "cat", "cats", "sat", "."]


def write_tsv(path, rows):
    """Writes rows of columns as a tab-separated file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


def write_sentences(path, n, words=TINY_WORDS[:25]):
    """Writes n sentences of 2 to 8 words, a line each."""
    rng = np.random.default_rng(0)
    path.write_text(
        "".join(" ".join(rng.choice(words, rng.integers(2, 9))) + "\n" for _ in range(n))
    )


def random_pairs(n, words, seed):
    """Return n tuples of two sentences and their share of common words."""
    rng = np.random.default_rng(seed)
    pairs = []
    for _ in range(n):
        a = list(rng.choice(words, rng.integers(1, 7)))
        kept = rng.random(len(a)) < rng.random()
        b = [word if keep else str(rng.choice(words)) for word, keep in zip(a, kept, strict=True)]
        pairs.append((" ".join(a), " ".join(b), float(np.mean(kept))))
    return pairs


def write_stsb(folder, words=TINY_WORDS, sizes=(24, 10, 7), seed=0, gold=False):
    """Write STS-B's files, with `gold` also the test scores."""
    for i, (split, n) in enumerate(zip(("train", "dev", "test"), sizes, strict=True)):
        rows = [[a, b, f"{5 * share:.3f}"] for a, b, share in random_pairs(n, words, [seed, i])]
        if split == "test" and gold:
            write_tsv(
                folder / "sts-test.csv", [["g", "f", "y", "0", score, a, b] for a, b, score in rows]
            )
        columns = 2 if split == "test" else 3
        header = STSB_HEADER[: 7 + columns]
        write_tsv(
            folder / f"{split}.tsv", [header, *([*"0gfy0nn", *row[:columns]] for row in rows)]
        )
    return folder


def write_senteval(folder, words):
    """Write STS-12 as in SentEval, a tenth without gold scores."""
    rng = np.random.default_rng(0)

    def sentence(known):
        return " ".join(rng.choice(known, rng.integers(2, 6)))

    for i, subset in enumerate(SUBSETS["sts12"], start=1):
        sts = folder / "STS" / "STS12-en-test"
        write_tsv(
            sts / f"STS.input.{subset}.txt",
            [[sentence(words), sentence(words)] for _ in range(10 * i)],
        )
        write_tsv(
            sts / f"STS.gs.{subset}.txt",
            [[f"{rng.uniform(0, 5):.2f}" if k % 10 else ""] for k in range(10 * i)],
        )
    return folder


def write_mrpc(folder, words, sizes=(60, 20)):
    """Write MRPC as in SentEval, labelled by the share of common words."""
    header = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
    for i, (part, n) in enumerate(zip(("train", "test"), sizes, strict=True)):
        rows = [
            [str(int(share > 0.5)), "1", "2", a, b] for a, b, share in random_pairs(n, words, i)
        ]
        write_tsv(folder / f"msr_paraphrase_{part}.txt", [header, *rows])
    return folder


def write_mnli(folder, words=TINY_WORDS, sizes=(24, 9)):
    """Write MNLI's files, labelled by the share of common words."""
    for i, (name, n) in enumerate(zip(("train", "dev_matched"), sizes, strict=True)):
        rows = []
        for a, b, share in random_pairs(n, words, i):
            label = NLI_LABELS[0 if share < 0.3 else 1 if share > 0.7 else 2]
            rows.append(["0", "1", "1n", "g", "-", "-", "-", "-", a, b, label, label])
        write_tsv(folder / f"{name}.tsv", [MNLI_HEADER, *rows])
    return folder


def small_flow_file(folder, **changes):
    """Path of a flow's configuration with two steps of width 8."""
    path = folder / "small_flow.json"
    config = GlowConfig(coupling_width=8, n_levels=2, depth=1, **changes)
    path.write_text(json.dumps(dataclasses.asdict(config)))
    return str(path)


def values(folder, encoder_dir, **changes):
    """Settings of a run on a small STS-B, 3 steps an epoch."""
    defaults = {
        "task_name": "STS-B",
        "data_dir": str(write_stsb(folder / "STS-B", SMALL_WORDS)),
        "output_parent_dir": str(folder / "out"),
        "bert_hub": str(encoder_dir),
        "max_seq_length": 10,
        "train_batch_size": 8,
        "log_every_step": 1,
        "do_train": True,
    }
    return defaults | changes


def flow_values(folder, encoder_dir, **changes):
    """`values` of a run that learns a small flow without labels."""
    flow = {"flow": 1, "flow_loss": 1, "num_examples": 0, "flow_learning_rate": 0.01}
    return values(folder, encoder_dir, flow_model_config=small_flow_file(folder), **flow, **changes)


def run(settings=None, **changes):
    """Runs in this process, and gives the run's directory."""
    settings = RunSettings.of(**({} if settings is None else settings) | changes)
    run_siamese.run(settings)
    return settings.output_dir


def flat(settings):
    """The flags of all parts of `RunSettings`."""
    own = dataclasses.asdict(settings)
    return {
        name: value
        for part in own.values()
        if isinstance(part, dict)
        for name, value in part.items()
    } | own


def main(*arguments):
    """Status and stderr of the command line in this process."""
    stderr = io.StringIO()
    with redirect_stderr(stderr):
        status = run_command(arguments)
    return status, stderr.getvalue()


def run_command(arguments):
    """Return the command line's status, run here with flags of its own."""
    values = flags.FlagValues()
    run_siamese.define_flags(values)
    # Else absl warns that it logs before flags are parsed.
    flags.FLAGS.mark_as_parsed()
    logging.use_absl_handler()
    try:
        return exit_status(
            lambda: run_siamese.main(run_siamese.parse(["run_siamese", *arguments], values), values)
        )
    finally:
        python_logging.getLogger().removeHandler(logging.get_absl_handler())


def as_flags(settings, **changes):
    """Settings as arguments of the command line."""
    return [f"--{name}={value}" for name, value in (settings | changes).items()]


def start(arguments, program=None, **variables):
    """Start the command line, or a program, in a new process."""
    command = [
        sys.executable,
        *(("-c", program) if program else ("-m", "bert_flow_tf.run_siamese")),
        *arguments,
    ]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, **pipes, text=True, env=os.environ | variables)


def start_workers(*commands):
    """Start a cluster of two workers from each one's arguments and program."""
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        cluster = {"worker": [f"127.0.0.1:{each.getsockname()[1]}" for each in (one, other)]}
    tasks = [
        json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
        for index in (0, 1)
    ]
    return [start(*command, TF_CONFIG=task) for command, task in zip(commands, tasks, strict=True)]


def finish(process):
    """Status and stderr of a process, once it has ended.

    One that hangs is killed.
    """
    try:
        _, stderr = process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, stderr


def checkpoint_variables(run_dir, name=None):
    """Return the arrays of a run's last or named checkpoint by key."""
    path = str(run_dir / name) if name else tf.train.latest_checkpoint(str(run_dir))
    reader = tf.train.load_checkpoint(path)
    keys = sorted(
        key for key in reader.get_variable_to_shape_map() if not key.startswith("_CHECKPOINTABLE")
    )
    return {key: reader.get_tensor(key) for key in keys}


def assert_same_bits(run_dir, other_dir):
    """Check that the last checkpoints of two runs are the same bytes."""
    prefixes = (tf.train.latest_checkpoint(str(folder)) for folder in (run_dir, other_dir))
    files, others = (
        {path[len(prefix) :]: pathlib.Path(path).read_bytes() for path in glob.glob(f"{prefix}.*")}
        for prefix in prefixes
    )
    assert files and files == others


def assert_same_training(run_dir, other_dir):
    """Check that two runs logged nearly the same, and learned it."""
    for name in ("loss", "flow_loss", "supervised_loss", "grad_norm", "flow_grad_norm"):
        np.testing.assert_allclose(
            logged(run_dir, name), logged(other_dir, name), rtol=1e-5, atol=1e-6, err_msg=name
        )
    assert len(logged(run_dir, "loss")) > 1
    found, expected = checkpoint_variables(run_dir), checkpoint_variables(other_dir)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        if "/adam_" not in key and "optimizer" not in key:
            np.testing.assert_allclose(found[key], value, atol=1e-5, err_msg=key)


def logged(run_dir, name):
    """Return a scalar that a run logged for TensorBoard, by step."""
    values = {}
    for path in sorted(run_dir.glob("events.out.tfevents.*")):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                if value.tag == name:
                    values[event.step] = float(tf.make_ndarray(value.tensor))
    return np.array([values[step] for step in sorted(values)])
