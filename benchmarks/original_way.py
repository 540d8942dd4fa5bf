"""The flow run on STS-B as it is here, and in the original's way: time and peak memory of each stage, and the ratio.

    python benchmarks/original_way.py --glue_dir GLUE --out results.json

Here: embeddings of the frozen encoder computed once, each sentence padded to the longest of its batch. The original's
way: no cache, so the encoder runs in every step, with dropout, and everything is padded to 64. Each is a process of its
own. The floor is what the encoder's matrix products would take at the rate that a product of its own shape reaches on
this machine.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from bert_flow_tf.atomic import write_atomically
from bert_flow_tf.experiment import TRAIN_RESULTS_FILE

WAYS = {
    "here": ("--cache_embeddings=true",),
    "original's way": ("--cache_embeddings=false", "--pad_to_max_seq_length=true"),
}
MAX_SEQ_LENGTH = 64


def timed(command):
    """Seconds and peak memory in MiB of a process."""
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"failed with status {status}: {' '.join(command)}")
    return {"seconds": round(time.monotonic() - started, 3), "peak_memory_mib": usage.ru_maxrss // 1024}


def run(args, flags, folder):
    """Dictionary of stage to seconds and peak memory of one flow run and of scoring it."""
    common = [
        *(sys.executable, "-m", "bert_flow_tf.run_siamese", f"--bert_hub={args.bert_hub}", "--task_name=STS-B"),
        *(f"--data_dir={args.glue_dir}/STS-B", f"--output_parent_dir={folder}", "--exp_name=run"),
        *(f"--sentence_embedding_type={args.sentence_embedding_type}", f"--max_seq_length={MAX_SEQ_LENGTH}"),
        *("--flow=1", "--flow_loss=1", "--num_examples=0", "--use_full_for_training=1", "--num_train_epochs=1.0"),
        *flags,
    ]
    training = timed([*common, "--do_train=true"])
    stages = json.loads((pathlib.Path(folder) / "run" / TRAIN_RESULTS_FILE).read_text())["stages"]
    return {**stages, "whole training process": training, "scoring process": timed([*common, "--do_predict=true"])}


def floor(args):
    """Seconds that the encoder's products take for one pass over all sentences, by padding, at the measured rate."""
    import tensorflow as tf

    from bert_flow_tf import input_pipeline
    from bert_flow_tf.encoder import SentenceEncoder, resolve_encoder
    from bert_flow_tf.tasks import read_train
    from bert_flow_tf.tokenizer import Tokenizer

    source = resolve_encoder(bert_hub=args.bert_hub)
    encoder = SentenceEncoder(source, "avg", trainable=False)
    examples = read_train("STS-B", f"{args.glue_dir}/STS-B", True)
    sentences = [*examples.sentences_a, *examples.sentences_b]
    pieces = input_pipeline.tokenize(Tokenizer.from_source(source), sentences, MAX_SEQ_LENGTH)
    distinct = input_pipeline.distinct(pieces)[0]
    width, layers = encoder.hidden_size, encoder.num_layers

    def flops(lengths):
        # Query, key, value, output, and the two layers four times as wide; then scores and their average.
        return layers * sum(2 * t * 12 * width**2 + 4 * t * t * width for t in lengths)

    a, b = tf.random.normal([4096, width]), tf.random.normal([width, 4 * width])
    product = tf.function(lambda: tf.linalg.matmul(a, b))
    product()
    started, repeats = time.monotonic(), 50
    for _ in range(repeats):
        product()
    rate = repeats * 2 * 4096 * width * 4 * width / (time.monotonic() - started)
    return {
        "gflops_per_second": round(rate / 1e9, 1),
        "here": round(flops((distinct.row_lengths() + 2).numpy().tolist()) / rate, 2),
        "original's way": round(flops([MAX_SEQ_LENGTH] * len(sentences)) / rate, 2),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--glue_dir", required=True, help="folder that holds STS-B")
    parser.add_argument("--out", required=True, help="JSON file of the figures")
    parser.add_argument("--bert_hub", default="demo")
    parser.add_argument("--sentence_embedding_type", default="avg-last-2")
    args = parser.parse_args()
    results = {"floor": floor(args)}
    for way, flags in WAYS.items():
        with tempfile.TemporaryDirectory() as folder:
            results[way] = run(args, flags, folder)
        write_atomically(args.out, json.dumps(results, indent=2) + "\n")
    for way in WAYS:
        print(f"{way}: the encoder's products alone would take {results['floor'][way]} s")
        for stage, figures in results[way].items():
            print(f"  {stage:24} {figures['seconds']:8.1f} s  {figures['peak_memory_mib']:6d} MiB")
    for stage in ("whole training process", "scoring process"):
        ratio = results["original's way"][stage]["seconds"] / results["here"][stage]["seconds"]
        print(f"{stage}: {ratio:.2f} times as long in the original's way")


if __name__ == "__main__":
    main()
