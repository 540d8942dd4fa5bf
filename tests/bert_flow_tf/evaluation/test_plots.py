"""Figures show every point, and become PNG and SVG."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from matplotlib import pyplot

from bert_flow_tf.evaluation import isotropy, plots
from bert_flow_tf.evaluation.lexical import BERT, GOLD


def lexical_figure():
    rng = np.random.default_rng(0)
    distances = rng.integers(0, 20, 60)
    similarities = {GOLD: rng.uniform(0, 5, 60), BERT: rng.uniform(-1, 1, 60)}
    return plots.lexical_figure(distances, similarities, {GOLD: -24.55, BERT: 3.0}), distances, similarities


def spectrum_figure():
    x = np.random.default_rng(0).normal(size=(40, 6)) * [3, 2, 1, 1, 1, 0] + 1
    reference = isotropy.measure_isotropy(np.random.default_rng(0).normal(size=(40, 6)))
    return plots.spectrum_figure(
        {"without flow": isotropy.measure_isotropy(x)}, reference, title="A <title>"
    ), reference


def word_figure():
    points = np.random.default_rng(0).normal(size=(30, 2))
    return plots.word_frequency_figure(points, np.arange(1, 31)), points


def test_lexical_panels_hold_every_pair_once_with_close_pairs_apart():
    figure, distances, similarities = lexical_figure()
    for panel, (name, values) in zip(figure.axes, similarities.items(), strict=True):
        assert panel.get_xlabel() == name
        far, close = (points.get_offsets() for points in panel.collections)
        assert sorted(close[:, 0]) == pytest.approx(sorted(values[distances <= 4]))
        assert sorted(far[:, 0]) == pytest.approx(sorted(values[distances > 4]))
        # spread, but never as far as to the next distance
        assert np.round(close[:, 1]).tolist() == distances[distances <= 4].tolist()
        assert np.round(far[:, 1]).tolist() == distances[distances > 4].tolist()
    assert figure.axes[0].get_title("left") == "Spearman × 100: −24.55"


def test_word_figure_colours_by_rank_with_the_most_frequent_word_on_top():
    figure, points = word_figure()
    (drawn,) = figure.axes[0].collections
    assert drawn.get_array().tolist() == list(range(30, 0, -1))
    assert np.asarray(drawn.get_offsets()) == pytest.approx(points[::-1])


def test_spectrum_is_relative_to_the_mean_direction_and_leaves_out_empty_ones():
    figure, reference = spectrum_figure()
    line, ideal = figure.axes[1].lines
    # the constant channel has no variance to draw
    assert len(line.get_xdata()) == 5
    assert np.sum(line.get_ydata()) == pytest.approx(6)
    power = np.square(reference.centred_spectrum)
    assert ideal.get_ydata() == pytest.approx(6 * power / np.sum(power))
    assert [text.get_text() for text in figure.legends[0].texts] == [
        "without flow",
        "standard normal, same number of draws",
    ]


def test_cone_lies_to_the_right_and_every_point_in_the_circle():
    spread = np.random.default_rng(0).normal(size=(60, 5))
    figure = plots.cone_figure({"even": spread, "cone": 3 * (spread - [9, 0, 0, 0, 0])})
    even, cone = (np.asarray(panel.collections[0].get_offsets()) for panel in figure.axes)
    assert even.shape == cone.shape == (60, 2)
    assert cone[:, 0].min() > 0.9 > np.abs(even.mean(axis=0)).max() + 0.5
    assert max(np.linalg.norm(side, axis=1).max() for side in (even, cone)) <= 1 + 1e-9


@pytest.mark.parametrize("make", [lexical_figure, word_figure, spectrum_figure])
def test_figures_are_written_as_png_and_svg_of_the_same_bytes_each_time(make, tmp_path):
    figure = make()[0]
    plots.write_figure(figure, tmp_path, "plot")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plot.png", "plot.svg"]
    header = (tmp_path / "plot.png").read_bytes()[:24]
    assert header.startswith(b"\x89PNG")
    assert int.from_bytes(header[16:20], "big") == round(figure.get_figwidth() * 150)
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert ElementTree.fromstring(written["plot.svg"]).tag.endswith("svg")
    plots.write_figure(make()[0], tmp_path, "plot")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == written
    assert pyplot.get_fignums() == []
