"""Write a folder for sentence-transformers: BERT, pooling, and the flow as `Dense`."""

import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
import safetensors.numpy

from bert_flow_tf.common.errors import ArgumentError
from bert_flow_tf.common.json_files import write_json
from bert_flow_tf.common.version import DESCRIPTION_FILE
from bert_flow_tf.encoder.convert.encoder_folder import write_encoder
from bert_flow_tf.encoder.convert.folders import SENTENCE_SETTINGS, WEIGHTS_FILE
from bert_flow_tf.encoder.convert.sentence_modules import (
    NORMALIZE,
    Module,
    dense_module,
    pooling_module,
)
from bert_flow_tf.encoder.pooling import first_token, masked_mean
from bert_flow_tf.export.export import token_batches
from bert_flow_tf.model.embedder import Embedder
from bert_flow_tf.runtime.description import Description
from bert_flow_tf.vectors.similarities import normalized
from glow.folded import DenseLayer

_POOLINGS = {masked_mean: "avg", first_token: "paper-cls"}


def write_sentence_transformers(
    model: Embedder, description: Description, folder: pathlib.Path, texts: Sequence[str]
) -> np.ndarray:
    """Write the folder; return the embeddings of texts that its layers give.

    `SentenceTransformer(folder)` gives the embeddings of `encode`. Its modules are `Transformer`,
    the pooling, the flow as a chain of `Dense`, see `glow.folded.dense_layers`, and `Normalize` if
    the embeddings have norm 1.

    Raises:
      UserError: the library has no module for the pooling or the couplings.
    """
    if not model.source.is_bert:
        raise _unsupported(f"the encoder {model.source.bert_hub}")
    settings = {name: getattr(model, name) for name in SENTENCE_SETTINGS}
    if model.document_prompt:
        # The library's `encode_document` never reads a prompt of another name, such as "passage".
        settings["prompts"] = {**model.prompts, "document": model.document_prompt}
    record = model.source.record.with_origin(
        "export",
        max_seq_length=description.max_seq_length,
        pooling=model.sentence_embedding_type,
        normalize=description.normalized,
        **settings,
    )
    bert = model.encoder.network.read_pretrained(record)
    modules = _pooling_modules(model, bert.weights)
    layers = _flow_layers(model)
    # An encoder's own `Normalize` comes before the truncation.
    first = model.tail.normalizes and not description.normalized
    if first and model.low_dim > 0:
        raise _unsupported("low_dim with truncate_dim and an encoder that has Normalize")
    modules += [NORMALIZE] * first
    first_layer = len(modules) + 1
    modules += [dense_module(layer) for layer in layers]
    modules += [NORMALIZE] * description.normalized
    all_layers = any(module.name == "WeightedLayerPooling" for module in modules)
    write_encoder(folder, bert, modules, output_hidden_states=all_layers)
    write_json(folder / DESCRIPTION_FILE, description)
    embed = model.encoder.network.embed
    x = np.concatenate([embed(tokens).numpy() for tokens in token_batches(model, texts)])
    x = normalized(x) if first else x
    for i in range(first_layer, first_layer + len(layers)):
        tensors = safetensors.numpy.load_file(folder / f"{i}_Dense" / WEIGHTS_FILE)
        x = x @ tensors["linear.weight"].T + tensors["linear.bias"]
        x = np.where(x > 0, x, tensors.get("activation_function.weight", np.float32(1)) * x)
    return normalized(x) if description.normalized else x


def _unsupported(what: str) -> ArgumentError:
    return ArgumentError(
        f"format: sentence-transformers has no module for {what}, expected savedmodel or onnx"
    )


def _pooling_modules(model: Embedder, weights: Mapping[str, np.ndarray]) -> list[Module]:
    encoder = model.encoder.network
    name = model.sentence_embedding_type
    pooling = encoder.pooling
    layers = encoder.num_layers
    width = encoder.hidden_size
    if not pooling.layers:
        kernel, bias = (weights[f"bert/pooler/dense/{part}"] for part in ("kernel", "bias"))
        pooler = dense_module(DenseLayer(kernel, bias), "activation.Tanh")
        return [pooling_module("paper-cls", width), pooler]
    if (pooling.concatenate and len(pooling.layers) > 1) or pooling.reduce not in _POOLINGS:
        raise _unsupported(f"the pooling {name}")
    # The counts leave out the word embeddings, which no pooling uses.
    counts = np.bincount([i % layers for i in pooling.layers], minlength=layers).astype(np.float32)
    modules = [pooling_module(_POOLINGS[pooling.reduce], width)]
    if counts[-1] < counts.sum():
        settings = {
            "word_embedding_dimension": width,
            "layer_start": 1,
            "num_hidden_layers": layers,
        }
        modules.insert(0, Module("WeightedLayerPooling", settings, {"layer_weights": counts}))
    return modules


def _flow_layers(model: Embedder) -> list[DenseLayer]:
    size = model.encoder.embedding_size
    low_dim = model.low_dim
    try:
        layers = model.chain.dense_layers()
    except ValueError as error:
        raise ArgumentError(
            f"format: sentence-transformers: {error}, expected savedmodel or onnx"
        ) from error
    # The last layer is linear, so that averages and truncation are part of it.
    last = layers[-1] if layers else DenseLayer(np.eye(size), np.zeros(size))
    kernel, bias = last.kernel, last.bias
    if low_dim > 0:
        mean = np.repeat(np.eye(low_dim), size // low_dim, axis=0) * (low_dim / size)
        kernel, bias = kernel @ mean, bias @ mean
    kept = model.embedding_size
    if not layers and kept == size:
        return []
    return [*layers[:-1], DenseLayer(kernel[:, :kept], bias[:kept])]
