"""The report's own plots: what they draw."""

from bert_flow_tf.report.plots import calibration_figure, own_plots, seeds_figure
from tests.bert_flow_tf.report import collected

REPORT = collected.report()


def dots(figure):
    """Marks of the figure's only panel: [x, y] of each."""
    (panel,) = figure.axes
    return [tuple(map(float, point)) for drawn in panel.collections for point in drawn.get_offsets()]


def labels(figure):
    return {text.get_text() for legend in figure.legends for text in legend.get_texts()}


def test_a_calibration_is_a_row_and_a_seed_a_dot():
    figure = calibration_figure(REPORT["calibrations"][0])
    assert sorted(dots(figure)) == [(73.08, 0), (75.0, 1), (78.4, 2), (78.5, 2), (78.6, 2)]
    (panel,) = figure.axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["none", "natsv (k=6)", "flow"]
    assert panel.get_xlabel() == "Spearman × 100 on STS-B, test"
    assert labels(figure) == {"here", "mean", "not calibrated"}


def test_seeds_stand_beside_the_tf1_codes_and_one_baseline():
    flow = REPORT["scores"][0]
    other = collected.score("other", 79.0, baseline=flow["baseline"])
    figure = seeds_figure([flow, other])
    assert sorted(dots(figure)) == [(79.0, 0), (79.0, 1), (80.0, 0), (80.57, 0), (84.0, 0)]
    assert labels(figure) == {"here", "mean", "TF1 code", "without flow"}
    assert "without flow" not in labels(seeds_figure([flow, other | {"baseline": collected.summary(74.0)}]))


def test_a_plot_is_drawn_for_every_task_of_several_seeds_and_every_calibration():
    assert list(own_plots(REPORT)) == ["seeds-1", "calibration-1"]
