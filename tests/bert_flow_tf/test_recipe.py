"""The recipe with a stand-in for the commands it runs: what is run, what is done only once, what is refused."""

import json
import pathlib
import subprocess
import sys
import textwrap

import pytest

from bert_flow_tf import recipe as recipe_module
from bert_flow_tf.errors import UserError
from bert_flow_tf.recipe import StageFailed, latest_checkpoint, main, read_environment, run, table
from bert_flow_tf.recipe_stages import stages_of

# Stands in for `python -m MODULE FLAGS`: notes its arguments, leaves what the real command leaves, fails where told to.
_STAND_IN = """
    import json, pathlib, sys
    here = pathlib.Path(__file__).parent
    module, flags = sys.argv[2], sys.argv[3:]
    values = dict(flag.lstrip("-").split("=", 1) for flag in flags if "=" in flag)
    with open(here / "calls.jsonl", "a") as calls:
        calls.write(json.dumps([module, flags]) + "\\n")
    name = values.get("exp_name", "")
    failing = here / "fail"
    if failing.exists() and name == failing.read_text():
        print("error: stand-in fails", file=sys.stderr)
        sys.exit(7)
    if module == "bert_flow_tf.run_siamese":
        run_dir = pathlib.Path(values["output_parent_dir"]) / name
        run_dir.mkdir(parents=True, exist_ok=True)
        if "do_train" in values:
            (run_dir / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-75"\\n')
        if "do_predict" in values:
            split = "dev" if "do_predict_on_dev" in values else "test"
            pairs = here / "pairs" / values["task_name"]
            cosines = pairs.read_text() if pairs.exists() else "0.5\\n"
            (run_dir / f"{split}_results.tsv").write_text(cosines)
    elif module == "bert_flow_tf.eval_stsb":
        assert pathlib.Path(values["pred_path"]).is_file()
        print("Pearson: 0.771234, Spearman: 0.765432")
    elif module == "bert_flow_tf.cli":
        out = pathlib.Path(values["out"])
        if out.exists():
            sys.exit(2)
        out.mkdir(parents=True)
    else:
        sys.exit("unknown module " + module)
"""


class Workplace:
    """A GLUE folder, an output folder and the stand-in, with what was called."""

    def __init__(self, root: pathlib.Path):
        self.root = root
        self.glue = root / "glue"
        for name, file in (("STS-B", "sts-test.csv"), ("MNLI", "train.tsv"), ("SNLI", "train.tsv")):
            (self.glue / name).mkdir(parents=True)
            (self.glue / name / file).write_text(f"{name}\n")
        self.stand_in = root / "stand_in.py"
        self.stand_in.write_text(textwrap.dedent(_STAND_IN))
        self.environ = {"GLUE_DIR": str(self.glue), "OUTPUT_PARENT_DIR": str(root / "exp")}

    def run(self, overwrite=False, **variables):
        recipe = read_environment({**self.environ, **variables})
        stages = stages_of(recipe)
        return run(stages, recipe.output_dir, overwrite=overwrite, interpreter=(sys.executable, str(self.stand_in)))

    def calls(self):
        """The commands since the last time, as (module, {flag: value})."""
        path = self.root / "calls.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return [
            (module, dict(flag.lstrip("-").split("=", 1) for flag in flags if "=" in flag))
            for module, flags in map(json.loads, lines)
        ]

    def fail_at(self, exp_name):
        (self.root / "fail").write_text(exp_name)

    def mend(self):
        (self.root / "fail").unlink()


@pytest.fixture
def workplace(tmp_path):
    return Workplace(tmp_path)


def _runs(calls):
    return [values["exp_name"] for module, values in calls if module == "bert_flow_tf.run_siamese"]


_ALL_RUNS = [
    "nli_demo_1234",
    "nli_demo_1234_STS-B_avg",
    "nli_demo_1234_STS-B_avg-last-2",
    "nli_demo_1234_STS-B_avg_flow",
    "nli_demo_1234_STS-B_avg-last-2_flow",
    "nli_demo_1234_STS-B_avg_flow",
    "nli_demo_1234_STS-B_avg-last-2_flow",
]


def test_stages_are_nli_then_scores_then_flow_then_scores_then_export(workplace):
    results = workplace.run()
    calls = workplace.calls()
    assert _runs(calls) == _ALL_RUNS
    assert [module for module, _ in calls].count("bert_flow_tf.eval_stsb") == 4
    assert calls[-1][0] == "bert_flow_tf.cli"
    assert calls[-1][1]["model"].endswith("nli_demo_1234_STS-B_avg-last-2_flow")
    assert [("spearman" in stamp) for stamp in results] == [False, True, True, False, False, True, True, False]


def test_settings_are_those_of_the_originals_readme(workplace):
    workplace.run(RANDOM_SEED="7")
    calls = [values for module, values in workplace.calls() if module == "bert_flow_tf.run_siamese"]
    nli, plain, flow = calls[0], calls[1], calls[3]
    assert all(values["max_seq_length"] == "64" and values["seed"] == "7" for values in calls)
    assert (nli["task_name"], nli["num_train_epochs"], nli["learning_rate"], nli["train_batch_size"]) == (
        "ALLNLI", "1.0", "2e-5", "16",
    )  # fmt: skip
    assert (plain["flow"], plain["num_examples"], plain["do_predict"]) == ("0", "0", "true")
    assert "do_train" not in plain
    assert (flow["flow"], flow["flow_loss"], flow["flow_learning_rate"], flow["train_batch_size"]) == (
        "1", "1", "1e-3", "32",
    )  # fmt: skip
    assert (flow["use_full_for_training"], flow["flow_model_config"]) == ("1", "config_l3_d3_w32")


def test_stages_after_nli_begin_with_its_checkpoint(workplace):
    workplace.run(INIT_CKPT="elsewhere/model.ckpt")
    nli, *others = [values for module, values in workplace.calls() if module == "bert_flow_tf.run_siamese"]
    assert nli["init_checkpoint"] == "elsewhere/model.ckpt"
    expected = str(workplace.root / "exp" / "nli_demo_1234" / "model.ckpt-75")
    assert {values["init_checkpoint"] for values in others} == {expected}


def test_skip_nli_leaves_nli_out_and_begins_with_the_given_checkpoint(workplace):
    (workplace.glue / "MNLI" / "train.tsv").unlink()
    (workplace.glue / "MNLI").rmdir()
    workplace.run(SKIP_NLI="1", INIT_CKPT="elsewhere/model.ckpt")
    calls = [values for module, values in workplace.calls() if module == "bert_flow_tf.run_siamese"]
    assert {values["task_name"] for values in calls} == {"STS-B"}
    assert {values["init_checkpoint"] for values in calls} == {"elsewhere/model.ckpt"}


def test_a_second_run_does_nothing_and_has_the_same_scores(workplace):
    first = workplace.run()
    workplace.calls()
    second = workplace.run()
    assert workplace.calls() == []
    assert all(stamp["was_done"] for stamp in second)
    assert [stamp.get("spearman") for stamp in second] == [stamp.get("spearman") for stamp in first]
    assert [stamp["seconds"] for stamp in second] == [stamp["seconds"] for stamp in first]


def test_a_failed_stage_stops_the_recipe_with_its_status_and_the_next_run_goes_on_there(workplace):
    workplace.fail_at("nli_demo_1234_STS-B_avg_flow")
    with pytest.raises(StageFailed, match=r"'flow on STS-B, avg' failed with exit status 7") as failure:
        workplace.run()
    assert failure.value.status == 7
    assert _runs(workplace.calls()) == _ALL_RUNS[:4]
    workplace.mend()
    workplace.run()
    assert _runs(workplace.calls()) == _ALL_RUNS[3:]


def test_a_stage_interrupted_after_its_training_is_not_trained_again(workplace):
    flow = "nli_demo_1234_STS-B_avg_flow"
    workplace.fail_at(flow)
    with pytest.raises(StageFailed):
        workplace.run()
    workplace.mend()
    run_dir = workplace.root / "exp" / flow
    run_dir.mkdir()
    (run_dir / "train_results.json").write_text("{}")
    workplace.calls()
    workplace.run()
    resumed = workplace.calls()[0][1]
    assert resumed["exp_name"] == flow
    assert "do_train" not in resumed
    assert resumed["do_eval"] == "true"


def test_an_export_interrupted_before_its_stamp_is_made_again(workplace):
    workplace.run()
    stamp = workplace.root / "exp" / "recipe" / "nli_demo_1234_STS-B_avg-last-2_flow_export.json"
    stamp.write_text(json.dumps({**json.loads(stamp.read_text()), "state": "running"}))
    workplace.calls()
    workplace.run()
    assert [module for module, _ in workplace.calls()] == ["bert_flow_tf.cli"]


@pytest.mark.parametrize(
    ("variable", "value", "named"),
    [
        ("GLUE_DIR", "other", "data of MNLI is "),
        ("BERT_HUB", "there/demo", "bert_hub is 'demo' there and 'there/demo' here"),
    ],
)
def test_other_settings_in_the_same_folder_are_refused_by_name(workplace, variable, value, named):
    workplace.run()
    workplace.calls()
    if variable == "GLUE_DIR":
        (workplace.glue / "MNLI" / "train.tsv").write_text("other\n")
        value = str(workplace.glue)
    with pytest.raises(UserError, match=r"was begun with other settings .*--overwrite") as refusal:
        workplace.run(**{variable: value})
    assert named in str(refusal.value)
    assert workplace.calls() == []


def test_another_seed_or_task_has_stages_of_its_own(workplace):
    workplace.run()
    (workplace.glue / "SICK-R").mkdir()
    workplace.calls()
    with pytest.raises(UserError, match=r"SICK-R/\S+, expected the gold scores of the test split of SICK-R"):
        workplace.run(TASK_NAME="sick-r")
    (workplace.glue / "SICK-R" / "SICK_test_annotated.txt").write_text("gold\n")
    workplace.run(TASK_NAME="sick-r")
    names = _runs(workplace.calls())
    assert names[0] == "nli_demo_1234_SICK-R_avg"  # NLI is shared and done.
    workplace.run(RANDOM_SEED="2")
    assert _runs(workplace.calls())[0] == "nli_demo_2"


def test_overwrite_deletes_and_does_every_stage_again(workplace):
    workplace.run()
    left = workplace.root / "exp" / "nli_demo_1234" / "left_over"
    left.write_text("")
    (workplace.glue / "MNLI" / "train.tsv").write_text("other\n")
    workplace.calls()
    workplace.run(overwrite=True)
    assert _runs(workplace.calls()) == _ALL_RUNS
    assert not left.exists()


def test_an_interrupted_overwrite_goes_on_without_keeping_old_results(workplace):
    workplace.run()
    workplace.fail_at("nli_demo_1234_STS-B_avg")
    with pytest.raises(StageFailed):
        workplace.run(overwrite=True)
    workplace.mend()
    workplace.calls()
    workplace.run()
    assert _runs(workplace.calls()) == _ALL_RUNS[1:]


def test_two_runs_at_once_in_one_folder_are_refused(workplace):
    recipe = read_environment(workplace.environ)
    with recipe_module.Stamps(recipe.output_dir / "recipe").locked(), pytest.raises(UserError, match="another run"):
        workplace.run()


def test_a_broken_stamp_is_named(workplace):
    workplace.run()
    stamp = workplace.root / "exp" / "recipe" / "nli_demo_1234.json"
    for content in (
        "{",
        "[]",
        '{"state": "finished", "settings": null}',
        '{"state": "finished", "settings": {"a": 1}}',
    ):
        stamp.write_text(content)
        with pytest.raises(UserError, match=r"nli_demo_1234\.json"):
            workplace.run()


def test_the_vocabulary_beside_an_encoder_is_part_of_what_a_stage_depends_on(workplace):
    encoder, vocabulary = workplace.root / "x/encoder", workplace.root / "x/preprocess/assets/vocab.txt"
    encoder.mkdir(parents=True)
    (encoder / "saved_model.pb").touch()
    vocabulary.parent.mkdir(parents=True)
    vocabulary.write_text("[PAD]")
    workplace.run(BERT_HUB=str(encoder), SKIP_NLI="1")
    vocabulary.write_text("[UNK]")
    with pytest.raises(UserError, match="was begun with other settings"):
        workplace.run(BERT_HUB=str(encoder), SKIP_NLI="1")


def test_tf1_checkpoints_are_named_by_the_originals_trio(workplace):
    folder = workplace.root / "premodels" / "uncased_L-24_H-1024_A-16"
    folder.mkdir(parents=True)
    recipe = read_environment({**workplace.environ, "BERT_NAME": "large", "BERT_PREMODELS": str(folder.parent)})
    flags = stages_of(recipe)[0].flags
    assert f"--vocab_file={folder}/vocab.txt" in flags
    assert f"--bert_config_file={folder}/bert_config.json" in flags
    assert f"--init_checkpoint={folder}/bert_model.ckpt" in flags
    assert recipe.nli_name == "nli_large_1234"


def test_a_changed_tf1_checkpoint_is_told_by_its_index(workplace):
    folder = workplace.root / "premodels" / "uncased_L-12_H-768_A-12"
    folder.mkdir(parents=True)
    environ = {**workplace.environ, "BERT_PREMODELS": str(folder.parent)}
    (folder / "bert_model.ckpt.index").write_bytes(b"1")
    before = stages_of(read_environment(environ))[-1].settings
    (folder / "bert_model.ckpt.index").write_bytes(b"2")
    assert stages_of(read_environment(environ))[-1].settings != before


@pytest.mark.parametrize(
    ("variables", "hub", "name"),
    [
        ({}, "demo", "demo"),
        ({"BERT_NAME": "large"}, "large", "large"),
        ({"BERT_HUB": "https://tfhub.dev/google/small_bert/4"}, None, "small_bert_4"),
        ({"BERT_HUB": "http://127.0.0.1/models/tiny?x=1", "BERT_NAME": "large"}, None, "tiny"),
    ],
)
def test_encoder_without_tf1_checkpoints_is_a_hub_handle(workplace, variables, hub, name):
    recipe = read_environment({**workplace.environ, **variables})
    assert recipe.encoder_flags == {"bert_hub": hub or variables["BERT_HUB"]}
    assert recipe.encoder_name == name


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"BERT_NAME": "huge"}, "BERT_NAME: found 'huge'"),
        ({"BERT_NAME": "large-wwm"}, "BERT_NAME: large-wwm is not on TF-Hub"),
        ({"BERT_PREMODELS": "nowhere"}, "BERT_PREMODELS: nowhere/uncased_L-12_H-768_A-12 is no folder"),
        ({"TASK_NAME": "QQP"}, "TASK_NAME: QQP has no gold scores"),
        ({"TASK_NAME": "nonsense"}, "unknown task 'nonsense'"),
        ({"RANDOM_SEED": "one"}, "RANDOM_SEED: found 'one'"),
        ({"SKIP_NLI": "yes"}, "SKIP_NLI: found 'yes'"),
        ({"GLUE_DIR": "nowhere"}, "nowhere/STS-B: no such folder, expected the data of STS-B (GLUE_DIR"),
    ],
)
def test_a_wrong_variable_ends_with_one_line_and_status_2(workplace, capsys, variables, named):
    assert main([], {**workplace.environ, **variables}) == 2
    written = capsys.readouterr().err
    assert written.startswith("error: ") and written.count("\n") == 1
    assert named in written


def test_an_unknown_argument_is_named(capsys):
    assert main(["--overwite"], {}) == 2
    assert "'--overwite'" in capsys.readouterr().err


def test_latest_checkpoint_of_a_run_without_one_is_an_error(tmp_path):
    with pytest.raises(UserError, match="checkpoint"):
        latest_checkpoint(tmp_path)


def test_table_has_scores_times_100_and_says_what_was_done_before():
    stamps = [
        {"title": "NLI fine-tuning", "seconds": 93.04, "was_done": True},
        {"title": "STS-B, avg", "seconds": 8.0, "pearson": 0.82741, "spearman": 0.82034, "was_done": False},
    ]
    assert table(stamps).splitlines() == [
        "stage            Pearson  Spearman  seconds",
        "-" * 56,
        "NLI fine-tuning        -         -     93.0  done before",
        "STS-B, avg         82.74     82.03      8.0",
        "-" * 56,
        "total                  -         -    101.0",
    ]


def test_help_names_every_variable_and_needs_no_tensorflow():
    source = "import sys; from bert_flow_tf import recipe; recipe.main(['-h']); sys.exit('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    for name in ("BERT_NAME", "BERT_PREMODELS", "BERT_HUB", "PREPROCESS_HUB", "INIT_CKPT", "GLUE_DIR", "TASK_NAME",
                 "OUTPUT_PARENT_DIR", "CACHED_DIR", "RANDOM_SEED", "SKIP_NLI", "--overwrite"):  # fmt: skip
        assert f"  {name} " in done.stdout
