"""The commands of the original's README, all but the path of the script, on a small BERT and the sample data."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from bert_flow_tf.sample_data import sample_glue_dir

GLUE = pathlib.Path(sample_glue_dir())
REPOSITORY = pathlib.Path(__file__).parents[2]
# The small BERT has 24 positions and the script asks for 64; the last flag wins.
SHORT = " --max_seq_length=16 --seed=3"


@pytest.fixture(scope="module")
def original(tmp_path_factory, golden_dir, tiny_trio):
    """Function (sub-command, flags as one string, variables) that runs train_siamese.sh as that README does."""
    if pathlib.Path(sys.prefix) != REPOSITORY / ".venv":
        # The script would set up an environment of its own beside the one that runs the tests.
        raise RuntimeError("run by bash run_scripts/test.sh, whose environment the scripts use")
    folder = tmp_path_factory.mktemp("original")
    shutil.copytree(golden_dir / "bert_tiny", folder / "bert_premodels" / "uncased_L-12_H-768_A-12")
    (folder / "exp").mkdir()
    environment = {
        **os.environ,
        "BERT_FLOW_CACHE": str(tiny_trio["cache_dir"]),
        "BERT_PREMODELS": str(folder / "bert_premodels"),
        "BERT_NAME": "base",
        "GLUE_DIR": str(GLUE),
        "OUTPUT_PARENT_DIR": str(folder / "exp"),
    }
    environment.pop("BERT_HUB", None)

    def run(command, flags, **variables):
        script = REPOSITORY / "run_scripts" / "train_siamese.sh"
        flags += f" --cached_dir={folder / 'exp' / 'cached_data'}{SHORT}"
        return subprocess.run(
            ["bash", str(script), command, flags],
            env={**environment, **variables},
            cwd=folder,
            text=True,
            capture_output=True,
        )

    run.exp = folder / "exp"
    return run


@pytest.fixture(scope="module")
def nli(original):
    """Prefix of the checkpoint of "Fine-tune BERT with NLI supervision"."""
    done = original(
        "train",
        "--exp_name=exp_base_1234 --num_train_epochs=1.0 --learning_rate=2e-5 --train_batch_size=16",
        TASK_NAME="ALLNLI",
    )
    assert done.returncode == 0, done.stderr[-2000:]
    # 1,200 pairs in batches of 16.
    return original.exp / "exp_base_1234" / "model.ckpt-75"


FLOW = (
    "--sentence_embedding_type=avg-last-2 --flow=1 --flow_loss=1 --num_examples=0 --num_train_epochs=1.0 "
    "--flow_learning_rate=1e-3 --use_full_for_training={full}"
)


def assert_prints_the_score_of(done, predictions):
    """The command's only line of scores is that of a file of predictions."""
    assert done.returncode == 0, done.stderr[-2000:]
    cosines = np.loadtxt(predictions)
    gold = [float(line.split("\t")[4]) for line in (GLUE / "STS-B" / "sts-test.csv").read_text().splitlines()]
    pearson, spearman = stats.pearsonr(cosines, gold).statistic, stats.spearmanr(cosines, gold).statistic
    assert re.findall("^Pearson.*", done.stdout, re.MULTILINE) == [f"Pearson: {pearson:f}, Spearman: {spearman:f}"]


def test_nli_run_is_evaluated_on_its_dev_set(original, nli):
    assert nli.with_name("model.ckpt-75.index").is_file()
    lines = (original.exp / "exp_base_1234" / "eval_results.txt").read_text().splitlines()
    assert [line.split(" = ")[0] for line in lines] == ["eval_accuracy", "eval_loss", "global_step", "loss"]
    assert lines[2] == "global_step = 75"


def test_evaluation_of_the_nli_encoder(original, nli):
    name = "exp_base_1234_eval"
    done = original(
        "predict",
        f"--exp_name={name} --sentence_embedding_type=avg --flow=0 --flow_loss=0 --num_examples=0 "
        "--num_train_epochs=1e-10",
        INIT_CKPT=str(nli),
        EXP_NAME=name,
    )
    assert_prints_the_score_of(done, original.exp / name / "test_results.tsv")


def test_flow_is_learned_on_train_only(original, nli):
    # tests/test_readme.py learns one on all splits.
    done = original("train", f"--exp_name_prefix=exp {FLOW.format(full=0)}", INIT_CKPT=str(nli))
    assert done.returncode == 0, done.stderr[-2000:]
    name = "exp_t_STS-B_ep_1.00_lr_5.00e-05_e_avg-last-2_f_11_1.00e-03"
    # 800 pairs in batches of 32.
    assert (original.exp / name / "model.ckpt-25.index").is_file()
    # The original's README evaluates this one with --use_full_for_training=1: it plays no part in prediction.
    done = original("predict", f"--exp_name={name} {FLOW.format(full=1)}", INIT_CKPT=str(nli), EXP_NAME=name)
    assert_prints_the_score_of(done, original.exp / name / "test_results.tsv")
