"""The report's own plots: what they draw."""

from bert_flow_tf.report.plots import calibration_figure, own_plots, seeds_figure


def dots(figure):
    """Marks of the figure's only panel: [x, y] of each."""
    (panel,) = figure.axes
    return sorted((round(float(x), 2), float(y)) for drawn in panel.collections for x, y in drawn.get_offsets())


def labels(figure):
    return {text.get_text() for legend in figure.legends for text in legend.get_texts()}


def test_a_calibration_is_a_row_and_a_seed_a_dot(report):
    figure = calibration_figure(report["calibrations"][0])
    assert dots(figure) == [(73.08, 0), (75.0, 1), (78.4, 3), (78.5, 3), (79.0, 2)]
    (panel,) = figure.axes
    assert [label.get_text() for label in panel.get_yticklabels()] == ["none", "sn+natsv (k=6)", "whitening", "flow"]
    assert panel.get_xlabel() == "Spearman × 100 on STS-B, test"
    assert labels(figure) == {"here", "mean", "not calibrated"}


def test_seeds_stand_beside_the_tf1_codes_and_one_baseline(report):
    (flow,) = [row for row in report["scores"] if row["this_run"]["n"] > 1]
    other = flow | {"this_run": flow["this_run"] | {"values_x100": [78.0]}, "original": None}
    figure = seeds_figure([flow, other])
    assert dots(figure) == [(78.0, 1), (78.46, 0), (78.51, 0), (79.0, 0), (80.0, 0), (84.0, 0)]
    assert labels(figure) == {"here", "mean", "TF1 code", "without flow"}
    other = other | {"baseline": flow["baseline"] | {"mean_x100": 74.0}}
    assert "without flow" not in labels(seeds_figure([flow, other]))


def test_a_plot_is_drawn_for_every_task_of_several_seeds_and_every_calibration(report):
    assert list(own_plots(report)) == ["seeds-1", "calibration-1"]
