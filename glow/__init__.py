"""Glow over vectors; "the original" is <https://github.com/bohanli/BERT-flow>."""

import importlib

from glow.quiet import quiet_import

# A name's module is imported at its first use, because TensorFlow takes seconds to load.
_MODULES = {"FlowCalibrator": "calibrator", "Glow": "flow", "GlowConfig": "config"}
__all__ = ["FlowCalibrator", "Glow", "GlowConfig"]


def __getattr__(name: str) -> type:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with quiet_import():
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
