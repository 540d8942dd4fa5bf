"""The settings of a calibration."""

import dataclasses
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from bert_flow_tf.common.atomic import FolderKind
from bert_flow_tf.common.errors import ArgumentError
from bert_flow_tf.common.losses import LOSSES_FILE
from bert_flow_tf.common.settings import Settings, flag, flow_config
from glow.config import DEFAULT_CONFIG

if TYPE_CHECKING:
    from bert_flow_tf.calibration.methods import Method

CALIBRATION_FOLDER = FolderKind(
    "a calibration", "calibration.json", ("calibration.*", "record.json", LOSSES_FILE)
)
# `compare` learns these by default.
DEFAULT_METHODS = ("auto", "whitening", "soft-whitening-0.1", "flow")
# The measures on labelled pairs that can decide.
METRICS = ("spearman", "auc", "f1")
# A map without a flow has no use for these settings.
_OF_FLOWS = ("flow_model_config", "epochs", "batch_size", "learning_rate")


class FitKeywords(TypedDict, total=False):
    """The types of `FitSettings`, but the method, as keywords of `fit`."""

    flow_model_config: str | os.PathLike
    epochs: float | None
    batch_size: int
    learning_rate: float
    seed: int
    dev_fraction: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class FitSettings(Settings):
    """The settings of `BertFlow.fit`."""

    method: str = flag("flow", "flow, whitening, …")
    flow_model_config: str = flag(DEFAULT_CONFIG, "Flow config.")
    epochs: float | None = flag(
        None, "[default: 1, or for 300 steps]", gt=0, option="num_train_epochs"
    )
    batch_size: int = flag(64, "Sentences per step.", ge=1, option="train_batch_size")
    learning_rate: float = flag(1e-3, "Learning rate.", gt=0, option="flow_learning_rate")
    seed: int = flag(1234, "Seed of weights and order.", ge=0, lt=2**32)
    dev_fraction: float = flag(0.05, "Share held out.", ge=0, lt=1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "flow_model_config", os.fspath(self.flow_model_config))
        super().__post_init__()
        # A program that learns nothing makes no settings, and needs no methods.
        from bert_flow_tf.calibration.methods import find_method

        find_method(self.method)
        flow_config(self.flow_model_config)

    def check_used(self, methods: "Sequence[Method]") -> None:
        """Raise `ArgumentError` for a setting, not the default, that no method uses."""
        unused = set.intersection(*(set(_unused(method)) for method in methods))
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in unused and value != field.default:
                labels = ", ".join(method.label for method in methods)
                raise ArgumentError(
                    f"{field.name}: found {value} with {labels}, which has no use for it"
                )

    def used_by(self, method: "Method") -> "FitSettings":
        """Return these settings, with the default where a method has no use."""
        unused = _unused(method)
        defaults: dict[str, Any] = {
            field.name: field.default for field in dataclasses.fields(self) if field.name in unused
        }
        return dataclasses.replace(self, **defaults)


def _unused(method: "Method") -> Sequence[str]:
    """Return the names of the settings that a method does not use."""
    if method.calibrator is not None:
        return *_OF_FLOWS, "seed"
    return () if method.has_flow else _OF_FLOWS
