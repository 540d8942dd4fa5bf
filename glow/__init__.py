"""Glow over vectors; "the original" is <https://github.com/bohanli/BERT-flow>."""

from typing import TYPE_CHECKING, Any

from glow.lazy import import_name

if TYPE_CHECKING:
    from glow.calibrator import FlowCalibrator
    from glow.config import GlowConfig
    from glow.flow import Glow

_MODULES = {
    "FlowCalibrator": "glow.calibrator",
    "Glow": "glow.flow",
    "GlowConfig": "glow.config",
}
__all__ = ["FlowCalibrator", "Glow", "GlowConfig"]


def __getattr__(name: str) -> Any:
    return import_name(name, _MODULES, globals())
