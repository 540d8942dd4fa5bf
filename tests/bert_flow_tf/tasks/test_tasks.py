"""Files of tasks are read as the original reads them."""

import pytest

from bert_flow_tf.tasks import tasks
from tests.bert_flow_tf.small_runs import MNLI_HEADER, NLI_LABELS, STSB_HEADER
from tests.refusals import user_error

SNLI_HEADER = [
    "index",
    "captionID",
    "pairID",
    *"----",
    "sentence1",
    "sentence2",
    "label1",
    "gold_label",
]
QQP_HEADER = ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"]
QNLI_HEADER = ["index", "question", "sentence", "label"]


def write(path, rows, end="\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join("\t".join(row) + end for row in rows).encode())


def stsb_row(a, b, *score):
    return [*"-------", a, b, *score]


def mnli_row(a, *labels):
    return [*"--------", a, a, *labels]


def snli_row(a, label):
    return [*"-------", a, a, "-", label]


def test_tasks_and_label_ranges_are_the_originals():
    found = {
        name: (task.is_regression, task.label_max, task.label_names)
        for name, task in tasks.TASKS.items()
    }
    scores = ("sts-b", "sick-r", "sts-12-16", "sts-12", "sts-13", "sts-14", "sts-15", "sts-16")
    assert found == {
        **dict.fromkeys(scores, (True, 5, ())),
        **dict.fromkeys(("qqp", "mrpc-regression"), (True, 1, ())),
        "qnli-regression": (True, 1, ("not_entailment", "entailment")),
        **dict.fromkeys(("mnli", "allnli"), (False, 1, NLI_LABELS)),
    }
    assert tasks.get_task("STS-B") is tasks.TASKS["sts-b"]


@pytest.mark.parametrize(
    ("task", "file", "rows", "second", "labels"),
    [
        # Quotes are ordinary characters.
        (
            "sts-b",
            "train",
            [STSB_HEADER, stsb_row('"', '""', "1"), stsb_row("'", '"', "2")],
            ['""', '"'],
            [1.0, 2.0],
        ),
        ("qqp", "dev", [QQP_HEADER, ["0", "1", "2", "a", "b", "1"]], ["b"], [1.0]),
        ("qqp", "test", [["id", "question1", "question2"], ["0", "c", "d"]], ["d"], [0.0]),
        # The label of MNLI is the first annotator's.
        ("mnli", "train", [MNLI_HEADER, mnli_row("a", "neutral", "entailment")], ["a"], [2]),
        (
            "qnli-regression",
            "dev",
            [QNLI_HEADER, ["1", "q only"], [*"0ab", "entailment"]],
            ["b"],
            [1.0],
        ),
    ],
)
def test_columns_and_labels_are_the_originals(tmp_path, caplog, task, file, rows, second, labels):
    write(tmp_path / f"{file}.tsv", rows)
    examples = tasks.read_split(tasks.TASKS[task], tmp_path, file)
    assert (examples.sentences_b, examples.labels.tolist()) == (second, labels)
    # Some published files have broken rows.
    if task == "qnli-regression":
        assert f"{tmp_path / 'dev.tsv'}, line 2: found 2 columns" in caplog.text


def test_a_test_split_has_label_zero_and_its_gold_beside(tmp_path):
    header = ["pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment"]
    write(
        tmp_path / "SICK-R" / "SICK_test_annotated.txt",
        [header, ["1", "a", "b", "3.3", "NEUTRAL"]],
        end="\r\n",
    )
    examples = tasks.read_split(tasks.TASKS["sick-r"], tmp_path / "SICK-R", "test")
    assert examples.labels.tolist() == [0.0] and not examples.has_labels
    assert tasks.gold_scores(tasks.TASKS["sick-r"], tmp_path, "test").tolist() == [3.3]


def test_full_text_tasks_read_one_file_for_every_split(tmp_path):
    write(tmp_path / "full.txt", [["\ufeffa", "b"], ["c", "d"], [""], [""]], end="\r\n")
    examples = tasks.read_train(tasks.TASKS["sts-12-16"], tmp_path, use_full_for_training=True)
    assert (examples.sentences_a, examples.sentences_b) == (
        ["a", "c"] * 3,
        ["b", "d"] * 3,
    ) and not examples.has_labels


@pytest.mark.parametrize("data_dir", ["ALLNLI", "ALLNLI/", "MNLI"])
def test_allnli_joins_the_siblings_in_the_originals_order(tmp_path, data_dir):
    write(tmp_path / "MNLI" / "train.tsv", [MNLI_HEADER, mnli_row("m1", "neutral", "neutral")])
    write(
        tmp_path / "MNLI" / "dev_matched.tsv",
        [MNLI_HEADER, mnli_row("m2", "entailment", "entailment")],
    )
    write(tmp_path / "MNLI" / "test_matched.tsv", [MNLI_HEADER[:10], mnli_row("m3")])
    for file, *row in (
        ("train", "s1", "entailment"),
        ("dev", "s2", "neutral"),
        ("test", "s3", "entailment"),
    ):
        write(tmp_path / "SNLI" / f"{file}.tsv", [SNLI_HEADER, snli_row(*row)])
    folder = f"{tmp_path}/{data_dir}"
    examples = tasks.read_train(tasks.TASKS["allnli"], folder)
    assert examples.sentences_a == ["m1", "s1", "s2", "s3"]
    assert examples.labels.tolist() == [2, 1, 2, 0]  # SNLI's test pairs get the first class
    everything = tasks.read_train(tasks.TASKS["allnli"], folder, use_full_for_training=True)
    assert (
        everything.sentences_b[4:] == ["m2", "m3"]
        and examples.has_labels == everything.has_labels is False
    )


def test_what_is_missing_or_unknown_is_named(tmp_path):
    for function, arguments, parts in (
        (tasks.get_task, ["sts-c"], ["task_name: unknown task 'sts-c'", "sts-b", "allnli"]),
        (
            tasks.gold_scores,
            [tasks.TASKS["mnli"], tmp_path, "dev"],
            ["mnli has no gold scores for its dev split"],
        ),
        (
            tasks.read_train,
            [tasks.TASKS["allnli"], f"{tmp_path}/ALLNLI"],
            [f"{tmp_path}/MNLI: no such folder"],
        ),
        (
            tasks.read_split,
            [tasks.TASKS["sts-b"], tmp_path, "dev"],
            [f"{tmp_path / 'dev.tsv'}: no such file"],
        ),
    ):
        with user_error(*parts):
            function(*arguments)


GOOD = stsb_row("a", "b", "1")


@pytest.mark.differs("Header names")
@pytest.mark.parametrize(
    ("task", "header", "row", "expected"),
    [
        ("sts-b", "sentence1 sentence2 label idx", "a b 4.5 0", 4.5),
        # The class of SICK's export has the name of other exports' score.
        ("sick-r", "id sentence_A sentence_B label relatedness_score", "1 a b 2 3.5", 3.5),
        *(
            ("allnli", "idx Premise hypothesis label", f"0 a b {text}", 1)
            for text in ("0", "entailment")
        ),
        ("qnli-regression", "question sentence label idx", "a b 1 0", 0),
    ],
)
def test_an_export_is_read_by_its_names(tmp_path, task, header, row, expected):
    path = tmp_path / "MNLI" / tasks.get_task(task).files["train"].name
    write(path, [header.split(), row.split()])
    examples = tasks.read_split(tasks.TASKS[task], path.parent, "train")
    assert (examples.sentences_a, examples.sentences_b, examples.labels.tolist()) == (
        ["a"],
        ["b"],
        [expected],
    )


@pytest.mark.differs("too few columns")
@pytest.mark.parametrize(
    ("task", "rows", "found"),
    [
        ("sts-b", [STSB_HEADER], ": found no examples"),
        (
            "sts-b",
            [STSB_HEADER[:9], GOOD],
            ", line 1: found no column 'score', expected it or one of label, ",
        ),
        ("sts-b", [STSB_HEADER, GOOD, [""], GOOD], ", line 3: found 1 columns"),
        (
            "sts-b",
            [STSB_HEADER, stsb_row("a", "b", "high")],
            ", line 2, column 10: cannot be read as a number",
        ),
        ("sts-b", [STSB_HEADER, stsb_row("a", "b", "nan")], ", line 2, column 10: found 'nan'"),
        (
            "sts-b",
            [STSB_HEADER, stsb_row("a", "b", "7.5")],
            ", line 2, column 10: found score 7.5, expected 0 to 5",
        ),
        (
            "mnli",
            [MNLI_HEADER, mnli_row("a", "-", "neutral")],
            ", line 2, column 11: found label '-'",
        ),
    ],
)
def test_a_bad_file_is_named_with_line_and_column(tmp_path, task, rows, found):
    write(tmp_path / "train.tsv", rows)
    with user_error(f"{tmp_path / 'train.tsv'}{found}"):
        tasks.read_split(tasks.TASKS[task], tmp_path, "train")
