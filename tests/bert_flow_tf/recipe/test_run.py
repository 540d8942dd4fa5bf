"""What the recipe runs, what it runs only once, and what it refuses; the commands themselves are a stand-in's."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from bert_flow_tf.errors import UserError
from bert_flow_tf.recipe.environment import read_environment
from bert_flow_tf.recipe.run import StageFailed, main, run, table
from bert_flow_tf.recipe.stages import Stage, stages_of
from bert_flow_tf.recipe.stamps import Stamp
from tests.bert_flow_tf.recipe.workplace import Workplace
from tests.bert_flow_tf.small_runs import write_tsv
from tests.refusals import user_error


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
    module, options = calls[-1]
    assert module == "bert_flow_tf.cli" and len(calls) == len(_ALL_RUNS) + 1
    assert str(options["model"]).endswith("nli_demo_1234_STS-B_avg-last-2_flow")
    # Ranks 1, 2, 4, 3 against 1, 2, 3, 4.
    scores = [stamp.spearman for stamp, _ in results]
    assert scores == [None, 0.8, 0.8, None, None, 0.8, 0.8, None]
    written = json.loads((workplace.root / "exp" / _ALL_RUNS[1] / "recipe_scores.json").read_text())
    (scored,) = written["tasks"].values()
    assert scored["agreement"]["gold"] == [1, 2, 4, 3]


def test_settings_are_those_of_the_originals_readme_and_all_begin_with_the_nli_run(workplace):
    workplace.run(RANDOM_SEED="7", INIT_CKPT="elsewhere/model.ckpt")
    calls = [values for module, values in workplace.calls() if module == "bert_flow_tf.run_siamese"]
    assert all(values["max_seq_length"] == 64 and values["seed"] == 7 for values in calls)
    nli, plain, flow = calls[0], calls[1], calls[3]
    expected = {"task_name": "ALLNLI", "num_train_epochs": 1.0, "learning_rate": 2e-5, "train_batch_size": 16}
    assert nli.items() >= expected.items()
    assert plain.items() >= {"flow": 0, "num_examples": 0, "do_predict": True}.items() and "do_train" not in plain
    expected = {"flow": 1, "flow_loss": 1, "flow_learning_rate": 1e-3, "train_batch_size": 32, "num_examples": 0}
    assert flow.items() >= (expected | {"use_full_for_training": 1, "flow_model_config": "config_l3_d3_w32"}).items()
    assert nli["init_checkpoint"] == "elsewhere/model.ckpt"
    expected = str(workplace.root / "exp" / "nli_demo_7" / "model.ckpt-75")
    assert {values["init_checkpoint"] for values in calls[1:]} == {expected}


def test_skip_nli_leaves_nli_out_and_begins_with_the_given_checkpoint(workplace):
    (workplace.glue / "MNLI" / "train.tsv").unlink()
    (workplace.glue / "MNLI").rmdir()
    workplace.run(SKIP_NLI="1", INIT_CKPT="elsewhere/model.ckpt")
    calls = [values for module, values in workplace.calls() if module == "bert_flow_tf.run_siamese"]
    assert {values["task_name"] for values in calls} == {"STS-B"}
    assert {values["init_checkpoint"] for values in calls} == {"elsewhere/model.ckpt"}


def test_a_failed_stage_stops_the_recipe_with_its_status_and_the_next_run_goes_on_there(workplace):
    workplace.fail_at("nli_demo_1234_STS-B_avg_flow")
    with pytest.raises(StageFailed, match=r"'flow on STS-B, avg' failed with exit status 7") as failure:
        workplace.run()
    assert failure.value.status == 7
    assert _runs(workplace.calls()) == _ALL_RUNS[:4]
    workplace.mend()
    workplace.run()
    assert _runs(workplace.calls()) == _ALL_RUNS[3:]


def test_a_worker_that_is_killed_is_named_and_the_next_run_goes_on_in_that_stage(tmp_path, monkeypatch, capfd):
    (tmp_path / "commands.py").write_text(
        "import os, pathlib, signal\n"
        "def run_command(arguments):\n"
        "    print(*arguments)\n"
        "    if pathlib.Path('kill').exists():\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    monkeypatch.chdir(tmp_path)
    stages = [Stage(name, name, "commands", (f"--{name}",), {}, tmp_path / name) for name in ("first", "second")]
    (tmp_path / "kill").touch()
    with pytest.raises(StageFailed, match=r"^the stage 'first' was ended by SIGKILL, rerun the same") as failure:
        run(stages, tmp_path)
    assert failure.value.status == 128 + 9
    (tmp_path / "kill").unlink()
    capfd.readouterr()
    assert [stamp.state for stamp, _ in run(stages, tmp_path, verbose=True)] == ["finished"] * 2
    said, errors = capfd.readouterr()
    assert [line for line in said.splitlines() if line.startswith("--")] == ["--first", "--second"]
    assert errors == ""


def test_nli_fine_tuning_has_a_process_of_its_own(workplace, tmp_path, monkeypatch, capfd):
    planned = stages_of(read_environment(workplace.environ))
    assert [stage.name for stage in planned if stage.trains_encoder] == ["nli_demo_1234"]
    (tmp_path / "commands.py").write_text("import os\ndef run_command(arguments):\n    print('process', os.getpid())\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    stages = [
        Stage(name, name, "commands", (), {}, tmp_path / name, trains_encoder=name == "nli")
        for name in ("nli", "scores", "flow")
    ]
    run(stages, tmp_path, verbose=True)
    nli, scores, flow = [line for line in capfd.readouterr().out.splitlines() if line.startswith("process")]
    assert nli != scores == flow


@pytest.mark.parametrize("is_evaluated", [False, True])
def test_a_stage_interrupted_after_its_training_is_evaluated_by_the_same_command_once(workplace, is_evaluated):
    flow = "nli_demo_1234_STS-B_avg_flow"
    workplace.fail_at(flow)
    with pytest.raises(StageFailed):
        workplace.run()
    workplace.mend()
    run_dir = workplace.root / "exp" / flow
    run_dir.mkdir()
    (run_dir / "train_results.json").write_text("{}")
    if is_evaluated:
        (run_dir / "eval_results.txt").touch()
    workplace.calls()
    workplace.run()
    trains = [call.get("do_train", False) for _, call in workplace.calls() if call.get("exp_name") == flow]
    # The last call predicts. To be evaluated alone, the dev set would be embedded in other batches.
    assert trains == ([False] if is_evaluated else [True, False])


def test_a_stage_that_the_worker_of_a_killed_recipe_is_still_in_is_refused(workplace):
    flow = "nli_demo_1234_STS-B_avg_flow"
    workplace.fail_at(flow)
    with pytest.raises(StageFailed):
        workplace.run()
    workplace.mend()
    workplace.calls()
    run_dir = workplace.root / "exp" / flow
    run_dir.mkdir()
    source = (
        "import pathlib, sys; from bert_flow_tf.files.locks import locked\n"
        f"with locked(pathlib.Path({str(run_dir)!r})): print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", source]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        worker.stdout.readline()
        with user_error(f"{run_dir}: process {worker.pid} on ", "is using it"):
            workplace.run()
        # It ends its stage.
        for result in ("train_results.json", "eval_results.txt"):
            (run_dir / result).write_text("{}")
        worker.stdin.close()
    assert workplace.calls() == []
    workplace.run()
    assert [call.get("do_train", False) for _, call in workplace.calls() if call.get("exp_name") == flow] == [False]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_is_there_whole_is_not_made_again_unless_it_is_to_be(kind, tmp_path):
    made = tmp_path / "study" / "made"
    whole = made if kind == "file" else made / "whole"
    stage = Stage("one", "one", "module", (), {}, tmp_path, makes=made, whole=whole)
    calls = []

    def execute(command):
        calls.append(whole.exists())
        whole.parent.mkdir(parents=True, exist_ok=True)
        whole.touch()
        return len(calls) % 2

    # As when the process ends before its stamp is written.
    with pytest.raises(StageFailed):
        run([stage], tmp_path, execute=execute)
    assert [stamp.state for stamp, _ in run([stage], tmp_path, execute=execute)] == ["finished"]
    assert calls == [False]
    with pytest.raises(StageFailed):
        run([stage], tmp_path, overwrite=True, execute=lambda command: calls.append(whole.exists()) or 1)
    assert calls == [False, False]


def test_an_export_interrupted_before_its_stamp_is_made_again(workplace):
    workplace.run()
    stamp = workplace.root / "exp" / "recipe" / "nli_demo_1234_STS-B_avg-last-2_flow_export.json"
    stamp.write_text(json.dumps({**json.loads(stamp.read_text()), "state": "running"}))
    workplace.calls()
    # What the stage did not make.
    base = workplace.root / "exp" / "export" / "nli_demo_1234_STS-B_avg-last-2_flow"
    (base / "2").mkdir()
    (base / "models.config").write_text("mine")
    workplace.run()
    assert [module for module, _ in workplace.calls()] == ["bert_flow_tf.cli"]
    assert sorted(path.name for path in base.iterdir()) == ["1", "2", "models.config"]


@pytest.mark.parametrize("name", ["nli_demo_1234_STS-B_avg_flow", "export/nli_demo_1234_STS-B_avg-last-2_flow/1"])
def test_what_no_stage_made_is_kept_however_often_it_is_refused(workplace, name):
    folder = workplace.root / "exp" / name
    folder.mkdir(parents=True)
    for result in ("train_results.json", "eval_results.txt"):
        (folder / result).write_text("mine")
    for _ in range(2):
        with user_error(f"{folder}: exists, and ", "was never begun here", "--overwrite"):
            workplace.run()
    assert workplace.calls() == []
    assert {path.read_text() for path in folder.iterdir()} == {"mine"}
    workplace.run(overwrite=True)
    assert len(workplace.calls()) == len(_ALL_RUNS) + 1


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
    workplace.cosines["SICK-R"] = workplace.cosines["STS-B"]
    workplace.calls()
    with pytest.raises(UserError, match=r"SICK-R/\S+, expected the gold scores of the test split of SICK-R"):
        workplace.run(TASK_NAME="sick-r")
    header = ["pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment"]
    rows = [["1", "a", "b", gold, "N"] for gold in "1243"]
    write_tsv(workplace.glue / "SICK-R" / "SICK_test_annotated.txt", [header, *rows])
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


def test_overwrite_empties_a_run_that_a_link_leads_to(workplace):
    workplace.run()
    run_dir = next(path.parent for path in (workplace.root / "exp").glob("*/test_results.tsv"))
    run_dir.rename(there := workplace.root / "there")
    run_dir.symlink_to(there)
    (there / "old").touch()
    workplace.run(overwrite=True)
    assert run_dir.is_symlink() and (there / "test_results.tsv").exists() and not (there / "old").exists()


def test_an_interrupted_overwrite_goes_on_without_keeping_old_results(workplace):
    workplace.run()
    workplace.fail_at("nli_demo_1234_STS-B_avg")
    with pytest.raises(StageFailed):
        workplace.run(overwrite=True)
    workplace.mend()
    workplace.calls()
    workplace.run()
    assert _runs(workplace.calls()) == _ALL_RUNS[1:]


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ('"format_version": 2, ', r"settings\[\.\.\.\]: found int, expected str"),
        ("", "found format_version None, expected 2: a stage's stamp; --overwrite runs the stages again"),
    ],
)
def test_a_broken_stamp_is_named(workplace, version, message):
    workplace.run()
    stamp = workplace.root / "exp" / "recipe" / "nli_demo_1234.json"
    stamp.write_text(f'{{{version}"state": "finished", "title": "", "settings": {{"a": 1}}}}')
    with pytest.raises(UserError, match=rf"nli_demo_1234\.json: {message}"):
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


def test_tf1_checkpoints_are_named_by_the_originals_trio_and_known_by_their_index(workplace):
    folder = workplace.root / "premodels" / "uncased_L-24_H-1024_A-16"
    folder.mkdir(parents=True)
    (folder / "bert_model.ckpt.index").write_bytes(b"1")
    recipe = read_environment({**workplace.environ, "BERT_NAME": "large", "BERT_PREMODELS": str(folder.parent)})
    first, *_, last = stages_of(recipe)
    files = {"vocab_file": "vocab.txt", "bert_config_file": "bert_config.json", "init_checkpoint": "bert_model.ckpt"}
    assert {f"--{flag}={folder}/{name}" for flag, name in files.items()} <= set(first.flags)
    assert recipe.nli_name == "nli_large_1234"
    (folder / "bert_model.ckpt.index").write_bytes(b"2")
    assert stages_of(recipe)[-1].settings != last.settings


@pytest.mark.parametrize(
    ("variables", "hub", "name"),
    [
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
        ({"BERT_PREMODELS": "nowhere"}, "BERT_PREMODELS: nowhere/uncased_L-12_H-768_A-12 is not a folder"),
        ({"TASK_NAME": "QQP"}, "TASK_NAME: QQP has no gold scores"),
        ({"RANDOM_SEED": "one"}, "RANDOM_SEED: found 'one'"),
        ({"SKIP_NLI": "yes"}, "SKIP_NLI: found 'yes'"),
        ({"GLUE_DIR": "nowhere"}, "nowhere/STS-B: no such folder, expected the data of STS-B (GLUE_DIR"),
        ({"CACHED_DIR": __file__}, f"CACHED_DIR: {__file__} is not a folder"),
        ({"OUTPUT_PARENT_DIR": "gs://bucket/exp"}, "OUTPUT_PARENT_DIR: found an address"),
        *(
            ({name: "a" * 300}, "found a name that is too long")
            for name in ("GLUE_DIR", "BERT_HUB", "BERT_PREMODELS", "PREPROCESS_HUB", "INIT_CKPT", "CACHED_DIR")
        ),
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


def test_table_has_scores_times_100_and_says_what_was_done_before():
    stamps = [
        (Stamp("finished", "NLI fine-tuning", {}, seconds=93.04), True),
        (Stamp("finished", "STS-B, avg", {}, seconds=8.0, pearson=0.82741, spearman=0.82034), False),
    ]
    assert table(stamps).to_text().splitlines() == [
        "stage            Pearson  Spearman  seconds",
        "-" * 56,
        "NLI fine-tuning        -         -     93.0  done before",
        "STS-B, avg         82.74     82.03      8.0",
        "-" * 56,
        "total                  -         -    101.0",
    ]


@pytest.mark.parametrize(("spearman", "mark"), [(0.815, "falls by 0.53"), (0.816, ""), (0.9, "")])
def test_table_marks_a_fall_by_the_flow_and_says_why_it_may_be(spearman, mark):
    stamps = [
        (Stamp("finished", f"STS-B, avg{flow}", {}, seconds=8.0, pearson=0.8, spearman=score), False)
        for flow, score in (("", 0.82034), (" + flow", spearman))
    ]
    _, _, _, row, _, _, changes, *why = table(stamps).to_text().splitlines()
    assert row.partition("8.0")[2].strip() == mark
    assert changes == f"Spearman with the flow: {100 * (spearman - 0.82034):+.2f} STS-B, avg."
    assert "in a cone" in why[0]


@pytest.mark.parametrize(("module", "script"), [("run", "siamese_then_flow.sh"), ("effect", "paper_effect.sh")])
def test_help_needs_no_tensorflow_and_is_that_of_the_script(module, script):
    use = f"from bert_flow_tf.recipe.{module} import main; main(['-h'])"
    source = f"import sys; {use}; sys.exit('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    path = pathlib.Path(__file__).parents[3] / "run_scripts" / script
    assert subprocess.run(["bash", path, "--help"], capture_output=True, text=True, check=True).stdout == done.stdout
