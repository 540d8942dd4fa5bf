"""What the authors' TensorFlow 1 code gives on the demo encoder's weights, to stand beside a run's figure."""

import functools
import importlib.resources
import json
from collections.abc import Sequence


@functools.cache
def original_runs() -> dict:
    """The runs of the original, as a dict; correlations are fractions, as its script prints them.

    `code`, `commit` and `versions` say what was run, on CPUs; `encoder`, `max_seq_length`, `task`, `split`, `pairs` and
    `flow_training` on what and how; `runs` is a list of dicts of `sentence_embedding_type`, `flow_model_config` (None
    without a flow), `seed` (None where nothing is drawn), `pearson`, `spearman` (None where the run ended in NaN), and
    `changed`: what was changed in the code for this run, None for the code as it was released. One object is shared by
    all callers: it is to be read, not changed.
    """
    package = importlib.resources.files("bert_flow_tf.paper")
    return json.loads(package.joinpath("original_runs.json").read_text(encoding="utf-8"))


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
    found = [
        run
        for run in original_runs()["runs"]
        if run["changed"] is None
        and run["sentence_embedding_type"] == pooling
        and run["flow_model_config"] == flow_model_config
    ]
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
