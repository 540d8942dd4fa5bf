"""Write a model as ONNX, with its tokenizer's files."""

import dataclasses
import importlib.util
import pathlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_flow_tf.common.errors import hidden_stderr
from bert_flow_tf.common.json_files import write_json
from bert_flow_tf.common.version import DESCRIPTION_FILE, ONNX_DATA_FILE, ONNX_FILE, OPENVINO_FILE
from bert_flow_tf.encoder.convert.folders import CONFIG_FILE
from bert_flow_tf.encoder.convert.tokenizer_files import write_tokenizer
from bert_flow_tf.encoder.tokenizer import TOKEN_INPUTS
from bert_flow_tf.encoder.weights import hugging_face_config
from bert_flow_tf.export.export import quiet_tensorflow, token_batches
from bert_flow_tf.export.formats import INT8
from bert_flow_tf.model.embedder import Embedder
from bert_flow_tf.runtime.description import Description
from bert_flow_tf.runtime.programs import (
    INPUTS,
    OUTPUT,
    OnnxProgram,
    OpenvinoProgram,
    Program,
)
from glow import saved


def write_onnx_folder(
    model: Embedder, description: Description, folder: pathlib.Path, texts: Sequence[str]
) -> np.ndarray | None:
    """Write the folder; return onnxruntime's embeddings of texts, None without it.

    `model.onnx` maps `input_ids`, `attention_mask` and `token_type_ids`, int64 [n, t], to
    `sentence_embedding`, float32 [n, D], the names that servers of Hugging Face's layout expect.
    The tokenizers library makes the ids from `tokenizer.json`; truncate to the `max_seq_length` in
    `export.json`.
    """
    latents = model.chain.fixed_forward()
    encoder = model.encoder.network
    weights = encoder.variables_by_name if model.source.is_bert else {}

    def embed(*arguments: tf.Tensor) -> dict[str, tf.Tensor]:
        inputs, values = arguments[: len(INPUTS)], arguments[len(INPUTS) :]
        tokens = {
            name: tf.cast(one, tf.int32) for name, one in zip(TOKEN_INPUTS, inputs, strict=True)
        }
        pooled = encoder.embed(tokens, dict(zip(weights, values, strict=True)), portable=True)
        return {OUTPUT: model.tail(latents(pooled), description.normalized or None)}

    specs = [tf.TensorSpec([None, None], tf.int64, name) for name in INPUTS]
    # TensorFlow's own code writes to stderr when a session starts.
    with quiet_tensorflow(), hidden_stderr():
        saved.write_onnx(embed, specs, folder / ONNX_FILE, weights)
    found = None
    if description.dtype == INT8:
        quantize(folder / ONNX_FILE)
    if importlib.util.find_spec("onnxruntime") is not None:
        found = _embeddings(model, folder, texts)
    if found is not None and description.dtype == INT8:
        # A server's embeddings are those of these matrices, and not the model's. Inputs are rounded
        # by the batch's largest, so the probes are one batch, as for whoever opens the folder.
        probed = [*description.probes]
        own = _run(OnnxProgram(folder), model.tokenize(probed))
        probes = dict(zip(probed, own.tolist(), strict=True))
        description = dataclasses.replace(description, probes=probes)
    write_tokenizer(
        folder, model.source.pretrained.vocab, model.source.record, description.max_seq_length
    )
    if model.source.is_bert:
        write_json(folder / CONFIG_FILE, hugging_face_config(model.source.bert.config))
    write_json(folder / DESCRIPTION_FILE, description)
    return found


def quantize(path: pathlib.Path) -> None:
    """Round a graph's matrices to int8."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantized = path.with_name("quantized.onnx")
    with quiet_tensorflow(), hidden_stderr():
        # Seven bits are enough, and sums of eight overflow on processors without VNNI.
        quantize_dynamic(
            path, quantized, per_channel=True, reduce_range=True, weight_type=QuantType.QInt8
        )
    quantized.replace(path)
    path.with_name(ONNX_DATA_FILE).unlink(missing_ok=True)


def write_openvino(
    model: Embedder, description: Description, folder: pathlib.Path, texts: Sequence[str]
) -> np.ndarray:
    """Write the folder with OpenVINO's graph; return its embeddings of texts."""
    import openvino

    write_onnx_folder(model, description, folder, texts)
    graph = openvino.convert_model(folder / ONNX_FILE)
    openvino.save_model(graph, folder / OPENVINO_FILE, compress_to_fp16=False)
    (folder / ONNX_FILE).unlink()
    (folder / ONNX_DATA_FILE).unlink(missing_ok=True)
    return _embeddings(model, folder, texts, OpenvinoProgram)


def _embeddings(
    model: Embedder,
    folder: pathlib.Path,
    texts: Sequence[str],
    program: type[Program] = OnnxProgram,
) -> np.ndarray:
    """Return a written program's embeddings of texts."""
    run = program(folder)
    return np.concatenate([_run(run, tokens) for tokens in token_batches(model, texts)])


def _run(program: Program, tokens: dict[str, tf.Tensor]) -> np.ndarray:
    ids, mask = (tokens[name].numpy().astype(np.int64) for name in TOKEN_INPUTS[:2])
    return program(ids, mask, alone=True)
