"""The commands of the original's README run on a small BERT.

The script's Python notes the arguments, with which this process then does what a process of its own would.
"""

import pathlib
import re
import shutil

import numpy as np
import pytest
from scipy import stats

from bert_flow_tf import eval_stsb
from bert_flow_tf.sample_data import sample_glue_dir
from tests.bert_flow_tf import small_runs
from tests.run_scripts.conftest import Repository

GLUE = pathlib.Path(sample_glue_dir())
MODULES = {"bert_flow_tf.run_siamese": small_runs.run_command, "bert_flow_tf.eval_stsb": eval_stsb.main}
# The small BERT has 24 positions and the script asks for 64; the last flag wins.
SHORT = " --max_seq_length=16 --seed=3"
FLOW = (
    "--sentence_embedding_type=avg-last-2 --flow=1 --flow_loss=1 --num_examples=0 --num_train_epochs=1.0 "
    "--flow_learning_rate=1e-3 --use_full_for_training="
)


@pytest.fixture(scope="module")
def exp(tmp_path_factory):
    """The folder of the runs."""
    return tmp_path_factory.mktemp("exp")


@pytest.fixture(scope="module")
def original(exp, golden_dir, tiny_trio, tmp_path_factory):
    """Function (sub-command, flags, variables) that runs train_siamese.sh."""
    repository = Repository(tmp_path_factory.mktemp("original"))
    shutil.copytree(golden_dir / "bert_tiny", repository.root / "bert_premodels" / "uncased_L-12_H-768_A-12")
    variables = {"BERT_PREMODELS": f"{repository.root}/bert_premodels", "BERT_NAME": "base"}
    variables |= {"GLUE_DIR": str(GLUE), "OUTPUT_PARENT_DIR": str(exp)}
    repository.run("test.sh")

    def run(command, flags, **more):
        flags += f" --cached_dir={exp / 'cached_data'}{SHORT}"
        _, calls = repository.succeeds("train_siamese.sh", command, flags, **variables | more)
        for module, *arguments in (call.split("\n") for call in "\n".join(["", *calls]).split("\n-m\n")[1:]):
            assert MODULES[module](arguments) == 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERT_FLOW_CACHE", str(tiny_trio["cache_dir"]))
        yield run


@pytest.fixture(scope="module")
def nli(exp, original):
    """Prefix of the checkpoint of "Fine-tune BERT with NLI supervision"."""
    flags = "--exp_name=exp_base_1234 --num_train_epochs=1.0 --learning_rate=2e-5 --train_batch_size=16"
    original("train", flags, TASK_NAME="ALLNLI")
    # The task has 1,200 pairs, and a batch 16.
    return exp / "exp_base_1234" / "model.ckpt-75"


def assert_prints_the_score_of(printed, predictions):
    """Check that the only line of scores is that of these predictions."""
    cosines = np.loadtxt(predictions)
    gold = [float(line.split("\t")[4]) for line in (GLUE / "STS-B" / "sts-test.csv").read_text().splitlines()]
    pearson, spearman = stats.pearsonr(cosines, gold).statistic, stats.spearmanr(cosines, gold).statistic
    assert re.findall("^Pearson.*", printed, re.MULTILINE) == [f"Pearson: {pearson:f}, Spearman: {spearman:f}"]


def test_nli_encoder_is_evaluated_on_dev_and_on_sts(exp, original, nli, capsys):
    assert nli.with_name("model.ckpt-75.index").is_file()
    lines = (nli.parent / "eval_results.txt").read_text().splitlines()
    assert [line.split(" = ")[0] for line in lines] == ["eval_accuracy", "eval_loss", "global_step", "loss"]
    assert lines[2] == "global_step = 75"
    flags = "--exp_name=exp_base_1234_eval --sentence_embedding_type=avg --flow=0 --flow_loss=0 --num_examples=0"
    capsys.readouterr()
    original("predict", f"{flags} --num_train_epochs=1e-10", INIT_CKPT=str(nli), EXP_NAME="exp_base_1234_eval")
    assert_prints_the_score_of(capsys.readouterr().out, exp / "exp_base_1234_eval" / "test_results.tsv")


def test_flow_is_learned_on_train_only(exp, original, nli, capsys):
    # tests/test_readme.py learns one on all splits.
    original("train", f"--exp_name_prefix=exp {FLOW}0", INIT_CKPT=str(nli))
    name = "exp_t_STS-B_ep_1.00_lr_5.00e-05_e_avg-last-2_f_11_1.00e-03"
    # The task has 800 pairs, and a batch 32.
    assert (exp / name / "model.ckpt-25.index").is_file()
    capsys.readouterr()
    # The original's README sets --use_full_for_training=1 here; predictions do not depend on it.
    original("predict", f"--exp_name={name} {FLOW}1", INIT_CKPT=str(nli), EXP_NAME=name)
    assert_prints_the_score_of(capsys.readouterr().out, exp / name / "test_results.tsv")
