"""The report's own plots: what they draw, and the same text for the same figures."""

import pytest

from bert_flow_tf.evaluation.plots import svg_text
from bert_flow_tf.evaluation.report_plots import calibration_figure, seeds_figure

CALIBRATION = {
    "metric": "spearman",
    "task": "STS-B",
    "split": "test",
    "rows": [
        {"method": "none", "k": None, "mean_x100": 73.1, "values_x100": [73.1]},
        {"method": "natsv", "k": 4, "mean_x100": 75.0, "values_x100": [75.0]},
        {"method": "flow", "k": None, "mean_x100": 78.5, "values_x100": [78.0, 79.0]},
    ],
}


def seed_row(name, values, baseline, original=None):
    return {
        "name": name,
        "pooling": "cls",
        "flow": {"config": "config_l3_d3_w32"},
        "metric": "spearman",
        "task": "STS-B",
        "split": "test",
        "this_run": {"values_x100": values},
        "baseline": baseline and {"mean_x100": baseline},
        "original": original and {"values_x100": original},
    }


def dots(figure):
    """Marks of the figure's only panel: [x, y] of each."""
    (panel,) = figure.axes
    return [tuple(map(float, point)) for drawn in panel.collections for point in drawn.get_offsets()]


def labels(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_a_calibration_is_a_row_and_a_seed_a_dot():
    figure = calibration_figure(CALIBRATION)
    assert sorted(dots(figure)) == [(73.1, 0), (75.0, 1), (78.0, 2), (79.0, 2)]
    (panel,) = figure.axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["none", "natsv (k=4)", "flow"]
    assert panel.get_xlabel() == "Spearman × 100 on STS-B, test"
    assert set(labels(figure)) == {"here", "mean", "not calibrated"}


def test_seeds_stand_beside_the_tf1_codes_and_one_baseline():
    rows = [seed_row("a", [78.0, 78.4], 73.0, [78.5]), seed_row("b", [79.0], 73.0)]
    figure = seeds_figure(rows)
    assert sorted(dots(figure)) == [(78.0, 0), (78.4, 0), (78.5, 0), (79.0, 1)]
    assert set(labels(figure)) == {"here", "mean", "TF1 code", "without flow"}
    assert "without flow" not in labels(seeds_figure([rows[0], seed_row("b", [79.0], 74.0)]))


@pytest.mark.parametrize(
    "draw", [lambda: calibration_figure(CALIBRATION), lambda: seeds_figure([seed_row("a", [1, 2], 0)])]
)
def test_the_same_figures_give_the_same_text(draw):
    assert svg_text(draw()) == svg_text(draw())
