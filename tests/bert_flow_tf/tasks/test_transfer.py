"""SentEval's transfer tasks: their files, their order, and invalid lines."""

import pytest

from bert_flow_tf.tasks.scored_tasks import read_task
from tests.refusals import user_error


def contents(examples):
    sides = [side for side in (examples.sentences_a, examples.sentences_b) if side]
    return [*zip(*sides, examples.labels.tolist(), strict=True)]


@pytest.mark.parametrize(
    ("name", "positive", "negative"),
    [
        ("MR", "rt-polarity.pos", "rt-polarity.neg"),
        ("CR", "custrev.pos", "custrev.neg"),
        ("SUBJ", "subj.objective", "subj.subjective"),
        ("MPQA", "mpqa.pos", "mpqa.neg"),
    ],
)
def test_files_by_class_are_read_in_sentevals_order(tmp_path, name, positive, negative):
    folder = tmp_path / "downstream" / name
    folder.mkdir(parents=True)
    # Two lines have as many words, so that their class decides. An empty one has none, and becomes
    # a full stop after the sort.
    (folder / positive).write_bytes(b"a ripe  pear\ncaf\xe9 noir\n\n")
    (folder / negative).write_bytes(b"stale bread\nsour\x85a very old cheese\n")
    task = read_task(name, senteval_dir=tmp_path)
    assert (task.name, task.title, task.metric) == (name.lower(), name, "accuracy")
    assert (task.split, task.source) == ("all", str(folder))
    assert contents(task.subsets["all"]) == [
        (".", 1),
        ("sour", 0),
        ("stale bread", 0),
        ("café noir", 1),
        ("a ripe pear", 1),
        ("a very old cheese", 0),
    ]


def test_sst2_has_three_parts(tmp_path):
    folder = tmp_path / "SST" / "binary"
    folder.mkdir(parents=True)
    for part in ("train", "dev", "test"):
        text = f"a fine {part} ’ ride\t1\n{part} crawls\t0\n"
        (folder / f"sentiment-{part}").write_bytes(text.encode())
    task = read_task("sst-2", senteval_dir=tmp_path)
    assert list(task.subsets) == ["train", "dev", "test"]
    for part, examples in task.subsets.items():
        assert contents(examples) == [(f"{part} crawls", 0), (f"a fine {part} ’ ride", 1)]
    (folder / "sentiment-dev").write_text("a plain ride\t2\n")
    with user_error("sentiment-dev, line 1, column 2: found label '2', expected one of 0, 1"):
        read_task("sst2", senteval_dir=tmp_path)


def test_trecs_classes_are_numbers_and_its_questions_latin_1(tmp_path):
    folder = tmp_path / "TREC"
    folder.mkdir()
    (folder / "train_5500.label").write_bytes(
        b"NUM:dist How far is  Orl\xe9ans ?\nABBR:exp What ?\n"
    )
    (folder / "TREC_10.label").write_bytes(b"HUM:ind Who: me or you ?\n")
    task = read_task("trec", senteval_dir=tmp_path)
    assert contents(task.subsets["train"]) == [("What ?", 0), ("How far is Orléans ?", 5)]
    assert contents(task.subsets["test"]) == [("Who: me or you ?", 3)]
    for line, found in (
        ("FOOD:fruit Which pear ?", "line 1, column 1: found label 'FOOD', expected one of ABBR, "),
        ("Which pear ?", "line 1: found 'Which pear ?', expected CLASS:subclass question"),
    ):
        (folder / "TREC_10.label").write_text(f"{line}\n")
        with user_error(f"TREC_10.label, {found}"):
            read_task("trec", senteval_dir=tmp_path)


def test_mrpc_is_a_transfer_task_in_sentevals_data_alone(tmp_path):
    folder = tmp_path / "MRPC"
    folder.mkdir()
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    rows = '1\t7\t8\tThe kettle whistles .\tIt "sings .\n0\t7\t8\tTwo goats .\tA train .\n'
    for part in ("train", "test"):
        (folder / f"msr_paraphrase_{part}.txt").write_text(header + rows)
    task = read_task("MRPC", senteval_dir=tmp_path)
    expected = [("Two goats .", "A train .", 0), ("The kettle whistles .", 'It "sings .', 1)]
    assert {part: contents(one) for part, one in task.subsets.items()} == {
        "train": expected,
        "test": expected,
    }
    # GLUE's task of the same name is scored by its cosines.
    with user_error("MRPC-Regression"):
        read_task("MRPC", senteval_dir=tmp_path, glue_dir=tmp_path)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, "senteval_dir: missing, expected the folder that holds MR, for mr"),
        ({"senteval_dir": "missing"}, "missing/MR: no such folder"),
        ({"senteval_dir": ".", "split": "dev"}, "split: found dev for mr"),
    ],
)
def test_a_transfer_task_that_cannot_be_read_is_named(options, found):
    with user_error(found):
        read_task("mr", **options)


def test_a_missing_or_empty_file_is_named(tmp_path):
    folder = tmp_path / "CR"
    folder.mkdir()
    (folder / "custrev.pos").write_text("a ripe pear\n")
    with user_error(f"{folder / 'custrev.neg'}: no such file"):
        read_task("cr", senteval_dir=tmp_path)
    (folder / "custrev.neg").write_text("")
    with user_error(f"{folder / 'custrev.neg'}: found no sentences"):
        read_task("cr", senteval_dir=tmp_path)


def test_order_counts_the_words_of_both_sentences(tmp_path):
    folder = tmp_path / "MRPC"
    folder.mkdir()
    pairs = [("a b", "c d", 1), ("a b", "c", 1), ("a b", "c d", 0), ("a", "c d e", 0)]
    rows = "".join(f"{label}\t1\t2\t{a}\t{b}\n" for a, b, label in pairs)
    for part in ("train", "test"):
        text = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n" + rows
        (folder / f"msr_paraphrase_{part}.txt").write_text(text)
    found = contents(read_task("mrpc", senteval_dir=tmp_path).subsets["train"])
    assert found == [pairs[i] for i in (3, 1, 2, 0)]
    assert found == sorted(pairs, key=lambda one: (len(one[0]), len(one[1]), one[2]))
