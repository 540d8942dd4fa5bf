"""Any exception of a reader is one line that names the file."""

import pytest

from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.reading import read_text, reading
from tests.refusals import user_error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("two\nlines " + "x" * 1000), "two lines xxx"),
        # Reading a damaged NPY raises this as well.
        (MemoryError(), "MemoryError"),
    ],
)
def test_whatever_a_reader_raises_is_one_line(error, reason):
    with user_error(f"file: cannot be read as a thing: {reason}"), reading("file", "a thing"):
        raise error


def test_missing_files_and_folders_are_named(tmp_path):
    with user_error(f"{tmp_path / 'none'}: no such file", "a thing"):
        read_text(tmp_path / "none", "a thing")
    with user_error(f"{tmp_path}: cannot be read as a thing: "):
        read_text(tmp_path, "a thing")
    with pytest.raises(UserError, match=r"^mine$"), reading("file", "a thing"):
        raise UserError("mine")
