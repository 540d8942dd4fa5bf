"""What each optimisation of `encode` gained: the same sentences embedded in each of its past ways.

From the plain SavedModel, 32 sentences per batch, to what `encode` does now. Each is measured beside the rate of the
encoder's matrix products, as in `floor`, whose percentage is of the tokens that are needed. See NOTES.md.
"""

import statistics

import numpy as np

from benchmarks import corpus
from benchmarks.encode import LARGEST_DIFFERENCE, MAX_SEQ_LENGTH, our_model
from benchmarks.floor import RATE_SECONDS, ROWS, Layers, tensorflow_rate
from benchmarks.options import Options
from benchmarks.timing import in_turn, seconds_of
from bert_flow_tf.errors import UserError

SENTENCES = 4096
# Name -> whether BERT is fused, sentences per batch or None, tokens per batch or None, whether two batches run at once.
STEPS = {
    "SavedModel, 32 sentences per batch": (False, 32, None, False),
    "SavedModel, 4,096 tokens per batch": (False, None, 4096, False),
    "SavedModel, 2,048 tokens per batch": (False, None, 2048, False),
    "fused, 2,048 tokens per batch": (True, None, 2048, False),
    "fused, 2,048 tokens, two at a time": (True, None, 2048, True),
}


def measure(options: Options) -> dict:
    """dict of times and percentages of every step; see `run`."""
    import tensorflow as tf

    from bert_flow_tf.encoder import batches, stream
    from bert_flow_tf.encoder.pooling import pooling
    from bert_flow_tf.encoder.tokenizer import TOKEN_SPECS

    model = our_model(options)
    layers = Layers.of(model.source)
    everything = corpus.distinct_sentences(corpus.all_sentences(options), model.tokenizer, MAX_SEQ_LENGTH)
    sentences = corpus.evenly(everything, SENTENCES)
    pieces = stream.tokenize(model.tokenizer, sentences, MAX_SEQ_LENGTH)
    lengths = (pieces.row_lengths() + 2).numpy()
    saved_model = tf.saved_model.load(str(model.source.encoder_dir))
    pool = pooling("avg", model.encoder.num_layers)
    functions = {
        False: tf.function(
            lambda inputs: pool(saved_model(inputs, training=False), inputs["input_mask"]),
            input_signature=[TOKEN_SPECS],
        ),
        True: tf.function(lambda inputs: model.encoder(inputs, training=False), input_signature=[TOKEN_SPECS]),
    }

    def embed(fused: bool, batch_size: int | None, tokens_per_batch: int | None, two_at_a_time: bool) -> np.ndarray:
        embeddings = np.empty((len(lengths), model.encoder.embedding_size), np.float32)

        def compute(batch: np.ndarray) -> None:
            packed = model.tokenizer.pack(tf.gather(pieces, batch), MAX_SEQ_LENGTH)
            embeddings[batch] = functions[fused](packed).numpy()

        groups = batches.length_batches(lengths, batch_size, tokens_per_batch)
        for _ in stream.map_concurrently(compute, groups) if two_at_a_time else map(compute, groups):
            pass
        return embeddings

    expected = embed(*STEPS["SavedModel, 32 sentences per batch"])
    differences = {name: float(np.abs(embed(*step) - expected).max()) for name, step in STEPS.items()}
    print(f"  largest difference from the first step's embeddings {max(differences.values()):.1e}")
    if max(differences.values()) > LARGEST_DIFFERENCE:
        raise UserError(
            f"encoder_steps: found embeddings that differ by {differences}, expected at most {LARGEST_DIFFERENCE:.0e}"
        )
    rows = max(ROWS, key=lambda m: tensorflow_rate(layers.products(m), 0.3))

    def between_rates(step: tuple) -> dict[str, float]:
        before = tensorflow_rate(layers.products(rows), RATE_SECONDS)
        seconds = seconds_of(lambda: embed(*step))
        return {"seconds": seconds, "rate": max(before, tensorflow_rate(layers.products(rows), RATE_SECONDS))}

    measured = in_turn({name: lambda step=step: between_rates(step) for name, step in STEPS.items()}, options.repeats)
    operations = layers.operations(lengths.tolist())
    rate = statistics.median(run["rate"] for runs in measured.values() for run in runs)
    print(f"  products by TensorFlow: {rate / 1e9:.1f} GFLOP/s; floor {operations / rate:.2f} s")
    figures = {}
    for name, runs in measured.items():
        percent = statistics.median(100 * operations / run["rate"] / run["seconds"] for run in runs)
        seconds = statistics.median(run["seconds"] for run in runs)
        figures[name] = percent
        print(f"  {name:36} {seconds:7.2f} s {len(lengths) / seconds:6.0f} sentences/s {percent:6.1f} %")
    return {
        "sentences": len(sentences),
        "distinct_sentences": len(sentences),
        "dtype": "float32",
        "operations": operations,
        "largest_differences": differences,
        "measured": measured,
        "figures": figures,
    }
