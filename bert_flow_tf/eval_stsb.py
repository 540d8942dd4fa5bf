"""Score predicted similarities, as the original's `scripts/eval_stsb.py` does.

    python -m bert_flow_tf.eval_stsb --glue_path glue_data --task_name STS-B --pred_path
    test_results.tsv --is_test 1

prints `Pearson: 0.827406, Spearman: 0.820344`, and for labels of 0 and 1 a second line, `AUC:
0.812345`.
"""

import argparse
import sys
from collections.abc import Sequence

from bert_flow_tf.common.errors import UserError, exit_status
from bert_flow_tf.tasks import tasks
from bert_flow_tf.tasks.protocols import read_predictions, score_predictions

_SPLITS = {"1": "test", "0": "dev", "-1": "train"}

# The original ignores --is_test for these tasks.
_ALWAYS_TEST = ("sick-r", "mrpc-regression")


def _run(arguments: Sequence[str] | None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bert_flow_tf.eval_stsb",
        description="Pearson and Spearman of predicted similarities.",
    )
    parser.add_argument(
        "--glue_path", default="../glue_data", help="folder that holds the tasks' folders"
    )
    parser.add_argument("--task_name", default="sts-b", help="a regression task")
    parser.add_argument(
        "--pred_path", required=True, help="file with one predicted similarity per line"
    )
    parser.add_argument("--is_test", default="0", help="1 test, 0 dev, -1 train")
    flags = parser.parse_args(arguments)
    task = tasks.get_task(flags.task_name)
    if flags.is_test not in _SPLITS:
        raise UserError(
            f"--is_test: found {flags.is_test}, expected 1 (test), 0 (dev) or -1 (train)"
        )
    split = "test" if task.name in _ALWAYS_TEST else _SPLITS[flags.is_test]
    scores = score_predictions(read_predictions(flags.pred_path), task, flags.glue_path, split)
    print(f"Pearson: {scores['pearson']:f}, Spearman: {scores['spearman']:f}")
    if "auc" in scores:
        print(f"AUC: {scores['auc']:f}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0, or 2 after an `error:` line."""
    return exit_status(_run, arguments)


if __name__ == "__main__":
    sys.exit(main())
