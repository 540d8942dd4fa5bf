"""How near `encode` comes to its floor: the time that the encoder's matrix products alone would take.

The floor is the floating-point operations of these products, for exactly the tokens that are computed, over the rate
that products of the encoder's own shapes reach on this machine, measured before and after each encoding: the best of
TensorFlow's and PyTorch's, with the number of rows that suits each best. Nothing but products is counted, no padding.
"""

import dataclasses
import json
import statistics
import tempfile
import time
import unittest.mock
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

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
from benchmarks.options import Options
from benchmarks.timing import in_turn
from bert_flow_tf.errors import UserError

if TYPE_CHECKING:
    from bert_flow_tf.api import BertFlow
    from bert_flow_tf.encoder.source import EncoderSource

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
    def of(cls, source: "EncoderSource") -> "Layers":
        """Those of an encoder whose folder holds its configuration."""
        path = source.encoder_dir.parent / "bert_config.json"
        if not path.is_file():
            raise UserError(f"{path}: no such file, expected demo or an encoder folder of bert-flow convert")
        config = json.loads(path.read_text())
        return cls(config["num_hidden_layers"], config["hidden_size"], config["intermediate_size"])

    def operations(self, lengths: list[int]) -> int:
        """Floating-point operations, two per multiplication, for sentences of these numbers of tokens."""
        per_token = 2 * (4 * self.width**2 + 2 * self.width * self.inner)
        # Attention's two: queries by keys, and weights by values.
        return self.number * sum(per_token * t + 2 * 2 * t * t * self.width for t in lengths)

    def products(self, rows: int) -> list[tuple[int, int, int]]:
        """list of (m, k, n) of a layer's products for `rows` tokens, without attention's own."""
        square = (rows, self.width, self.width)
        return [square] * 4 + [(rows, self.width, self.inner), (rows, self.inner, self.width)]


def measure(options: Options) -> dict:
    """dict of rates, times and figures of the floor; see `run`."""
    with peers.Worker("benchmarks.peer_encode") as worker, tempfile.TemporaryDirectory() as folder:
        load(worker, options, folder, "float32")
        model = our_model(options)
        sentences = take_sentences(worker, options, model)
        batch_size, _ = best_batch_size(worker, options, sentences["all"], "float32")
        distinct = sentences["distinct"]
        layers = Layers.of(model.source)
        lengths = _lengths(model, distinct)
        operations = layers.operations(lengths)
        padded_lengths = _padded_lengths(model, distinct)
        padded = layers.operations(padded_lengths)
        rows = {
            "tensorflow": max(ROWS, key=lambda m: tensorflow_rate(layers.products(m), 0.3)),
            "pytorch": max(ROWS, key=lambda m: _pytorch_rate(worker, layers.products(m), 0.3)),
        }
        warm_up(model, distinct)

        def rates() -> dict[str, float]:
            return {
                "tensorflow": tensorflow_rate(layers.products(rows["tensorflow"]), RATE_SECONDS),
                "pytorch": _pytorch_rate(worker, layers.products(rows["pytorch"]), RATE_SECONDS),
            }

        def between_rates(run: Callable[[], float]) -> dict:
            before, seconds, after = rates(), run(), rates()
            return {"seconds": seconds, "rates": {name: max(before[name], after[name]) for name in before}}

        ways = {
            "ours": lambda: between_rates(lambda: encode(model, distinct)),
            "sentence-transformers": lambda: between_rates(lambda: theirs(worker, "distinct", "float32", batch_size)),
        }
        measured = in_turn(ways, options.repeats)
        their_tokens = worker.ask("padded_tokens", dtype="float32", name="distinct", batch_size=batch_size)["tokens"]
    percent = {
        way: [100 * operations / max(run["rates"].values()) / run["seconds"] for run in runs]
        for way, runs in measured.items()
    }
    median = {way: statistics.median(each) for way, each in percent.items()}
    if max(median.values()) > 100 and not options.quick:
        raise UserError(
            f"floor: found {max(median.values()):.0f} % of the rate of products alone, which cannot be: expected a "
            "machine that does nothing else"
        )
    all_rates = [run["rates"] for runs in measured.values() for run in runs]
    rate = statistics.median(max(each.values()) for each in all_rates)
    result = {
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
            "floor_sentences_per_second": len(distinct) * rate / operations,
        },
    }
    _print_table(result)
    return result


def _print_table(result: dict) -> None:
    figures, tokens, runs = result["figures"], result["tokens"], result["measured"]
    for name, rows in result["rows_of_products"].items():
        rate = statistics.median(run["rates"][name] for each in runs.values() for run in each)
        print(f"  products by {name}: {rate / 1e9:.1f} GFLOP/s with {rows} rows")
    n, floor = result["distinct_sentences"], figures["floor_sentences_per_second"]
    print(f"  floor: {result['operations'] / 1e9:.0f} GFLOP, {n / floor:.2f} s, {floor:.0f} sentences/s")
    print(f"  tokens: {tokens['needed']}; with padding {tokens['ours']} here, {tokens['sentence-transformers']} there")
    for way, each in runs.items():
        seconds = statistics.median(run["seconds"] for run in each)
        percent = statistics.median(result["percent"][way])
        print(f"  {way:24} {seconds:8.2f} s {n / seconds:8.0f} sentences/s: {percent:.1f} % of the floor's rate")
    print(f"  ours with padding counted as work: {figures['percent_with_padding']:.1f} %")


def _lengths(model: "BertFlow", sentences: list[str]) -> list[int]:
    """Number of tokens of each sentence, [CLS] and [SEP] included."""
    from bert_flow_tf.encoder import stream

    pieces = stream.tokenize(model.tokenizer, sentences, MAX_SEQ_LENGTH)
    return (pieces.row_lengths() + 2).numpy().tolist()


def _padded_lengths(model: "BertFlow", sentences: list[str]) -> list[int]:
    """Number of positions that `encode` gives each sentence, its batch's padding included."""
    shapes, pack = [], model.tokenizer.pack

    def noting(*arguments: Any, **options: Any) -> dict:
        tokens = pack(*arguments, **options)
        shapes.append(tuple(tokens["input_word_ids"].shape))
        return tokens

    with unittest.mock.patch.object(model.tokenizer, "pack", noting):
        model.encode(sentences, show_progress_bar=False)
    return [length for rows, length in shapes for _ in range(rows)]


def tensorflow_rate(shapes: list[tuple[int, int, int]], seconds: float) -> float:
    """Floating-point operations per second of float32 products (m, k, n) in turn, for `seconds`, by TensorFlow."""
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


def _pytorch_rate(worker: peers.Worker, shapes: list[tuple[int, int, int]], seconds: float) -> float:
    return worker.ask("product_rate", shapes=shapes, seconds=seconds)["rate"]
