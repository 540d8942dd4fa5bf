"""Glow with additive or affine coupling over vectors, as a chain of TensorFlow Probability bijectors.

The package knows nothing of text. It loads TensorFlow when one of its names is first used.
"""

import importlib

# Name -> the module that defines it.
_MODULES = {"FlowCalibrator": "calibrator", "Glow": "flow", "GlowConfig": "config"}
__all__ = ["FlowCalibrator", "Glow", "GlowConfig"]


def __getattr__(name: str) -> type:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
