"""The settings of masked language modelling; what TF1's `run_pretraining` has too is called as there."""

import dataclasses
import math
import os
import pathlib

from bert_flow_tf.errors import ArgumentError, UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingSettings:
    """What the encoder that is learned depends on, besides the encoder that it begins with and the text.

    Attributes:
      steps, minutes: one of both: the number of steps, for which the learning rate decays to 0, or the minutes that
        they take, in which it stays as it is after the warm-up.
      train_batch_size: sentences per step, over all replicas; at most as many as there are to learn from, or 64.
      learning_rate: its peak. TF1's Adam does not correct the bias of its moments: the first thousand steps are up to
        six times as large as AdamW's at the same rate.
      num_warmup_steps: steps of linear warm-up.
      max_seq_length: word pieces of a sentence, [CLS] and [SEP] included; what is longer is cut into several.
      masked_lm_prob: share of the word pieces that is predicted.
      do_whole_word_mask: predict all pieces of a word or none.
      dev_fraction: share of the sentences that is held out for the dev loss; of many, `MOST_DEV_SENTENCES`.
      save_checkpoints_steps: steps from one checkpoint, and dev loss, to the next.
      seed: of everything random.
    """

    steps: int | None = None
    minutes: float | None = None
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
        """Raises `ArgumentError` for the first argument whose value makes no sense."""
        if (self.steps is None) == (self.minutes is None):
            raise ArgumentError(
                f"steps: found {'neither steps nor' if self.steps is None else 'both steps and'} minutes, expected one "
                "of them"
            )
        for name, least in (
            *(("steps", 1), ("train_batch_size", 1), ("num_warmup_steps", 0), ("max_seq_length", 3)),
            *(("save_checkpoints_steps", 1), ("seed", 0)),
        ):
            value = getattr(self, name)
            if name == "steps" and value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ArgumentError(f"{name}: found {value!r}, expected a whole number of {least} or more")
        for name, most in (("minutes", math.inf), ("learning_rate", math.inf), ("masked_lm_prob", 1.0)):
            value = getattr(self, name)
            if value is not None and not (0 < value <= most and math.isfinite(value)):
                expected = "a number above 0" if most == math.inf else f"a number above 0, at most {most:g}"
                raise ArgumentError(f"{name}: found {value!r}, expected {expected}")
        if not 0 <= self.dev_fraction < 1:
            raise ArgumentError(f"dev_fraction: found {self.dev_fraction!r}, expected a number from 0 to below 1")
        if self.seed >= 2**32:
            raise ArgumentError(f"seed: found {self.seed}, expected less than {2**32}")
        if self.steps is not None and self.steps <= self.num_warmup_steps:
            raise ArgumentError(
                f"steps: found {self.steps}, which end in the warm-up, expected more than num_warmup_steps, "
                f"{self.num_warmup_steps}"
            )


# What the settings of a `runs.record.Training` name as `objective`.
MASKED_LM = "masked language model"
MOST_DEV_SENTENCES = 1000
# Characters of a sentence or paragraph: of a whole book in one line nearly all would be of one document.
LONGEST_SENTENCE = 1_000_000


def run_folder(out_dir: str | os.PathLike) -> pathlib.Path:
    """Path of the folder of the run that writes this encoder folder, beside it."""
    # Of `.` it is named, too.
    out = pathlib.Path(os.path.abspath(out_dir))
    if not out.name:
        raise UserError(f"{out_dir}: found the root of the file system, expected a folder to make")
    return out.with_name(f"{out.name}.pretraining")
