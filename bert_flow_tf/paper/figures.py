"""The figures that stand beside those of a run: the paper's tables, and what the authors' TensorFlow 1 code gives."""

import functools
import importlib.resources
import json
from collections.abc import Sequence


def _read(name: str) -> dict:
    return json.loads(importlib.resources.files("bert_flow_tf.paper").joinpath(name).read_text(encoding="utf-8"))


@functools.cache
def paper_tables() -> dict:
    """The figures of Li et al. 2020, as a dict from table to its rows; scores are times 100, as printed.

    The keys name the tables: `table1_word_embeddings`, `table2_no_nli_supervision`, `table3_nli_supervision`,
    `table4_qnli`, `table5_calibration_baselines`, `table6_lexical`, `table7_flow_hyperparameters`, `table8_seeds`; then
    `repository_readme_stsb`, figures of the authors' README, and `training`, the hyperparameters. One object is shared
    by all callers: it is to be read, not changed.
    """
    return _read("paper.json")


@functools.cache
def original_runs() -> dict:
    """The runs of the original on the demo encoder's weights, on CPUs; correlations are fractions, as it prints them.

    `code`, `commit` and `versions` say what was run; `encoder`, `max_seq_length`, `task`, `split`, `pairs` and
    `flow_training` on what and how; `runs` is a list of dicts of `sentence_embedding_type`, `flow_model_config` (None
    without a flow), `seed` (None where nothing is drawn), `pearson`, `spearman` (None where the run ended in NaN), and
    `changed`: what was changed in the code for this run, None for the code as it was released. One object is shared by
    all callers: it is to be read, not changed.
    """
    return _read("original_runs.json")


def original_figure(pooling: str, flow_model_config: str | None, seeds: Sequence[int]) -> dict | None:
    """The released code's Spearman's correlation x100 on the test split of the STS Benchmark; None where there is none.

    Args:
      pooling: `sentence_embedding_type`.
      flow_model_config: name of the flow's configuration; None without a flow.
      seeds: of the run to compare. Where that is one seed which the original was run with too, its runs with that seed
        alone are taken, else all of them. The two codes draw from other generators: one seed gives them other numbers,
        and the original's runs with one seed differ.

    Returns:
      dict of `mean_x100`, `values_x100` and `seeds`, the latter empty without a flow.
    """
    wanted = (None, pooling, flow_model_config)
    keys = ("changed", "sentence_embedding_type", "flow_model_config")
    found = [run for run in original_runs()["runs"] if tuple(run[key] for key in keys) == wanted]
    if len(seeds) == 1:
        found = [run for run in found if run["seed"] == seeds[0]] or found
    if not found:
        return None
    values = [100 * run["spearman"] for run in found]
    return {
        "mean_x100": sum(values) / len(values),
        "values_x100": values,
        "seeds": [run["seed"] for run in found if run["seed"] is not None],
    }
