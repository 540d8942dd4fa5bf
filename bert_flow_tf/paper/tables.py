"""The figures of the paper's tables, to stand beside those of a run."""

import functools
import importlib.resources
import json
import types
from collections.abc import Mapping

# Pairs with gold scores in the sets that the paper scores; of STS-13 without SMT, as SentEval has it.
SCORED_PAIRS: Mapping[tuple[str, str], int] = types.MappingProxyType(
    {
        ("STS-B", "test"): 1379,
        ("SICK-R", "test"): 4927,
        ("STS-12", "test"): 3108,
        ("STS-13", "test"): 1500,
        ("STS-14", "test"): 3750,
        ("STS-15", "test"): 3000,
        ("STS-16", "test"): 1186,
    }
)


@functools.cache
def paper_tables() -> dict:
    """The figures of Li et al. 2020, as a dict from table to its rows; scores are times 100, as printed.

    The keys name the tables: `table1_word_embeddings`, `table2_no_nli_supervision`, `table3_nli_supervision`,
    `table4_qnli`, `table5_calibration_baselines`, `table6_lexical`, `table7_flow_hyperparameters`, `table8_seeds`; then
    `repository_readme_stsb`, figures of the authors' README, and `training`, the hyperparameters. One object is shared
    by all callers: it is to be read, not changed.
    """
    text = importlib.resources.files("bert_flow_tf.paper").joinpath("paper.json").read_text(encoding="utf-8")
    return json.loads(text)
