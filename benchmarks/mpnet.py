"""Embed sentences by the hidden layers of an MPNet.

MPNet (Song et al. 2020) is another family than BERT: its network without token types, with a bias
of attention by the distance of two positions. This one reads the folder of sentence-transformers'
all-mpnet-base-v2. On the STS Benchmark's test pairs, its last layer by average gives Spearman
83.42, as in the Massive Text Embedding Benchmark.
"""

import collections
import json
import math
import pathlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from safetensors.numpy import load_file
from tokenizers import Tokenizer

# Positions count from 2 on, behind those of padding.
_FIRST_POSITION = 2
_MOST_DISTANT = 128
_TOKENS_PER_BATCH = 1024


class MPNet:
    """An MPNet of a folder with config.json, model.safetensors and tokenizer.json.

    Args:
      max_seq_length: longer sentences are cut.
    """

    def __init__(self, folder: str, max_seq_length: int = 64) -> None:
        path = pathlib.Path(folder)
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        self.num_layers = config["num_hidden_layers"]
        self.heads = config["num_attention_heads"]
        self.epsilon = config["layer_norm_eps"]
        found = load_file(path / "model.safetensors")
        floats = {name: value for name, value in found.items() if value.dtype == np.float32}
        self.weights = {
            name.removeprefix("mpnet."): tf.constant(value) for name, value in floats.items()
        }
        self.tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(max_seq_length)

    def encode(self, sentences: Sequence[str]) -> dict[str, np.ndarray]:
        """Return embeddings [n, D] by the layer's name.

        `layer-0` and so on are averages; `cls` is the last layer's first state.
        """
        ids = [encoding.ids for encoding in self.tokenizer.encode_batch(list(sentences))]
        by_length = collections.defaultdict(list)
        for row, one in enumerate(ids):
            by_length[len(one)].append(row)
        width = self.weights["embeddings.LayerNorm.weight"].shape[0]
        names = [*(f"layer-{number}" for number in range(self.num_layers + 1)), "cls"]
        found = {name: np.empty([len(ids), width], np.float32) for name in names}
        for length, rows in by_length.items():
            size = max(1, _TOKENS_PER_BATCH // length)
            for start in range(0, len(rows), size):
                batch = rows[start : start + size]
                layers = self.layers(np.array([ids[row] for row in batch]))
                for number, states in enumerate(layers):
                    found[f"layer-{number}"][batch] = tf.reduce_mean(states, axis=1)
                found["cls"][batch] = layers[-1][:, 0]
        return found

    def layers(self, ids: np.ndarray) -> list[tf.Tensor]:
        """Return each layer's states [batch, seq, D], without padding."""
        length = ids.shape[1]
        words = tf.gather(self.weights["embeddings.word_embeddings.weight"], ids)
        positions = self.weights["embeddings.position_embeddings.weight"]
        found = words + positions[_FIRST_POSITION : _FIRST_POSITION + length]
        layers = [self._normalized(found, "embeddings.LayerNorm")]
        bias = self._bias(length)
        for number in range(self.num_layers):
            layers.append(self._layer(layers[-1], f"encoder.layer.{number}", bias))
        return layers

    def _layer(self, x: tf.Tensor, name: str, bias: tf.Tensor) -> tf.Tensor:
        attended = self._attention(x, f"{name}.attention.attn", bias)
        x = self._normalized(x + attended, f"{name}.attention.LayerNorm")
        inner = tf.nn.gelu(self._dense(x, f"{name}.intermediate.dense"), approximate=False)
        return self._normalized(
            x + self._dense(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm"
        )

    def _attention(self, x: tf.Tensor, name: str, bias: tf.Tensor) -> tf.Tensor:
        batch, length, width = x.shape

        def by_head(part: str) -> tf.Tensor:
            parts = tf.reshape(
                self._dense(x, f"{name}.{part}"),
                [batch, length, self.heads, width // self.heads],
            )
            return tf.transpose(parts, [0, 2, 1, 3])

        scale = math.sqrt(width / self.heads)
        scores = tf.matmul(by_head("q"), by_head("k"), transpose_b=True) / scale + bias
        mixed = tf.transpose(tf.matmul(tf.nn.softmax(scores), by_head("v")), [0, 2, 1, 3])
        return self._dense(tf.reshape(mixed, [batch, length, width]), f"{name}.o")

    def _bias(self, length: int) -> tf.Tensor:
        """Return the attention's bias [heads, seq, seq] by distance.

        Half of the buckets are of positions behind. Of each half, half are of single distances, and
        the others grow with the distance's logarithm.
        """
        table = self.weights["encoder.relative_attention_bias.weight"]
        half = table.shape[0] // 2
        single = half // 2
        distance = np.arange(length)[np.newaxis] - np.arange(length)[:, np.newaxis]
        size = np.abs(distance)
        steps = np.log(np.maximum(size, 1) / single) / math.log(_MOST_DISTANT / single)
        far = np.minimum(single + (steps * (half - single)).astype(int), half - 1)
        bucket = half * (distance > 0) + np.where(size < single, size, far)
        return tf.transpose(tf.gather(table, bucket), [2, 0, 1])

    def _dense(self, x: tf.Tensor, name: str) -> tf.Tensor:
        kernel = self.weights[f"{name}.weight"]
        return tf.matmul(x, kernel, transpose_b=True) + self.weights[f"{name}.bias"]

    def _normalized(self, x: tf.Tensor, name: str) -> tf.Tensor:
        mean, variance = tf.nn.moments(x, axes=-1, keepdims=True)
        scaled = (x - mean) * tf.math.rsqrt(variance + self.epsilon)
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]
