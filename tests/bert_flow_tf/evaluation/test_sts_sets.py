"""Similarity sets from files: SentEval's folders, GLUE's, and what is said of those that are not as they should be."""

import numpy as np
import pytest

from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation.sts_sets import SENTEVAL_SUBSETS, read_scored_pairs, read_senteval, read_task
from bert_flow_tf.sample_data import sample_glue_dir

PAIRS = [
    ("A kettle is whistling.", "The kettle whistles."),
    ("Two goats climb a wall.", "A train leaves the station."),
    ("Snow fell all night.", "It snowed during the night."),
]


def write_set(folder, name, gold, pairs=PAIRS):
    """Writes a sub-set's two files, the gold lines as they are, and gives their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / f"STS.input.{name}.txt", folder / f"STS.gs.{name}.txt"
    paths[0].write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    paths[1].write_text(gold, encoding="utf-8")
    return paths


def write_senteval(root, year):
    for subset in SENTEVAL_SUBSETS[year]:
        write_set(root / "STS" / f"{year.upper()}-en-test", subset, "4.5\n0\n3.75\n")
    return root


def refusal(function, *arguments, **keywords):
    """The line with which a call is refused."""
    with pytest.raises(UserError) as caught:
        function(*arguments, **keywords)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_pairs_keep_their_order_and_their_gold(tmp_path):
    pairs = read_scored_pairs(*write_set(tmp_path, "kitchen", "4.5\n0\n3.75\n"), "kitchen")
    assert (pairs.name, len(pairs)) == ("kitchen", 3)
    assert list(zip(pairs.sentences_a, pairs.sentences_b, strict=True)) == PAIRS
    assert pairs.gold.dtype == np.float64
    np.testing.assert_array_equal(pairs.gold, [4.5, 0.0, 3.75])


@pytest.mark.parametrize(
    ("gold", "kept"),
    [
        ("\n0\n3.75\n", [1, 2]),
        ("4.5\n\n3.75\n", [0, 2]),
        ("4.5\n \r\n3.75\n", [0, 2]),
        ("4.5\n\n\n", [0]),
        ("4.5\n0\n\n", [0, 1]),
        ("4.5\n0\n3.75", [0, 1, 2]),
        ("4.5\n0\n3.75\n\n\n", [0, 1, 2]),
    ],
)
def test_pair_with_an_empty_gold_line_is_left_out_wherever_it_stands(tmp_path, gold, kept):
    pairs = read_scored_pairs(*write_set(tmp_path, "kitchen", gold), "kitchen")
    assert pairs.sentences_a == [PAIRS[i][0] for i in kept]
    assert pairs.sentences_b == [PAIRS[i][1] for i in kept]
    np.testing.assert_array_equal(pairs.gold, [[4.5, 0.0, 3.75][i] for i in kept])


@pytest.mark.parametrize(("gold", "lines"), [("4.5\n0\n", 2), ("4.5\n0\n3\n1\n", 4), ("4.5\n\n\n\n1\n", 5)])
def test_different_numbers_of_lines_are_refused_with_both_files_and_counts(tmp_path, gold, lines):
    paths = write_set(tmp_path, "kitchen", gold)
    line = refusal(read_scored_pairs, *paths, "kitchen")
    assert line == f"{paths[1]}: {lines} gold lines found for the 3 pairs of {paths[0]}"


@pytest.mark.parametrize("gold", ["\n\n\n", " \n\t\n\n"])
def test_set_without_any_gold_score_is_refused(tmp_path, gold):
    paths = write_set(tmp_path, "kitchen", gold)
    line = refusal(read_scored_pairs, *paths, "kitchen")
    assert line == f"{paths[1]}: no gold score found for the 3 pairs of {paths[0]}, expected at least one"


def test_empty_gold_file_is_refused(tmp_path):
    paths = write_set(tmp_path, "kitchen", "")
    assert refusal(read_scored_pairs, *paths, "kitchen").startswith(f"{paths[1]}: 0 gold lines found for the 3 pairs")


@pytest.mark.parametrize(("row", "columns"), [("one sentence", 1), ("a\tb\tc", 3), ("", 1)])
def test_row_without_exactly_two_columns_is_refused_with_its_line(tmp_path, row, columns):
    paths = write_set(tmp_path, "kitchen", "1\n2\n3\n")
    paths[0].write_text(f"{PAIRS[0][0]}\t{PAIRS[0][1]}\n{row}\n{PAIRS[1][0]}\t{PAIRS[1][1]}\n", encoding="utf-8")
    line = refusal(read_scored_pairs, *paths, "kitchen")
    assert line.startswith(f"{paths[0]}, line 2: {columns} columns found, 2 expected")


@pytest.mark.parametrize("gold", ["three", "nan", "inf"])
def test_gold_that_is_no_number_is_refused_with_its_line(tmp_path, gold):
    paths = write_set(tmp_path, "kitchen", f"1\n{gold}\n3\n")
    assert refusal(read_scored_pairs, *paths, "kitchen").startswith(f"{paths[1]}, line 2: found '{gold}', expected a")


def test_missing_half_of_a_sub_set_is_named(tmp_path):
    root = write_senteval(tmp_path, "sts12")
    missing = root / "STS" / "STS12-en-test" / "STS.gs.MSRvid.txt"
    missing.unlink()
    assert refusal(read_task, "sts12", senteval_dir=root) == f"{missing}: no such file"


@pytest.mark.parametrize("year", SENTEVAL_SUBSETS)
def test_task_of_sentevals_folder_has_all_its_sub_sets(tmp_path, year):
    task = read_task(year, senteval_dir=write_senteval(tmp_path, year))
    assert [subset.name for subset in task.subsets] == list(SENTEVAL_SUBSETS[year])
    assert [len(subset) for subset in task.subsets] == [3] * len(SENTEVAL_SUBSETS[year])
    assert (task.title, task.metric, task.split) == (f"STS-{year[3:]}", "spearman", "test")
    assert task.source == str(tmp_path / "STS" / f"{year.upper()}-en-test")


def test_sts13_is_read_without_smt(tmp_path):
    write_set(tmp_path / "STS" / "STS13-en-test", "SMT", "1\n2\n3\n")
    task = read_task("sts13", senteval_dir=write_senteval(tmp_path, "sts13"))
    assert [subset.name for subset in task.subsets] == ["FNWN", "headlines", "OnWN"]


def test_sentevals_data_folder_does_as_well_as_its_downstream(tmp_path):
    write_senteval(tmp_path / "downstream", "sts15")
    assert read_task("sts15", senteval_dir=tmp_path).source == str(tmp_path / "downstream/STS/STS15-en-test")


@pytest.mark.parametrize("name", ["sts12", "STS12", "STS-12", "sts-12"])
def test_a_task_goes_by_the_names_of_paper_and_original(tmp_path, name):
    assert read_task(name, senteval_dir=write_senteval(tmp_path, "sts12")).name == "sts12"


def test_missing_folder_is_named(tmp_path):
    line = refusal(read_task, "sts14", senteval_dir=tmp_path)
    assert line == f"{tmp_path / 'STS/STS14-en-test'}: no such folder, expected SentEval's files of STS-14"
    assert refusal(read_task, "sts14").startswith("--senteval_dir: missing, expected the folder of STS/STS14-en-test")
    assert refusal(read_task, "stsb").startswith("--glue_dir: missing")
    assert refusal(read_task, "stsb", glue_dir=tmp_path).startswith(f"{tmp_path / 'STS-B'}: no such folder")


def test_full_txt_of_the_original_is_refused_because_it_has_no_gold(tmp_path):
    folder = tmp_path / "STS-12"
    folder.mkdir()
    (folder / "full.txt").write_text("A kettle is whistling.\tThe kettle whistles.\n")
    for directories in ({"glue_dir": tmp_path}, {"senteval_dir": tmp_path}):
        line = refusal(read_task, "sts12", **directories)
        assert line.startswith(f"{folder / 'full.txt'}: two columns without gold scores, only for learning the flow")


def test_scored_files_win_over_a_full_txt(tmp_path):
    (tmp_path / "STS-12").mkdir()
    (tmp_path / "STS-12" / "full.txt").write_text("A kettle is whistling.\tThe kettle whistles.\n")
    assert len(read_task("sts12", glue_dir=tmp_path, senteval_dir=write_senteval(tmp_path, "sts12")).subsets) == 5


def test_unknown_task_is_refused_with_the_known_ones():
    line = refusal(read_task, "sts17")
    assert line.startswith(
        "--tasks: unknown task 'sts17', expected some of sts12, sts13, sts14, sts15, sts16, stsb, sick"
    )
    assert "tfds:glue/qnli" in line


def test_sts12_to_16_have_a_test_split_only(tmp_path):
    root = write_senteval(tmp_path, "sts12")
    assert refusal(read_task, "sts12", senteval_dir=root, split="dev").startswith("--split: found dev for sts12")


@pytest.mark.parametrize(("split", "expected"), [(None, "test"), ("test", "test"), ("dev", "dev"), ("train", "train")])
def test_stsb_is_one_set_with_scores_for_every_split(split, expected):
    task = read_task("STS-B", glue_dir=sample_glue_dir(), split=split)
    assert (task.name, task.title, task.split, len(task.subsets)) == ("stsb", "STS-B", expected, 1)
    assert task.subsets[0].name == "stsb"
    assert len(task.subsets[0].gold) == len(task.subsets[0]) > 100
    assert np.ptp(task.subsets[0].gold) > 4


def test_gold_file_of_another_length_than_the_test_split_is_refused(tmp_path):
    header = "\t".join(["index", *"abcdef", "sentence1", "sentence2"])
    (tmp_path / "STS-B").mkdir()
    rows = ["\t".join(["0", *"abcdef", *pair]) for pair in PAIRS]
    (tmp_path / "STS-B" / "test.tsv").write_text("\n".join([header, *rows]) + "\n")
    gold = ["\t".join([*"abcd", "2.5", *pair]) for pair in PAIRS[:2]]
    (tmp_path / "STS-B" / "sts-test.csv").write_text("\n".join(gold) + "\n")
    line = refusal(read_task, "stsb", glue_dir=tmp_path)
    assert line.startswith(f"{tmp_path / 'STS-B/sts-test.csv'}: 2 gold scores found for the 3 pairs of")


def test_qnli_is_scored_on_dev_with_entailment_as_one(tmp_path):
    (tmp_path / "QNLI-Regression").mkdir()
    rows = [["index", "question", "sentence", "label"]]
    rows += [["0", *PAIRS[0], "entailment"], ["1", *PAIRS[1], "not_entailment"]]
    (tmp_path / "QNLI-Regression" / "dev.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    task = read_task("qnli", glue_dir=tmp_path)
    assert (task.metric, task.split, task.title) == ("auc", "dev", "QNLI")
    np.testing.assert_array_equal(task.subsets[0].gold, [1.0, 0.0])
    (tmp_path / "QNLI-Regression" / "test.tsv").write_text("index\tquestion\tsentence\n0\ta b\tc d\n")
    assert "no gold scores for its test split" in refusal(read_task, "qnli", glue_dir=tmp_path, split="test")


def test_mrpc_takes_the_gold_of_its_published_test_file(tmp_path):
    folder = tmp_path / "MRPC-Regression"
    folder.mkdir()
    rows = [["index", "#1 ID", "#2 ID", "#1 String", "#2 String"]] + [[str(i), "1", "2", *PAIRS[i]] for i in range(2)]
    (folder / "test.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    rows = [["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]]
    rows += [[gold, "1", "2", *pair] for gold, pair in zip("10", PAIRS[:2], strict=True)]
    (folder / "msr_paraphrase_test.txt").write_text("".join("\t".join(row) + "\n" for row in rows))
    task = read_task("mrpc", glue_dir=tmp_path)
    assert (task.metric, task.split, task.title) == ("auc", "test", "MRPC")
    np.testing.assert_array_equal(task.subsets[0].gold, [1.0, 0.0])


def test_sts12_has_the_published_sizes(reference_data):
    # SentEval's own counts of STS 2012: 3,108 pairs, all of them with a gold score.
    subsets = read_senteval("sts12", reference_data / "data/senteval/data/downstream/STS/STS12-en-test")
    assert {subset.name: len(subset) for subset in subsets} == {
        "MSRpar": 750,
        "MSRvid": 750,
        "SMTeuroparl": 459,
        "surprise.OnWN": 750,
        "surprise.SMTnews": 399,
    }
    assert subsets[0].gold[0] == 4.4


def test_sick_r_test_has_its_published_size(reference_data):
    task = read_task("sick-r", glue_dir=reference_data / "data/glue")
    assert (task.title, len(task.subsets[0])) == ("SICK-R", 4927)
