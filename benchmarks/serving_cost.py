"""What an export costs a server: its latency, from sentences to embeddings, against the model's bare encoder.

    python benchmarks/serving_cost.py [--bert_hub demo] [--dtype float32] [--batch_sizes 1,64] [--json FILE]
    python benchmarks/serving_cost.py --format onnx

Exports the encoder with a flow learned on the sample sentences, loads it again, and calls in turn, so that both meet
the same machine: `serving_default` with sentences, or ONNX's tokenizer and graph, by tokenizers and onnxruntime; and
the encoder and pooling alone, in TensorFlow, with the ids of these sentences. An export in bfloat16 is compared with
the encoder in bfloat16. Prints medians in milliseconds, what is added, sentences a second, the largest difference of
the first batch's embeddings, as a part of the largest value, and sizes on disk; `--json` writes the same figures as one
object.
"""

import argparse
import itertools
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from bert_flow_tf.api import BertFlow
from bert_flow_tf.data.tasks import get_task, read_split
from bert_flow_tf.errors import ArgumentParser, exit_status
from bert_flow_tf.files.atomic import write_atomically
from bert_flow_tf.sample_data import sample_glue_dir
from bert_flow_tf.serving import DTYPES


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bert_hub", default="demo", help="encoder (default: demo)")
    parser.add_argument("--format", default="savedmodel", choices=("savedmodel", "onnx"), help="default: savedmodel")
    parser.add_argument("--dtype", default=DTYPES[0], choices=DTYPES, help="of the export and of the bare encoder")
    parser.add_argument("--batch_sizes", default="1,64", help="commas between (default: 1,64)")
    parser.add_argument("--seconds", type=float, default=10.0, help="to measure each batch size for (default: 10)")
    parser.add_argument("--json", metavar="FILE", help="file for the figures; one that is there is refused")
    arguments = parser.parse_args()
    if arguments.json is not None and pathlib.Path(arguments.json).exists():
        parser.error(f"--json={arguments.json}: exists, expected a new file")
    examples = read_split(get_task("STS-B"), os.path.join(sample_glue_dir(), "STS-B"), "train")
    sentences = list(dict.fromkeys(examples.sentences_a + examples.sentences_b))
    sizes = arguments.batch_sizes.split(",")
    if not all(size.strip().isdecimal() and 1 <= int(size) <= len(sentences) for size in sizes):
        parser.error(
            f"--batch_sizes: found {arguments.batch_sizes!r}, expected whole numbers from 1 to {len(sentences)}"
        )
    dtype = {"dtype": arguments.dtype} if arguments.format == "savedmodel" else {}
    if not dtype and arguments.dtype != DTYPES[0]:
        parser.error(f"--dtype: found {arguments.dtype} with --format onnx, expected {DTYPES[0]}")
    model = BertFlow.from_hub(arguments.bert_hub, sentence_embedding_type="avg-last-2")
    model.fit(sentences, show_progress_bar=False)
    with tempfile.TemporaryDirectory() as folder:
        exported = model.export(pathlib.Path(folder) / "model", format=arguments.format, **dtype)
        serve = _onnx(exported.path) if arguments.format == "onnx" else _saved_model(exported.path)
        encode = _bare_encoder(model, arguments.dtype)
        result = {
            "bert_hub": arguments.bert_hub,
            "format": arguments.format,
            "dtype": arguments.dtype,
            "tensorflow": tf.__version__,
            "cpus": os.cpu_count(),
            "export_bytes": _size(exported.path),
            "encoder_bytes": _size(model.source.encoder_dir),
            "batches": [],
        }
        print(
            f"{arguments.format} export in {arguments.dtype} {result['export_bytes'] / 2**20:.1f} MiB, float32 encoder "
            f"{result['encoder_bytes'] / 2**20:.1f} MiB on disk",
            flush=True,
        )
        for size in map(int, sizes):
            served, bare = _medians(model, serve, encode, sentences, size, arguments.seconds)
            expected = model.encode(sentences[:size], show_progress_bar=False)
            difference = np.abs(serve(sentences[:size]) - expected).max() / np.abs(expected).max()
            figures = {"export_seconds": served, "encoder_seconds": bare, "largest_difference": float(difference)}
            result["batches"].append({"size": size, **figures})
            print(
                f"batch {size}: export {1e3 * served:.2f} ms ({size / served:.0f} sentences/s), bare "
                f"{arguments.dtype} encoder {1e3 * bare:.2f} ms, added {100 * (served / bare - 1):+.1f} %, "
                f"largest difference from encode {difference:.1e}",
                flush=True,
            )
    if arguments.json is not None:
        write_atomically(arguments.json, json.dumps(result, indent=2) + "\n")


def _saved_model(folder: pathlib.Path) -> Callable[[list[str]], np.ndarray]:
    """Function from sentences to embeddings of a SavedModel."""
    signature = tf.saved_model.load(str(folder)).signatures["serving_default"]
    return lambda sentences: signature(sentences=tf.constant(sentences))["embedding"].numpy()


def _onnx(folder: pathlib.Path) -> Callable[[list[str]], np.ndarray]:
    """The same of a folder of ONNX, as docs/serving.md does it."""
    import onnxruntime
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(json.loads((folder / "export.json").read_text())["max_seq_length"])
    tokenizer.enable_padding()
    session = onnxruntime.InferenceSession(folder / "model.onnx")

    def serve(sentences: list[str]) -> np.ndarray:
        encoded = tokenizer.encode_batch(sentences)
        rows = {
            "input_word_ids": [one.ids for one in encoded],
            "input_mask": [one.attention_mask for one in encoded],
            "input_type_ids": [one.type_ids for one in encoded],
        }
        return session.run(None, {name: np.array(values, np.int32) for name, values in rows.items()})[0]

    return serve


def _bare_encoder(model: BertFlow, dtype: str) -> Callable[[dict], tf.Tensor]:
    """Function from tokens to embeddings before the flow, traced once for every batch size and length, as an export."""
    names = model.tokenizer(["one"], 8)

    encoder = model.encoder
    if dtype == "bfloat16":
        encoder = encoder.in_bfloat16()
    return tf.function(encoder.embed, input_signature=[{name: tf.TensorSpec([None, None], tf.int32) for name in names}])


def _medians(
    model: BertFlow, serve: Callable, encode: Callable, sentences: list[str], size: int, seconds: float
) -> tuple[float, float]:
    """Median seconds of a call of the export and of the encoder alone."""
    batches = [sentences[i : i + size] for i in range(0, min(len(sentences) - size + 1, 64 * size), size)]
    tokens = [model.tokenizer(batch, model.max_seq_length) for batch in batches]
    served, bare = [], []
    start = time.perf_counter()
    for i in itertools.count():
        batch, ids = batches[i % len(batches)], tokens[i % len(batches)]
        begin = time.perf_counter()
        serve(batch)
        between = time.perf_counter()
        encode(ids).numpy()
        served.append(between - begin)
        bare.append(time.perf_counter() - between)
        if time.perf_counter() - start > seconds and i >= 20:
            break
    # The first calls set things up.
    return statistics.median(served[5:]), statistics.median(bare[5:])


def _size(folder: str | pathlib.Path) -> int:
    return sum(path.stat().st_size for path in pathlib.Path(folder).rglob("*") if path.is_file())


if __name__ == "__main__":
    sys.exit(exit_status(main))
