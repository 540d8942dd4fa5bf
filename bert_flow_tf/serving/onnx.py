"""Write a model as ONNX, with its tokenizer's files."""

import importlib.util
import pathlib

import numpy as np
import tensorflow as tf

from bert_flow_tf.encoder.convert.tokenizer_files import write_tokenizer
from bert_flow_tf.encoder.tokenizer import TOKEN_INPUTS
from bert_flow_tf.files.json_files import write_json
from bert_flow_tf.model.saved_model import EmbeddingModel
from bert_flow_tf.model.siamese import reduce_dimension
from bert_flow_tf.serving.export import CHECKED_SENTENCES, Description, latents_of, quiet_tensorflow
from bert_flow_tf.serving.formats import DESCRIPTION_FILE, ONNX_FILE

_OPSET = 18


def write_onnx(model: EmbeddingModel, description: Description, folder: pathlib.Path) -> np.ndarray | None:
    """Write the folder; return onnxruntime's embeddings, None without it.

    `model.onnx` maps `input_word_ids`, `input_mask` and `input_type_ids`, int32 [n, t], to `embedding`, float32 [n, D].
    The tokenizers library makes the ids from `tokenizer.json`; truncate to the `max_seq_length` in `export.json`.
    """
    import tf2onnx

    latents, encoder = latents_of(model.flow), model.encoder

    def embed(*inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        u = encoder.embed(dict(zip(TOKEN_INPUTS, inputs, strict=True)), portable=True)
        embedding = reduce_dimension(latents(u), description.low_dim)
        return {"embedding": tf.nn.l2_normalize(embedding, axis=-1) if description.normalized else embedding}

    with quiet_tensorflow():
        tf2onnx.convert.from_function(
            tf.function(embed, autograph=False),
            input_signature=[tf.TensorSpec([None, None], tf.int32, name) for name in TOKEN_INPUTS],
            opset=_OPSET,
            output_path=str(folder / ONNX_FILE),
        )
    write_tokenizer(folder, model.source.pretrained.vocab, model.source.record, description.max_seq_length)
    write_json(folder / DESCRIPTION_FILE, description)
    if importlib.util.find_spec("onnxruntime") is None:
        return None
    import onnxruntime

    session = onnxruntime.InferenceSession(str(folder / ONNX_FILE), providers=["CPUExecutionProvider"])
    inputs = {name: value.numpy() for name, value in model.tokenize(CHECKED_SENTENCES).items()}
    return session.run(None, inputs)[0]
