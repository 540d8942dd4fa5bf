"""Files and folders appear whole or not at all."""

import pytest

from bert_flow_tf.atomic import make_directory, new_folder, write_atomically
from bert_flow_tf.errors import UserError


def test_text_replaces_what_was_there_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "a.json"
    for text in ("first", "second"):
        write_atomically(path, text)
        assert path.read_text() == text
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_folder_takes_its_name_when_the_block_ends(tmp_path):
    path = tmp_path / "above" / "folder"
    with new_folder(path) as folder:
        folder.mkdir()
        (folder / "a").write_text("new")
        assert not path.exists()
    assert (path / "a").read_text() == "new"
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_replaces_the_one_of_its_name(tmp_path):
    path = tmp_path / "folder"
    path.mkdir()
    (path / "old").write_text("old")
    with new_folder(path) as folder:
        folder.mkdir()
        (folder / "a").write_text("new")
    assert [file.name for file in path.iterdir()] == ["a"]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("parent", ["", "above/further"])
def test_a_block_that_fails_leaves_everything_as_it_was(tmp_path, parent):
    (tmp_path / "kept").mkdir()
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / parent / "kept") as folder:
        folder.mkdir()
        (folder / "a").write_text("new")
        raise ZeroDivisionError
    assert list(tmp_path.rglob("*")) == [tmp_path / "kept"]


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/folder: cannot be made \(Not a directory\)"):
        make_directory(tmp_path / "file" / "folder")
    with pytest.raises(UserError, match=r"file: cannot be made"), new_folder(tmp_path / "file" / "folder"):
        pass


def test_folder_that_came_meanwhile_is_kept_where_it_is_not_to_be_replaced(tmp_path):
    def write(replace):
        with new_folder(tmp_path / "1", replace=replace) as folder:
            folder.mkdir()
            (folder / "model").write_text("ours")
            (tmp_path / "1").mkdir(exist_ok=True)
            (tmp_path / "1" / "model").write_text("theirs")

    with pytest.raises(UserError, match="was made by another process meanwhile"):
        write(replace=False)
    assert (tmp_path / "1" / "model").read_text() == "theirs"
    write(replace=True)
    assert (tmp_path / "1" / "model").read_text() == "ours"
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
