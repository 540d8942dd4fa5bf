"""Files of tasks are read as the original reads them."""

import numpy as np
import pytest

from bert_flow_tf.data import tasks
from tests.refusals import user_error

PARSES = ["sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse", "sentence2_parse"]
NLI = ["sentence1", "sentence2", "label1", "gold_label"]
STSB_HEADER = ["index", "genre", "filename", "year", "old_index", "source1", "source2", *NLI[:2], "score"]
MNLI_HEADER = ["index", "promptID", "pairID", "genre", *PARSES, *NLI]
SNLI_HEADER = ["index", "captionID", "pairID", *PARSES, *NLI]


def write(path, rows, end="\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join("\t".join(row) + end for row in rows).encode())
    return path


def stsb_row(a, b, *score):
    return ["-"] * 7 + [a, b, *score]


def mnli_row(a, b, *labels):
    return ["-"] * 8 + [a, b, *labels]


def snli_row(a, b, *labels):
    return ["-"] * 7 + [a, b, *labels]


def stsb_folder(tmp_path, rows=None, header=STSB_HEADER):
    write(tmp_path / "STS-B" / "train.tsv", [header, *(rows or [stsb_row("a cat", "a dog", "2.500")])])
    return tmp_path / "STS-B"


NLI_LABELS = ("contradiction", "entailment", "neutral")


def test_tasks_and_label_ranges_are_the_originals():
    found = {name: (task.is_regression, task.label_max, task.label_names) for name, task in tasks.TASKS.items()}
    scores = ("sts-b", "sick-r", "sts-12-16", "sts-12", "sts-13", "sts-14", "sts-15", "sts-16")
    assert found == {
        **dict.fromkeys(scores, (True, 5, ())),
        **dict.fromkeys(("qqp", "mrpc-regression"), (True, 1, ())),
        "qnli-regression": (True, 1, ("not_entailment", "entailment")),
        **dict.fromkeys(("mnli", "allnli"), (False, 1, NLI_LABELS)),
    }
    assert tasks.get_task("STS-B") is tasks.TASKS["sts-b"]


def test_a_test_split_has_label_zero_and_its_gold_beside(tmp_path):
    header = ["pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment"]
    write(tmp_path / "SICK-R" / "SICK_test_annotated.txt", [header, ["1", "a", "b", "3.3", "NEUTRAL"]], end="\r\n")
    examples = tasks.read_split("sick-r", tmp_path / "SICK-R", "test")
    assert examples.labels.tolist() == [0.0] and not examples.has_labels
    assert tasks.gold_scores("sick-r", tmp_path, "test").tolist() == [3.3]


def test_full_text_tasks_read_one_file_for_every_split(tmp_path):
    write(tmp_path / "full.txt", [["\ufeffa", "b"], ["c", "d"], [""], [""]], end="\r\n")
    examples = tasks.read_train("STS-12-16", tmp_path, use_full_for_training=True)
    assert (examples.sentences_a, examples.sentences_b) == (["a", "c"] * 3, ["b", "d"] * 3) and not examples.has_labels


def test_quotes_are_ordinary_characters(tmp_path):
    folder = stsb_folder(tmp_path, [stsb_row('"an open quote', 'a "" pair"', "1"), stsb_row("'", '"', "2")])
    examples = tasks.read_split("sts-b", folder, "train")
    assert examples.labels.dtype == np.float32 and examples.labels.tolist() == [1.0, 2.0]
    assert examples.sentences_a == ['"an open quote', "'"] and examples.sentences_b == ['a "" pair"', '"']


def test_qqp_has_other_columns_in_its_test_file(tmp_path):
    header = ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"]
    write(tmp_path / "dev.tsv", [header, ["0", "1", "2", "a", "b", "1"]])
    write(tmp_path / "test.tsv", [["id", "question1", "question2"], ["0", "c", "d"]])
    assert tasks.read_split("qqp", tmp_path, "dev").labels.tolist() == [1.0]
    assert tasks.read_split("qqp", tmp_path, "test").sentences_b == ["d"]


def test_qnli_entailment_is_one_and_short_rows_are_left_out(tmp_path, caplog):
    rows = [["0", "q", "s", "entailment"], ["1", "q only"], ["2", "q", "s", "not_entailment"]]
    path = write(tmp_path / "train.tsv", [["index", "question", "sentence", "label"], *rows])
    assert tasks.read_split("qnli-regression", tmp_path, "train").labels.tolist() == [1.0, 0.0]
    assert f"{path}, line 3: found 2 columns, expected at least 4" in caplog.text


def test_mnli_label_is_the_first_annotators(tmp_path):
    rows = [mnli_row("a", "b", "neutral", "entailment"), mnli_row("c", "d", "contradiction", "neutral")]
    write(tmp_path / "train.tsv", [MNLI_HEADER, *rows])
    examples = tasks.read_split("mnli", tmp_path, "train")
    assert examples.labels.dtype == np.int32 and examples.labels.tolist() == [2, 0]


@pytest.mark.parametrize("data_dir", ["ALLNLI", "ALLNLI/", "MNLI"])
def test_allnli_joins_the_siblings_in_the_originals_order(tmp_path, data_dir):
    write(tmp_path / "MNLI" / "train.tsv", [MNLI_HEADER, mnli_row("m1", "m1", "neutral", "neutral")])
    write(tmp_path / "MNLI" / "dev_matched.tsv", [MNLI_HEADER, mnli_row("m2", "m2", "entailment", "entailment")])
    write(tmp_path / "MNLI" / "test_matched.tsv", [MNLI_HEADER[:10], mnli_row("m3", "m3")])
    write(tmp_path / "SNLI" / "train.tsv", [SNLI_HEADER, snli_row("s1", "s1", "-", "entailment")])
    write(tmp_path / "SNLI" / "dev.tsv", [SNLI_HEADER, snli_row("s2", "s2", "-", "neutral")])
    write(tmp_path / "SNLI" / "test.tsv", [SNLI_HEADER, snli_row("s3", "s3", "-", "entailment")])
    folder = f"{tmp_path}/{data_dir}"
    examples = tasks.read_train("ALLNLI", folder)
    assert examples.sentences_a == ["m1", "s1", "s2", "s3"]
    assert examples.labels.tolist() == [2, 1, 2, 0]  # SNLI's test pairs get the first class
    assert tasks.read_train("ALLNLI", folder, use_full_for_training=True).sentences_b[4:] == ["m2", "m3"]
    assert tasks.read_split("ALLNLI", folder, "dev").sentences_a == ["m2"]


def test_all_splits_are_train_then_dev_then_test(tmp_path):
    folder = stsb_folder(tmp_path)
    write(folder / "dev.tsv", [STSB_HEADER, stsb_row("dev", "dev", "1")])
    write(folder / "test.tsv", [STSB_HEADER[:9], stsb_row("test", "test")])
    examples = tasks.read_train("sts-b", folder, use_full_for_training=True)
    assert examples.sentences_a == ["a cat", "dev", "test"] and examples.labels.tolist() == [2.5, 1.0, 0.0]
    assert not examples.has_labels and tasks.read_train("sts-b", folder).has_labels


def test_stsb_test_gold_comes_from_the_headerless_csv(tmp_path):
    rows = [["g", "f", "y", "0", "2.500", "a", "b"], ["g", "f", "y", "0", "4", "c", "d", "source", "source"]]
    write(tmp_path / "STS-B" / "sts-test.csv", rows)
    gold = tasks.gold_scores("sts-b", tmp_path, "test")
    assert gold.dtype == np.float64 and gold.tolist() == [2.5, 4.0]


def test_what_is_missing_or_unknown_is_named(tmp_path):
    (tmp_path / "full.txt").mkdir()
    stsb = stsb_folder(tmp_path)
    for function, arguments, parts in (
        (tasks.get_task, ["sts-c"], ["task_name: unknown task 'sts-c'", "sts-b", "allnli"]),
        (tasks.read_split, ["sts-b", tmp_path, "tests"], ["unknown split 'tests'"]),
        (tasks.gold_scores, ["mnli", tmp_path, "dev"], ["mnli has no gold scores for its dev split"]),
        (tasks.gold_scores, ["sts-14", tmp_path, "test"], ["sts-14 has no gold scores for its test split"]),
        (tasks.read_split, ["sts-b", tmp_path / "none", "train"], [f"{tmp_path / 'none'}: no such folder"]),
        (tasks.read_train, ["allnli", f"{tmp_path}/ALLNLI"], [f"{tmp_path}/MNLI: no such folder"]),
        (tasks.read_split, ["sts-b", stsb, "dev"], [f"{stsb / 'dev.tsv'}: no such file"]),
        (tasks.read_split, ["sts-12", tmp_path, "train"], ["full.txt: cannot be read"]),
    ):
        with user_error(*parts):
            function(*arguments)


GOOD = stsb_row("a", "b", "1")


@pytest.mark.differs("Header names")
@pytest.mark.parametrize("names", [("sentence1", "sentence2", "label"), ("premise", "hypothesis", "similarity_score")])
def test_columns_may_have_the_names_of_common_exports(tmp_path, names):
    write(tmp_path / "train.tsv", [[*STSB_HEADER[:7], *names], GOOD])
    assert tasks.read_split("sts-b", tmp_path, "train").sentences_b == ["b"]
    write(tmp_path / "train.tsv", [[*STSB_HEADER[:7], names[1], names[0], names[2]], GOOD])
    with user_error(f"line 1: found the column {names[1]!r}, expected 'sentence1'"):
        tasks.read_split("sts-b", tmp_path, "train")


@pytest.mark.differs("too few columns")
@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([], ": found no examples"),
        ([STSB_HEADER], ": found no examples"),
        ([STSB_HEADER[:9], GOOD], ", line 1: found the column '', expected 'score'"),
        ([[*STSB_HEADER[:8], "text", "score"], GOOD], ", line 1: found the column 'text', expected 'sentence2'"),
        ([stsb_row("first", "pair", "1"), GOOD], ", line 1: found the column 'first', expected 'sentence1'"),
        ([STSB_HEADER, GOOD, stsb_row("a", "b"), GOOD], ", line 3: found 9 columns, expected at least 10"),
        ([STSB_HEADER, GOOD, [""], GOOD], ", line 3: found 1 columns, expected at least 10"),
        ([STSB_HEADER, stsb_row("a", "b", "high")], ", line 2, column 10: cannot be read as a number"),
        ([STSB_HEADER, stsb_row("a", "b", "nan")], ", line 2, column 10: found 'nan', expected a finite number"),
        ([STSB_HEADER, stsb_row("a", "b", "7.5")], ", line 2, column 10: found score 7.5, expected 0 to 5"),
    ],
)
def test_a_bad_file_is_named_with_line_and_column(tmp_path, rows, found):
    path = write(tmp_path / "train.tsv", rows)
    with user_error(f"{path}{found}"):
        tasks.read_split("sts-b", tmp_path, "train")


def test_bad_text_and_labels_are_named(tmp_path):
    (tmp_path / "full.txt").write_bytes(b"a\tb\ncaf\xe9\tb\n")
    with user_error(f"{tmp_path / 'full.txt'}: cannot be read"):
        tasks.read_split("sts-12", tmp_path, "train")
    write(tmp_path / "train.tsv", [MNLI_HEADER, mnli_row("a", "b", "-", "neutral")])
    with user_error("line 2, column 11: found label '-', expected one of contradiction, entailment, neutral"):
        tasks.read_split("mnli", tmp_path, "train")
