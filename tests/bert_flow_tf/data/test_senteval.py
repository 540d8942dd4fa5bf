"""SentEval's classification tasks: layouts, order, invalid lines."""

import pytest

from bert_flow_tf.data.scored_tasks import read_task
from tests.refusals import user_error

MRPC_HEADER = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
SICK_HEADER = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
FILES = {
    "MR/rt-polarity.pos": "a  fine film\ngood\n".encode("latin-1"),
    "MR/rt-polarity.neg": "caf\xe9 bad\n".encode("latin-1"),
    "SST/binary/sentiment-train": b"so good\t1\nbad\t0\n",
    "SST/binary/sentiment-dev": b"good\t1\nbad\t0\n",
    "SST/binary/sentiment-test": b"bad\t0\n",
    "TREC/train_5500.label": b"NUM:dist How far is it ?\nHUM:ind Who ?\n",
    "TREC/TREC_10.label": b"DESC:def What is it ?\n",
    "MRPC/msr_paraphrase_train.txt": f"{MRPC_HEADER}1\t7\t8\tA cat sat .\tA cat .\n0\t7\t8\tA cat\tA dog\n".encode(),
    "MRPC/msr_paraphrase_test.txt": f"{MRPC_HEADER}0\t7\t8\tA cat .\tA dog .\n".encode(),
    "SICK/SICK_train.txt": f"{SICK_HEADER}1\tA cat\tA dog\t1.5\tNEUTRAL\n2\tCats\tNone\t3\tCONTRADICTION\n".encode(),
    "SICK/SICK_trial.txt": f"{SICK_HEADER}1\tA cat\tA cat\t5\tENTAILMENT\n2\tA cat\tA dog\t1.5\tNEUTRAL\n".encode(),
    "SICK/SICK_test_annotated.txt": f"{SICK_HEADER}1\tA cat\tNo cat\t3\tCONTRADICTION\n".encode(),
}


@pytest.fixture
def folder(tmp_path):
    for name, content in FILES.items():
        path = tmp_path / "downstream" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "part", "examples"),
    [
        # Sorted by the number of words, then by class.
        ("mr", "all", [("good", 1), ("café bad", 0), ("a fine film", 1)]),
        ("sst2", "train", [("bad", 0), ("so good", 1)]),
        ("sst2", "dev", [("bad", 0), ("good", 1)]),
        ("trec", "train", [("Who ?", 3), ("How far is it ?", 5)]),
        ("trec", "test", [("What is it ?", 1)]),
        ("mrpc", "train", [("A cat", "A dog", 0), ("A cat sat .", "A cat .", 1)]),
        ("mrpc", "test", [("A cat .", "A dog .", 0)]),
        ("sicke", "train", [("Cats", "None", 0), ("A cat", "A dog", 1)]),
        ("sicke", "dev", [("A cat", "A dog", 1), ("A cat", "A cat", 2)]),
        ("sicke", "test", [("A cat", "No cat", 0)]),
    ],
)
def test_every_layout_is_read_in_sentevals_order(folder, name, part, examples):
    for place in (folder, folder / "downstream"):
        found = read_task(f"senteval:{name}", senteval_dir=place).parts[part]
        columns = (column for column in (found.sentences_a, found.sentences_b, found.labels) if len(column))
        assert list(zip(*columns, strict=True)) == examples


DEV = "SST/binary/sentiment-dev"


@pytest.mark.parametrize(
    ("name", "file", "content", "found"),
    [
        ("sst2", DEV, b"good\n", f"{DEV}, line 1: found 1 columns"),
        ("sst2", DEV, b"good\t2\n", f"{DEV}, line 1, column 2: found label '2', expected one of 0, 1"),
        ("sst2", DEV, b"\xff\t1\n", f"{DEV}: cannot be read"),
        ("sicke", "SICK/SICK_trial.txt", SICK_HEADER.encode(), "SICK_trial.txt: found no examples"),
    ],
)
def test_a_line_that_is_not_as_expected_is_named(folder, name, file, content, found):
    (folder / "downstream" / file).write_bytes(content)
    with user_error(found):
        read_task(f"senteval:{name}", senteval_dir=folder)


def test_what_is_missing_or_unknown_is_named(folder):
    for name, senteval_dir, split, parts in (
        ("senteval:cr", None, None, ["senteval_dir: missing", "senteval:cr"]),
        ("senteval:cr", folder, None, ["CR: no such folder"]),
        ("senteval:sst", folder, None, ["tasks: unknown task 'senteval:sst'", "did you mean senteval:sst2?"]),
        ("senteval:mr", folder, "dev", ["split: found dev for senteval:mr"]),
    ):
        with user_error(*parts):
            read_task(name, senteval_dir=senteval_dir, split=split)
