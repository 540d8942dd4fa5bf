"""What the benchmarks of siamese training on NLI share: the recipe's settings, for a number of steps."""

import os
from typing import Any

from benchmarks.options import Options
from bert_flow_tf.data.tasks import Examples, read_train
from bert_flow_tf.paper.presets import NLI_FLAGS

BATCH_SIZE = int(NLI_FLAGS["train_batch_size"])
LEARNING_RATE = float(NLI_FLAGS["learning_rate"])
MAX_SEQ_LENGTH = 64
SEED = 1234


def read_pairs(options: Options) -> Examples:
    """The pairs of MNLI and SNLI that the recipe trains on, in their order before it is shuffled.

    Raises:
      UserError: `options.glue_dir` does not hold both in GLUE's layout.
    """
    return read_train("ALLNLI", data_dir(options))


def data_dir(options: Options) -> str:
    """The `--data_dir` of ALLNLI."""
    return os.path.join(options.glue_dir, "MNLI")


def settings(options: Options, pairs: int, steps: int, output_parent_dir: str | os.PathLike) -> dict[str, Any]:
    """dict of the flags of `run_siamese` that train for `steps` steps, as the recipe does, on that many pairs."""
    return {
        "task_name": "ALLNLI",
        "data_dir": data_dir(options),
        "bert_hub": options.bert_hub,
        "output_parent_dir": str(output_parent_dir),
        "exp_name": "run",
        "max_seq_length": MAX_SEQ_LENGTH,
        "train_batch_size": BATCH_SIZE,
        "learning_rate": LEARNING_RATE,
        # Between two whole numbers of steps, since the smaller one is taken.
        "num_train_epochs": (steps + 0.5) * BATCH_SIZE / pairs,
        "seed": SEED,
        "do_train": True,
    }
