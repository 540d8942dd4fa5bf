"""The settings of a calibration."""

import dataclasses

from bert_flow_tf.calibration.methods import find_method
from bert_flow_tf.common.atomic import FolderKind
from bert_flow_tf.common.losses import LOSSES_FILE
from bert_flow_tf.common.settings import Settings, flag, flow_config
from glow.config import DEFAULT_CONFIG

CALIBRATION_FOLDER = FolderKind(
    "a calibration", "calibration.json", ("calibration.*", "record.json", LOSSES_FILE)
)
# The measures on labelled pairs that can decide.
METRICS = ("spearman", "auc", "f1")


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
        super().__post_init__()
        find_method(self.method)
        flow_config(self.flow_model_config)
