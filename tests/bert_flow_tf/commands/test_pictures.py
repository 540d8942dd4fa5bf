"""`--plot`: commands draw what they measured."""

import re

import pytest

from tests.refusals import refused, succeeds

pytestmark = pytest.mark.usefixtures("small_default_flow")


def titles(path):
    """The texts of an SVG file, which keeps them as comments."""
    return re.findall(r"<!-- (.+?) -->", path.read_text())


@pytest.fixture(scope="module")
def fitted(tiny_encoder_dir, tmp_path_factory):
    """Arguments of a model that `fit` drew, its sentences and the picture."""
    folder = tmp_path_factory.mktemp("fitted")
    sentences, out = folder / "sentences.csv", folder / "model"
    rows = [f"w{i} w{j},{'ab'[i % 2]}\n" for i in range(20) for j in range(12)]
    sentences.write_text("sentence,kind\n" + "".join(rows))
    flags = ("--max_seq_length", 8, "--num_train_epochs", 2, "--dev_fraction", 0.1)
    files = ("--input", sentences, "--out", out, "--plot", folder / "fit.svg")
    succeeds("fit", "--bert_hub", tiny_encoder_dir, *flags, *files)
    return ["--model", out], sentences, folder / "fit.svg"


def test_fit_draws_cosines_and_losses(fitted):
    found = titles(fitted[2])
    assert {"Cosines of random pairs of sentences", "Losses of the training"} <= {*found}


def test_losses_of_a_method_without_steps_are_refused_before_any_work(tiny_encoder_dir, tmp_path):
    (tmp_path / "texts.txt").write_text("w1\n")
    given = ("--bert_hub", tiny_encoder_dir, "--input", tmp_path / "texts.txt")
    files = ("--out", tmp_path / "out", "--plot", tmp_path / "fit.svg", "--panels", "losses")
    line = refused("fit", *given, *files, "--method", "whitening", unchanged=tmp_path)
    assert line == "--panels: found losses, which whitening does not have"


def test_isotropy_is_coloured_by_a_column(fitted, tmp_path):
    model, sentences, _ = fitted
    plot = tmp_path / "isotropy.svg"
    command = ["isotropy", *model, "--input", sentences, "--plot", plot]
    succeeds(*command, "--colour", "kind", "--panels", "plane")
    found = titles(plot)
    assert {"kind", "a", "b"} <= {*found} and "Variance by direction" not in found
    assert "exists" in refused(*command, unchanged=tmp_path)
    succeeds(*command, "--overwrite")
    assert "Variance by direction" in titles(plot)


def test_evaluate_and_report_draw_scores(fitted, small_glue_dir, tmp_path):
    plot, out = tmp_path / "gold.svg", tmp_path / "scores.json"
    scored = ("--tasks", "stsb", "--glue_dir", small_glue_dir)
    succeeds("evaluate", *fitted[0], *scored, "--plot", plot, "--out", out)
    assert any(one.startswith("STS-B, with flow: Spearman") for one in titles(plot))
    report, page = tmp_path / "report.svg", tmp_path / "page.html"
    succeeds("report", "--runs", out, "--plot", report, "--html", page)
    drawn = {*titles(report)}
    assert "without flow" in drawn and any("STS-B, test, " in one for one in drawn)
    assert "data:image/svg+xml" in page.read_text()


def test_compare_draws_each_method(fitted, small_glue_dir, tmp_path):
    plot = tmp_path / "compare.svg"
    methods = ("--methods", "sn,whitening")
    succeeds("compare", *fitted[0], "--glue_dir", small_glue_dir, *methods, "--plot", plot)
    assert {"sn", "whitening", "Spearman (whiskers: 95 % of the change)"} <= {*titles(plot)}


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        (("--plot", "a.gif"), "--plot: found a.gif, expected a name with .png, .svg or .pdf"),
        (("--panels", "plane"), "--panels: missing --plot"),
        (("--plot", "a.png", "--panels", "gold"), "found gold, expected some of cosines, plane"),
        (("--colour", "kind"), "--colour: missing --plot"),
        (("--plot", "a.png", "--colour", "size"), "size"),
    ],
)
def test_a_mistake_is_found_before_the_model_loads(fitted, flags, found, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert found in refused("isotropy", "--bert_hub", "demo", "--input", fitted[1], *flags)
