"""Figures show every point, and become PNG and SVG."""

import numpy as np
import pytest

from bert_flow_tf.evaluation import isotropy, plots
from bert_flow_tf.evaluation.lexical import BERT, GOLD, Correlations


def lexical_figure():
    rng = np.random.default_rng(0)
    distances = rng.integers(0, 20, 60)
    similarities = {GOLD: rng.uniform(0, 5, 60), BERT: rng.uniform(-1, 1, 60)}
    rows = {GOLD: {"edit distance": -24.55}, BERT: {"edit distance": 3.0}}
    found = Correlations(pairs=60, rows=rows, undefined=[])
    return plots.lexical_figure(distances, similarities, found), distances, similarities


def test_lexical_panels_hold_every_pair_once():
    figure, distances, similarities = lexical_figure()
    for panel, (name, values) in zip(figure.axes, similarities.items(), strict=True):
        assert panel.get_xlabel() == name
        far, close = (points.get_offsets() for points in panel.collections)
        assert sorted(close[:, 0]) == pytest.approx(sorted(values[distances <= 4]))
        assert sorted(far[:, 0]) == pytest.approx(sorted(values[distances > 4]))
        # Points are spread, but never as far as to the next distance.
        assert np.round(close[:, 1]).tolist() == distances[distances <= 4].tolist()
        assert np.round(far[:, 1]).tolist() == distances[distances > 4].tolist()
    assert figure.axes[0].get_title("left") == "Spearman × 100: −24.55"


def test_word_figure_has_the_most_frequent_word_on_top():
    points = np.random.default_rng(0).normal(size=(30, 2))
    figure = plots.word_frequency_figure(points, np.arange(1, 31))
    (drawn,) = figure.axes[0].collections
    assert drawn.get_array().tolist() == list(range(30, 0, -1))
    assert np.asarray(drawn.get_offsets()) == pytest.approx(points[::-1])


def test_spectrum_is_relative_to_the_mean_direction():
    draws = np.random.default_rng(0).normal(size=(40, 6))
    measured, reference = map(isotropy.measure_isotropy, (draws * [3, 2, 1, 1, 1, 0] + 1, draws))
    figure = plots.spectrum_figure({"without flow": measured}, reference)
    line, ideal = figure.axes[1].lines
    assert np.sum(line.get_ydata()) == pytest.approx(6)
    power = np.square(reference.centred_spectrum)
    assert ideal.get_ydata() == pytest.approx(6 * power / np.sum(power))


def test_cone_lies_to_the_right_within_the_circle():
    spread = np.random.default_rng(0).normal(size=(60, 5))
    figure = plots.cone_figure({"even": spread, "cone": 3 * (spread - [9, 0, 0, 0, 0])})
    even, cone = (np.asarray(panel.collections[0].get_offsets()) for panel in figure.axes)
    assert even.shape == cone.shape == (60, 2)
    assert cone[:, 0].min() > 0.9 > np.abs(even.mean(axis=0)).max() + 0.5
    assert max(np.linalg.norm(side, axis=1).max() for side in (even, cone)) <= 1 + 1e-9
