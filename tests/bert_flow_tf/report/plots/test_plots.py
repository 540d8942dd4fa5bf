"""Each picture shows the numbers that it was given."""

import functools
import importlib.util

import numpy as np
import pytest
from matplotlib.figure import Figure

from bert_flow_tf import plots
from bert_flow_tf.common.losses import BITS, Losses
from bert_flow_tf.common.records import made_by
from bert_flow_tf.report.lexical import LexicalPairs
from bert_flow_tf.vectors.isotropy import measure_isotropy
from tests.refusals import user_error

RNG = np.random.default_rng(0)
U = RNG.normal(size=[60, 5]) + 2
SIDES = {"before": U, "after": U - U.mean(axis=0)}
GOLD = RNG.integers(0, 6, 60) / 1.0
PAIRS = plots.ScoredPairs(GOLD, {"before": GOLD / 6, "after": -GOLD / 6})


def test_counts_of_cosines_are_those_of_all_pairs():
    unit = U / np.linalg.norm(U, axis=1, keepdims=True)
    expected = np.histogram((unit @ unit.T)[np.triu_indices(60, 1)], bins=200, range=(-1, 1))[0]
    found = np.array(measure_isotropy(U).cosine_counts)
    # Rounding may put a cosine at an edge into the next bin.
    assert found.sum() == 60 * 59 // 2 and np.abs(found - expected).sum() <= 4


def test_cosines_and_thresholds_are_drawn():
    counts = {name: measure_isotropy(side).cosine_counts for name, side in SIDES.items()}
    axes = Figure().subplots()
    assert plots.cosines(counts, {"after": 0.25}, ax=axes) is axes.figure
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["before", "after"]
    assert [text.get_text() for text in axes.texts] == ["1 in 1,000: 0.25"]
    with user_error("found no cosines"):
        plots.cosines({"before": []})


def test_plane_shows_the_largest_directions_and_all_colours():
    figure = plots.plane(SIDES, ["a", "b", "c"] * 20, name="kind")
    before, after = figure.axes
    unit = U / np.linalg.norm(U, axis=1, keepdims=True)
    expected = np.abs(unit @ np.linalg.svd(unit)[2][0])
    drawn = np.concatenate([np.asarray(one.get_offsets()) for one in before.collections])
    np.testing.assert_allclose(np.sort(np.abs(drawn[:, 0])), np.sort(expected), atol=1e-4)
    assert len(drawn) == 60 and "mean cosine 0.8" in before.get_title(loc="left")
    assert [text.get_text() for text in after.get_legend().get_texts()] == ["a", "b", "c"]
    names = [str(i % 12) for i in range(60)]
    many = plots.plane({"all": U}, names).axes[0].get_legend().get_texts()
    assert len(many) == 8 and many[0].get_text() == "others"
    with user_error("colours: found 2, expected 60"):
        plots.plane(SIDES, [1, 2])
    zero = U * np.append(np.ones(59), 0)[:, np.newaxis]
    with user_error("plane, last: 1 of the 60 sentences have embeddings that are zero"):
        plots.plane({"first": U, "last": zero})


@pytest.mark.parametrize("dtype", [int, float, np.int64, np.float32])
def test_numbers_of_every_type_get_a_scale(dtype):
    # The scale is an axes of its own.
    numbers = [dtype(one) for one in range(60)]
    assert len(plots.plane({"all": U}, numbers).axes) == 2
    assert len(plots.plane({"all": U}, np.array(numbers)).axes) == 2
    assert len(plots.plane({"all": U}, [True, False] * 30).axes) == 1


def test_gold_and_reliability_name_their_scores():
    titles = [axes.get_title(loc="left") for axes in plots.gold(PAIRS).axes]
    figures = {"before": "100.0", "after": "-100.0"}
    expected = [f"{name}: Spearman {one} (x100) of 60 pairs" for name, one in figures.items()]
    assert titles == expected
    with user_error("panels: found reliability with graded scores"):
        plots.reliability(PAIRS)
    labels = np.array([0, 0, 0, 1, 0, 1, 1, 1.0])
    found = plots.reliability(plots.ScoredPairs(labels, {"all": np.arange(8) / 10}, "QQP"))
    assert found.axes[0].get_title(loc="left") == "QQP, all: best F1 88.9 at cosine 0.30"


def test_losses_of_one_unit_share_a_picture():
    losses = Losses(made_by=made_by("fit"), unit=BITS, training={1: 2.0, 2: 1.0}, held_out={2: 1.5})
    (axes,) = plots.losses({"a": losses, "b": losses}).axes
    assert len(axes.lines) == 4 and axes.get_ylabel() == f"loss ({BITS})"
    other = Losses(made_by=made_by("fit"), unit="nats per pair", training={1: 2.0})
    with user_error("panels: found losses in bits per dimension and nats per pair"):
        plots.losses({"a": losses, "b": other})


def test_bars_have_the_mean_and_the_deviation_of_seeds():
    score = plots.Score.of_seeds([1.0, 3.0])
    assert score == pytest.approx((2.0, 2**0.5, 2**0.5))
    (axes,) = plots.bars({"avg": {"x": score}, "cls": {"x": score, "y": score}}).axes
    assert [round(bar.get_width(), 1) for bar in axes.patches] == [2.0, 2.0, 2.0]


def test_distances_are_drawn_by_similarity():
    pairs = LexicalPairs(np.arange(60.0), GOLD, {"gold": GOLD, "without flow": -np.arange(60.0)})
    titles = [axes.get_title(loc="left") for axes in plots.distances(pairs).axes]
    assert titles[1] == "without flow: Spearman -100.0 (x100)"


def test_a_wide_panel_has_a_row_of_its_own_and_files_are_the_same(tmp_path):
    pictures = [
        plots.Picture(functools.partial(plots.plane, SIDES), 2),
        plots.Picture(functools.partial(plots.word_plane, U, np.arange(60))),
    ]
    for name in ("a.svg", "b.svg"):
        plots.save(plots.panels(pictures), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    with user_error("plot: found a.jpg, expected a name with .png, .svg or .pdf"):
        plots.save(Figure(), "a.jpg")


def test_missing_matplotlib_is_one_line(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with user_error("plot: the extra plots is not installed"):
        plots.spectrum({"before": measure_isotropy(U)})
