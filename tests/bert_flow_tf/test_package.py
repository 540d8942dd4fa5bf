"""The package loads little, and its wheel is complete."""

import ast
import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

import bert_flow_tf

ROOT = pathlib.Path(__file__).parents[2]


def test_nothing_heavy_loads_before_it_is_needed():
    code = (
        "import gc, sys; "
        "loaded = lambda *names: print([name for name in names if name in sys.modules]); "
        "import bert_flow_tf, glow, bert_flow_tf.cli, bert_flow_tf.eval_stsb; "
        "loaded('tensorflow', 'sklearn', 'scipy', 'pyarrow'); "
        "from bert_flow_tf.common.errors import quiet_libraries; quiet_libraries(); import "
        "bert_flow_tf.api; "
        "loaded('keras', 'sklearn', 'tf_keras'); print(gc.isenabled()); "
        "import atexit; atexit._run_exitfuncs(); print(len(gc.get_objects()) < 1000)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n['tf_keras']\nTrue\nTrue\n"


def test_python_says_nothing_and_keeps_filters_and_collection(tiny_encoder_dir):
    # Fewer collections during the imports, and none at the end, halve the program's time.
    code = (
        "import gc, sys, warnings; gc.set_threshold(100_000); "
        "filters = list(warnings.filters); from bert_flow_tf import BertFlow; "
        "assert filters == warnings.filters and gc.isenabled() and not gc.get_freeze_count(); "
        "print(BertFlow.from_hub(sys.argv[1], max_seq_length=8).encode(['']).shape); gc.freeze()"
    )
    quiet = ("TF_CPP_MIN_LOG_LEVEL", "PYTHONWARNINGS")
    environment = {name: value for name, value in os.environ.items() if name not in quiet}
    command = [sys.executable, "-c", code, tiny_encoder_dir]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("(1, 32)\n", "")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of the repository without what earlier builds left."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for name in ("bert_flow_tf", "glow", "tools"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "tests").mkdir()
    for name in ("__init__.py", "test_docs.py"):
        (copy / "tests" / name).touch()
    return copy


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory):
    """The wheel, built offline."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    subprocess.run([*command, "--wheel-dir", folder, source], check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def package_files(root):
    """Names of the packages' files below a folder."""
    found = [
        path
        for name in ("bert_flow_tf", "glow")
        for path in (root / name).rglob("*")
        if path.is_file()
    ]
    return {str(path.relative_to(root)) for path in found if path.parent.name != "__pycache__"}


def metadata(wheel):
    """The text of a wheel's METADATA."""
    path = f"bert_flow_tf-{bert_flow_tf.__version__}.dist-info/METADATA"
    return zipfile.ZipFile(wheel).read(path).decode()


def test_the_wheel_holds_the_packages_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    written = f"bert_flow_tf-{bert_flow_tf.__version__}.dist-info/"
    assert {name for name in names if not name.startswith(written)} == package_files(ROOT)


def test_what_is_imported_is_declared(wheel):
    imported = set()
    for name in package_files(ROOT):
        nodes = ast.walk(ast.parse((ROOT / name).read_bytes())) if name.endswith(".py") else ()
        for node in nodes:
            found = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            found += [node.module] if isinstance(node, ast.ImportFrom) else []
            imported |= {one.partition(".")[0] for one in found}
    # The last four come with TensorFlow and its serving API.
    imported -= {
        *sys.stdlib_module_names,
        "bert_flow_tf",
        "glow",
        "numpy",
        "google",
        "grpc",
        "tensorboard",
    }
    declared = {
        name.lower()
        for name in re.findall(r"^Requires-Dist: ([\w-]+)", metadata(wheel), re.MULTILINE)
    }
    distributions = importlib.metadata.packages_distributions()
    names = {
        one: {of.lower().replace("_", "-") for of in distributions.get(one, [one])}
        for one in imported
    }
    assert [one for one, of in names.items() if not of & declared] == []


def test_the_installed_wheels_commands_run(wheel, tmp_path):
    target = tmp_path / "installed"
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        target,
        wheel,
    ]
    subprocess.run(command, check=True, capture_output=True)
    code = (
        "from click.testing import CliRunner; from bert_flow_tf import cli; "
        "helps = [CliRunner().invoke(cli.main, [name, '--help']) for name in cli._COMMANDS]; "
        "print(*(help.output for help in helps), {help.exit_code for help in helps}, cli.__file__)"
    )
    options = {"cwd": tmp_path, "env": os.environ | {"PYTHONPATH": str(target)}, "text": True}
    version = subprocess.check_output(
        [sys.executable, target / "bin" / "bert-flow", "--version"], **options
    )
    assert version == f"bert-flow, version {bert_flow_tf.__version__}\n"
    helps = subprocess.check_output([sys.executable, "-c", code], **options)
    assert (
        helps.endswith(f" {{0}} {target}/bert_flow_tf/cli.py\n")
        and "bert-flow similarity --model my_model" in helps
    )


_USER_PROGRAM = """
from bert_flow_tf import BertFlow, FlowCalibrator, calibrate, compare, load_calibration
from glow import Glow, GlowConfig

reveal_type(BertFlow.from_hub("demo"))
reveal_type(BertFlow.from_pretrained("my_model").fit(["A boat."], method="whitening"))
reveal_type(calibrate(list, ["A boat."]).threshold(["A boat."]))
reveal_type(compare(list, ["A boat."])[0])
reveal_type(load_calibration("my_calibration"))
reveal_type(FlowCalibrator().fit([[1.0]]))
reveal_type(Glow(GlowConfig(), event_size=8, seed=0))
"""


def test_a_type_checker_sees_the_types_of_the_installed_wheel(wheel, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    site_packages = next(tmp_path.glob("venv/lib/python*/site-packages"))
    zipfile.ZipFile(wheel).extractall(site_packages)
    (tmp_path / "program.py").write_text(_USER_PROGRAM)
    arguments = ["--python-executable", tmp_path / "venv" / "bin" / "python", "program.py"]
    options = ["--config-file=", "--follow-untyped-imports", "--ignore-missing-imports"]
    command = [sys.executable, "-m", "mypy", *options, "--follow-imports=silent", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    revealed = re.findall(r'type is "(.+)"', done.stdout)
    assert [one.rpartition(".")[2] for one in revealed] == [
        "BertFlow",
        "BertFlow",
        "Threshold",
        "Row",
        "Calibrated",
        "FlowCalibrator",
        "Glow",
    ], done.stdout + done.stderr
