"""How near `encode` comes to its floor: the time that the encoder's matrix products alone would take.

The floor is the floating-point operations of these products, for exactly the tokens that are computed, over the rate
that products of the encoder's own shapes reach on this machine in the same run: the better of TensorFlow's and
PyTorch's, with the number of rows that suits each best. Nothing but products is counted, and no padding.
"""

import dataclasses
import json
import statistics
import tempfile
import time
import unittest.mock

from benchmarks import peers
from benchmarks.encode import (
    MAX_SEQ_LENGTH,
    best_batch_size,
    described,
    encode,
    load,
    our_model,
    take_sentences,
    theirs,
    warm_up,
)
from benchmarks.timing import in_turn

ROWS = (256, 512, 1024, 2048, 4096, 8192)
RATE_SECONDS = 1.0


@dataclasses.dataclass(frozen=True)
class Layers:
    """The matrix products of an encoder's layers.

    Attributes:
      number: layers.
      width: of their states.
      inner: width between the two products behind attention.
    """

    number: int
    width: int
    inner: int

    @classmethod
    def of(cls, model):
        """Those of a `BertFlow`'s encoder, whose folder holds its configuration."""
        config = json.loads((model.source.encoder_dir.parent / "bert_config.json").read_text())
        return cls(config["num_hidden_layers"], config["hidden_size"], config["intermediate_size"])

    def operations(self, lengths):
        """Floating-point operations, two a multiplication, for sentences of these numbers of tokens."""
        a_token = 2 * (4 * self.width**2 + 2 * self.width * self.inner)
        # Attention's two: queries by keys, and weights by values.
        return self.number * sum(a_token * t + 2 * 2 * t * t * self.width for t in lengths)

    def products(self, rows):
        """list of (m, k, n) of a layer's products with as many tokens, attention's own aside."""
        square = (rows, self.width, self.width)
        return [square] * 4 + [(rows, self.width, self.inner), (rows, self.inner, self.width)]


def measure(options):
    """dict of rates, times and figures of the floor; see `run`."""
    with peers.Worker("benchmarks.peer_encode") as worker, tempfile.TemporaryDirectory() as folder:
        load(worker, options, folder, "float32")
        model = our_model(options)
        sentences = take_sentences(worker, options, model)
        batch_size, _ = best_batch_size(worker, options, sentences["all"], "float32")
        distinct = sentences["distinct"]
        layers = Layers.of(model)
        lengths = _lengths(model, distinct)
        operations = layers.operations(lengths)
        padded_lengths = _padded_lengths(model, distinct)
        padded = layers.operations(padded_lengths)
        rows = {
            "tensorflow": max(ROWS, key=lambda m: _tensorflow_rate(layers.products(m), 0.3)),
            "pytorch": max(ROWS, key=lambda m: _pytorch_rate(worker, layers.products(m), 0.3)),
        }
        warm_up(model, distinct)
        ways = {
            "rate of tensorflow": lambda: _tensorflow_rate(layers.products(rows["tensorflow"]), RATE_SECONDS),
            "rate of pytorch": lambda: _pytorch_rate(worker, layers.products(rows["pytorch"]), RATE_SECONDS),
            "ours": lambda: encode(model, distinct),
            "sentence-transformers": lambda: theirs(worker, "distinct", "float32", batch_size),
        }
        measured = in_turn(ways, options.repeats)
        their_tokens = worker.ask("padded_tokens", dtype="float32", name="distinct", batch_size=batch_size)["tokens"]
    rates = [max(pair) for pair in zip(measured["rate of tensorflow"], measured["rate of pytorch"], strict=True)]
    percent = {
        way: [100 * operations / rate / seconds for rate, seconds in zip(rates, measured[way], strict=True)]
        for way in ("ours", "sentence-transformers")
    }
    median = {way: statistics.median(each) for way, each in percent.items()}
    rate = statistics.median(rates)
    floor = operations / rate
    for name in rows:
        of_library = statistics.median(measured[f"rate of {name}"])
        print(f"  products by {name}: {of_library / 1e9:.1f} GFLOP/s with {rows[name]} rows")
    print(f"  floor: {operations / 1e9:.0f} GFLOP, {floor:.2f} s, {len(distinct) / floor:.0f} sentences/s")
    print(
        f"  tokens: {sum(lengths)}; with padding {sum(padded_lengths)} here, {their_tokens} there; "
        f"with our padding the floor is {padded / rate:.2f} s"
    )
    for way, each in median.items():
        seconds = statistics.median(measured[way])
        print(
            f"  {way:24} {seconds:8.2f} s {len(distinct) / seconds:8.0f} sentences/s: {each:.1f} % of the floor's rate"
        )
    print(f"  ours with padding counted as work: {median['ours'] * padded / operations:.1f} %")
    return {
        **described(options, sentences, "float32"),
        "operations": operations,
        "operations_with_padding": padded,
        "tokens": {"needed": sum(lengths), "ours": sum(padded_lengths), "sentence-transformers": their_tokens},
        "their_batch_size": batch_size,
        "rows_of_products": rows,
        "measured": measured,
        "percent": percent,
        "figures": {
            "percent": median["ours"],
            "percent_with_padding": median["ours"] * padded / operations,
            "percent_of_sentence_transformers": median["sentence-transformers"],
            "gflops_per_second": rate / 1e9,
            "floor_sentences_per_second": len(distinct) / floor,
        },
    }


def _lengths(model, sentences):
    """Number of tokens of each sentence, [CLS] and [SEP] included."""
    from bert_flow_tf import input_pipeline

    pieces = input_pipeline.tokenize(model.tokenizer, sentences, MAX_SEQ_LENGTH)
    return (pieces.row_lengths() + 2).numpy().tolist()


def _padded_lengths(model, sentences):
    """Number of positions that `encode` gives each sentence, its batch's padding included."""
    shapes, pack = [], model.tokenizer.pack

    def noting(*arguments, **options):
        tokens = pack(*arguments, **options)
        shapes.append(tuple(tokens["input_word_ids"].shape))
        return tokens

    with unittest.mock.patch.object(model.tokenizer, "pack", noting):
        model.encode(sentences, show_progress_bar=False)
    return [length for rows, length in shapes for _ in range(rows)]


def _tensorflow_rate(shapes, seconds):
    """Floating-point operations a second of float32 products (m, k, n) in turn, for `seconds`, by TensorFlow."""
    import tensorflow as tf

    pairs = [(tf.random.normal([m, k]), tf.random.normal([k, n])) for m, k, n in shapes]
    product = tf.function(tf.linalg.matmul)
    for a, b in pairs:
        product(a, b)
    done, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        for a, b in pairs:
            product(a, b)
        done += 1
    return done * sum(2 * m * k * n for m, k, n in shapes) / elapsed


def _pytorch_rate(worker, shapes, seconds):
    return worker.ask("product_rate", shapes=shapes, seconds=seconds)["rate"]
