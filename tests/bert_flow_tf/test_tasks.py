"""Each task's files are read as the original reads them, and every slip in them is one line."""

import numpy as np
import pytest

from bert_flow_tf import tasks
from bert_flow_tf.errors import UserError

PARSES = ["sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse", "sentence2_parse"]
NLI = ["sentence1", "sentence2", "label1", "gold_label"]
STSB_ORIGIN = ["index", "genre", "filename", "year", "old_index", "source1", "source2"]
STSB_HEADER = [*STSB_ORIGIN, "sentence1", "sentence2", "score"]
MNLI_HEADER = ["index", "promptID", "pairID", "genre", *PARSES, *NLI]
SNLI_HEADER = ["index", "captionID", "pairID", *PARSES, *NLI]


def write(path, rows, end="\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join("\t".join(row) + end for row in rows).encode())
    return path


def stsb_row(a, b, *score):
    return ["0", "g", "f", "y", "0", "none", "none", a, b, *score]


def mnli_row(a, b, *labels):
    return ["0", "1", "1n", "g", "-", "-", "-", "-", a, b, *labels]


def snli_row(a, b, *labels):
    return ["0", "1", "1n", "-", "-", "-", "-", a, b, *labels]


def stsb_folder(tmp_path, rows=None, header=STSB_HEADER):
    write(tmp_path / "STS-B" / "train.tsv", [header, *(rows or [stsb_row("a cat", "a dog", "2.500")])])
    return tmp_path / "STS-B"


def error_of(call, *arguments):
    with pytest.raises(UserError) as caught:
        call(*arguments)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_names_are_case_insensitive():
    assert tasks.get_task("STS-B") is tasks.get_task("sts-b") is tasks.TASKS["sts-b"]


def test_the_table_holds_the_originals_tasks():
    assert set(tasks.TASKS) == {
        *("sts-b", "sick-r", "sts-12-16", "sts-12", "sts-13", "sts-14", "sts-15", "sts-16"),
        *("mnli", "allnli", "qqp", "mrpc-regression", "qnli-regression"),
    }


@pytest.mark.parametrize(
    ("name", "is_regression", "label_max", "label_names"),
    [
        ("STS-B", True, 5, ()),
        ("SICK-R", True, 5, ()),
        ("STS-13", True, 5, ()),
        ("QQP", True, 1, ()),
        ("MRPC-regression", True, 1, ()),
        ("QNLI-regression", True, 1, ()),
        ("ALLNLI", False, 1, ("contradiction", "entailment", "neutral")),
    ],
)
def test_kind_and_label_range(name, is_regression, label_max, label_names):
    task = tasks.get_task(name)
    assert (task.is_regression, task.label_min, task.label_max, task.label_names) == (
        is_regression,
        0,
        label_max,
        label_names,
    )


def test_unknown_task_lists_the_known_ones():
    message = error_of(tasks.get_task, "sts-c")
    assert "sts-c" in message and "sts-b" in message and "allnli" in message


def test_unknown_split(tmp_path):
    assert "'tests'" in error_of(tasks.read_split, "sts-b", tmp_path, "tests")


def test_stsb_train_scores_are_raw(tmp_path):
    folder = stsb_folder(tmp_path, [stsb_row("a cat", "a dog", "2.500"), stsb_row("x", "y", "5.000")])
    examples = tasks.read_split("STS-B", folder, "train")
    assert (examples.sentences_a, examples.sentences_b) == (["a cat", "x"], ["a dog", "y"])
    assert examples.labels.dtype == np.float32 and examples.labels.tolist() == [2.5, 5.0]
    assert examples.has_labels and len(examples) == 2


def test_a_test_split_has_label_zero_even_where_the_file_has_scores(tmp_path):
    header = ["pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment"]
    write(tmp_path / "SICK-R" / "SICK_test_annotated.txt", [header, ["1", "a", "b", "3.3", "NEUTRAL"]], end="\r\n")
    examples = tasks.read_split("sick-r", tmp_path / "SICK-R", "test")
    assert examples.labels.tolist() == [0.0] and not examples.has_labels
    assert tasks.gold_scores("sick-r", tmp_path, "test").tolist() == [3.3]


def test_windows_line_ends_leave_nothing_behind(tmp_path):
    write(tmp_path / "full.txt", [["a cat", "a dog"], ["x", "y"]], end="\r\n")
    assert tasks.read_split("sts-12", tmp_path, "test").sentences_b == ["a dog", "y"]


def test_full_text_tasks_read_one_headerless_file_for_every_split(tmp_path):
    write(tmp_path / "full.txt", [["a", "b"], ["c", "d"]])
    examples = tasks.read_train("STS-12-16", tmp_path, use_full_for_training=True)
    assert examples.sentences_a == ["a", "c"] * 3 and not examples.has_labels


def test_quotes_are_ordinary_characters(tmp_path):
    folder = stsb_folder(tmp_path, [stsb_row('"an open quote', 'a "" pair"', "1"), stsb_row("'", '"', "2")])
    examples = tasks.read_split("sts-b", folder, "train")
    assert examples.sentences_a == ['"an open quote', "'"] and examples.sentences_b == ['a "" pair"', '"']


def test_qqp_has_other_columns_in_its_test_file(tmp_path):
    write(
        tmp_path / "dev.tsv",
        [["id", "qid1", "qid2", "question1", "question2", "is_duplicate"], ["0", "1", "2", "a", "b", "1"]],
    )
    write(tmp_path / "test.tsv", [["id", "question1", "question2"], ["0", "c", "d"]])
    assert tasks.read_split("qqp", tmp_path, "dev").labels.tolist() == [1.0]
    assert tasks.read_split("qqp", tmp_path, "test").sentences_b == ["d"]


def test_mrpc_reads_past_a_byte_order_mark(tmp_path):
    header = ["\ufeffQuality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
    write(tmp_path / "train.tsv", [header, ["1", "10", "11", "a", "b"]])
    examples = tasks.read_split("MRPC-regression", tmp_path, "train")
    assert examples.labels.tolist() == [1.0] and examples.sentences_a == ["a"]


def test_mrpc_gold_comes_from_the_original_corpus_file(tmp_path):
    header = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
    rows = [header, ["1", "10", "11", "a", "b"], ["0", "12", "13", "c", "d"]]
    write(tmp_path / "MRPC-Regression" / "msr_paraphrase_test.txt", rows)
    assert tasks.gold_scores("mrpc-regression", tmp_path, "test").tolist() == [1.0, 0.0]


def test_qnli_entailment_is_one_and_incomplete_rows_are_left_out_with_a_warning(tmp_path, caplog):
    rows = [["0", "q", "s", "entailment"], ["1", "q only"], ["2", "q", "s", "not_entailment"]]
    path = write(tmp_path / "train.tsv", [["index", "question", "sentence", "label"], *rows])
    assert tasks.read_split("qnli-regression", tmp_path, "train").labels.tolist() == [1.0, 0.0]
    assert f"{path}, line 3: 2 columns found, at least 4 expected" in caplog.text


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


def test_gold_in_another_order_than_its_split_is_refused(tmp_path):
    """Signs and spaces are no difference, and a few pairs may be spelled otherwise."""
    pairs = [(f"a, {i}", f"b, {i}") for i in range(20)]
    gold = [["g", "f", "y", "0", "2.5", a.replace(", ", " - "), b] for a, b in pairs]
    gold[0][5] = "something else"
    write(tmp_path / "STS-B" / "sts-test.csv", gold)
    rows = [["-"] * 7 + list(pair) for pair in pairs]
    header = ["-"] * 7 + ["sentence1", "sentence2"]
    write(tmp_path / "STS-B" / "test.tsv", [header, *rows])
    assert len(tasks.gold_scores("sts-b", tmp_path, "test")) == 20
    write(tmp_path / "STS-B" / "test.tsv", [header, *rows[::-1]])
    message = error_of(tasks.gold_scores, "sts-b", tmp_path, "test")
    assert "sts-test.csv, line 1: found other sentences than in line 2 of" in message
    assert "test.tsv (20 such lines), expected the same pairs in the same order" in message


def test_tasks_without_gold_say_so(tmp_path):
    assert "classes" in error_of(tasks.gold_scores, "mnli", tmp_path, "dev")
    assert "sts-14 has no gold scores for its test split" in error_of(tasks.gold_scores, "sts-14", tmp_path, "test")


def test_missing_folder(tmp_path):
    assert f"{tmp_path / 'STS-B'}: no such folder" in error_of(tasks.read_split, "sts-b", tmp_path / "STS-B", "train")


def test_missing_allnli_sibling_names_the_folder_that_was_looked_for(tmp_path):
    message = error_of(tasks.read_train, "allnli", f"{tmp_path}/ALLNLI")
    assert message.startswith(f"{tmp_path}/MNLI: no such folder")


def test_missing_file(tmp_path):
    assert f"{stsb_folder(tmp_path) / 'dev.tsv'}: no such file" in error_of(
        tasks.read_split, "sts-b", tmp_path / "STS-B", "dev"
    )


def test_a_folder_in_place_of_a_file(tmp_path):
    (tmp_path / "full.txt").mkdir()
    assert "full.txt: cannot be read" in error_of(tasks.read_split, "sts-12", tmp_path, "train")


def test_missing_column_in_the_header(tmp_path):
    folder = stsb_folder(tmp_path, header=STSB_HEADER[:9])
    message = error_of(tasks.read_split, "sts-b", folder, "train")
    assert message == f"{folder / 'train.tsv'}, line 1: 9 columns found, expected 'score' as column 10"


def test_other_column_in_the_header(tmp_path):
    header = [*STSB_HEADER[:8], "text", "score"]
    message = error_of(tasks.read_split, "sts-b", stsb_folder(tmp_path, header=header), "train")
    assert "line 1: column 9 is 'text', expected 'sentence2'" in message


def test_a_file_without_its_header_is_not_read_as_if_it_had_one(tmp_path):
    folder = stsb_folder(tmp_path, header=stsb_row("first", "pair", "1"))
    assert "column 8 is 'first', expected 'sentence1'" in error_of(tasks.read_split, "sts-b", folder, "train")


@pytest.mark.parametrize(
    ("row", "found"),
    [
        (stsb_row("a", "b"), "line 3: 9 columns found, at least 10 expected"),
        ([""], "line 3: 1 columns found, at least 10 expected"),
        (stsb_row("a", "b", "high"), "line 3, column 10: found 'high', expected a number"),
        (stsb_row("a", "b", ""), "line 3, column 10: found '', expected a number"),
        (stsb_row("a", "b", "nan"), "line 3, column 10: found 'nan', expected a finite number"),
        (stsb_row("a", "b", "7.5"), "line 3, column 10: score 7.5, expected 0 to 5"),
    ],
)
def test_a_bad_row_names_file_line_and_column(tmp_path, row, found):
    good = stsb_row("a", "b", "1")
    folder = stsb_folder(tmp_path, [good, row, good])
    assert error_of(tasks.read_split, "sts-b", folder, "train") == f"{folder / 'train.tsv'}, {found}"


def test_unknown_class(tmp_path):
    write(tmp_path / "train.tsv", [MNLI_HEADER, mnli_row("a", "b", "-", "neutral")])
    message = error_of(tasks.read_split, "mnli", tmp_path, "train")
    assert "line 2, column 11: label '-', expected one of contradiction, entailment, neutral" in message


@pytest.mark.parametrize("rows", [[], [STSB_HEADER]])
def test_empty_file(tmp_path, rows):
    write(tmp_path / "train.tsv", rows)
    assert "train.tsv: no examples found" in error_of(tasks.read_split, "sts-b", tmp_path, "train")


def test_empty_lines_at_the_end_are_no_rows(tmp_path):
    write(tmp_path / "full.txt", [["a", "b"], [""], [""]])
    assert len(tasks.read_split("sts-12", tmp_path, "train")) == 1


def test_bytes_that_are_not_utf8(tmp_path):
    (tmp_path / "full.txt").write_bytes(b"a\tb\ncaf\xe9\tb\n")
    message = error_of(tasks.read_split, "sts-12", tmp_path, "train")
    assert message.startswith(f"{tmp_path / 'full.txt'}, line 2: byte 0xe9 is not UTF-8")
