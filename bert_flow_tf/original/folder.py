"""The files that scoring adds to a run's folder, see `training.run_folder`.

    early_stopping.json       dev score at the end of each epoch, with `--early_stopping`
    embeddings-KEY.npz        a frozen encoder's embeddings, unless `--cached_dir` is given
    eval_results.txt          metrics on dev
    SPLIT_results.tsv, .json  a cosine per pair, and their record
    SPLIT_pooled.tsv, .json   both embeddings per pair with `--predict_pool`, and their record
    model.ckpt-N.SPLIT_…      the same for `--eval_checkpoint_name`
    recipe_scores.json        the recipe's scores of the predictions
    evaluation.json           scores of `--do_senteval` or `bert-flow evaluate --model`

N is a step; SPLIT is test, dev or full.
"""

import pathlib
import re

from bert_flow_tf.common.atomic import write_atomically
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.json_files import write_json
from bert_flow_tf.common.reading import read_text
from bert_flow_tf.common.records import Result

DEV_RESULTS_FILE = "eval_results.txt"

# Evaluation, prediction and the cache write these files; a name may begin with a checkpoint's name.
RESULT = re.compile(
    r"(model\.ckpt-\d+\.)?((test|dev|full)_(results|pooled)\.(tsv|json)|eval_results\.txt"
    r"|recipe_scores\.json"
    r"|evaluation\.json|embeddings-[0-9a-f]+\.npz)"
)


def write_result(
    path: pathlib.Path, text: str, overwrite: bool, record: Result | None = None
) -> None:
    """Write a result file and its record (`.json`) unless another result exists."""
    if path.exists() and not overwrite and read_text(path, "results") != text:
        raise UserError(
            f"{path}: found results of other settings, expected none (use --overwrite to replace "
            "them)"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    if record is not None:
        # Delete the old result first, so that a killed command never leaves it beside the new
        # record.
        if overwrite:
            path.unlink(missing_ok=True)
        write_json(path.with_suffix(".json"), record)
    write_atomically(path, text)
