"""BERT's dropout: the rates that a SavedModel was made with, and masks that depend on seed and sentence alone."""

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_DRAWS = ("RandomUniform", "StatefulUniform", "StatelessRandomUniform", "StatelessRandomUniformV2")
# Names of operations that draw random numbers; the two with Get prepare for it.
_RANDOM = re.compile(
    "(?!.*Get(Alg|Key)).*(Random|TruncatedNormal|StandardNormal|Multinomial|StatefulUniform|Shuffle|RngBitGenerator)"
)
# Of a dropout: its rate, and whether a softmax is what it drops; None where that is an argument of a function.
_Site = tuple[float, bool | None]


@dataclasses.dataclass(frozen=True)
class DropoutRates:
    """Shares of zeros: `hidden` of embeddings and of both outputs of a layer, `attention` of attention's weights.

    They are `hidden_dropout_prob` and `attention_probs_dropout_prob` of BERT's configuration (Devlin et al. 2019).
    """

    hidden: float = 0.0
    attention: float = 0.0


@dataclasses.dataclass(frozen=True)
class Masks:
    """What dropout keeps of a batch of sentences, which have `tokens` ids in all.

    `hidden` is bool [tokens, (2 * layers + 1) * width], `attention` bool [batch, layers * heads, seq, seq]; either is
    None where its rate is 0.
    """

    hidden: tf.Tensor | None
    attention: tf.Tensor | None


def draw_masks(
    rates: DropoutRates, seeds: tf.Tensor, input_mask: tf.Tensor, *, layers: int, width: int, heads: int
) -> Masks:
    """`Masks` of the sentences of `input_mask`, int32 [batch, seq]: each is drawn with its own of `seeds`.

    These are int64 [batch, 2]. A sentence's masks depend on its seed and length alone, not on what shares its batch.
    """
    batch, seq = tf.unstack(tf.shape(input_mask))
    lengths = tf.reduce_sum(input_mask, axis=1)
    per_token, per_pair = (2 * layers + 1) * width * (rates.hidden > 0), layers * heads * (rates.attention > 0)
    least = {rate: tf.constant(round(rate * 2**32) - 2**31, tf.int32) for rate in dataclasses.astuple(rates)}
    hidden = tf.TensorArray(tf.bool, batch, element_shape=[None, per_token], infer_shape=False)
    attention = tf.TensorArray(tf.bool, batch, element_shape=[per_pair, None, None], infer_shape=False)

    def draw(i: tf.Tensor, hidden: tf.TensorArray, attention: tf.TensorArray) -> tuple:
        length = lengths[i]
        of_tokens = length * per_token
        count = of_tokens + length * length * per_pair
        bits = tf.random.stateless_uniform([count], seeds[i], None, None, tf.int32, alg="philox")
        kept = tf.reshape(bits[:of_tokens] >= least[rates.hidden], [length, per_token])
        pairs = tf.reshape(bits[of_tokens:] >= least[rates.attention], [per_pair, length, length])
        after = [0, seq - length]
        return i + 1, hidden.write(i, kept), attention.write(i, tf.pad(pairs, [[0, 0], after, after]))

    _, hidden, attention = tf.while_loop(lambda i, *_: i < batch, draw, [0, hidden, attention], parallel_iterations=4)
    return Masks(hidden.concat() if rates.hidden else None, attention.stack() if rates.attention else None)


def drop(x: tf.Tensor, kept: tf.Tensor, rate: float) -> tf.Tensor:
    """`x` where `kept`, scaled by 1 / (1 - rate), and 0 elsewhere."""
    scale = 1.0 / (1.0 - rate)

    @tf.custom_gradient
    def dropped(x: tf.Tensor) -> tuple:
        zero = tf.zeros([], x.dtype)
        return tf.where(kept, x * scale, zero), lambda upstream: tf.where(kept, upstream * scale, zero)

    return dropped(x)


def dropout_rates(function: Any, num_layers: int) -> DropoutRates | None:
    """The rates in the graphs of `function`, the `__call__` of a SavedModel that is a BERT of so many layers.

    None where a graph draws random numbers in another way than BERT's dropout does.
    """
    found = set()
    for trace in function.concrete_functions:
        graph = trace.graph.as_graph_def()
        sites = list(_sites(graph.node, {each.signature.name: each.node_def for each in graph.library.function}))
        if sites:
            found.add(_rates_of(sites, num_layers))
    if not found:
        return DropoutRates()
    return found.pop() if len(found) == 1 else None


def _rates_of(sites: list[_Site | None], num_layers: int) -> DropoutRates | None:
    known = [site for site in sites if site is not None]
    attention, hidden = ([rate for rate, of_softmax in known if bool(of_softmax) is side] for side in (True, False))
    expected = {"hidden": (hidden, 2 * num_layers + 1), "attention": (attention, num_layers)}
    undecided = sum(of_softmax is None for _, of_softmax in known)
    if len(known) == len(sites) == 3 * num_layers + 1 and not attention and undecided >= num_layers:
        # Functions that call each other hide what is dropped: with one rate for all, it makes no difference.
        expected = {name: (hidden, len(sites)) for name in expected}
    rates = {}
    for name, (values, count) in expected.items():
        if len(known) < len(sites) or (values and (len(values) != count or len(set(values)) > 1)):
            return None
        rates[name] = values[0] if values else 0.0
    return DropoutRates(**rates)


def _sites(nodes: Iterable[Any], functions: dict[str, Any]) -> Iterator[_Site | None]:
    """Yields what is known of the dropout of each random operation; None if it is of none, or in a branch or loop."""
    by_name = {node.name: node for node in nodes}
    for node in by_name.values():
        called = [f.name for value in node.attr.values() for f in (value.func, *value.list.func) if f.name]
        sites = (site for name in called for site in _sites(functions[name], functions))
        yield from sites if node.op in _CALLS else (None for _ in sites)
        if node.op in _DRAWS:
            # TensorFlow's dropout: x scaled by a constant where a number in [0, 1) is at least the rate.
            scope = re.sub(r"[^/]*(/[^/]*)$", "", node.name).rstrip("/")
            rate, scale, product = (by_name.get(f"{scope}/{name}") for name in ("GreaterEqual/y", "Const", "Mul"))
            if rate is None or scale is None or product is None:
                yield None
                continue
            rate, scale = (float(tf.make_ndarray(each.attr["value"].tensor)) for each in (rate, scale))
            dropped = by_name.get(product.input[0].partition(":")[0])
            is_dropout = math.isclose(scale * (1.0 - rate), 1.0, rel_tol=1e-6)
            yield (rate, None if dropped is None else dropped.op == "Softmax") if is_dropout else None
        elif _RANDOM.match(node.op):
            yield None
