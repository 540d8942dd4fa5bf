"""The settings of masked language modelling; those that TF1's `run_pretraining` has too have its names."""

import dataclasses
import os
import pathlib

from bert_flow_tf.errors import ArgumentError
from bert_flow_tf.runs.settings import check_values, flag

# The `objective` in the settings of a `runs.record.Training`.
MASKED_LM = "masked language model"
MOST_DEV_SENTENCES = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingSettings:
    """The settings that the learned encoder depends on, besides its first weights and the text.

    TF1's Adam does not correct the bias of its moments: the first thousand steps are up to six times as large as
    AdamW's at the same rate.
    """

    steps: int = flag(1000, "Steps; after the warm-up the learning rate decays to 0.", least=1)
    train_batch_size: int = flag(64, "Sentences per step, over all replicas.", least=1)
    learning_rate: float = flag(2e-4, "Its peak.", least=0)
    num_warmup_steps: int = flag(100, "Steps of linear warm-up.", least=0)
    max_seq_length: int = flag(64, "Word pieces of a sentence, [CLS] and [SEP] included; longer ones are cut.", least=3)
    masked_lm_prob: float = flag(0.15, "Share of the word pieces that is predicted.", least=0.001, below=1)
    dev_fraction: float = flag(0.01, "Share of the sentences, at most 1000, that is held out.", least=0, below=1)
    save_checkpoints_steps: int = flag(100, "Steps from one checkpoint, and dev loss, to the next.", least=1)
    seed: int = flag(1234, "Seed of everything random.", least=0, below=2**32)

    def check(self) -> None:
        """Raise `ArgumentError` for the first invalid value."""
        check_values(self)
        if self.steps <= self.num_warmup_steps:
            expected = f"more than num_warmup_steps, {self.num_warmup_steps}"
            raise ArgumentError(f"steps: found {self.steps}, expected {expected}")


def run_folder(out_dir: str | os.PathLike) -> pathlib.Path:
    """Return the path of the run's folder, beside the encoder folder that the run writes."""
    out = pathlib.Path(os.path.abspath(out_dir))
    return out.with_name(f"{out.name}.pretraining")
