"""The rows of the paper's tables."""

import pytest

from bert_flow_tf.paper.presets import PRESETS, paper_row
from bert_flow_tf.paper.tables import paper_tables


@pytest.mark.parametrize(
    ("preset", "encoder", "with_nli", "task", "figure"),
    [
        ("avg", "base", False, "STS-B", 47.29),
        ("flow-target", "base", False, "STS-12", 63.48),
        ("flow-nli", "large", False, "STS-B", 68.09),
        ("flow-train", "large", True, "STS-B", 80.54),
        ("flow-train", "base", False, "STS-B", None),
        ("avg", "demo", False, "STS-B", None),
        ("avg", "large-wwm", False, "STS-B", None),
        ("avg", "base", False, "QNLI-Regression", None),
    ],
)
def test_the_papers_figure_is_there_for_its_encoders_only(preset, encoder, with_nli, task, figure):
    row = paper_row(PRESETS[preset], encoder, with_nli, task, paper_tables())
    assert (row and row["spearman_x100"]) == figure
