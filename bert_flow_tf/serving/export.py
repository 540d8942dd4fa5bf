"""Writes `<model>/<version>/saved_model.pb`: text in, embedding out, for TensorFlow Serving."""

import copy
import dataclasses
import os
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_flow_tf.encoder.arithmetic import multiplies_bfloat16
from bert_flow_tf.encoder.convert.encoder_folder import quiet_tensorflow
from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.files.atomic import new_folder
from bert_flow_tf.files.digest import file_digest
from bert_flow_tf.files.json_files import FORMAT_VERSION, write_json
from bert_flow_tf.files.ownership import owned
from bert_flow_tf.files.remote import refuse_address
from bert_flow_tf.model.siamese import check_low_dim
from bert_flow_tf.serving import DTYPES
from bert_flow_tf.serving.served_model import ServedBertFlow
from bert_flow_tf.serving.server_files import (
    MODELS_FILE,
    check_destination,
    edited_server_files,
    write_server_files,
)
from bert_flow_tf.serving.warmup import write_warmup_requests

TOLERANCE = 1e-4
# Measured on MiniLM and on random weights: 0.999. An encoder that loses more than ten times as much is not served.
BFLOAT16_MIN_COSINE = 0.99
# One of every kind that text can be: nothing, one word, mixed case, marks, other scripts, and one to be cut.
CHECKED_SENTENCES = (
    "",
    "Rain.",
    "A small boat crosses the lake at dawn.",
    "The train to the coast leaves at 7:45 p.m., doesn't it?",
    "Señora Müller ordered a crème brûlée",
    "東京 is the capital of Japan",
    "tab\tand\nline break, and an emoji: 🙂",
    "word " * 600,
)


@dataclasses.dataclass(frozen=True)
class Exported:
    """The version's folder, and how far the model that was loaded again from it is from the live one.

    Attributes:
      max_difference, max_value: largest absolute difference over the `CHECKED_SENTENCES`, and value of the live model.
      min_cosine: smallest cosine of a sentence's embedding with the live model's.
      kept: the server's files that somebody has edited, which stay as they are.
    """

    path: pathlib.Path
    max_difference: float
    max_value: float
    min_cosine: float
    kept: tuple[pathlib.Path, ...] = ()


def export(
    bert_flow: Any,
    out_dir: str | os.PathLike,
    *,
    version: int | None = None,
    normalize: bool = False,
    low_dim: int | None = None,
    max_seq_length: int | None = None,
    dtype: str = DTYPES[0],
    overwrite: bool = False,
) -> Exported:
    """`Exported`, after writing `<out_dir>/<version>` and comparing it, loaded again, with the live model.

    The SavedModel needs nothing beside it; its signatures are those of `served_model.ServedBertFlow`.
    `assets.extra/config.json` says what it was made of, and `assets.extra/tf_serving_warmup_requests` holds requests
    that a server makes of it first; `sha256sum -c assets.extra/SHA256SUMS`, run in the version's folder, tells whether
    it is whole. Beside the versions lie the files that `run_scripts/serve.sh` starts a server with.
    Loading it in Python needs `import tensorflow_text` before, which registers the tokenizer's operations.

    Args:
      bert_flow: `api.BertFlow`.
      out_dir: the model's folder, which TensorFlow Serving calls its base path; its name is the model's.
      version: positive, the version's folder in it; None for the one after the highest there.
      normalize: scale every embedding to norm 1 (not those before the flow).
      low_dim: see `model.reduce_dimension`; None for the model's own.
      max_seq_length: word pieces that a sentence is cut to; None for the model's own.
      dtype: "float32", or "bfloat16" for the encoder's matrices and their products, on whatever machine serves it; a
        warning says if this one is faster in float32.
      overwrite: whether this version may be replaced; a server that has loaded it keeps what it loaded.

    Raises:
      UserError: an argument does not fit the model; the version exists, or is not an export where `overwrite`; or the
        SavedModel cannot be loaded again, or its values are not finite or differ from the live model's by more than
        1e-4 (of a channel's largest value, where that is above 1), or for bfloat16 to a cosine below 0.99. Nothing is
        left behind then.
    """
    refuse_address(out_dir, str(out_dir))
    # As the command does: of two that export into one folder the second finds the first one's version.
    with owned(pathlib.Path(out_dir) / MODELS_FILE, wait=True):
        path = check_destination(out_dir, version, overwrite)
        edited_server_files(path.parent, path.parent.name)
        low_dim = bert_flow.low_dim if low_dim is None else low_dim
        max_seq_length = bert_flow.max_seq_length if max_seq_length is None else max_seq_length
        _check(bert_flow, low_dim, max_seq_length, dtype)
        with new_folder(path) as folder:
            bfloat16 = dtype == "bfloat16"
            module = ServedBertFlow(
                bert_flow, normalize=normalize, low_dim=low_dim, max_seq_length=max_seq_length, bfloat16=bfloat16
            )
            if bfloat16 and not multiplies_bfloat16(bert_flow.encoder.variables_by_name):
                logging.warning(
                    "dtype: found bfloat16, and float32 is faster on this machine: this export answers slower here"
                )
            with quiet_tensorflow():
                tf.saved_model.save(
                    module,
                    str(folder),
                    signatures=module.signatures(),
                    options=tf.saved_model.SaveOptions(experimental_custom_gradients=False),
                )
            description = {
                "format_version": FORMAT_VERSION,
                "encoder_fingerprint": bert_flow.source.fingerprint,
                "do_lower_case": bert_flow.source.do_lower_case,
                "sentence_embedding_type": bert_flow.sentence_embedding_type,
                "max_seq_length": max_seq_length,
                "embedding_size": low_dim if low_dim > 0 else bert_flow.encoder.embedding_size,
                "low_dim": low_dim,
                "flow_config": bert_flow.flow.config.to_dict() if bert_flow.flow is not None else None,
                "normalized": normalize,
                "dtype": dtype,
            }
            (folder / "assets.extra").mkdir()
            write_json(folder / "assets.extra" / "config.json", description)
            differences, signatures = _reload_and_compare(folder, path, bert_flow, description)
            write_warmup_requests(folder, path.parent.name, signatures, max_seq_length)
            files = sorted(file for file in folder.rglob("*") if file.is_file())
            sums = "".join(f"{file_digest(file)}  {file.relative_to(folder)}\n" for file in files)
            (folder / "assets.extra" / "SHA256SUMS").write_text(sums, encoding="utf-8")
            # Before the version has its name: where there is a version, there is all that a server needs.
            kept = write_server_files(path.parent, path.parent.name)
    return Exported(path, *differences, tuple(kept))


def _check(bert_flow: Any, low_dim: int, max_seq_length: int, dtype: str) -> None:
    encoder = bert_flow.encoder
    if dtype not in DTYPES:
        raise ArgumentError(f"dtype: found {dtype}, expected {' or '.join(DTYPES)}")
    check_low_dim(low_dim, encoder.embedding_size)
    most = encoder.max_seq_length
    if max_seq_length < 3 or (most is not None and max_seq_length > most):
        expected = "3 or more" if most is None else f"3 to {most}, the positions that the encoder has"
        raise ArgumentError(f"max_seq_length: found {max_seq_length}, expected {expected}")


def _reload_and_compare(
    folder: pathlib.Path, path: pathlib.Path, bert_flow: Any, description: dict[str, Any]
) -> tuple[tuple[float, float, float], Any]:
    """(largest difference from the live model, largest value, smallest cosine) and signatures of what was written."""
    live = _live_embeddings(bert_flow, description)
    try:
        signatures = tf.saved_model.load(str(folder)).signatures
        reloaded = signatures["serving_default"](sentences=tf.constant(CHECKED_SENTENCES))["embedding"].numpy()
    except tf.errors.OpError as error:
        raise UserError(
            f"{path}: the SavedModel cannot be loaded again ({' '.join(error.message.split())}), expected one that "
            "can; nothing was written"
        ) from error
    difference, largest = float(np.abs(reloaded - live).max()), float(np.abs(live).max())
    norms = np.linalg.norm(live, axis=1) * np.linalg.norm(reloaded, axis=1)
    cosine = float((np.sum(live * reloaded, axis=1) / norms).min())
    # The comparisons are such that a NaN or an infinity is refused as well.
    if description["dtype"] == "bfloat16":
        if not (cosine >= BFLOAT16_MIN_COSINE and largest < np.inf):
            raise UserError(
                f"{path}: the SavedModel, loaded again, gives embeddings whose cosine with the model's is as low as "
                f"{cosine:.4f}, expected {BFLOAT16_MIN_COSINE} or more; nothing was written (float32 is exact)"
            )
    # Channel by channel: a large one must not hide what is wrong in the others.
    elif not (np.abs(reloaded - live) <= TOLERANCE * np.maximum(1.0, np.abs(live).max(axis=0))).all():
        raise UserError(
            f"{path}: the SavedModel, loaded again, differs from the model by {difference:.1e}, expected at most "
            f"{TOLERANCE:.0e} of {max(1.0, largest):.1e}; nothing was written"
        )
    return (difference, largest, cosine), signatures


def _live_embeddings(bert_flow: Any, description: dict[str, Any]) -> np.ndarray:
    # A copy, as an export may be reduced to another dimension than the model.
    live = copy.copy(bert_flow)
    live.low_dim, live.pooled = description["low_dim"], bert_flow.encoder
    embeddings = live.embed_tokens(live.tokenizer(tf.constant(CHECKED_SENTENCES), description["max_seq_length"]))
    return (tf.nn.l2_normalize(embeddings, axis=-1) if description["normalized"] else embeddings).numpy()
