"""BERT-flow for TensorFlow 2.

    from bert_flow_tf import BertFlow

Importing the package does not load TensorFlow; the first use of one of its names does. "The
original" in its documentation is the authors' TF1 code, <https://github.com/bohanli/BERT-flow>.
"""

from typing import TYPE_CHECKING, Any

from bert_flow_tf.common.version import __version__
from glow.lazy import import_name

if TYPE_CHECKING:
    from bert_flow_tf.api import BertFlow
    from bert_flow_tf.calibration.settings import FitSettings
    from bert_flow_tf.common.errors import UserError
    from bert_flow_tf.model.any_encoder import calibrate, compare, load_calibration
    from bert_flow_tf.report import plots
    from bert_flow_tf.runtime.model import open_export
    from bert_flow_tf.scale.settings import ShardSettings
    from bert_flow_tf.training.settings import PretrainSettings
    from glow.calibrator import FlowCalibrator

_MODULES = {
    "BertFlow": "bert_flow_tf.api",
    "FitSettings": "bert_flow_tf.calibration.settings",
    "FlowCalibrator": "glow.calibrator",
    "PretrainSettings": "bert_flow_tf.training.settings",
    "ShardSettings": "bert_flow_tf.scale.settings",
    "UserError": "bert_flow_tf.common.errors",
    "calibrate": "bert_flow_tf.model.any_encoder",
    "compare": "bert_flow_tf.model.any_encoder",
    "load_calibration": "bert_flow_tf.model.any_encoder",
    "open_export": "bert_flow_tf.runtime.model",
    "plots": "bert_flow_tf.report",
}
__all__ = [
    "BertFlow",
    "FitSettings",
    "FlowCalibrator",
    "PretrainSettings",
    "ShardSettings",
    "UserError",
    "__version__",
    "calibrate",
    "compare",
    "load_calibration",
    "open_export",
    "plots",
]


def __getattr__(name: str) -> Any:
    return import_name(name, _MODULES, globals())


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
