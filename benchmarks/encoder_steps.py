"""What each step towards the floor gave: the same sentences embedded in the ways that `encode` went, one after another.

From the SavedModel as it is, 32 sentences a batch, to what `encode` does now. Each is measured beside the rate of the
encoder's matrix products, as in `floor`, whose percentage is of the tokens that are needed. See NOTES.md.
"""

import statistics

import numpy as np

from benchmarks import corpus
from benchmarks.encode import LARGEST_DIFFERENCE, MAX_SEQ_LENGTH, our_model
from benchmarks.floor import RATE_SECONDS, ROWS, Layers, tensorflow_rate
from benchmarks.timing import in_turn, seconds_of
from bert_flow_tf.errors import UserError

SENTENCES = 4096
# Name -> whether BERT is fused, sentences a batch or None, tokens a batch or None, whether two batches go at a time.
STEPS = {
    "SavedModel, 32 sentences a batch": (False, 32, None, False),
    "SavedModel, 4,096 tokens a batch": (False, None, 4096, False),
    "SavedModel, 2,048 tokens a batch": (False, None, 2048, False),
    "fused, 2,048 tokens a batch": (True, None, 2048, False),
    "fused, 2,048 tokens, two at a time": (True, None, 2048, True),
}


def measure(options):
    """dict of times and percentages of every step; see `run`."""
    import tensorflow as tf

    from bert_flow_tf import embedding, input_pipeline
    from bert_flow_tf.pooling import pooling
    from bert_flow_tf.tokenizer import TOKEN_SPECS

    model = our_model(options)
    layers = Layers.of(model)
    everything = corpus.distinct_sentences(corpus.all_sentences(options), model.tokenizer, MAX_SEQ_LENGTH)
    sentences = corpus.evenly(everything, SENTENCES)
    pieces = input_pipeline.tokenize(model.tokenizer, sentences, MAX_SEQ_LENGTH)
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

    def embed(fused, batch_size, tokens_a_batch, two_at_a_time):
        embeddings = np.empty((len(lengths), model.encoder.embedding_size), np.float32)

        def compute(batch):
            packed = model.tokenizer.pack(tf.gather(pieces, batch), MAX_SEQ_LENGTH)
            embeddings[batch] = functions[fused](packed).numpy()

        batches = embedding.length_batches(lengths, batch_size, tokens_a_batch)
        for _ in embedding.two_at_a_time(compute, batches) if two_at_a_time else map(compute, batches):
            pass
        return embeddings

    expected = embed(*STEPS["SavedModel, 32 sentences a batch"])
    differences = {name: float(np.abs(embed(*step) - expected).max()) for name, step in STEPS.items()}
    print(f"  largest difference from the first step's embeddings {max(differences.values()):.1e}")
    if max(differences.values()) > LARGEST_DIFFERENCE:
        raise UserError(
            f"encoder_steps: found embeddings that differ by {differences}, expected at most {LARGEST_DIFFERENCE:.0e}"
        )
    rows = max(ROWS, key=lambda m: tensorflow_rate(layers.products(m), 0.3))

    def between_rates(step):
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
