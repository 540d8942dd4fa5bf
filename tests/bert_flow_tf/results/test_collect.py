"""What a report shows: collected from files, set beside what is comparable, refused where a file is wrong."""

import copy
import dataclasses
import functools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_flow_tf.errors import UserError
from bert_flow_tf.report.sections import sections
from bert_flow_tf.results.collect import analysis_plots, collect
from bert_flow_tf.results.sources import find_sources
from tests.bert_flow_tf.results import written
from tests.bert_flow_tf.results.written import write


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return written.write_all(tmp_path_factory.mktemp("shared") / "results")


@pytest.fixture(scope="module")
def report(results):
    return collect(find_sources([results])[0], "Results")


def places(value, place=()):
    """The keys that lead to every value within a JSON value."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*place, key)
        yield from places(child, (*place, key))


def changed(value, place, new):
    """A copy of a JSON value with something else in one place; nothing at all for `...`."""
    copied = copy.deepcopy(value)
    parent = functools.reduce(lambda inner, key: inner[key], place[:-1], copied)
    if new is ...:
        del parent[place[-1]]
    else:
        parent[place[-1]] = new
    return copied


@settings(derandomize=True, max_examples=150, deadline=None)
@given(data=st.data())
def test_any_slip_in_any_file_is_one_line_or_does_not_matter(results, data):
    path = data.draw(st.sampled_from(sorted(results.rglob("*.json"))))
    text = path.read_text(encoding="utf-8")
    place = data.draw(st.sampled_from(list(places(json.loads(text)))))
    new = data.draw(st.sampled_from([None, 3, -1e9, 0.5, True, "x", [], {}, ["x"], [{}], {"a": 1}, ...]))
    try:
        path.write_text(json.dumps(changed(json.loads(text), place, new)))
        record = collect(find_sources([results])[0], "Results")
        json.dumps([record, *map(dataclasses.asdict, sections(record))], allow_nan=False)
    except UserError as error:
        assert "\n" not in str(error)
    finally:
        path.write_text(text, encoding="utf-8")


def test_a_run_that_was_only_trained_has_no_scores_and_no_protocol(tmp_path):
    written.write_run(tmp_path / "run")
    record = collect(find_sources([tmp_path / "run"])[0], "Results")
    assert (record["scores"], record["sources"][0]["protocol"]) == ([], None)


def test_every_plot_has_a_caption_and_every_analysis_its_plot(results, report):
    plots = analysis_plots(find_sources([results])[0])
    assert list(plots) == ["lexical-1", "words-1", "isotropy-1"]
    assert plots["words-1"] == (results / "words" / "words.svg").read_bytes()
    drawn = ["before-1", "after-1", "histogram-1", "curve-1", "calibration-1"]
    assert list(report["figures"]) == [*drawn, *plots]
    assert list(report["alternatives"]) == drawn[:4]


@pytest.mark.parametrize(("content", "message"), [(None, "no such file"), (b"<html>", "content that is not SVG")])
def test_a_plot_that_is_missing_or_none_is_refused_by_name(tmp_path, content, message):
    folder = write(tmp_path / "words" / "results.json", written.words(), "words.svg").parent
    (folder / "words.svg").unlink()
    if content:
        (folder / "words.svg").write_bytes(content)
    with pytest.raises(UserError, match=rf"words\.svg: .*{message}.*expected the plot"):
        analysis_plots(find_sources([folder])[0])


def collected(path, kind):
    (record,) = collect(find_sources([path])[0], "Results")[kind]
    return record


def test_lexical_correlations_stand_beside_table_6_on_the_dev_set_of_stsb_alone(tmp_path):
    path = write(tmp_path / "dev" / "results.json", written.lexical())
    record = collected(path, "lexical")
    gold, bert = record["rows"]
    assert gold["edit distance"] == {"value_x100": -24.55, "paper_x100": -24.61, "difference_x100": pytest.approx(0.06)}
    assert bert["edit distance"] == {"value_x100": -30.0, "paper_x100": -50.49, "difference_x100": None}
    assert (bert["gold"]["paper_x100"], bert["gold"]["difference_x100"]) == (59.3, None)
    assert record["close"]["rows"][0]["edit distance"]["paper_x100"] is None
    for task, split in (("sts-b", "test"), ("sick-r", "dev")):
        rows = collected(write(path, written.lexical(task, split)), "lexical")["rows"]
        assert {cell["paper_x100"] for row in rows for cell in (row["gold"], row["edit distance"])} == {None}


def test_a_correlation_that_was_undefined_is_left_out_and_any_other_line_refused(tmp_path):
    run = written.write_run(tmp_path / "run")
    (run / "eval_results.txt").write_text("eval_pearsonr = nan\nloss = 1e-05\n")
    assert collected(run, "trainings")["on_dev"] == {"loss": 1e-5}
    (run / "eval_results.txt").write_text("loss = 1.0\nloss = inf\n")
    with pytest.raises(UserError, match=r"eval_results.txt, line 2: found 'loss = inf', expected a name"):
        collected(run, "trainings")


def test_embeddings_made_elsewhere_have_an_encoder_that_is_not_known(tmp_path):
    path = write(tmp_path / "c.json", written.calibrations(None))
    encoder = collected(path, "calibrations")["encoder"]
    assert (encoder["handle"], encoder["name"], encoder["fine_tuning"]) == ("mine.npy", None, "unknown")
    (source,) = collect(find_sources([path])[0], "Results")["sources"]
    assert source["encoder"]["handle"] == "mine.npy"


def test_a_calibration_without_the_scores_of_its_metric_is_refused(tmp_path):
    path = write(tmp_path / "c.json", written.calibrations(metric="auc"))
    with pytest.raises(UserError, match=r"c\.json: rows: found none without auc"):
        collected(path, "calibrations")
