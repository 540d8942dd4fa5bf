"""docs/architecture.md agrees with the code, and the product works without the wing."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from glow import config
from tests.bert_flow_tf import small_runs

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

pytestmark = pytest.mark.usefixtures("small_default_flow")

_ROOT = pathlib.Path(__file__).parents[1]
_PAGE = (_ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def _section(title):
    return re.search(rf"^## {title}\n(.+?)(?=^## |\Z)", _PAGE, re.MULTILINE | re.DOTALL)[1]


def _block(title):
    """Return the words of each line of a section's block."""
    return [
        line.split()
        for line in re.search(r"```text\n(.+?)```", _section(title), re.DOTALL)[1].splitlines()
    ]


@pytest.fixture(scope="module")
def layers():
    """The layers of pyproject.toml's contract, the highest first."""
    settings = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (contract,) = [one for one in contracts if one["type"] == "layers"]
    return [{name.split(".")[-1] for name in layer.split(" | ")} for layer in contract["layers"]]


def test_picture_shows_the_layers_of_the_contract(layers):
    assert [set(line) - {"·"} for line in _block("Layers")] == layers


def test_every_room_stands_in_the_contract_and_has_its_sentence(layers):
    package = _ROOT / "bert_flow_tf"
    folders = {path.parent.name for path in package.glob("*/__init__.py")}
    files = {path.stem for path in package.glob("*.py")} - {"__init__"}
    assert set().union(*layers) == folders | files | {"glow"}
    assert re.findall(r"^\| `(\w+)` \| [^|]+\. \|$", _section("Rooms"), re.MULTILINE) == [
        room for line in _block("Layers") for room in line if room != "·"
    ]


@pytest.mark.parametrize("title", ["From sentences to z"])
def test_walks_name_real_functions_and_never_lead_back_up(layers, title):
    heights = []
    for path, name, *_ in _block(title):
        source = (_ROOT / path).read_text(encoding="utf-8")
        for part in name.split("."):
            assert re.search(rf"^ *(?:class|def) {part}\b", source, re.MULTILINE), (path, name)
        room = pathlib.Path(path.removeprefix("bert_flow_tf/")).parts[0].removesuffix(".py")
        heights.append(next(i for i, layer in enumerate(layers) if room in layer))
    assert heights == sorted(heights)


def test_every_room_below_the_wing_is_forbidden_to_import_it(layers):
    settings = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (contract,) = [
        one for one in contracts if "bert_flow_tf.original" in one.get("forbidden_modules", ())
    ]
    below = set().union(*layers[layers.index({"original"}) + 1 :])
    assert {name.removeprefix("bert_flow_tf.") for name in contract["source_modules"]} == below


# Collecting garbage during the imports and at the end takes a third of such a program's time.
_FAST = "import atexit, gc; gc.set_threshold(100_000); atexit.register(gc.freeze)\n"


def run_copy(folder, code, *arguments):
    """Return what Python prints with a folder's packages."""
    # Without Keras 3, which they do not need, TensorFlow loads faster.
    environment = os.environ | {"PYTHONPATH": str(folder), "TF_USE_LEGACY_KERAS": "1"}
    command = [sys.executable, "-c", _FAST + code, *map(str, arguments)]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def copy_packages(folder, *names):
    """Copy packages of the repository, and make the default flow small."""
    for name in names:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(_ROOT / name, folder / name, ignore=ignored)
    shutil.copytree(config._CONFIG_DIR, folder / "glow" / "configs", dirs_exist_ok=True)


def remove_wing(package):
    """Delete the original's experiment and the commands that start with it."""
    shutil.rmtree(package / "original")
    for name in ("run_siamese.py", "eval_stsb.py"):
        (package / name).unlink()
    for path in (package / "commands").glob("*.py"):
        if re.search(
            r"^from bert_flow_tf\.original", path.read_text(encoding="utf-8"), re.MULTILINE
        ):
            path.unlink()


_PRODUCT = """
import json, pathlib, sys
import numpy as np
from click.testing import CliRunner
import bert_flow_tf
from bert_flow_tf import BertFlow, ShardSettings, calibrate, compare
from bert_flow_tf.cli import main

encoder, texts = sys.argv[1:]
sentences = pathlib.Path(texts).read_text().splitlines()
model = BertFlow.from_hub(encoder, max_seq_length=8).fit(sentences, epochs=2, dev_fraction=0.1)
vectors = model.encode(sentences)
model.save("saved")
np.testing.assert_array_equal(BertFlow.from_pretrained("saved").encode(sentences), vectors)
model.export("exported")
parts = model.encode_dataset(texts, "embedded", ShardSettings(shard_rows=32))
plain = BertFlow.from_hub(encoder, max_seq_length=8).encode
pairs = (sentences[:60], sentences[1:61], [i % 5 for i in range(60)])
compared = compare(plain, sentences, pairs=pairs, methods=["sn"])
calibrate(plain, sentences, method="sn").save("calibration")
for command in (
    ["similarity", "--model", "saved", *sentences[:2]],
    ["encode", "--model", "saved", "--input", texts, "--out", "vectors.npy"],
):
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, (result.output, result.exception)
np.testing.assert_array_equal(np.load("vectors.npy"), vectors)
print(bert_flow_tf.__file__)
print(len(compared) > 1, any(name.startswith("bert_flow_tf.original") for name in sys.modules))
"""


def test_product_works_without_the_wing(documented_encoder_dir, tmp_path):
    small_runs.write_sentences(tmp_path / "texts.txt", 64)
    copy_packages(tmp_path, "bert_flow_tf", "glow")
    remove_wing(tmp_path / "bert_flow_tf")
    assert run_copy(tmp_path, _PRODUCT, documented_encoder_dir, tmp_path / "texts.txt")[-2:] == [
        str(tmp_path / "bert_flow_tf" / "__init__.py"),
        "True False",
    ]
    assert (tmp_path / "exported" / "1" / "saved_model.pb").is_file()
    assert (tmp_path / "embedded" / "_manifest.json").is_file()


_FLOW = """
import sys
sys.modules["bert_flow_tf"] = None
import glow
import numpy as np
from glow import FlowCalibrator

x = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
calibrator = FlowCalibrator(epochs=2).fit(x)
calibrator.save("flow")
np.testing.assert_array_equal(FlowCalibrator.load("flow").transform(x), calibrator.transform(x))
print(glow.__file__)
"""


def test_flow_works_without_the_package(tmp_path):
    copy_packages(tmp_path, "glow")
    assert run_copy(tmp_path, _FLOW) == [str(tmp_path / "glow" / "__init__.py")]
