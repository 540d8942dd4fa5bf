"""Test that done means the same content.

The tests try each command that writes results, and what may change.
"""

import concurrent.futures
import json
import pathlib
import shutil

import pytest

from bert_flow_tf import BertFlow
from bert_flow_tf.original.recipe import Recipe, run_stages
from bert_flow_tf.report.collected import read_result
from bert_flow_tf.tasks.scored_tasks import read_task
from bert_flow_tf.training.run_folder import locked_run
from tests.bert_flow_tf import small_runs
from tests.refusals import bert_flow, files_below, refusal, user_error

WORDS = small_runs.SMALL_WORDS


@pytest.fixture(scope="module")
def finished(tmp_path_factory, small_encoder_dir):
    """Settings of a finished run with all its results.

    The run lies in a folder to copy.
    """
    root = tmp_path_factory.mktemp("finished")
    settings = small_runs.flow_values(
        root,
        small_encoder_dir,
        exp_name="run",
        num_train_epochs=1.0,
        do_eval=True,
        do_predict=True,
        do_senteval=True,
        senteval_tasks="STS12",
        senteval_dir=str(small_runs.write_senteval(root / "senteval", WORDS)),
    )
    small_runs.write_stsb(root / "STS-B", WORDS, gold=True)
    small_runs.write_mrpc(root / "senteval" / "MRPC", WORDS)
    small_runs.run(settings)
    return settings


@pytest.fixture
def place(finished, tmp_path):
    """A copy of the run and its data; its settings."""
    root = tmp_path / "here"
    shutil.copytree(root_of(finished), root)
    names = ("data_dir", "output_parent_dir", "flow_model_config", "senteval_dir")
    moved = {name: finished[name].replace(str(root_of(finished)), str(root)) for name in names}
    return root, finished | moved


def root_of(settings):
    """Return the folder of a run's data and results."""
    return pathlib.Path(settings["output_parent_dir"]).parent


def turn(path):
    """Change a file of pairs: its last line goes behind the first."""
    first, *others, last = path.read_text().splitlines(keepends=True)
    path.write_text("".join([first, last, *others]))


def run_siamese(settings, **changes):
    return small_runs.main(*small_runs.as_flags(settings, **changes))


# What changes, and the words that name it.
CHANGES = {
    "test pairs": ("test.tsv", {}, "test_results.json: found results of something else"),
    "gold scores": ("sts-test.csv", {}, "the data of STS-B have changed"),
    "dev pairs": ("dev.tsv", {}, "eval_results.json: found results of something else"),
    "a flag": (None, {"eval_batch_size": 4}, "eval_batch_size is 8, not 4"),
}


@pytest.mark.parametrize("do_train", [True, False])
@pytest.mark.parametrize("change", CHANGES)
def test_a_result_of_something_else_is_named(place, change, do_train):
    root, settings = place
    settings = settings | {"do_train": do_train}
    file, flags, words = CHANGES[change]
    before = files_below(root / "out")
    assert run_siamese(settings)[0] == 0
    assert files_below(root / "out") == before
    if file:
        turn(root / "STS-B" / file)
    refusal(*run_siamese(settings, **flags), words, "--overwrite", after_log=True)
    assert files_below(root / "out") == before
    if not do_train:
        assert run_siamese(settings, **flags, overwrite=True)[0] == 0
        assert run_siamese(settings, **flags)[0] == 0


@pytest.mark.parametrize("do_train", [True, False])
def test_another_task_is_scored_beside_those_that_are(place, do_train):
    root, settings = place
    path = root / "out" / "run" / "evaluation.json"
    scored = read_result(path).tasks
    assert scored.keys() == {"sts12"}
    settings = settings | {"do_train": do_train, "senteval_tasks": "MRPC"}
    assert run_siamese(settings)[0] == 0
    both = read_result(path).tasks
    assert both.keys() == {"sts12", "mrpc"} and both["sts12"] == scored["sts12"]
    glue = ("--model", root / "out" / "run", "--tasks", "stsb", "--glue_dir", root)
    assert bert_flow("evaluate", *glue).exit_code == 0
    three = read_result(path).tasks
    assert three.items() >= both.items() and three.keys() == {"sts12", "mrpc", "stsb"}
    assert bert_flow("evaluate", *glue).stderr.startswith("done before: ")
    before = files_below(root / "out")
    assert run_siamese(settings)[0] == 0
    turn(root / "STS-B" / "sts-test.csv")
    outcome = bert_flow("evaluate", *glue)
    line = refusal(outcome.exit_code, outcome.stderr, after_log=True)
    assert "the data of STS-B have changed" in line
    other = bert_flow("evaluate", *glue, "--truncate_dim", 4)
    assert "truncate_dim is None, not 4" in other.stderr or "have changed" in other.stderr
    assert files_below(root / "out") == before


def test_missing_data_that_came_are_scored(place):
    root, settings = place
    (root / "senteval" / "MRPC").rename(root / "MRPC")
    both = settings | {"senteval_tasks": "STS12,MRPC"}
    refusal(*run_siamese(both), "not scored: ", after_log=True)
    (root / "MRPC").rename(root / "senteval" / "MRPC")
    assert run_siamese(both)[0] == 0
    assert read_result(root / "out" / "run" / "evaluation.json").tasks.keys() == {"sts12", "mrpc"}


def test_reproduce_does_not_score_predictions_of_other_pairs(place, small_encoder_dir):
    root, settings = place
    flags = ("--max_seq_length", 10, "--use_full_for_training", 0, "--num_train_epochs", 1)
    flow = ("--flow_model_config", settings["flow_model_config"], "--train_batch_size", 8)
    command = ("reproduce", "--bert_hub", small_encoder_dir, "--glue_dir", root, "--row", "own")
    command = (*command, "--out", root / "rows", *flags, *flow)
    assert bert_flow(*command).exit_code == 0
    again = bert_flow(*command)
    assert again.exit_code == 0 and again.stdout.count("done before") == 2
    record = (root / "rows" / "reproduction.json").read_bytes()
    for name in ("test.tsv", "sts-test.csv"):
        turn(root / "STS-B" / name)
    outcome = bert_flow(*command)
    line = refusal(outcome.exit_code, outcome.stderr, after_log=True)
    assert "the data of STS-B have changed" in line
    assert (root / "rows" / "reproduction.json").read_bytes() == record
    # Without the record of all rows, the stage knows its predictions.
    (root / "rows" / "reproduction.json").unlink()
    outcome = bert_flow(*command)
    line = refusal(outcome.exit_code, outcome.stderr, after_log=True)
    assert "test_results.json: found results of something else" in line


def test_the_recipe_does_not_score_predictions_of_other_pairs(place, small_encoder_dir):
    root, _ = place

    def stages():
        task = read_task("stsb", glue_dir=root)
        options = {"glue_dir": root, "output_dir": root / "exp", "with_nli": False}
        recipe = Recipe.of(task, bert_hub=str(small_encoder_dir), **options)
        stage = recipe.plain("avg", "plain")
        settings = small_runs.flat(stage.settings)
        names = {one for one in settings if not isinstance(settings[one], dict)}
        flags = {name: settings[name] for name in names} | {"max_seq_length": 10}
        return [stage._replace(settings=type(stage.settings).of(**flags))]

    (first,) = run_stages(stages())
    (second,) = run_stages(stages())
    assert first.seconds is not None and second.seconds is None
    assert first.scores == second.scores
    turn(root / "STS-B" / "test.tsv")
    with user_error("test_results.json: found results of something else"):
        run_stages(stages())


def test_a_checkpoints_scores_are_its_own(place):
    root, _ = place
    run = root / "out" / "run"
    before = files_below(run)
    named = ("--model", run / "model.ckpt-0", "--tasks", "stsb", "--glue_dir", root)
    assert bert_flow("evaluate", *named).exit_code == 0
    after = files_below(run)
    assert {path.name for path in after.keys() - before.keys()} == {"model.ckpt-0.evaluation.json"}
    assert {path: after[path] for path in before} == before
    printed = bert_flow("report", "--runs", run).stdout
    rows = [line.split()[0] for line in printed.splitlines() if " STS-B " in line]
    # The record of the copied run has the name that it had.
    names = [pathlib.Path(row).relative_to(pathlib.Path(row).parents[1]) for row in rows]
    assert [str(name) for name in names] == ["run/model.ckpt-0", "run/model.ckpt-3"]


def test_an_unfinished_run_has_one_answer(place, tmp_path):
    root, settings = place
    run = root / "out" / "run"
    for name in ("test_results", "eval_results", "evaluation", "train_results"):
        for path in run.glob(f"{name}.*"):
            path.unlink()
    words = f"{run}: training has not finished"
    scored = settings | {"do_train": False, "do_eval": False, "do_predict": False}
    scored |= {"do_senteval": False}
    before = files_below(run)
    for flag in ("do_eval", "do_predict", "do_senteval"):
        refusal(*run_siamese(scored, **{flag: True}), words, after_log=True)
    (tmp_path / "texts.txt").write_text("The cat sat\n")
    for command in (
        ("evaluate", "--model", run, "--tasks", "stsb", "--glue_dir", root),
        ("encode", "--model", run, "--input", tmp_path / "texts.txt", "--out", tmp_path / "u.npy"),
        ("export", "--model", run, "--out", tmp_path / "exported"),
        ("convert", "--run", run, "--to_tf1", "--out", tmp_path / "tf1"),
    ):
        outcome = bert_flow(*command)
        assert words in refusal(outcome.exit_code, outcome.stderr, after_log=True), command
    assert files_below(run) == before
    # A checkpoint that is named is scored by both.
    named = {"do_predict": True, "eval_checkpoint_name": "model.ckpt-0"}
    assert run_siamese(scored, **named)[0] == 0
    checkpoint = ("--model", run / "model.ckpt-0", "--tasks", "stsb", "--glue_dir", root)
    assert bert_flow("evaluate", *checkpoint, "--out", tmp_path / "scores.json").exit_code == 0


def test_other_losses_are_other_results(place):
    root, settings = place
    refused = {"num_examples": 5, "l2_penalty": 1.0}
    for name, value in refused.items():
        changed = settings | {"do_train": False, name: value}
        refusal(*run_siamese(changed), f"{name} is", f"not {value}", after_log=True)
    small_runs.write_mnli(root / "MNLI", WORDS)
    nli = small_runs.values(
        root,
        settings["bert_hub"],
        task_name="MNLI",
        data_dir=str(root / "MNLI"),
        do_train=False,
        do_eval=True,
        do_predict=False,
        exp_name="nli",
    )
    assert run_siamese(nli)[0] == 0
    # No checkpoint holds the classifier, so the seed draws it.
    refusal(*run_siamese(nli, seed=7), "seed is", "not 7", after_log=True)


def test_a_trained_encoder_has_one_fingerprint(place):
    root, settings = place
    trained = settings | {"flow": 0, "flow_loss": 0, "num_examples": -1, "exp_name": "trained"}
    assert run_siamese(trained, do_eval=False, do_predict=False)[0] == 0
    run = root / "out" / "trained"
    scored = json.loads((run / "evaluation.json").read_text())["runs"][0]
    assert scored["fingerprint"] == BertFlow.from_pretrained(run).fingerprint
    again = ("--model", run, "--tasks", "sts12", "--senteval_dir", root / "senteval")
    assert bert_flow("evaluate", *again).stderr.startswith("done before: ")


@pytest.mark.parametrize("predict_pool", [False, True])
def test_predictions_without_a_correlation_are_written(place, predict_pool):
    root, settings = place
    header, first, *_ = (root / "STS-B" / "test.tsv").read_text().splitlines(keepends=True)
    (root / "STS-B" / "test.tsv").write_text(header + first)
    gold = (root / "STS-B" / "sts-test.csv").read_text().splitlines(keepends=True)
    (root / "STS-B" / "sts-test.csv").write_text(gold[0])
    alone = settings | {"do_train": False, "do_eval": False, "do_senteval": False}
    alone |= {"overwrite": True, "predict_pool": predict_pool}
    with pytest.warns(UserWarning, match="predictions without a score: .* found 1 "):
        assert run_siamese(alone)[0] == 0
    name = "test_pooled.tsv" if predict_pool else "test_results.tsv"
    assert len((root / "out" / "run" / name).read_text().splitlines()) == 1
    assert run_siamese(alone | {"overwrite": False})[0] == 0


def test_a_named_checkpoint_needs_its_run(place):
    root, settings = place
    named = {"exp_name": "none", "do_train": False, "do_senteval": False, "flow": 0}
    named |= {"eval_checkpoint_name": "model.ckpt-9", "flow_loss": 0, "num_examples": -1}
    refusal(
        *run_siamese(settings, **named), "eval_checkpoint_name", "without a run", after_log=True
    )
    assert not list((root / "out").glob("none/*ckpt*"))


def test_nothing_is_deleted_while_another_uses_a_run(place):
    root, _ = place
    task = read_task("stsb", glue_dir=root)
    options = {"glue_dir": root, "output_dir": root / "out", "with_nli": False}
    stage = Recipe.of(task, bert_hub="demo", **options).plain("avg", "plain")
    settings = stage.settings
    object.__setattr__(settings, "exp_name", "run")
    before = files_below(root / "out" / "run")
    with (
        concurrent.futures.ThreadPoolExecutor(1) as thread,
        locked_run(root / "out" / "run"),
        user_error("another process is using it"),
    ):
        thread.submit(run_stages, [stage], overwrite=True).result()
    assert files_below(root / "out" / "run") == before


def test_a_damaged_gold_file_is_named_by_every_reader(place, small_encoder_dir, tmp_path):
    root, settings = place
    path = root / "STS-B" / "sts-test.csv"
    lines = path.read_text().splitlines(keepends=True)
    columns = lines[4].split("\t")
    columns[4] = "4,5"
    lines[4] = "\t".join(columns)
    path.write_text("".join(lines))
    words = (f"{path}, line 5", "'4,5'")
    hub = ("--bert_hub", small_encoder_dir)
    glue = ("--glue_dir", root)
    for command in (
        ("isotropy", *hub, *glue, "--split", "test"),
        ("isotropy", *hub, *glue, "--split", "all"),
        ("evaluate", *hub, *glue, "--tasks", "stsb"),
        ("compare", *hub, *glue, "--methods", "sn"),
        ("reproduce", *hub, *glue, "--rows", "avg", "--out", tmp_path / "rows"),
    ):
        outcome = bert_flow(*command)
        line = refusal(outcome.exit_code, outcome.stderr, after_log=True)
        assert all(word in line for word in words), (command, line)
    refusal(*run_siamese(settings, exp_name="new"), *words, after_log=True)
    assert not (root / "out" / "new").exists()


def test_a_result_without_its_record_is_not_replaced(place):
    root, settings = place
    path = root / "out" / "run" / "test_results.tsv"
    path.with_suffix(".json").unlink()
    words = "test_results.tsv: found results without their record"
    refusal(*run_siamese(settings, do_train=False), words, after_log=True)
    # A killed command leaves a record without its results.
    path.unlink()
    assert run_siamese(settings)[0] == 0
    assert json.loads(path.with_suffix(".json").read_text())["kind"] == "scores"
