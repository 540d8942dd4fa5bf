"""The files that scoring adds to a run's folder, see `training.run_folder`.

    early_stopping.json       dev score at the end of each epoch, with `--early_stopping`
    embeddings-KEY.npz        a frozen encoder's embeddings, unless `--cached_dir` is given
    eval_results.txt, .json   metrics on dev, and their record
    SPLIT_results.tsv, .json  a cosine per pair, and their record
    SPLIT_pooled.tsv, .json   both embeddings per pair with `--predict_pool`, and their record
    model.ckpt-N.SPLIT_…      the same for `--eval_checkpoint_name`
    recipe_scores.json        the recipe's scores of the predictions
    evaluation.json           scores of `--do_senteval` or `bert-flow evaluate --model`

N is a step; SPLIT is test, dev or full.
"""

import pathlib
import re
from typing import NamedTuple

from bert_flow_tf.common.atomic import write_atomically
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.json_files import write_json
from bert_flow_tf.common.records import Result
from bert_flow_tf.tasks.scores import Basis, remaining_tasks

DEV_RESULTS_FILE = "eval_results.txt"

# Evaluation, prediction and the cache write these files; a name may begin with a checkpoint's name.
RESULT = re.compile(
    r"(model\.ckpt-\d+\.)?((test|dev|full)_(results|pooled)\.(tsv|json)|eval_results\.(txt|json)"
    r"|recipe_scores\.json"
    r"|evaluation\.json|embeddings-[0-9a-f]+\.npz)"
)


class ResultFile(NamedTuple):
    """A file that scoring writes, and what it depends on.

    The file lies beside its record (`.json`), which depends on the same.
    """

    path: pathlib.Path
    basis: Basis

    @property
    def record_path(self) -> pathlib.Path:
        return self.path.with_suffix(".json")

    def remaining(self, *, overwrite: bool) -> list[str]:
        """Return the tasks that it lacks, see `tasks.scores.remaining_tasks`."""
        has_record = self.record_path.exists()
        if self.path.exists() and not has_record and not overwrite:
            raise UserError(
                f"{self.path}: found results without their record {self.record_path.name}, "
                "expected none, or --overwrite to replace them"
            )
        # A killed command may leave a record without its file.
        if not self.path.exists():
            return [*self.basis.data]
        return remaining_tasks(self.record_path, self.basis, overwrite=overwrite)


def write_result(path: pathlib.Path, text: str, record: Result) -> None:
    """Write a result file and its record (`.json`), which `ResultFile` has checked."""
    # Delete an old result first, so that a killed command never leaves it beside the new record.
    path.unlink(missing_ok=True)
    write_json(path.with_suffix(".json"), record)
    write_atomically(path, text)
