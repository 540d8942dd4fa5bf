"""What each script runs once it is set up, and the mistakes it names."""

import pytest

from tests.run_scripts.conftest import assert_one_line_and_status_2

_TF1 = {"BERT_PREMODELS": "pre", "GLUE_DIR": "glue", "OUTPUT_PARENT_DIR": "out"}
_HUB = {"BERT_HUB": "demo", "GLUE_DIR": "glue", "OUTPUT_PARENT_DIR": "out"}
_CHECKPOINT = "--init_checkpoint=pre/uncased_L-12_H-768_A-12/bert_model.ckpt"


@pytest.fixture
def ready(repository):
    """The repository, set up, and the folders that the variables name."""
    repository.run("test.sh")
    (repository.bin / "glue").mkdir()
    for name in ("uncased_L-12_H-768_A-12", "uncased_L-24_H-1024_A-16", "wwm_uncased_L-24_H-1024_A-16"):
        (repository.bin / "pre" / name).mkdir(parents=True)
    repository.calls()
    return repository


def test_test_sh_checks_style_layers_and_types_then_runs_pytest_with_the_arguments(ready):
    done = ready.run("test.sh", "tests/glow", "-k", "a b")
    assert done.returncode == 0
    lines = ready.calls()
    assert lines[:4] == ["-m", "ruff", "check", "--quiet"]
    assert lines[-11:] == [
        "-m",
        "pytest",
        "-rs",
        "-n",
        "2",
        "--dist",
        "loadfile",
        "--no-loadscope-reorder",
        "tests/glow",
        "-k",
        "a b",
    ]


@pytest.mark.parametrize("failing", ["ruff check", "ruff format", "lint_imports", "mypy", "pytest"])
def test_test_sh_fails_if_anything_fails_and_still_runs_the_tests(ready, failing):
    (ready.root / "fail_run").write_text(failing)
    assert ready.run("test.sh").returncode == 1
    assert "pytest" in ready.calls()


@pytest.mark.parametrize(
    ("script", "module"),
    [("siamese_then_flow.sh", "bert_flow_tf.recipe"), ("paper_effect.sh", "bert_flow_tf.recipe.effect")],
)
def test_a_recipe_is_run_with_the_arguments_and_its_status_given_back(ready, script, module):
    assert ready.run(script, "--overwrite").returncode == 0
    assert ready.calls() == ["-m", module, "--overwrite"]
    (ready.root / "fail_run").write_text("recipe")
    assert ready.run(script).returncode == 1


@pytest.mark.parametrize(
    ("command", "mode", "takes_checkpoint"),
    [
        ("train", {"--do_train=true", "--do_eval=true"}, True),
        ("eval", {"--do_eval=true"}, True),
        ("predict_pool", {"--do_predict=true", "--predict_pool=True"}, False),
        ("predict_dev", {"--do_predict=true", "--predict_pool=True", "--do_predict_on_dev=True"}, False),
        ("predict_full", {"--do_predict=true", "--predict_pool=True", "--do_predict_on_full=True"}, False),
        ("do_senteval", {"--do_senteval=true"}, True),
    ],
)
def test_train_siamese_passes_the_originals_flags(ready, command, mode, takes_checkpoint):
    assert ready.run("train_siamese.sh", command, **_TF1).returncode == 0
    assert set(ready.calls()) == mode | ({_CHECKPOINT} if takes_checkpoint else set()) | {
        "-m",
        "bert_flow_tf.run_siamese",
        "--task_name=STS-B",
        "--data_dir=glue/STS-B",
        "--vocab_file=pre/uncased_L-12_H-768_A-12/vocab.txt",
        "--bert_config_file=pre/uncased_L-12_H-768_A-12/bert_config.json",
        "--max_seq_length=64",
        "--output_parent_dir=out",
    }


def test_train_siamese_predict_scores_the_named_run(ready):
    assert ready.run("train_siamese.sh", "predict", EXP_NAME="run", **_TF1).returncode == 0
    calls = ready.calls()
    scoring = calls.index("bert_flow_tf.eval_stsb")
    assert "--do_predict=true" in calls[:scoring] and _CHECKPOINT in calls[:scoring]
    assert calls[scoring + 1 :] == [
        "--glue_path=glue",
        "--task_name=STS-B",
        "--pred_path=out/run/test_results.tsv",
        "--is_test=1",
    ]

    (ready.root / "fail_run").write_text("run_siamese")
    flags = "--exp_name=run \n --flow=1"
    assert ready.run("train_siamese.sh", "predict", flags, EXP_NAME="run", **_TF1).returncode == 1
    assert "bert_flow_tf.eval_stsb" not in ready.calls()


def test_train_siamese_splits_one_quoted_string_of_flags_and_expands_no_names(ready):
    flags = "--exp_name_prefix=exp \n --flow=1 --flow_loss=1   --l2_penalty=*"
    assert ready.run("train_siamese.sh", "train", flags, "--seed=2", **_TF1).returncode == 0
    expected = ["--exp_name_prefix=exp", "--flow=1", "--flow_loss=1", "--l2_penalty=*", "--seed=2"]
    assert ready.calls()[-5:] == expected


def test_train_siamese_picks_the_named_bert_and_checkpoint(ready):
    for name, folder in (("large", "uncased_L-24_H-1024_A-16"), ("large-wwm", "wwm_uncased_L-24_H-1024_A-16")):
        ready.run("train_siamese.sh", "train", BERT_NAME=name, INIT_CKPT="mine/m-1", TASK_NAME="ALLNLI", **_TF1)
        expected = {f"--vocab_file=pre/{folder}/vocab.txt", "--init_checkpoint=mine/m-1", "--data_dir=glue/ALLNLI"}
        assert expected <= set(ready.calls())


def test_train_siamese_takes_a_hub_encoder_instead_of_the_trio(ready):
    ready.run("train_siamese.sh", "train", PREPROCESS_HUB="my/preprocess", **_HUB)
    calls = ready.calls()
    assert "--bert_hub=demo" in calls and "--preprocess_hub=my/preprocess" in calls
    assert not any(line.startswith(("--vocab_file", "--bert_config_file", "--init_checkpoint")) for line in calls)
    ready.run("train_siamese.sh", "train", INIT_CKPT="mine", **_HUB)
    assert "--init_checkpoint=mine" in ready.calls()


def test_train_siamese_names_every_missing_variable(repository):
    assert_one_line_and_status_2(
        repository.run("train_siamese.sh", "predict"), "not set: BERT_PREMODELS GLUE_DIR OUTPUT_PARENT_DIR EXP_NAME"
    )
    assert_one_line_and_status_2(
        repository.run("train_siamese.sh", "train", BERT_HUB="demo"), "not set: GLUE_DIR OUTPUT_PARENT_DIR"
    )
    assert repository.calls() == []  # Before any set-up.


@pytest.mark.parametrize(
    ("arguments", "variables", "named"),
    [
        ([], {}, "no sub-command given, expected train, eval, predict"),
        (["tarin"], _TF1, "unknown sub-command tarin, expected train, eval, predict"),
        (["train"], _TF1, "GLUE_DIR is glue: no such folder"),
        *(
            (["predict", *flags], {**_TF1, "EXP_NAME": "a"}, "EXP_NAME is a, and --exp_name is b: expected the same")
            for flags in (["--exp_name=a --exp_name=b --flow=1"], ["--flow=1", "--exp_name", "b"])
        ),
        (["train"], {**_TF1, "GLUE_DIR": "."}, "BERT_PREMODELS is pre: no folder pre/uncased_L-12_H-768_A-12"),
        (
            ["train"],
            {**_TF1, "GLUE_DIR": ".", "BERT_NAME": "huge"},
            "BERT_NAME is huge, expected base, large or large-wwm",
        ),
    ],
)
def test_train_siamese_names_mistakes(repository, arguments, variables, named):
    assert_one_line_and_status_2(repository.run("train_siamese.sh", *arguments, **variables), named)
    assert repository.calls() == []  # Before any set-up.
