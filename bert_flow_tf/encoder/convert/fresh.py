"""A BERT that has learned nothing yet: from a configuration and a vocabulary to an encoder folder."""

import hashlib
import os
import pathlib
import tempfile
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
import tensorflow as tf

from bert_flow_tf.encoder.convert.bert_config import BertConfig, read_tf1_config
from bert_flow_tf.encoder.convert.encoder_folder import write_encoder_folder
from bert_flow_tf.encoder.convert.folders import VOCAB_FILE, cached_encoder
from bert_flow_tf.encoder.convert.weights import variable_shapes
from bert_flow_tf.encoder.vocabulary import has_capitals, learn_vocabulary, read_vocabulary
from bert_flow_tf.files.atomic import new_folder
from bert_flow_tf.files.json_files import FORMAT_VERSION
from bert_flow_tf.files.sentence_files import sentence_list
from bert_flow_tf.files.user_cache import cache_root, cached_folder


def fresh_encoder(
    bert_config_file: str | os.PathLike,
    *,
    vocab_file: str | os.PathLike | None = None,
    sentences: Iterable[str] = (),
    do_lower_case: bool | None = None,
    seed: int = 1234,
    cache_dir: str | os.PathLike | None = None,
) -> pathlib.Path:
    """Path of the encoder folder, in the cache, of a BERT with TF1 BERT's random initial weights.

    Args:
      bert_config_file: TF1's `bert_config.json`.
      vocab_file: its vocabulary; None learns one of the configuration's size from the sentences.
      sentences: text of that vocabulary.
      do_lower_case: whether the vocabulary is uncased; None decides by whether it has pieces with capitals, and
        learns an uncased one.
      seed: of the weights.

    Raises:
      UserError: a file cannot be read, the vocabulary has another size than the configuration says, or none of that
        size can be learned.
    """
    config = read_tf1_config(bert_config_file)
    root = cache_root(cache_dir)
    given = None if vocab_file is None else read_vocabulary(vocab_file, config.vocab_size)
    is_uncased = not (given and has_capitals(given)) if do_lower_case is None else do_lower_case
    vocab = given or _learned_vocabulary(sentence_list(sentences), config.vocab_size, is_uncased, root)
    made_of = ["fresh", FORMAT_VERSION, seed, is_uncased, msgspec.structs.asdict(config), vocab]

    def build(folder: pathlib.Path) -> None:
        with tempfile.TemporaryDirectory() as workspace:
            path = pathlib.Path(workspace) / VOCAB_FILE
            _write_vocabulary(path, vocab)
            write_encoder_folder(
                folder,
                config=config,
                vocab_file=path,
                weights=initial_weights(config, seed),
                do_lower_case=is_uncased,
                source={"kind": "random weights", "seed": seed},
            )

    return cached_encoder(root / "encoders" / _digest(made_of), build)


def _learned_vocabulary(sentences: list[str], size: int, is_uncased: bool, root: pathlib.Path) -> list[str]:
    """`learn_vocabulary`, which takes minutes, once for the same sentences: what is learned is kept in the cache."""

    def build(folder: pathlib.Path) -> None:
        pieces = learn_vocabulary(sentences, size, is_uncased)
        with new_folder(folder) as new:
            _write_vocabulary(new / VOCAB_FILE, pieces)

    key = _digest(["vocabulary", FORMAT_VERSION, size, is_uncased, sentences])
    return read_vocabulary(cached_folder(root / "vocabularies" / key, VOCAB_FILE, build) / VOCAB_FILE, size)


def _write_vocabulary(path: pathlib.Path, pieces: list[str]) -> None:
    path.write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")


def _digest(made_of: list[Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(made_of)).hexdigest()


def initial_weights(config: BertConfig, seed: int) -> dict[str, np.ndarray]:
    """dict of TF1 name -> float32 array: truncated normal kernels and embeddings, biases 0, norms 1."""
    weights = {}
    for i, (name, shape) in enumerate(variable_shapes(config).items()):
        if name.endswith(("/bias", "/beta")):
            weights[name] = np.zeros(shape, np.float32)
        elif name.endswith("/gamma"):
            weights[name] = np.ones(shape, np.float32)
        else:
            drawn = tf.random.stateless_truncated_normal(shape, [seed, i], stddev=config.initializer_range)
            weights[name] = drawn.numpy()
    return weights
