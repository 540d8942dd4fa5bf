"""Similarity sets from SentEval's and GLUE's folders, and invalid ones."""

import numpy as np
import pytest

from bert_flow_tf.tasks.pair_files import FileLayout, Task
from bert_flow_tf.tasks.scored_tasks import read_task, read_tasks
from bert_flow_tf.tasks.senteval import SUBSETS, read_subset
from tests.refusals import user_error

PAIRS = [
    ("A kettle is whistling.", "The kettle whistles."),
    ("Two goats climb a wall.", "A train leaves the station."),
    ("Snow fell all night.", "It snowed during the night."),
]

KITCHEN = Task("kitchen", "", {"kitchen": FileLayout("STS.input.kitchen.txt", (0, 1))})


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


def write_set(folder, name, gold):
    """Write a sub-set's two files and return their paths."""
    paths = folder / f"STS.input.{name}.txt", folder / f"STS.gs.{name}.txt"
    write(paths[0], PAIRS)
    paths[1].write_text(gold, encoding="utf-8")
    return paths


@pytest.mark.parametrize(
    ("gold", "kept"),
    [
        ("\n0\n3.75\n", [1, 2]),
        ("4.5\n \r\n3.75\n", [0, 2]),
        ("4.5\n\n\n", [0]),
        ("4.5\n0\n3.75\n\n\n", [0, 1, 2]),
    ],
)
def test_a_pair_with_an_empty_gold_line_is_left_out(tmp_path, gold, kept):
    write_set(tmp_path, "kitchen", gold)
    pairs = read_subset(KITCHEN, tmp_path, "kitchen")
    assert list(zip(pairs.sentences_a, pairs.sentences_b, strict=True)) == [PAIRS[i] for i in kept]
    np.testing.assert_array_equal(pairs.labels, np.array([4.5, 0.0, 3.75])[kept], strict=True)


@pytest.mark.parametrize(
    ("line", "gold", "found"),
    [
        (None, "4.5\n0\n", "{1}: found 2 gold lines with 2 scores for 3 pairs"),
        (None, "4.5\n\n\n\n1\n", "{1}: found 5 gold lines with 2 scores"),
        (None, "", "{1}: found 0 gold lines"),
        (None, "1\nthree\n3\n", "{1}, line 2: cannot be read as a number"),
        (None, None, "{1}: no such file"),
        ("one sentence", "1\n2\n", "{0}, line 2: found 1 columns"),
    ],
)
def test_a_set_that_does_not_fit_is_named_with_file_and_line(tmp_path, line, gold, found):
    paths = write_set(tmp_path, "kitchen", gold or "")
    if line is not None:
        paths[0].write_text(f"a\tb\n{line}\n")
    if gold is None:
        paths[1].unlink()
    with user_error(found.format(*paths)):
        read_subset(KITCHEN, tmp_path, "kitchen")


@pytest.mark.parametrize("year", SUBSETS)
def test_task_of_sentevals_folder_has_all_its_sub_sets(tmp_path, year):
    folder = tmp_path / "STS" / f"{year.upper()}-en-test"
    for subset in SUBSETS[year]:
        write_set(folder, subset, "4.5\n0\n3.75\n")
    task = read_task(year, senteval_dir=tmp_path)
    assert [(name, len(part)) for name, part in task.subsets.items()] == [
        (name, 3) for name in SUBSETS[year]
    ]
    assert (task.title, task.metric, task.split) == (f"STS-{year[3:]}", "spearman", "test")
    assert task.source == str(folder)
    # The paper writes it like this.
    assert read_task(f"STS-{year[3:]}", senteval_dir=tmp_path).name == year


@pytest.mark.parametrize(
    ("name", "options", "found"),
    [
        ("stsb", {}, "glue_dir: missing"),
        ("sts12", {}, "senteval_dir: missing"),
        ("sts12", {"senteval_dir": "missing"}, "STS12-en-test: no such folder"),
        ("sts12", {"senteval_dir": ".", "split": "dev"}, "split: found dev for sts12"),
        (
            "sts17",
            {},
            "tasks: unknown task 'sts17', expected one of sts12, sts13, sts14, sts15, sts16",
        ),
    ],
)
def test_a_task_that_cannot_be_read_is_named(name, options, found):
    with user_error(found):
        read_task(name, **options)


def test_tasks_that_can_be_read_are_read_without_the_others(tmp_path):
    folder = tmp_path / "STS-B"
    header = ["index", *"abcdef", "sentence1", "sentence2"]
    write(folder / "test.tsv", [header, *(["0", *"abcdef", *pair] for pair in PAIRS)])
    write(folder / "sts-test.csv", [[*"abcd", "2.5", *pair] for pair in PAIRS])
    read = read_tasks(["sickr", "STS-B"], glue_dir=tmp_path)
    assert [task.name for task in read.tasks] == ["stsb"]
    with user_error(f"not scored: {tmp_path / 'SICK-R'}: no such folder"):
        read.check_complete()
    for names, found in ((["sickr"], "SICK-R: no such folder"), (["stsb", "sts"], "task 'sts'")):
        with user_error(found):
            read_tasks(names, glue_dir=tmp_path)


def test_a_gold_file_of_another_length_is_named(tmp_path):
    folder = tmp_path / "STS-B"
    header = ["index", *"abcdef", "sentence1", "sentence2"]
    write(folder / "test.tsv", [header, *(["0", *"abcdef", *pair] for pair in PAIRS)])
    write(folder / "sts-test.csv", [[*"abcd", "2.5", *pair] for pair in PAIRS[:2]])
    with user_error(f"{folder}: found 2 gold scores for the 3 pairs of the test split"):
        read_task("stsb", glue_dir=tmp_path)


def test_gold_is_that_of_mrpcs_test_file_and_of_qnlis_dev_set(tmp_path):
    folder, columns = tmp_path / "MRPC-Regression", ["#1 ID", "#2 ID", "#1 String", "#2 String"]
    write(
        folder / "test.tsv",
        [["index", *columns], *([str(i), "1", "2", *PAIRS[i]] for i in range(2))],
    )
    gold = [[label, "1", "2", *pair] for label, pair in zip("10", PAIRS[:2], strict=True)]
    write(folder / "msr_paraphrase_test.txt", [["Quality", *columns], *gold])
    task = read_task("mrpc", glue_dir=tmp_path)
    assert (task.metric, task.split, task.title) == ("auc", "test", "MRPC")
    np.testing.assert_array_equal(task.subsets["mrpc"].labels, [1.0, 0.0])
    rows = [["index", "question", "sentence", "label"], ["0", *PAIRS[0], "entailment"]]
    write(tmp_path / "QNLI-Regression" / "dev.tsv", rows)
    task = read_task("qnli", glue_dir=tmp_path)
    assert (task.metric, task.split, task.title, task.subsets["qnli"].labels.tolist()) == (
        "auc",
        "dev",
        "QNLI",
        [1.0],
    )


def test_published_sets_have_their_published_sizes(reference_data):
    # SentEval's own counts of STS 2012: 3,108 pairs, all of them with a gold score.
    subsets = read_task("sts12", senteval_dir=reference_data / "data/senteval/data").subsets
    sizes = {
        "MSRpar": 750,
        "MSRvid": 750,
        "SMTeuroparl": 459,
        "surprise.OnWN": 750,
        "surprise.SMTnews": 399,
    }
    assert {name: len(part) for name, part in subsets.items()} == sizes
    assert subsets["MSRpar"].labels[0] == 4.4
    task = read_task("sick-r", glue_dir=reference_data / "data/glue")
    assert (task.title, len(task.subsets["sickr"])) == ("SICK-R", 4927)
