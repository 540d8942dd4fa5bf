"""Compare the ways to serve a model: latency, bulk, start, threads.

    python -m benchmarks.latency --glue_dir GLUE
    python -m benchmarks.latency --install
    python -m benchmarks.latency --exports --bert_hub base

The first prints the tables of docs/serving.md. Each side is a process that keeps its model; they
answer in a random order, so that a busy machine slows all of them. The second installs the runtime
without TensorFlow into a new environment, and prints its size and its time to the first embedding.
The third prints time, memory and size of each export.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.processes import ROOT, Side, seconds_of, serve

_SIDES = ("encode", "SavedModel", "onnx", "openvino", "bare onnxruntime")
_THREADS = 8
# tokenizers needs its own requirement, huggingface-hub, only for downloads.
_WITHOUT_REQUIREMENTS = (str(ROOT), "tokenizers")
_REQUIREMENTS = ("numpy", "onnxruntime")
_FIRST_TEXT = "A boat lies in the harbour."
_EXPORTS: dict[str, dict[str, str]] = {
    "SavedModel": {},
    "sentence-transformers": {"format": "sentence-transformers"},
    "onnx": {"format": "onnx"},
    "onnx, int8": {"format": "onnx", "dtype": "int8"},
    "openvino": {"format": "openvino"},
}
_EXPORT = """
import json, sys
from bert_flow_tf import BertFlow
_, encoder, folder, options = sys.argv
print(BertFlow.from_hub(encoder).export(folder, **json.loads(options)))
"""
# Each program prints when it has its first embedding.
_STARTS = {
    "encode": f"""
from bert_flow_tf import BertFlow
print(BertFlow.from_pretrained(sys.argv[1] + "/model").encode("{_FIRST_TEXT}")[0])
""",
    "SavedModel": f"""
import tensorflow as tf
import tensorflow_text
serve = tf.saved_model.load(sys.argv[1] + "/saved/1").signatures["serving_default"]
print(serve(sentences=tf.constant(["{_FIRST_TEXT}"]))["embedding"].numpy()[0, 0])
""",
    "onnx": f"""
from bert_flow_tf import open_export
print(open_export(sys.argv[1] + "/onnx").encode("{_FIRST_TEXT}")[0])
""",
    "openvino": f"""
from bert_flow_tf import open_export
print(open_export(sys.argv[1] + "/onnx", "openvino").encode("{_FIRST_TEXT}")[0])
""",
    "bare onnxruntime": f"""
from benchmarks.latency import bare_session
print(bare_session(sys.argv[1])(["{_FIRST_TEXT}"])[0, 0])
""",
}


def bare_session(folder: str) -> Callable[[Sequence[str]], np.ndarray]:
    """Return the function that docs/serving.md's program for onnxruntime amounts to."""
    import onnxruntime
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(f"{folder}/onnx/tokenizer.json")
    description = json.loads(pathlib.Path(folder, "onnx/export.json").read_text(encoding="utf-8"))
    tokenizer.enable_truncation(description["max_seq_length"])
    tokenizer.enable_padding()
    session = onnxruntime.InferenceSession(
        f"{folder}/onnx/model.onnx", providers=["CPUExecutionProvider"]
    )

    def encode(texts: Sequence[str]) -> np.ndarray:
        encoded = tokenizer.encode_batch(list(texts))
        ids = np.array([one.ids for one in encoded], np.int64)
        mask = np.array([one.attention_mask for one in encoded], np.int64)
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return session.run(None, inputs)[0]

    return encode


def _saved_model(folder: str) -> Callable[[Sequence[str]], np.ndarray]:
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  # registers the tokenizer's operations

    function = tf.saved_model.load(f"{folder}/saved/1").signatures["serving_default"]
    return lambda texts: function(sentences=tf.constant(list(texts)))["embedding"].numpy()


def _encoder(side: str, folder: str) -> Callable[[Sequence[str]], np.ndarray]:
    """Return the function from texts to embeddings of one side."""
    from bert_flow_tf import BertFlow, open_export

    if side == "encode":
        return BertFlow.from_pretrained(f"{folder}/model").encode
    if side in ("onnx", "openvino"):
        return open_export(f"{folder}/onnx", side).encode
    return {"SavedModel": _saved_model, "bare onnxruntime": bare_session}[side](folder)


def _work(side: str, folder: str) -> None:
    """Answer requests as one side."""
    texts = json.loads(pathlib.Path(folder, "texts.json").read_text(encoding="utf-8"))
    encode = _encoder(side, folder)
    # These two do not sort their texts into batches.
    in_batches = side in ("SavedModel", "bare onnxruntime")

    def bulk() -> None:
        step = 32 if in_batches else len(texts)
        for start in range(0, len(texts), step):
            encode(texts[start : start + step])

    def service(requests: int) -> dict[str, float]:
        def answer(i: int) -> float | None:
            text = texts[i % len(texts)]
            try:
                return seconds_of(lambda: encode([text]))
            except Exception:
                return None

        started = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(_THREADS) as executor:
            found = [*executor.map(answer, range(requests))]
        seconds = time.perf_counter() - started
        taken = [one for one in found if one is not None]
        p50, p99 = np.percentile(taken, [50, 99])
        return {
            "rate": requests / seconds,
            "p50": 1e3 * p50,
            "p99": 1e3 * p99,
            "errors": len(found) - len(taken),
        }

    def few(n: int, start: int) -> float:
        return seconds_of(lambda: encode(texts[start : start + n]))

    serve({"few": few, "bulk": lambda: seconds_of(bulk), "service": service})


def _prepare(folder: str, bert_hub: str) -> None:
    """Write a model and its exports; this loads TensorFlow."""
    from bert_flow_tf import BertFlow

    model = BertFlow.from_hub(bert_hub)
    model.save(f"{folder}/model")
    model.export(f"{folder}/saved")
    model.export(f"{folder}/onnx", format="onnx")


def _texts(glue_dir: str, count: int) -> list[str]:
    """Return different sentences of STS-B's training set."""
    from bert_flow_tf.tasks.sentence_files import TextFile, read_tables

    path = pathlib.Path(glue_dir, "STS-B", "train.tsv")
    tables = read_tables(TextFile(path=path, columns=("sentence1", "sentence2")))
    pairs = (pair for table in tables for pair in table.to_pylist())
    return [*dict.fromkeys(text for pair in pairs for text in pair.values())][:count]


def _rounds(names: Sequence[str], count: int) -> Iterator[list[str]]:
    """Yield the names in `count` random orders."""
    for i in range(count):
        yield random.Random(i).sample(names, len(names))


def _table(title: str, columns: Sequence[str], rows: dict[str, Sequence[str]]) -> None:
    print(f"\n| {title} | {' | '.join(columns)} |\n| --- |{' --- |' * len(columns)}")
    for name, cells in rows.items():
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def _measure_calls(ask: dict[str, Callable[..., Any]], options: argparse.Namespace) -> None:
    """Print milliseconds of few texts, and sentences per second of many."""
    columns: dict[str, list[str]] = {name: [] for name in ask}
    for n in (1, 32):
        found: dict[str, list[float]] = {name: [] for name in ask}
        for i, order in enumerate(_rounds([*ask], options.rounds + 10)):
            for name in order:
                found[name].append(ask[name]("few", n=n, start=i * n % (options.count - n)))
        # The first calls trace functions and fill caches.
        medians = {name: statistics.median(one[10:]) for name, one in found.items()}
        for name, median in medians.items():
            ratio = median / medians["bare onnxruntime"]
            columns[name].append(f"{1e3 * median:.1f} ({ratio:.2f})")
    bulk: dict[str, list[float]] = {name: [] for name in ask}
    for order in _rounds([*ask], options.repeats + 1):
        for name in order:
            bulk[name].append(ask[name]("bulk"))
    for name, one in bulk.items():
        columns[name].append(f"{options.count / statistics.median(one[1:]):.0f}")
    few = [f"{n}, ms (× the bare session)" for n in ("1 text", "32 texts")]
    _table("backend", [*few, f"{options.count:,} sentences, 1/s"], columns)


def _measure_service(ask: dict[str, Callable[..., Any]], options: argparse.Namespace) -> None:
    """Print texts per second and latencies of 8 threads."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ask}
    for order in _rounds([*ask], options.repeats):
        for name in order:
            found[name].append(ask[name]("service", requests=options.requests))

    def cells(one: list[dict[str, float]]) -> list[str]:
        keys = ("rate", "p50", "p99")
        rate, p50, p99 = (statistics.median(run[key] for run in one) for key in keys)
        errors = sum(run["errors"] for run in one)
        return [f"{rate:.0f}", f"{p50:.1f}", f"{p99:.1f}", f"{errors:.0f}"]

    title = f"{_THREADS} threads, {options.requests:,} requests"
    rows = {name: cells(one) for name, one in found.items()}
    _table(title, ["texts per second", "p50, ms", "p99, ms", "errors"], rows)


def _measure_starts(side: Side, names: Sequence[str], folder: str, repeats: int) -> None:
    """Print seconds and memory from a process's start to its first embedding."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for order in _rounds(names, repeats + 1):
        for name in order:
            found[name].append(side.run("-c", f"import sys\n{_STARTS[name]}", folder))
    # The first process is slower, because it brings files into memory.
    rows = {
        name: [
            f"{statistics.median(one['seconds_to_output'] for one in runs[1:]):.2f}",
            f"{statistics.median(one['peak_memory_mib'] for one in runs[1:]):.0f}",
        ]
        for name, runs in found.items()
    }
    _table("start to first embedding", ["s", "memory, MiB"], rows)


def _compare(options: argparse.Namespace) -> None:
    side = Side(sys.executable, os.environ | {"PYTHONPATH": str(ROOT)})
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        texts = _texts(options.glue_dir, options.count)
        options.count = len(texts)
        pathlib.Path(folder, "texts.json").write_text(json.dumps(texts), encoding="utf-8")
        side.run("-m", "benchmarks.latency", "--prepare", folder, "--bert_hub", options.bert_hub)
        ask = {
            name: stack.enter_context(
                side.worker("benchmarks.latency", "--work", folder, "--side", name)
            )
            for name in options.sides
        }
        _measure_calls(ask, options)
        _measure_service(ask, options)
        _measure_starts(side, options.sides, folder, options.repeats)


def _install(options: argparse.Namespace) -> None:
    """Install the runtime alone; print packages, size and its start."""
    here = Side(sys.executable, os.environ | {"PYTHONPATH": str(ROOT)})
    with tempfile.TemporaryDirectory() as folder:
        here.run("-m", "benchmarks.latency", "--prepare", folder, "--bert_hub", options.bert_hub)
        environment = pathlib.Path(folder, "environment")
        venv.create(environment, with_pip=True, symlinks=True)
        python = str(environment / "bin" / "python")
        site = next(environment.glob("lib/python*/site-packages"))
        before = {path.name for path in site.iterdir()}
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-deps", *_WITHOUT_REQUIREMENTS], check=True)
        subprocess.run([*pip, *_REQUIREMENTS], check=True)
        new = [path for path in site.iterdir() if path.name not in before]
        files = [one for path in new for one in (path.rglob("*") if path.is_dir() else [path])]
        size = sum(one.stat().st_size for one in files if one.is_file()) / 1e6
        packages = sorted(path.name.split("-")[0] for path in new if path.suffix == ".dist-info")
        print(f"{len(packages)} packages, {size:.0f} MB: {', '.join(packages)}")
        alone = Side(python, {"PATH": os.environ["PATH"], "HOME": folder})
        _measure_starts(alone, ["onnx"], folder, options.repeats)


def _measure_exports(options: argparse.Namespace) -> None:
    """Print each format's seconds and peak memory, loading included, and its size."""
    side = Side(sys.executable, os.environ | {"PYTHONPATH": str(ROOT)})
    rows: dict[str, Sequence[str]] = {}
    with tempfile.TemporaryDirectory() as parent:
        for name, given in _EXPORTS.items():
            folder = pathlib.Path(parent, name)
            run = side.run("-c", _EXPORT, options.bert_hub, folder, json.dumps(given))
            size = sum(one.stat().st_size for one in folder.rglob("*") if one.is_file()) / 1e6
            figures = run["seconds"], run["peak_memory_mib"], size
            rows[name] = [f"{one:.0f}" for one in figures]
    _table("export", ["s", "peak memory, MiB", "MB"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--glue_dir", help="the folder with STS-B")
    parser.add_argument("--bert_hub", default="demo", help="the encoder")
    parser.add_argument("--sides", nargs="+", default=_SIDES, choices=_SIDES)
    parser.add_argument("--count", type=int, default=2000, help="sentences of the bulk")
    parser.add_argument("--rounds", type=int, default=100, help="calls with few texts")
    parser.add_argument("--requests", type=int, default=2000, help="of the threaded service")
    parser.add_argument("--repeats", type=int, default=3, help="of bulk, service and start")
    parser.add_argument("--install", action="store_true", help="measure an installation instead")
    parser.add_argument("--exports", action="store_true", help="measure exports instead")
    parser.add_argument("--prepare", help=argparse.SUPPRESS)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.prepare:
        _prepare(options.prepare, options.bert_hub)
    elif options.work:
        _work(options.side, options.work)
    elif options.install:
        _install(options)
    elif options.exports:
        _measure_exports(options)
    else:
        _compare(options)


if __name__ == "__main__":
    main()
