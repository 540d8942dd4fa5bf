"""The package loads in a moment, and its version stands in one place."""

import re
import subprocess
import sys
import time

import pytest

import bert_flow_tf
import glow
from bert_flow_tf.cli import main


def test_import_loads_no_heavy_library_and_takes_under_a_second():
    code = (
        "import sys, bert_flow_tf, glow, bert_flow_tf.cli; "
        "print([name for name in ('tensorflow', 'sklearn', 'scipy', 'pyarrow') if name in sys.modules])"
    )
    seconds = []
    for _ in range(3):
        started = time.monotonic()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        seconds.append(time.monotonic() - started)
        assert done.stdout == "[]\n"
    # The start of Python itself counts in; 0.3 s on a slow machine. The best of three: others may be at work on it.
    assert min(seconds) < 1


def test_names_are_loaded_when_they_are_asked_for():
    from bert_flow_tf.api import BertFlow
    from glow.calibrator import FlowCalibrator

    assert bert_flow_tf.BertFlow is BertFlow
    assert bert_flow_tf.FlowCalibrator is glow.FlowCalibrator is FlowCalibrator
    assert {"BertFlow", "FlowCalibrator", "UserError"} <= set(dir(bert_flow_tf))
    assert "Glow" in dir(glow)
    for package in (bert_flow_tf, glow):
        with pytest.raises(AttributeError, match="has no attribute 'Bert'"):
            package.Bert  # noqa: B018


def test_version_is_one_for_package_command_and_saved_models():
    from click.testing import CliRunner

    assert re.fullmatch(r"\d+\.\d+\.\d+", bert_flow_tf.__version__)
    assert CliRunner().invoke(main, ["--version"]).stdout == f"bert-flow, version {bert_flow_tf.__version__}\n"


def test_shell_completes_commands():
    from click.testing import CliRunner

    asked = {"_BERT_FLOW_COMPLETE": "bash_complete", "COMP_WORDS": "bert-flow enc", "COMP_CWORD": "1"}
    assert CliRunner().invoke(main, env=asked, prog_name="bert-flow").stdout == "plain,encode\n"
