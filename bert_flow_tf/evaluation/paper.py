"""The figures of the paper's tables, to stand beside those of a run."""

import functools
import importlib.resources
import json


@functools.cache
def paper_tables() -> dict:
    """The figures of Li et al. 2020, as a dict from table to its rows; scores are times 100, as printed.

    The keys name the tables: `table1_word_embeddings`, `table2_no_nli_supervision`, `table3_nli_supervision`,
    `table4_qnli`, `table5_calibration_baselines`, `table6_lexical`, `table7_flow_hyperparameters`, `table8_seeds`; then
    `repository_readme_stsb`, figures of the authors' README, and `training`, the hyperparameters. One object is shared
    by all callers: it is to be read, not changed.
    """
    text = importlib.resources.files("bert_flow_tf.evaluation").joinpath("paper.json").read_text(encoding="utf-8")
    return json.loads(text)
