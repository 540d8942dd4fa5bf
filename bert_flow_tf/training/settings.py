"""The settings of masked language modelling."""

import dataclasses

from bert_flow_tf.common.errors import ArgumentError
from bert_flow_tf.common.settings import Settings, flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainSettings(Settings):
    """The settings of masked language modelling.

    Because TF1's Adam does not correct the bias of its moments, its first thousand steps are up to
    six times as large as AdamW's at the same rate.
    """

    steps: int = flag(1000, "Steps; the learning rate decays to 0.", ge=1)
    train_batch_size: int = flag(64, "Sentences per step.", ge=1)
    learning_rate: float = flag(2e-4, "Peak learning rate.", gt=0)
    num_warmup_steps: int = flag(100, "Steps of linear warm-up.", ge=0)
    max_seq_length: int = flag(64, "Word pieces; longer sentences are split.", ge=3)
    masked_lm_prob: float = flag(0.15, "Share of the word pieces to predict.", ge=0.001, lt=1)
    dev_fraction: float = flag(0.01, "Share of sentences to hold out, at most 1000.", ge=0, lt=1)
    save_checkpoints_steps: int = flag(
        100, "Steps between checkpoints, each with a dev loss.", ge=1
    )
    seed: int = flag(1234, "Seed of everything random.", ge=0, lt=2**32)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps <= self.num_warmup_steps:
            expected = f"more than num_warmup_steps, {self.num_warmup_steps}"
            raise ArgumentError(f"steps: found {self.steps}, expected {expected}")
