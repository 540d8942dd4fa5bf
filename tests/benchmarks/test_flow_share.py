"""A benchmark from the command line to its file, on a small encoder."""

import json
import subprocess
import sys

from benchmarks.peers import ROOT


def test_a_quick_run_writes_its_figures_and_says_that_they_are_no_results(documented_encoder_dir, tmp_path):
    command = [
        *(sys.executable, "-m", "benchmarks.run", "--quick", "--only", "flow_share", "--summary"),
        *("--bert_hub", str(documented_encoder_dir), "--out_dir", str(tmp_path)),
    ]
    outcome = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout.splitlines()[-1] == "summary: quick sizes, whose figures are no results: flow_share ran"
    result = json.loads((tmp_path / "flow_share.json").read_text())
    assert result["quick"] is True
    assert all(len(seconds) == 2 and min(seconds) > 0 for seconds in result["seconds"].values())
    assert result["figures"]["percent"] == sum(result["percent"]) / 2
