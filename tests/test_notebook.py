"""docs/first_steps.ipynb: its code runs from top to bottom, and what is stored with it came from such a run."""

import json
import os
import pathlib
import subprocess
import sys

_ROOT = pathlib.Path(__file__).parents[1]
_CELLS = json.loads((_ROOT / "docs" / "first_steps.ipynb").read_text(encoding="utf-8"))["cells"]
_CODE = [cell for cell in _CELLS if cell["cell_type"] == "code"]


def test_its_code_runs_in_order_in_a_fresh_process(demo_dir, tmp_path):
    lines = "\n".join("".join(cell["source"]) for cell in _CODE)
    environment = os.environ | {"PYTHONPATH": str(_ROOT), "MPLBACKEND": "agg", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", f"{lines}\nassert change.before.mean_cosine > 0.2 > change.after.mean_cosine"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "first_steps_export" / "1" / "saved_model.pb").is_file()


def test_its_outputs_are_of_one_run_without_a_warning():
    assert [cell["execution_count"] for cell in _CODE] == [*range(1, len(_CODE) + 1)]
    outputs = [output for cell in _CODE for output in cell["outputs"]]
    assert {output.get("name", "stdout") for output in outputs} == {"stdout"}
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 1
