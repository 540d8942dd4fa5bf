"""Writes `<model>/<version>/saved_model.pb`: text in, embedding out, for TensorFlow Serving."""

import os
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

from bert_flow_tf.encoder.convert.encoder_folder import quiet_tensorflow
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import new_folder
from bert_flow_tf.files.json_files import write_json
from bert_flow_tf.files.locks import locked
from bert_flow_tf.files.reading import refuse_address
from bert_flow_tf.model.embedding_model import EmbeddingModel
from bert_flow_tf.serving import DTYPES
from bert_flow_tf.serving.exported import (
    CHECKED_SENTENCES,
    Exported,
    compare,
    description,
    differences,
    live_embeddings,
)
from bert_flow_tf.serving.formats import version_folder
from bert_flow_tf.serving.served_model import ServedBertFlow
from bert_flow_tf.serving.warmup import write_warmup_requests

# Measured on MiniLM and on random weights: 0.999. An encoder that loses more than ten times as much is not served.
BFLOAT16_MIN_COSINE = 0.99


def export(
    bert_flow: EmbeddingModel,
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
    that a server makes of it first.
    Loading it in Python needs `import tensorflow_text` before, which registers the tokenizer's operations.

    Args:
      bert_flow: `api.BertFlow`.
      out_dir: the model's folder, which TensorFlow Serving calls its base path; its name is the model's.
      version: positive, the version's folder in it; None for the one after the highest there.
      normalize: scale every embedding to norm 1 (not those before the flow).
      low_dim: see `model.reduce_dimension`; None for the model's own.
      max_seq_length: word pieces that a sentence is cut to; None for the model's own.
      dtype: "float32", or "bfloat16" for the encoder's matrices and their products, on whatever machine serves it.
      overwrite: whether this version may be replaced; a server that has loaded it keeps what it loaded.

    Raises:
      UserError: an argument does not fit the model; the version exists, or is not an export where `overwrite`; or the
        SavedModel cannot be loaded again, or its values are not finite or differ from the live model's by more than
        1e-4 (of a channel's largest value, where that is above 1), or for bfloat16 to a cosine below 0.99. Nothing is
        left behind then.
    """
    refuse_address(out_dir, str(out_dir))
    # As the command does: of two that export into one folder the second finds the first one's version.
    with locked(out_dir, wait=True):
        path = version_folder(out_dir, version, overwrite)
        described = description(
            bert_flow, normalize=normalize, low_dim=low_dim, max_seq_length=max_seq_length, dtype=dtype
        )
        with new_folder(path) as folder:
            bfloat16 = dtype == "bfloat16"
            module = ServedBertFlow(
                bert_flow,
                normalize=normalize,
                low_dim=described["low_dim"],
                max_seq_length=described["max_seq_length"],
                bfloat16=bfloat16,
            )
            with quiet_tensorflow():
                tf.saved_model.save(
                    module,
                    str(folder),
                    signatures=module.signatures(),
                    options=tf.saved_model.SaveOptions(experimental_custom_gradients=False),
                )
            (folder / "assets.extra").mkdir()
            write_json(folder / "assets.extra" / "config.json", described)
            found, signatures = _reload_and_compare(folder, path, bert_flow, described)
            write_warmup_requests(folder, path.parent.name, signatures, described["max_seq_length"])
    return Exported(path, *found)


def _reload_and_compare(
    folder: pathlib.Path, path: pathlib.Path, bert_flow: EmbeddingModel, described: dict[str, Any]
) -> tuple[tuple[float, float, float], Any]:
    """(largest difference from the live model, largest value, smallest cosine) and signatures of what was written."""
    live = live_embeddings(bert_flow, described)
    try:
        signatures = tf.saved_model.load(str(folder)).signatures
        reloaded = signatures["serving_default"](sentences=tf.constant(CHECKED_SENTENCES))["embedding"].numpy()
    except tf.errors.OpError as error:
        raise UserError(
            f"{path}: the SavedModel cannot be loaded again ({' '.join(error.message.split())}), expected one that "
            "can; nothing was written"
        ) from error
    if described["dtype"] != "bfloat16":
        return compare(path, "the SavedModel", reloaded, live), signatures
    _, largest, cosine = found = differences(reloaded, live)
    # Such that a NaN or an infinity is refused as well.
    if not (cosine >= BFLOAT16_MIN_COSINE and largest < np.inf):
        raise UserError(
            f"{path}: the SavedModel, loaded again, gives embeddings whose cosine with the model's is as low as "
            f"{cosine:.4f}, expected {BFLOAT16_MIN_COSINE} or more; nothing was written (float32 is exact)"
        )
    return found, signatures
