"""Writes an encoder folder: `encoder/`, `preprocess/`, `bert_config.json`, `vocab.txt` and `source.json`."""

import contextlib
import filecmp
import logging
import os
import pathlib
import re
import shutil
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import tensorflow as tf

from bert_flow_tf.encoder.convert.bert_config import BertConfig
from bert_flow_tf.encoder.convert.folders import BERT_CONFIG_FILE, ENCODER_FOLDER, SOURCE_FILE, VOCAB_FILE
from bert_flow_tf.encoder.convert.weights import check_finite
from bert_flow_tf.encoder.vocabulary import has_capitals, read_vocabulary
from bert_flow_tf.files.atomic import new_output
from bert_flow_tf.files.digest import file_digest
from bert_flow_tf.files.json_files import FORMAT_VERSION, write_json

_UNSIGNED = re.compile(r"fingerprint\.pb|.*\.data-.*|source\.json")


def write_encoder_folder(
    out_dir: str | os.PathLike,
    *,
    config: BertConfig,
    vocab_file: str | os.PathLike,
    weights: dict[str, np.ndarray],
    do_lower_case: bool | None,
    source: dict[str, Any],
    overwrite: bool = False,
) -> pathlib.Path:
    """Path of the encoder folder written.

    Args:
      weights: dict of TF1 name -> array, checked by `check_shapes`.
      do_lower_case: whether the vocabulary is uncased; None decides by whether it has pieces with capitals.
      source: says where the weights came from, for `source.json`; no paths and no times, so that one source gives one
        folder.

    Raises:
      UserError: the vocabulary has another size than the configuration says, a weight is not finite, or `out_dir` may
        not be written.
    """
    vocab = read_vocabulary(vocab_file, config.vocab_size)
    check_finite(weights, source["kind"])
    if do_lower_case is None:
        do_lower_case = not has_capitals(vocab)
    # tf-models takes seconds to import, and is needed only here.
    from bert_flow_tf.encoder.convert.saved_models import Preprocess, save_bert

    with new_output(out_dir, ENCODER_FOLDER, overwrite=overwrite) as folder:
        shutil.copyfile(vocab_file, folder / VOCAB_FILE)
        write_json(folder / BERT_CONFIG_FILE, dict(sorted(msgspec.structs.asdict(config).items())))
        with quiet_tensorflow():
            save_bert(folder / "encoder", config, weights, vocab_file=folder / VOCAB_FILE, do_lower_case=do_lower_case)
            tf.saved_model.save(Preprocess(folder / VOCAB_FILE, do_lower_case), str(folder / "preprocess"))
        write_encoder_record(folder, {"do_lower_case": do_lower_case, **source})
    return pathlib.Path(out_dir)


def write_encoder_record(folder: pathlib.Path, record: dict[str, Any]) -> None:
    """Writes `source.json`: `folders.EncoderRecord` and whatever else says where the weights came from.

    It is the last that is written: it has the digests of the other files.
    """
    _store_once(folder / VOCAB_FILE)
    # TensorFlow checks the variables, and its fingerprint.pb says nothing of them.
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and not _UNSIGNED.fullmatch(path.name)]
    digests = {path.relative_to(folder).as_posix(): file_digest(path) for path in paths}
    write_json(folder / SOURCE_FILE, {"format_version": FORMAT_VERSION} | record | {"digests": digests})


def _store_once(vocabulary: pathlib.Path) -> None:
    """Makes the assets of both SavedModels, each of which TensorFlow reads from its own folder, links to this file."""
    for asset in vocabulary.parent.glob(f"*/assets/{vocabulary.name}"):
        if filecmp.cmp(vocabulary, asset, shallow=False):
            link = asset.with_name("link")
            # Where the file system has none, it stays a copy.
            with contextlib.suppress(OSError):
                os.link(vocabulary, link)
                link.replace(asset)


@contextlib.contextmanager
def quiet_tensorflow() -> Iterator[None]:
    """Keeps TensorFlow's remarks about untraced functions, which are of no use to a user, off the terminal."""
    loggers = tf.get_logger(), logging.getLogger("absl")
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
