"""Writes `model.onnx`, from an encoder's inputs to embeddings, and the files of its tokenizer."""

import importlib.util
import os
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

from bert_flow_tf.encoder.convert.encoder_folder import quiet_tensorflow
from bert_flow_tf.encoder.convert.to_huggingface import write_hugging_face_tokenizer
from bert_flow_tf.encoder.tokenizer import TOKEN_INPUTS, vocabulary_asset
from bert_flow_tf.files.atomic import new_output
from bert_flow_tf.files.json_files import write_json
from bert_flow_tf.files.reading import refuse_address
from bert_flow_tf.model.embedding_model import EmbeddingModel
from bert_flow_tf.model.siamese import reduce_dimension
from bert_flow_tf.serving.exported import Exported, checked_tokens, compare, description, live_embeddings
from bert_flow_tf.serving.formats import DESCRIPTION_FILE, FORMATS, ONNX_FILE
from glow.folded import FoldedFlow, can_fold

TOLERANCE = 1e-5
_OPSET = 18


def export(
    bert_flow: EmbeddingModel,
    out_dir: str | os.PathLike,
    *,
    normalize: bool = False,
    low_dim: int | None = None,
    max_seq_length: int | None = None,
    overwrite: bool = False,
) -> Exported:
    """`Exported`, after writing the folder `out_dir` and, where onnxruntime is installed, comparing what it computes.

    `model.onnx` takes `input_word_ids`, `input_mask` and `input_type_ids`, int32 [n, t] of any n and t, and gives
    `embedding`, float32 [n, D]. `tokenizer.json`, of the library tokenizers, makes the ids, which are to be cut at the
    `max_seq_length` in `export.json`. tf2onnx converts the functions that `encode` calls, so any pooling and any flow
    can be exported.

    Args:
      bert_flow: `api.BertFlow`.
      out_dir: the folder.
      normalize, low_dim, max_seq_length: as of `export.export`.
      overwrite: whether another such folder may be replaced.

    Raises:
      UserError: an argument does not fit the model, tf2onnx is not installed, the place cannot be written to, or the
        embeddings differ from the live model's by more than 1e-5 (of a channel's largest value, where that is above 1).
        Nothing is left behind then.
    """
    refuse_address(out_dir, str(out_dir))
    described = description(bert_flow, normalize=normalize, low_dim=low_dim, max_seq_length=max_seq_length)
    path = pathlib.Path(out_dir).absolute()
    kind = FORMATS["onnx"].folder
    assert kind is not None
    with new_output(path, kind, overwrite=overwrite) as folder:
        _convert(bert_flow, described, folder / ONNX_FILE)
        source = bert_flow.source
        write_hugging_face_tokenizer(
            folder, vocabulary_asset(source.preprocess_dir), source.do_lower_case, described["max_seq_length"]
        )
        write_json(folder / DESCRIPTION_FILE, described)
        if importlib.util.find_spec("onnxruntime") is None:
            return Exported(path)
        inputs = {name: value.numpy() for name, value in checked_tokens(bert_flow, described).items()}
        found = _run(folder / ONNX_FILE, inputs)
        differences = compare(path, ONNX_FILE, found, live_embeddings(bert_flow, described), TOLERANCE)
    return Exported(path, *differences)


def _convert(bert_flow: EmbeddingModel, described: dict[str, Any], path: pathlib.Path) -> None:
    import tf2onnx

    flow, encoder = bert_flow.flow, bert_flow.encoder
    latents = tf.identity
    if flow is not None:
        latents = FoldedFlow(flow) if can_fold(flow) else flow.forward

    def embed(*inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        u = encoder.embed_plainly(dict(zip(TOKEN_INPUTS, inputs, strict=True)))
        embedding = reduce_dimension(latents(u), described["low_dim"])
        return {"embedding": tf.nn.l2_normalize(embedding, axis=-1) if described["normalized"] else embedding}

    signature = [tf.TensorSpec([None, None], tf.int32, name) for name in TOKEN_INPUTS]
    with quiet_tensorflow():
        tf2onnx.convert.from_function(
            tf.function(embed, autograph=False), input_signature=signature, opset=_OPSET, output_path=str(path)
        )


def _run(path: pathlib.Path, inputs: dict[str, np.ndarray]) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]
