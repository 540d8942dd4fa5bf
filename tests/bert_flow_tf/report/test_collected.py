"""Test that reports show or name every file of a known kind.

A report goes on after a damaged file.
"""

import json

import pytest
import tensorflow as tf
from msgspec.structs import replace

from bert_flow_tf.commands import verify
from bert_flow_tf.report.collected import find_results
from bert_flow_tf.report.rows import score_rows
from tests.bert_flow_tf.original import written
from tests.bert_flow_tf.original.written import CLS_FLOW, scores, task_scores, write
from tests.bert_flow_tf.records import run_config
from tests.refusals import bert_flow, refusal

FILES = ("demo.json", "calibration.json", "isotropy.json", "run/evaluation.json")
DAMAGE = {
    "cut": lambda text: text[:-20],
    "another format": lambda text: text.replace('"format_version": 3', '"format_version": 2'),
    "a lost protocol": lambda text: text.replace('"all"', '"every"'),
    "not UTF-8": lambda text: text.replace("kind", "\udcff"),
    "of another type": lambda text: text.replace('"made_by": {', '"made_by": [{', 1),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_ends_nothing_but_is_named(tmp_path, name, damage, monkeypatch):
    folder = written.write_all(tmp_path / "results")
    path = folder / name
    text = path.read_text()
    changed = DAMAGE[damage](text)
    if changed == text:
        pytest.skip("a record of this kind has none")
    path.write_bytes(changed.encode("utf-8", "surrogateescape"))
    outcome = bert_flow("report", "--runs", folder)
    line = refusal(outcome.exit_code, outcome.stderr, after_log=True)
    assert line == f"left out, because they are damaged: {path}"
    assert f"left out: {path}: " in outcome.stderr
    # All others are shown.
    assert outcome.stdout.count("\n") > 10
    for other in ("calibration.json", "isotropy.json"):
        assert (f"{folder}/{other}" in outcome.stdout) == (name != other)
    # An installed package has no golden tests to run.
    monkeypatch.setattr(verify, "_ROOT", tmp_path)
    outcome = bert_flow("verify", "--runs", folder)
    assert refusal(outcome.exit_code, outcome.stderr, after_log=True) == line


def test_a_run_of_a_damaged_configuration_hides_no_picture(tmp_path):
    folder = written.write_all(tmp_path / "results")
    (folder / "run" / "config.json").write_text("{")
    page, plot = tmp_path / "page.html", tmp_path / "plot.svg"
    outcome = bert_flow("report", "--runs", folder, "--html", page, "--plot", plot)
    line = refusal(outcome.exit_code, outcome.stderr, after_log=True)
    assert str(folder / "run" / "config.json") in line
    assert str(folder / "run" / "config.json") in page.read_text()
    assert page.read_text().count("data:image/svg+xml") == 4 and "STS-B, test" in plot.read_text()


@pytest.fixture
def trained(tmp_path):
    """The folder of a run, with its events' file."""
    folder = tmp_path / "runs" / "a"
    write(folder / "config.json", run_config())
    writer = tf.summary.create_file_writer(str(folder))
    with writer.as_default():
        for step in range(1, 20):
            tf.summary.scalar("loss", 1.0 / step, step)
    writer.close()
    written.write_run(folder, stsb=task_scores())
    (path,) = folder.glob("events.*")
    return folder, path


@pytest.mark.parametrize(("lost", "status"), [(7, 0), (0, 2)])
def test_events_are_read_as_far_as_they_go(trained, tmp_path, lost, status):
    folder, path = trained
    data = bytearray(path.read_bytes())
    # A run that trains has written a part of its last record; a changed byte is a damage.
    data[-7] ^= 1
    path.write_bytes(data[: len(data) - lost])
    outcome = bert_flow("report", "--runs", folder.parent, "--plot", tmp_path / "plot.svg")
    (line,) = (line for line in outcome.stderr.splitlines() if "shown up to there" in line)
    assert ("still being written" in line, "damaged" in line) == (status == 0, status == 2)
    assert outcome.exit_code == status
    if status:
        line = refusal(outcome.exit_code, outcome.stderr, after_log=True)
        assert line == f"left out, because they are damaged: {path}"
    drawn = (tmp_path / "plot.svg").read_text()
    assert "Losses of the training" in drawn and "STS-B, test" in drawn


def test_every_file_of_a_known_kind_is_shown_or_named(tmp_path):
    folder = written.write_all(tmp_path)
    write(folder / "run" / "comparison.json", written.comparison())
    model = replace(CLS_FLOW, checkpoint="run/model.ckpt-100")
    old = scores(model, name="run/model.ckpt-100", stsb=task_scores(score=0.5))
    write(folder / "run" / "model.ckpt-100.evaluation.json", old)
    write(folder / "run" / "model.ckpt-100.recipe_scores.json", old)
    runs = written.reproduction({"flow": [0.79]}).runs
    single = json.loads((folder / "seeds" / "reproduction.json").read_text()) | {"runs": []}
    assert single["kind"] == "scores"
    write(folder / "seeds" / "one.json", written.scores_of_run(runs[0]))
    found = find_results([folder, folder / "seeds"])
    shown = {one.path.relative_to(folder).as_posix() for one in found.sources}
    named = {one.path.relative_to(folder).as_posix() for one in found.left_out}
    kinds = ("scores", "comparison", "isotropy", "verification", "analyses")
    known = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.json")
        if json.loads(path.read_text())["kind"] in kinds
    }
    assert known <= shown | named
    rows = {row.name: row.values_x100 for row in score_rows(found.sources)}
    assert rows["run/model.ckpt-100"] == [50.0]
    # A score that is one of a row over seeds is shown there.
    assert rows["flow"] == [79.0, 80.0, 84.0] and "one" not in rows


def test_equal_names_of_different_models_are_told_apart(tmp_path):
    for name, score in {"a": 0.5, "b": 0.6}.items():
        write(tmp_path / name / "scores.json", scores(stsb=task_scores(score=score)))
    names = [row.name for row in score_rows(find_results([tmp_path]).sources)]
    assert names == [f"demo ({tmp_path / one / 'scores.json'})" for one in "ab"]
    write(tmp_path / "b" / "scores.json", scores(stsb=task_scores(score=0.5)))
    assert [row.name for row in score_rows(find_results([tmp_path]).sources)] == ["demo"]
