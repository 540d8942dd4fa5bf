"""What tokenizer and flow cost a server: latency of an export's `serving_default` against its bare encoder.

    python benchmarks/serving_cost.py [--bert_hub demo] [--dtype float32] [--batch_sizes 1,64] [--seconds 10]

Exports the encoder with a flow learned on the sample sentences, loads it again, and calls in turn, so that both meet
the same machine: `serving_default` with sentences, and the encoder and pooling alone with the ids of these sentences.
Prints medians in milliseconds, what is added, sentences a second, and sizes on disk.
"""

import argparse
import itertools
import os
import pathlib
import statistics
import tempfile
import time

import tensorflow as tf

from bert_flow_tf.api import BertFlow
from bert_flow_tf.sample_data import sample_glue_dir
from bert_flow_tf.tasks import get_task, read_split


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bert_hub", default="demo", help="encoder (default: demo)")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"], help="of the export")
    parser.add_argument("--batch_sizes", default="1,64", help="commas between (default: 1,64)")
    parser.add_argument("--seconds", type=float, default=10.0, help="to measure each batch size for (default: 10)")
    arguments = parser.parse_args()
    examples = read_split(get_task("STS-B"), os.path.join(sample_glue_dir(), "STS-B"), "train")
    sentences = list(dict.fromkeys(examples.sentences_a + examples.sentences_b))
    model = BertFlow.from_hub(arguments.bert_hub, sentence_embedding_type="avg-last-2")
    model.fit(sentences, verbose=0)
    with tempfile.TemporaryDirectory() as folder:
        exported = model.export(pathlib.Path(folder) / "model", dtype=arguments.dtype)
        serve = tf.saved_model.load(str(exported.path)).signatures["serving_default"]
        # One trace for every batch size and length, as the export has.
        ids = {name: tf.TensorSpec([None, None], tf.int32) for name in model.tokenizer(sentences[:1], 8)}
        encode = tf.function(lambda tokens: model.encoder(tokens, training=False), input_signature=[ids])
        print(f"export {_mib(exported.path):.1f} MiB, encoder {_mib(model.source.encoder_dir):.1f} MiB on disk")
        for size in map(int, arguments.batch_sizes.split(",")):
            served, bare = _medians(model, serve, encode, sentences, size, arguments.seconds)
            print(
                f"batch {size}: serving_default {1e3 * served:.2f} ms ({size / served:.0f} sentences/s), bare encoder "
                f"{1e3 * bare:.2f} ms, added {100 * (served / bare - 1):+.1f} %"
            )


def _medians(model, serve, encode, sentences, size, seconds):
    """Median seconds of a call of the export and of the encoder alone."""
    batches = [tf.constant(sentences[i : i + size]) for i in range(0, min(len(sentences) - size, 64 * size), size)]
    tokens = [model.tokenizer(batch, model.max_seq_length) for batch in batches]
    served, bare = [], []
    start = time.perf_counter()
    for i in itertools.count():
        batch, ids = batches[i % len(batches)], tokens[i % len(batches)]
        begin = time.perf_counter()
        serve(sentences=batch)["embedding"].numpy()
        between = time.perf_counter()
        encode(ids).numpy()
        served.append(between - begin)
        bare.append(time.perf_counter() - between)
        if time.perf_counter() - start > seconds and i >= 20:
            break
    # The first calls set things up.
    return statistics.median(served[5:]), statistics.median(bare[5:])


def _mib(folder):
    return sum(path.stat().st_size for path in pathlib.Path(folder).rglob("*") if path.is_file()) / 2**20


if __name__ == "__main__":
    main()
