"""Each script runs its program and names mistakes."""

import pytest

_TF1 = {"BERT_PREMODELS": "pre", "GLUE_DIR": "glue", "OUTPUT_PARENT_DIR": "out"}
_HUB = {"BERT_HUB": "demo", "GLUE_DIR": "glue", "OUTPUT_PARENT_DIR": "out"}
_BASE = "pre/uncased_L-12_H-768_A-12"
_CHECKPOINT = f"--init_checkpoint={_BASE}/bert_model.ckpt"


@pytest.fixture
def failing(ready):
    """Function (text) that makes the command whose arguments hold a text fail."""
    yield (ready.root / "fail_run").write_text
    (ready.root / "fail_run").unlink()


@pytest.mark.parametrize(
    "check", ["ruff check", "ruff format", "lint_imports", "tools.english", "mypy", "pytest"]
)
def test_test_sh_fails_with_any_check_and_still_tests(ready, failing, check):
    failing(check)
    assert ready.run("test.sh").returncode == 1
    assert "pytest" in ready.calls()


@pytest.mark.parametrize(
    ("script", "module"),
    [
        ("siamese_then_flow.sh", "bert_flow_tf.original.recipe"),
        ("paper_effect.sh", "benchmarks.paper_effect"),
    ],
)
def test_a_recipe_gets_the_arguments_and_gives_its_status(ready, failing, script, module):
    failing("nothing")
    assert ready.succeeds(script, "--overwrite")[1] == ["-m", module, "--overwrite"]
    failing(module)
    assert ready.run(script).returncode == 1


@pytest.mark.parametrize(
    ("command", "mode"),
    [
        ("train", {"--do_train=true", "--do_eval=true", _CHECKPOINT}),
        ("eval", {"--do_eval=true", _CHECKPOINT}),
        ("predict_pool", {"--do_predict=true", "--predict_pool=True"}),
        ("predict_dev", {"--do_predict=true", "--predict_pool=True", "--do_predict_on_dev=True"}),
        ("predict_full", {"--do_predict=true", "--predict_pool=True", "--do_predict_on_full=True"}),
        ("do_senteval", {"--do_senteval=true", _CHECKPOINT}),
    ],
)
def test_train_siamese_passes_the_originals_flags(ready, command, mode):
    _, calls = ready.succeeds("train_siamese.sh", command, **_TF1)
    common = {
        "-m",
        "bert_flow_tf.run_siamese",
        "--task_name=STS-B",
        "--data_dir=glue/STS-B",
        "--output_parent_dir=out",
    }
    bert = {
        f"--vocab_file={_BASE}/vocab.txt",
        f"--bert_config_file={_BASE}/bert_config.json",
        "--max_seq_length=64",
    }
    assert set(calls) == mode | common | bert


def test_train_siamese_predict_scores_the_named_run(ready, failing):
    failing("nothing")
    _, calls = ready.succeeds("train_siamese.sh", "predict", EXP_NAME="run", **_TF1)
    scoring = calls.index("bert_flow_tf.eval_stsb")
    assert {"--do_predict=true", _CHECKPOINT} < set(calls[:scoring])
    scored = [
        "--glue_path=glue",
        "--task_name=STS-B",
        "--pred_path=out/run/test_results.tsv",
        "--is_test=1",
    ]
    assert calls[scoring + 1 :] == scored
    failing("run_siamese")
    flags = "--exp_name=run \n --flow=1"
    assert ready.run("train_siamese.sh", "predict", flags, EXP_NAME="run", **_TF1).returncode == 1
    assert "bert_flow_tf.eval_stsb" not in ready.calls()


def test_train_siamese_takes_the_named_encoder_and_checkpoint(ready):
    for name, folder in (
        ("large", "uncased_L-24_H-1024_A-16"),
        ("large-wwm", "wwm_uncased_L-24_H-1024_A-16"),
    ):
        named = {"BERT_NAME": name, "INIT_CKPT": "mine/m-1", "TASK_NAME": "ALLNLI"}
        _, calls = ready.succeeds("train_siamese.sh", "train", **named, **_TF1)
        expected = {
            f"--vocab_file=pre/{folder}/vocab.txt",
            "--init_checkpoint=mine/m-1",
            "--data_dir=glue/ALLNLI",
        }
        assert expected <= set(calls)
    _, calls = ready.succeeds("train_siamese.sh", "train", PREPROCESS_HUB="my/preprocess", **_HUB)
    assert {"--bert_hub=demo", "--preprocess_hub=my/preprocess"} <= set(calls)
    assert not any(
        line.startswith(("--vocab_file", "--bert_config_file", "--init_checkpoint"))
        for line in calls
    )
    _, calls = ready.succeeds("train_siamese.sh", "train", INIT_CKPT="mine", **_HUB)
    assert "--init_checkpoint=mine" in calls


_RUN_A = {**_TF1, "EXP_NAME": "a"}


@pytest.mark.parametrize(
    ("arguments", "variables", "named"),
    [
        (["predict"], {}, "not set: BERT_PREMODELS GLUE_DIR OUTPUT_PARENT_DIR EXP_NAME"),
        (["train"], {"BERT_HUB": "demo"}, "not set: GLUE_DIR OUTPUT_PARENT_DIR"),
        ([], {}, "no sub-command given, expected train, eval, predict"),
        (["tarin"], _TF1, "unknown sub-command tarin, expected train, eval, predict"),
        (["train"], _TF1, "GLUE_DIR is glue: no such folder"),
        (
            ["predict", "--exp_name=a --exp_name=b --flow=1"],
            _RUN_A,
            "EXP_NAME is a, and --exp_name is b",
        ),
        (["predict", "--flow=1", "--exp_name", "b"], _RUN_A, "EXP_NAME is a, and --exp_name is b"),
        (["train"], {**_TF1, "GLUE_DIR": "."}, f"BERT_PREMODELS is pre: no folder {_BASE}"),
        (
            ["train"],
            {**_TF1, "GLUE_DIR": ".", "BERT_NAME": "huge"},
            "BERT_NAME is huge, expected base, large",
        ),
    ],
)
def test_train_siamese_names_mistakes_before_any_set_up(repository, arguments, variables, named):
    repository.refused(named, script="train_siamese.sh", arguments=arguments, **variables)
    assert repository.calls() == []
