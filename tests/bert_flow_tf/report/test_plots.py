"""The report's own plots: what they draw."""

import pytest

from bert_flow_tf.report.plots import (
    calibration_figure,
    curve_figure,
    histogram_figure,
    own_plots,
    scatter_figure,
    seeds_figure,
)


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
    assert labels(figure) == {"here", "mean", "95% interval of the mean", "not calibrated"}


def test_seeds_stand_beside_the_tf1_codes_and_one_baseline(report):
    (flow,) = [row for row in report["scores"] if row["this_run"]["n"] > 1]
    other = flow | {"this_run": flow["this_run"] | {"values_x100": [78.0]}, "original": None}
    figure = seeds_figure([flow, other])
    assert dots(figure) == [(78.0, 1), (78.46, 0), (78.51, 0), (79.0, 0), (80.0, 0), (84.0, 0)]
    assert labels(figure) == {"here", "mean", "95% interval of the mean", "TF1 code", "without flow"}
    # Of 79, 80 and 84: the mean 81 and Student's 4.303 standard errors of 1.528.
    lines = [line.get_xdata() for line in figure.axes[0].lines if line.get_label() == "95% interval of the mean"]
    assert [list(line) for line in lines] == [pytest.approx([74.43, 87.57], abs=0.01)]
    other = other | {"baseline": flow["baseline"] | {"mean_x100": 74.0}}
    assert "without flow" not in labels(seeds_figure([flow, other]))


def test_a_pair_is_a_dot_and_both_sides_have_one_scale(report):
    (record,) = report["similarities"]
    limits = set()
    for side in ("before", "after"):
        (panel,) = scatter_figure(record, side).axes
        (drawn,) = panel.collections
        gold, cosines = drawn.get_offsets().T
        assert (gold.tolist(), cosines.tolist()) == (record[side]["gold"], record[side]["similarities"])
        limits.add(panel.get_ylim())
    assert len(limits) == 1


def test_a_histogram_holds_all_pairs_of_both_sides(report):
    (record,) = report["similarities"]
    (panel,) = histogram_figure(record).axes
    filled = [patch.get_data() for patch in panel.patches if patch.get_fill()]
    assert [data.values.sum() for data in filled] == [record["pairs"]] * 2
    # Cosines around .6 before the flow and around .1 after it.
    means = [(data.values * (data.edges[:-1] + data.edges[1:])).sum() / 2 / data.values.sum() for data in filled]
    assert means == pytest.approx([0.6, 0.1], abs=0.02)
    assert [data.edges[[0, -1]].tolist() for data in filled] == [[-1, 1]] * 2


def test_a_run_is_a_line_of_its_losses(report):
    (record,) = report["trainings"]
    other = record | {"source": "other", "curve": {"steps": [1], "losses": {"flow_loss": [2.0]}}}
    figure = curve_figure("flow_loss", [record, other])
    lines = [line.get_xydata().tolist() for line in figure.axes[0].lines]
    assert lines == [[[100, 9.5], [200, 1.25], [269, -0.5]], [[1, 2.0]]]
    assert labels(figure) == {"run", "other"}


def test_a_plot_is_drawn_for_all_that_the_report_names(report):
    analyses = {"lexical-1", "words-1", "isotropy-1"}
    assert own_plots(report).keys() == report["figures"].keys() - analyses
