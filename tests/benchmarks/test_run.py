"""The command line of the benchmarks."""

import importlib
import json
import re
import subprocess
import sys

import pytest

from benchmarks import options, peers, run
from benchmarks.targets import TARGETS
from bert_flow_tf.errors import UserError


@pytest.fixture
def measured(monkeypatch):
    """list of the names that are measured from now on; each gives figures that meet their targets."""
    names = []

    def measure(name, settings):
        names.append(name)
        targets = [target for target in TARGETS if target.benchmark == name]
        return {"figures": {target.figure: target.target for target in targets}}

    monkeypatch.setattr(run, "_measured", measure)
    # This process is to keep all its CPUs.
    monkeypatch.setattr(options.os, "sched_setaffinity", lambda pid, cpus: None)
    monkeypatch.setattr(peers, "versions", lambda: {"torch": "0"})
    return names


def test_the_list_names_the_benchmarks(capsys):
    assert run.main(["--list"]) == 0
    assert "floor  " in capsys.readouterr().out


def test_every_target_has_a_benchmark_and_every_benchmark_a_target_or_steps_and_a_module():
    assert {target.benchmark for target in TARGETS} == run.BENCHMARKS.keys() - {"encoder_steps"}
    for name in run.BENCHMARKS:
        assert callable(importlib.import_module(f"benchmarks.{name}").measure)


@pytest.mark.parametrize(
    "arguments, line",
    [
        (["--only", "encode,speed"], "--only: found 'speed', expected names out of flow_run, encode,"),
        (["--repeats", "0"], "--repeats: found 0, expected 1 or more"),
        (["--threads", "100000"], "--threads: found 100000, expected 1 to"),
        (["--glue_dir", "nowhere"], "--glue_dir=nowhere: found no folder STS-B in it"),
        (["--glue_dir", "nowhere", "--only", "nli_run"], "--glue_dir=nowhere: found no folder MNLI in it"),
        (["--from_results"], "--from_results: found no --summary"),
        (["--from_results", "--summary"], "--from_results: found no --out_dir"),
        (["--from_results", "--summary", "--out_dir", "nowhere"], "nowhere/flow_run.json: no such file"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(arguments, line, measured, capsys):
    assert run.main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"error: {line}") and captured.err.count("\n") == 1
    assert measured == []


def test_all_are_run_or_those_that_are_named_once_each(measured):
    assert run.main([]) == 0
    assert measured == list(run.BENCHMARKS)
    measured.clear()
    assert run.main(["--only", "floor,encode,floor"]) == 0
    assert measured == ["floor", "encode"]


def test_a_result_says_what_it_was_measured_on(measured, tmp_path):
    assert run.main(["--only", "encode", "--out_dir", str(tmp_path / "new"), "--repeats", "2"]) == 0
    result = json.loads((tmp_path / "new" / "encode.json").read_text())
    assert result["benchmark"] == "encode"
    assert (result["repeats"], result["bert_hub"], result["quick"]) == (2, "demo", False)
    assert {"python", "tensorflow", "torch", "cpu", "bfloat16_units"} <= result["machine"].keys()
    assert result["threads"] >= 1
    assert "to_sentence_transformers" in result["figures"]


@pytest.mark.parametrize("load, warned", [(0.1, False), (5.0, True)])
def test_a_busy_machine_is_warned_of_and_recorded(load, warned, measured, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run.os, "getloadavg", lambda: (load, 0.0, 0.0))
    assert run.main(["--only", "floor", "--threads", "1", "--out_dir", str(tmp_path)]) == 0
    assert ("warning: this machine is busy" in capsys.readouterr().err) == warned
    assert json.loads((tmp_path / "floor.json").read_text())["load_before"] == load


def test_results_that_are_there_are_kept_unless_they_may_be_replaced(measured, tmp_path, capsys):
    path = tmp_path / "floor.json"
    path.write_text("mine")
    arguments = ["--only", "encode,floor", "--out_dir", str(tmp_path)]
    assert run.main(arguments) == 2
    assert f"{path}: exists" in capsys.readouterr().err
    assert path.read_text() == "mine" and measured == []
    assert run.main([*arguments, "--overwrite"]) == 0
    assert json.loads(path.read_text())["benchmark"] == "floor"


def test_the_summary_comes_last_and_is_the_exit_status(measured, tmp_path, capsys):
    arguments = ["--only", "floor,start_up", "--out_dir", str(tmp_path), "--summary"]
    assert run.main(arguments) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line == "summary: 2 of 2 met; floor.percent 70.00% >= 70%; start_up.seconds 6.00 s <= 6 s"
    path = tmp_path / "floor.json"
    result = json.loads(path.read_text())
    path.write_text(json.dumps(result | {"figures": {"percent": 60.0}}))
    measured.clear()
    assert run.main([*arguments, "--from_results"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "summary: 1 of 2 met; floor.percent 60.00% >= 70% MISSED; start_up.seconds 6.00 s <= 6 s"
    ]
    assert measured == []


@pytest.mark.parametrize(
    "text", ["{", '{"figures": {}}', '{"figures": {}, "quick": false}', '{"figures": {"percent": "a"}, "quick": false}']
)
def test_a_file_that_holds_no_results_is_named(text, tmp_path, capsys):
    (tmp_path / "floor.json").write_text(text)
    assert run.main(["--from_results", "--summary", "--only", "floor", "--out_dir", str(tmp_path)]) == 2
    assert re.match(rf"error: {tmp_path / 'floor.json'}: (percent: )?found", capsys.readouterr().err)


def test_steps_that_nothing_is_asked_of_are_not_judged(measured, capsys):
    assert run.main(["--only", "encoder_steps", "--summary"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "summary: nothing is asked of encoder_steps"


def test_a_users_error_passes_from_the_process_that_measures():
    with pytest.raises(UserError, match="nowhere"):
        run._measured("growth", options.Options(glue_dir="nowhere"))


def test_what_starts_measured_processes_is_smaller_than_they_are():
    # Linux counts the memory of the process that starts another as the other's.
    program = (
        "import sys, benchmarks.run, benchmarks.flow_run, benchmarks.growth, benchmarks.nli_run, benchmarks.recipe; "
        "import benchmarks.start_up; "
        "sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=peers.ROOT, check=False).returncode == 0
