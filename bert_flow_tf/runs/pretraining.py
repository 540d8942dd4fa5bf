"""The settings of masked language modelling; those that TF1's `run_pretraining` has too have its names."""

import dataclasses
import math
import os
import pathlib

from bert_flow_tf.errors import ArgumentError

# The `objective` in the settings of a `runs.record.Training`.
MASKED_LM = "masked language model"
MOST_DEV_SENTENCES = 1000
_LEAST = {
    **{"steps": 1, "train_batch_size": 1, "num_warmup_steps": 0, "max_seq_length": 3, "save_checkpoints_steps": 1},
    "seed": 0,
}
_MOST = {"learning_rate": math.inf, "masked_lm_prob": 1.0}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingSettings:
    """The settings that the learned encoder depends on, besides its first weights and the text.

    Attributes:
      steps: number of steps, for which the learning rate decays to 0 after the warm-up.
      train_batch_size: sentences per step, over all replicas.
      learning_rate: its peak. TF1's Adam does not correct the bias of its moments: the first thousand steps are up to
        six times as large as AdamW's at the same rate.
      num_warmup_steps: steps of linear warm-up.
      max_seq_length: word pieces of a sentence, [CLS] and [SEP] included; longer ones are cut into several.
      masked_lm_prob: share of the word pieces that is predicted.
      do_whole_word_mask: predict all pieces of a word or none.
      dev_fraction: share of the sentences that is held out for the dev loss, at most `MOST_DEV_SENTENCES` sentences.
      save_checkpoints_steps: steps from one checkpoint, and dev loss, to the next.
      seed: of everything random.
    """

    steps: int = 1000
    train_batch_size: int = 64
    learning_rate: float = 2e-4
    num_warmup_steps: int = 100
    max_seq_length: int = 64
    masked_lm_prob: float = 0.15
    do_whole_word_mask: bool = False
    dev_fraction: float = 0.01
    save_checkpoints_steps: int = 100
    seed: int = 1234

    def check(self) -> None:
        """Raise `ArgumentError` for the first invalid value."""
        for name, value in vars(self).items():
            if name in _LEAST and (not isinstance(value, int) or value < _LEAST[name]):
                raise ArgumentError(f"{name}: found {value!r}, expected a whole number of {_LEAST[name]} or more")
            if name in _MOST and not (0 < value <= _MOST[name] and math.isfinite(value)):
                raise ArgumentError(f"{name}: found {value!r}, expected a number above 0, at most {_MOST[name]:g}")
        if not 0 <= self.dev_fraction < 1:
            raise ArgumentError(f"dev_fraction: found {self.dev_fraction!r}, expected a number from 0 to below 1")
        if self.seed >= 2**32:
            raise ArgumentError(f"seed: found {self.seed}, expected less than {2**32}")
        if self.steps <= self.num_warmup_steps:
            raise ArgumentError(
                f"steps: found {self.steps}, expected more than num_warmup_steps, {self.num_warmup_steps}"
            )


def run_folder(out_dir: str | os.PathLike) -> pathlib.Path:
    """Return the path of the run's folder, beside the encoder folder that the run writes."""
    out = pathlib.Path(os.path.abspath(out_dir))
    return out.with_name(f"{out.name}.pretraining")
