"""Files and folders appear whole or not at all."""

import pytest

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import new_folder, write_atomically
from tests.refusals import user_error


def test_text_replaces_what_was_there_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "a.json"
    for text in ("first", "second"):
        write_atomically(path, text)
        assert path.read_text() == text
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_folder_takes_its_name_when_the_block_ends_and_replaces_the_one_of_that_name(tmp_path):
    path = tmp_path / "above" / "folder"
    for name in ("old", "new"):
        with new_folder(path) as folder:
            (folder / name).write_text("")
            assert not (path / name).exists()
        assert list(path.parent.rglob("*")) == [path, path / name]


@pytest.mark.parametrize("parent", ["", "above/further"])
def test_a_block_that_fails_leaves_everything_as_it_was(tmp_path, parent):
    (tmp_path / "kept").mkdir()
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / parent / "kept") as folder:
        (folder / "a").write_text("new")
        raise ZeroDivisionError
    assert list(tmp_path.rglob("*")) == [tmp_path / "kept"]


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with user_error("file: cannot be made"), new_folder(tmp_path / "file" / "folder"):
        pass


def test_folder_that_came_meanwhile_is_kept_where_it_is_not_to_be_replaced(tmp_path):
    def write(replace):
        with new_folder(tmp_path / "1", replace=replace) as folder:
            (folder / "model").write_text("ours")
            (tmp_path / "1").mkdir(exist_ok=True)
            (tmp_path / "1" / "model").write_text("theirs")

    with pytest.raises(UserError, match="was made by another process meanwhile"):
        write(replace=False)
    assert (tmp_path / "1" / "model").read_text() == "theirs"
    write(replace=True)
    assert (tmp_path / "1" / "model").read_text() == "ours"
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
