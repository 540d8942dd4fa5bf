"""Writes a folder that sentence-transformers loads with its own modules: BERT, pooling, and the flow as `Dense`."""

import os
import pathlib
from typing import Any

import numpy as np
import safetensors.numpy

from bert_flow_tf.encoder.convert.folders import MODULES_FILE, WEIGHTS_FILE
from bert_flow_tf.encoder.convert.from_huggingface import BERT_SETTINGS_FILE, read_hugging_face_weights
from bert_flow_tf.encoder.convert.to_huggingface import (
    write_hugging_face_bert,
    write_hugging_face_tokenizer,
    write_tensors,
)
from bert_flow_tf.encoder.convert.weights import tf1_arrays
from bert_flow_tf.encoder.pooling import first_token, masked_mean
from bert_flow_tf.encoder.tokenizer import vocabulary_asset
from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.files.atomic import new_output
from bert_flow_tf.files.json_files import write_json
from bert_flow_tf.files.reading import refuse_address
from bert_flow_tf.model.embedding_model import EmbeddingModel
from bert_flow_tf.serving.exported import Exported, checked_tokens, compare, description, live_embeddings
from bert_flow_tf.serving.formats import DESCRIPTION_FILE, FORMATS
from glow.folded import DenseLayer, dense_layers, has_dense_layers

_FORMAT = "sentence-transformers"
_REDUCERS = {masked_mean: "mean", first_token: "cls"}
_Modules = list[tuple[str, dict[str, Any], dict[str, np.ndarray]]]


def export(
    bert_flow: EmbeddingModel,
    out_dir: str | os.PathLike,
    *,
    normalize: bool = False,
    low_dim: int | None = None,
    max_seq_length: int | None = None,
    overwrite: bool = False,
) -> Exported:
    """`Exported`, after writing the folder `out_dir` and comparing its BERT and its flow, read again, with the model's.

    `SentenceTransformer(out_dir)` then gives the embeddings of `encode`: its modules are `Transformer`, the pooling's,
    a chain of `Dense`, see `glow.dense`, and `Normalize` where asked for. `export.json` says what it was made of.

    Args:
      bert_flow: `api.BertFlow`.
      out_dir: the folder.
      normalize, low_dim, max_seq_length: as of `export.export`.
      overwrite: whether another such folder may be replaced.

    Raises:
      UserError: an argument does not fit the model, no module computes its pooling or its couplings, the place cannot
        be written to, or what is read again is something else. Nothing is left behind then.
    """
    refuse_address(out_dir, str(out_dir))
    described = description(bert_flow, normalize=normalize, low_dim=low_dim, max_seq_length=max_seq_length)
    config = bert_flow.encoder.bert_config
    if config is None:
        raise _refusal(f"the encoder {bert_flow.source.bert_hub},")
    weights = tf1_arrays(bert_flow.encoder.variables_by_name, bert_flow.source.bert_hub)
    modules = _pooling_modules(bert_flow, weights)
    layers = _flow_layers(bert_flow, described["low_dim"])
    first_layer = len(modules) + 1
    modules += [("Dense", *_dense(layer)) for layer in layers]
    if normalize:
        modules.append(("Normalize", {}, {}))
    path = pathlib.Path(out_dir).absolute()
    kind = FORMATS[_FORMAT].folder
    assert kind is not None
    with new_output(path, kind, overwrite=overwrite) as folder:
        all_layers = any(name == "WeightedLayerPooling" for name, _, _ in modules)
        write_hugging_face_bert(folder, config, weights, output_hidden_states=all_layers)
        source = bert_flow.source
        write_hugging_face_tokenizer(
            folder, vocabulary_asset(source.preprocess_dir), source.do_lower_case, described["max_seq_length"]
        )
        write_json(folder / BERT_SETTINGS_FILE, {"max_seq_length": described["max_seq_length"], "do_lower_case": False})
        settings = {"prompts": bert_flow.prompts, "similarity_fn_name": bert_flow.similarity_fn_name}
        write_json(folder / "config_sentence_transformers.json", {"model_type": "SentenceTransformer", **settings})
        places = [("Transformer", ""), *((name, f"{i}_{name}") for i, (name, _, _) in enumerate(modules, start=1))]
        # By the names that all versions of the library know.
        named = [
            {"idx": i, "name": str(i), "path": place, "type": f"sentence_transformers.models.{name}"}
            for i, (name, place) in enumerate(places)
        ]
        write_json(folder / MODULES_FILE, named)
        for (_, place), (_, options, tensors) in zip(places[1:], modules, strict=True):
            (folder / place).mkdir()
            if options:
                write_json(folder / place / "config.json", options)
            if tensors:
                write_tensors(folder / place / WEIGHTS_FILE, tensors)
        write_json(folder / DESCRIPTION_FILE, described)
        read = read_hugging_face_weights(folder, config)
        for name, value in weights.items():
            if not np.array_equal(read[name], value, equal_nan=True):
                raise UserError(f"{path}: {name}, read again, is something else; nothing was written")
        written = [folder / f"{i}_Dense" / WEIGHTS_FILE for i in range(first_layer, first_layer + len(layers))]
        found = _through(written, bert_flow.encoder.embed(checked_tokens(bert_flow, described)).numpy())
        if normalize:
            found /= np.linalg.norm(found, axis=1, keepdims=True)
        flow_bytes = sum(file.stat().st_size for file in written) if bert_flow.flow is not None else None
        found_to_live = compare(path, "the folder", found, live_embeddings(bert_flow, described))
    return Exported(path, *found_to_live, flow_bytes=flow_bytes)


def _refusal(what: str) -> ArgumentError:
    return ArgumentError(
        f"format: found {_FORMAT} with {what} which none of its modules computes, expected savedmodel or onnx"
    )


def _pooling_modules(bert_flow: EmbeddingModel, weights: dict[str, np.ndarray]) -> _Modules:
    """Name, settings and tensors of each module from the layers' states to the embedding before the flow."""
    encoder, name = bert_flow.encoder, bert_flow.sentence_embedding_type
    pooling, layers, width = encoder.pooling, encoder.num_layers, encoder.hidden_size
    if not pooling.layers:
        kernel, bias = (weights[f"bert/pooler/dense/{part}"] for part in ("kernel", "bias"))
        return [_pool(width, "cls"), ("Dense", *_linear(kernel, bias, "Tanh"))]
    if (pooling.concatenate and len(pooling.layers) > 1) or pooling.reduce not in _REDUCERS:
        raise _refusal(f"the pooling {name},")
    # The embeddings of words are not among the encoder's layers.
    counts = np.bincount([i % layers for i in pooling.layers], minlength=layers).astype(np.float32)
    modules = [_pool(width, _REDUCERS[pooling.reduce])]
    if counts[-1] < counts.sum():
        settings = {"word_embedding_dimension": width, "layer_start": 1, "num_hidden_layers": layers}
        modules.insert(0, ("WeightedLayerPooling", settings, {"layer_weights": counts}))
    return modules


def _pool(width: int, mode: str) -> tuple[str, dict[str, Any], dict[str, np.ndarray]]:
    modes = {"cls": "cls_token", "mean": "mean_tokens"}
    settings = {f"pooling_mode_{key}": name == mode for name, key in modes.items()}
    return "Pooling", {"word_embedding_dimension": width, **settings}, {}


def _flow_layers(bert_flow: EmbeddingModel, low_dim: int) -> list[DenseLayer]:
    """The layers from the embedding before the flow to that of dimension `low_dim`, see `model.reduce_dimension`."""
    flow, size = bert_flow.flow, bert_flow.encoder.embedding_size
    layers = []
    if flow is not None:
        if not has_dense_layers(flow):
            config = flow.config
            raise _refusal(f"{config.coupling} couplings of activation {config.activation},")
        layers = dense_layers(flow)
    if low_dim > 0:
        mean = np.repeat(np.eye(low_dim), size // low_dim, axis=0) * (low_dim / size)
        last = layers.pop() if layers else DenseLayer(np.eye(size), np.zeros(size))
        layers.append(DenseLayer(last.kernel @ mean, last.bias @ mean))
    return layers


def _dense(layer: DenseLayer) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Settings and tensors of a layer's module."""
    settings, tensors = _linear(layer.kernel, layer.bias, "Identity" if layer.slope == 1.0 else "PReLU")
    if layer.slope != 1.0:
        tensors["activation_function.weight"] = np.array([layer.slope], np.float32)
    return settings, tensors


def _linear(kernel: np.ndarray, bias: np.ndarray, activation: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    folder = "linear" if activation == "Identity" else "activation"
    settings = {
        "in_features": kernel.shape[0],
        "out_features": kernel.shape[1],
        "bias": True,
        "activation_function": f"torch.nn.modules.{folder}.{activation}",
    }
    weight = np.ascontiguousarray(kernel.T, dtype=np.float32)
    return settings, {"linear.weight": weight, "linear.bias": bias.astype(np.float32)}


def _through(paths: list[pathlib.Path], x: np.ndarray) -> np.ndarray:
    """What the modules of the flow in these files give for `x` [n, D]."""
    for path in paths:
        tensors = safetensors.numpy.load_file(path)
        x = x @ tensors["linear.weight"].T + tensors["linear.bias"]
        x = np.where(x > 0, x, tensors.get("activation_function.weight", np.float32(1)) * x)
    return x
