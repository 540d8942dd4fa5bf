"""Pairs of sentences with scores, from a user's file."""

import gzip

import pytest

from bert_flow_tf.tasks.labelled_pairs import read_labelled_pairs
from tests.refusals import user_error

PAIRS = (["a boat"], ["a ship"], [4.5])
NAMED = "id\tsentence1\tsentence2\tscore\nMSRvid\ta boat\ta ship\t4.5\n"
PLAIN = "a boat\ta ship\t4.5\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("ending", [".tsv", ".tsv.gz", ".tsv.GZ"])
def test_pairs_of_a_tsv_are_found_by_name_or_place(tmp_path, encoding, ending):
    path = tmp_path / f"pairs{ending}"
    for text, options in (
        (NAMED, {}),
        (NAMED, {"columns": "2,3,4"}),
        (PLAIN, {"columns": "1,2,3", "no_header": True}),
    ):
        data = text.encode(encoding)
        path.write_bytes(gzip.compress(data) if ending != ".tsv" else data)
        assert read_labelled_pairs(path, **options) == PAIRS


def test_an_invalid_file_of_pairs_is_one_line(tmp_path):
    files = {"named.tsv": NAMED, "plain.tsv": PLAIN, "empty.tsv": "", "pairs.dat": ""}
    named, plain, empty, other = (tmp_path / name for name in files)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with user_error(f"{named}: column 1: found 'MSRvid', expected a number", "--pair_columns"):
        read_labelled_pairs(named, "2,3,1")
    with user_error("pair_columns: found 2,3, expected three names"):
        read_labelled_pairs(named, "2,3")
    with user_error(f"--no_pair_header: {named}: found the column sentence1, expected a number"):
        read_labelled_pairs(named, no_header=True)
    with user_error("--pair_columns A,B,SCORE, or --pair_columns 1,2,3 --no_pair_header if"):
        read_labelled_pairs(plain)
    with user_error(f"{empty}: found no row"):
        read_labelled_pairs(empty)
    with user_error(f"{other}: found the ending '.dat'", "expected .txt, ") as found:
        read_labelled_pairs(other)
    assert "--input_format" not in str(found.value)
