"""Pairs of sentences with scores, from a user's file."""

import gzip

import pytest

from bert_flow_tf.tasks.labelled_pairs import read_labelled_pairs
from tests.refusals import user_error

PAIRS = (["a boat"], ["a ship"], [4.5])
NAMED = "id\tsentence1\tsentence2\tscore\nMSRvid\ta boat\ta ship\t4.5\n"
PLAIN = "a boat\ta ship\t4.5\n"


@pytest.mark.parametrize("text", [NAMED, PLAIN])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("ending", [".tsv", ".tsv.gz", ".tsv.GZ"])
def test_pairs_of_a_tsv_are_found_by_name_or_place(tmp_path, text, encoding, ending):
    path = tmp_path / f"pairs{ending}"
    data = text.encode(encoding)
    path.write_bytes(gzip.compress(data) if ending != ".tsv" else data)
    assert read_labelled_pairs(path) == PAIRS


def test_an_invalid_file_of_pairs_is_one_line(tmp_path):
    named, other, empty = (tmp_path / name for name in ("named.tsv", "pairs.dat", "empty.tsv"))
    named.write_text(NAMED)
    empty.touch()
    with user_error(f"{named}: column 1: found 'MSRvid', expected a number", "--pair_columns"):
        read_labelled_pairs(named, "2,3,1")
    with user_error("pair_columns: found 2,3, expected three names"):
        read_labelled_pairs(named, "2,3")
    with user_error(f"--pairs={empty}: found no pairs"):
        read_labelled_pairs(empty)
    with user_error(f"--pairs={other}: found the ending '.dat'", "expected .tsv, ") as found:
        read_labelled_pairs(other)
    assert "--input_format" not in str(found.value)
