"""BERT-flow for TensorFlow 2.

    from bert_flow_tf import BertFlow

Importing the package does not load TensorFlow; the first use of one of its names does. "The
original" in its documentation is the authors' TF1 code, <https://github.com/bohanli/BERT-flow>.
"""

import importlib
from typing import Any

from glow.quiet import quiet_import

__version__ = "0.1.0"

_MODULES = {
    "BertFlow": "bert_flow_tf.api",
    "FlowCalibrator": "glow.calibrator",
    "UserError": "bert_flow_tf.errors",
}
_MODULES |= dict.fromkeys(("calibrate", "compare", "load_calibration"), "bert_flow_tf.calibrated")
_MODULES |= dict.fromkeys(
    ("FitSettings", "PretrainSettings", "ShardSettings"), "bert_flow_tf.runs.settings"
)
__all__ = [
    "BertFlow",
    "FitSettings",
    "FlowCalibrator",
    "PretrainSettings",
    "ShardSettings",
    "UserError",
    "__version__",
]
__all__ += ["calibrate", "compare", "load_calibration"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with quiet_import():
        found = getattr(importlib.import_module(_MODULES[name]), name)
    # The next access finds it here, without this function.
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
