"""Write sentence-transformers' modules after a model, as the library reads them."""

import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy

from bert_flow_tf.common.json_files import read_json, write_json
from bert_flow_tf.encoder.convert.folders import CONFIG_FILE, MODULES_FILE, WEIGHTS_FILE
from glow.folded import DenseLayer

# The library's names of the poolings that one of its modules computes.
POOLING_MODES = {"avg": "mean_tokens", "paper-cls": "cls_token"}


class Module(NamedTuple):
    """One of the library's modules: its class, settings and tensors."""

    name: str
    settings: dict[str, Any]
    tensors: dict[str, np.ndarray]


NORMALIZE = Module("Normalize", {}, {})


def pooling_module(pooling: str, width: int) -> Module:
    """Return the module of a pooling in `POOLING_MODES`."""
    modes = {f"pooling_mode_{mode}": name == pooling for name, mode in POOLING_MODES.items()}
    return Module("Pooling", {"word_embedding_dimension": width, **modes}, {})


def dense_module(layer: DenseLayer, activation: str = "linear.Identity") -> Module:
    """Return a layer's module; a slope other than 1 replaces the activation."""
    kernel = np.ascontiguousarray(layer.kernel.T, dtype=np.float32)
    tensors = {"linear.weight": kernel, "linear.bias": layer.bias.astype(np.float32)}
    if layer.slope != 1.0:
        activation = "activation.PReLU"
        tensors["activation_function.weight"] = np.array([layer.slope], np.float32)
    settings = {
        "in_features": layer.kernel.shape[0],
        "out_features": layer.kernel.shape[1],
        "bias": True,
        "activation_function": f"torch.nn.modules.{activation}",
    }
    return Module("Dense", settings, tensors)


def append_modules(folder: pathlib.Path, modules: Sequence[Module]) -> None:
    """Add modules to a model's folder, after those that its `modules.json` lists.

    Without that file, the folder holds the model's first module, its transformer.
    """
    listed = [_listed(0, "Transformer", "")]
    if (folder / MODULES_FILE).exists():
        listed = read_json(
            folder / MODULES_FILE, list[dict[str, Any]], expected="modules", versioned=False
        )
    for i, module in enumerate(modules, start=len(listed)):
        path = f"{i}_{module.name}"
        (folder / path).mkdir()
        if module.settings:
            write_json(folder / path / CONFIG_FILE, module.settings)
        if module.tensors:
            safetensors.numpy.save_file(
                module.tensors, folder / path / WEIGHTS_FILE, {"format": "pt"}
            )
        listed.append(_listed(i, module.name, path))
    write_json(folder / MODULES_FILE, listed)


def _listed(i: int, name: str, path: str) -> dict[str, Any]:
    # The type's name works in all versions of the library.
    return {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
