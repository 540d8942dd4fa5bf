"""A sample of each campaign."""

import os
import pathlib
import re
import subprocess
import sys

from bert_flow_tf.api import BertFlow
from tests.campaigns import load


def test_nothing_is_violated():
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    root = pathlib.Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.campaigns"]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    summaries = re.findall(r"^[\d,]+ (kills|limits|times two at once|inputs), 0 violations$", done.stdout, re.MULTILINE)
    assert summaries == ["kills", "limits", "times two at once", "inputs"], done.stdout


def test_a_model_under_load_answers_and_refuses_as_alone(documented_encoder_dir, tmp_path):
    model = BertFlow.from_hub(documented_encoder_dir)
    version = model.export(tmp_path / "model").path
    violations, memory = load.serve(str(version), minutes=0.05, clients=16, pause=0.1, seed=0)
    assert (violations, len(memory)) == (0, 12)
    without_embedding, memory = load.encode(str(documented_encoder_dir), total=300, seed=0)
    assert without_embedding == 0 and memory
