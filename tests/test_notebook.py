"""The notebook runs from top to bottom and holds its outputs."""

import json
import pathlib

_ROOT = pathlib.Path(__file__).parents[1]
_CELLS = json.loads((_ROOT / "docs" / "first_steps.ipynb").read_text(encoding="utf-8"))["cells"]
_CODE = [cell for cell in _CELLS if cell["cell_type"] == "code"]


def test_its_code_runs_in_order(demo_dir, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    names = {}
    for cell in _CODE:
        exec("".join(cell["source"]), names)
    assert names["change"].before.mean_cosine > 0.2 > names["change"].after.mean_cosine
    assert (tmp_path / "first_steps_export" / "1" / "saved_model.pb").is_file()


def test_its_outputs_are_of_one_run_without_a_warning():
    assert [cell["execution_count"] for cell in _CODE] == [*range(1, len(_CODE) + 1)]
    outputs = [output for cell in _CODE for output in cell["outputs"]]
    assert {output.get("name", "stdout") for output in outputs} == {"stdout"}
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 1
