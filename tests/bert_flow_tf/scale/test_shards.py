"""A folder of embeddings has every row once."""

import json
import pathlib
import shutil

import numpy as np
import pyarrow.parquet
import pytest

from bert_flow_tf import BertFlow
from bert_flow_tf.scale.settings import ShardSettings
from bert_flow_tf.scale.shards import MANIFEST, Parts, input_files
from tests.refusals import bert_flow, files_below, refused, succeeds, user_error

SENTENCES = [f"w{i} w{i % 7} w3" for i in range(30)]


@pytest.fixture(scope="module")
def model(tiny_encoder_dir):
    return BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Folder of three Parquet files with the sentences."""
    folder = tmp_path_factory.mktemp("tables")
    for i in range(3):
        rows = range(10 * i, 10 * i + 10)
        table = pyarrow.table({"id": rows, "sentence": [SENTENCES[row] for row in rows]})
        pyarrow.parquet.write_table(table, folder / f"{i}.parquet", row_group_size=4)
    return folder


@pytest.fixture(scope="module")
def again(model, tables):
    """A function that embeds them in parts of 7 rows."""

    def embed(out, names="*", by=model, keep=("id",), overwrite=False, **settings):
        shards = ShardSettings(**{"shard_rows": 7} | settings)
        return by.encode_dataset(
            f"{tables}/{names}.parquet", out, shards, keep=keep, overwrite=overwrite
        )

    return embed


@pytest.fixture(scope="module")
def made(again, tmp_path_factory):
    """A folder with parts of 7 and 3 rows of every file."""
    out = tmp_path_factory.mktemp("made") / "embeddings"
    again(out)
    return out


@pytest.fixture
def copy(made, tmp_path):
    return shutil.copytree(made, tmp_path / "embeddings")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def inodes(folder):
    return {path.name: path.stat().st_ino for path in folder.glob("part-*")}


def test_parts_hold_every_key_once(model, made):
    table = pyarrow.parquet.read_table(made)
    assert table.column("id").to_pylist() == list(range(30))
    assert str(table.schema.field("embedding").type) == "fixed_size_list<element: float>[32]"
    found = np.array(table.column("embedding").to_pylist(), np.float32)
    np.testing.assert_allclose(found, model.encode(SENTENCES), rtol=0, atol=1e-6)
    parts = {
        f"part-{i:05d}-{j:05d}.parquet": rows for i in range(3) for j, rows in enumerate((7, 3))
    }
    assert contents(made).keys() == {MANIFEST, *parts}
    assert json.loads((made / MANIFEST).read_text())["parts"] == parts


def test_a_part_is_float16_and_normalized_if_asked(model, again, tmp_path):
    again(tmp_path / "half", precision="float16", normalize_embeddings=True, keep=None)
    table = pyarrow.parquet.read_table(tmp_path / "half" / "part-00000-00000.parquet")
    assert str(table.schema.field("embedding").type) == "fixed_size_list<element: halffloat>[32]"
    assert table.column("sentence").to_pylist() == SENTENCES[:7]
    expected = model.encode(SENTENCES[:7], normalize_embeddings=True)
    np.testing.assert_allclose(
        np.array(table.column("embedding").to_pylist()), expected, rtol=0, atol=1e-3
    )


def test_a_second_call_makes_only_missing_and_damaged_parts(again, made, copy):
    damaged, missing, torn, *others = sorted(copy.glob("part-*"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    missing.unlink()
    torn.write_bytes(b"")
    (copy / f".{torn.name}.tmp").touch()
    kept = inodes(copy)
    again(copy)
    assert {path.name: path.stat().st_ino for path in others} == {
        path.name: kept[path.name] for path in others
    }
    assert contents(copy) == contents(made)


def test_parts_of_another_model_or_input_need_overwrite(tiny_encoder_dir, again, copy, tmp_path):
    other = BertFlow.from_hub(tiny_encoder_dir, max_seq_length=5)
    before = files_below(copy)
    with user_error(f"{copy}: model: found {other.fingerprint}"):
        again(copy, by=other)
    with user_error("normalize_embeddings: found True"):
        again(copy, normalize_embeddings=True)
    with user_error("keep: found sentence, expected id"):
        again(copy, keep=None)
    with user_error("input: found parts of", "2.parquet"):
        again(copy, "[01]")
    assert files_below(copy) == before
    parts = inodes(copy)
    assert len(parts) == 6
    again(copy, "[01]", overwrite=True)
    assert inodes(copy) == {
        name: inode for name, inode in parts.items() if not name.startswith("part-00002")
    }
    again(copy, by=other, overwrite=True)
    again(tmp_path / "new", by=other)
    assert contents(copy) == contents(tmp_path / "new")


def _unfinished(folder):
    """Take a part away, as a killed command leaves a folder."""
    manifest = folder / MANIFEST
    changes = {"is_complete": False, "parts": {}}
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | changes))
    (folder / "part-00001-00001.parquet").unlink()


def test_unfinished_folder_never_gets_other_columns(again, made, copy):
    _unfinished(copy)
    before = files_below(copy)
    with user_error("keep: found sentence, expected id"):
        again(copy, keep=None)
    assert files_below(copy) == before
    again(copy)
    assert contents(copy) == contents(made)


@pytest.fixture
def embedded(model, monkeypatch):
    """The sentences that the model embeds."""
    sentences = []
    original = model.encode_blocks

    def encode_blocks(texts, *arguments, **options):
        sentences.extend(texts)
        return original(texts, *arguments, **options)

    monkeypatch.setattr(model, "encode_blocks", encode_blocks)
    return sentences


def _write(folder, name, numbers):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(f"w{i} w{i % 7}\n" for i in numbers))


@pytest.fixture
def grown(model, tmp_path):
    """A function that embeds a folder which has grown."""
    texts = tmp_path / "texts"

    def embed(out):
        return model.encode_dataset(texts, tmp_path / out, ShardSettings(shard_rows=4))

    _write(texts, "b.txt", range(10))
    _write(texts, "c.txt", range(20, 26))
    embed("out")
    _write(texts, "a.txt", range(30, 35))
    _write(texts, "b.txt", range(11))
    return embed


def test_only_new_rows_are_embedded(grown, embedded, tmp_path):
    grown("out")
    # The last shard of b.txt is not full, so it is embedded again with its new row.
    assert embedded == [f"w{i} w{i % 7}" for i in (*range(30, 35), 8, 9, 10)]
    grown("new")
    assert contents(tmp_path / "out") == contents(tmp_path / "new")


def test_job_killed_while_it_renames_resumes(grown, tmp_path, monkeypatch, embedded):
    rename = pathlib.Path.rename
    changes = 0
    while True:
        left = iter(range(changes))

        def stop_later(path, target, left=left):
            if path.name.startswith("part-") and next(left, None) is None:
                raise KeyboardInterrupt
            return rename(path, target)

        shutil.copytree(tmp_path / "out", tmp_path / "copy")
        with monkeypatch.context() as patch:
            patch.setattr(pathlib.Path, "rename", stop_later)
            try:
                grown("copy")
                break
            except KeyboardInterrupt:
                pass
        embedded.clear()
        grown("copy")
        assert not embedded
        grown("new")
        assert contents(tmp_path / "copy") == contents(tmp_path / "new")
        shutil.rmtree(tmp_path / "copy")
        changes += 1
    assert changes > 8


def test_complete_folder_is_complete_while_a_job_adds_rows(grown, model, tmp_path, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(model, "encode_blocks", stop)
    with pytest.raises(KeyboardInterrupt):
        grown("out")
    assert len(Parts(tmp_path / "out")) == 16


def test_moved_file_keeps_its_parts(grown, model, embedded, tmp_path):
    grown("out")
    (tmp_path / "texts").rename(tmp_path / "moved")
    embedded.clear()
    settings = ShardSettings(shard_rows=4)
    model.encode_dataset(tmp_path / "moved", tmp_path / "out", settings)
    assert not embedded


def test_parts_are_no_input_of_a_second_call(model, tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"sentence": ["w1"]}), tmp_path / "a.parquet")
    pattern, out = f"{tmp_path}/**/*.parquet", tmp_path / "out"
    model.encode_dataset(pattern, out)
    before = files_below(tmp_path)
    with user_error(f"input: found files in {out}"):
        model.encode_dataset(pattern, out)
    assert files_below(tmp_path) == before


def test_unreadable_files_are_named_and_all_others_done(tiny_encoder_dir, made, tables, tmp_path):
    folder, out = shutil.copytree(tables, tmp_path / "tables"), tmp_path / "out"
    arguments = (
        "--bert_hub",
        tiny_encoder_dir,
        "--max_seq_length",
        8,
        "--keep",
        "id",
        "--shard_rows",
        7,
        "--out",
        out,
    )
    command = ("encode-folder", *arguments, "--input", f"{folder}/*.parquet")
    rows = pyarrow.parquet.read_table(folder / "2.parquet").to_pylist()
    rows[8]["sentence"] = None
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "2.parquet")
    assert refused(*command).startswith(f"{folder}/2.parquet, row 9: sentence: ")
    names = sorted(path.name for path in out.glob("part-*"))
    assert names == [path.name for path in sorted(made.glob("part-*"))[:4]]
    (folder / "1.parquet").write_bytes(b"no Parquet")
    twice = pyarrow.StructArray.from_arrays([pyarrow.array([1]), pyarrow.array([2])], ["x", "x"])
    pyarrow.parquet.write_table(
        pyarrow.table({"id": twice, "sentence": ["w1"]}), folder / "3.parquet"
    )
    part = out / names[0]
    part.unlink()
    part.mkdir()
    outcome = bert_flow(*command)
    *problems, last = outcome.stderr.splitlines()
    assert outcome.exit_code == 2 and last.startswith("error: 4 files or shards cannot be embedded")
    for problem, path in zip(
        problems, [part, *(f"{folder}/{i}.parquet" for i in (1, 2, 3))], strict=True
    ):
        assert problem.startswith(f"error: {path}")
    assert sorted(path.name for path in out.glob("part-*")) == names
    part.rmdir()
    (folder / "3.parquet").unlink()
    shutil.copytree(tables, folder, dirs_exist_ok=True)
    assert "(30 of width 32, 6 parts, 3 of them new)" in succeeds(*command)
    found, expected = contents(out), contents(made)
    # The manifests differ, because they name other input files.
    del found[MANIFEST], expected[MANIFEST]
    assert found == expected


def test_an_embedding_that_float16_cannot_hold_is_named(model, again, tmp_path, monkeypatch):
    monkeypatch.setattr(
        model, "encode_blocks", lambda texts, **options: [(texts, np.full([len(texts), 32], 1e6))]
    )
    with user_error("part-00000-00000.parquet: found an embedding that is not finite in float16"):
        again(tmp_path / "out", precision="float16")


def test_a_mistake_is_one_line_and_writes_nothing(tmp_path, monkeypatch):
    (tmp_path / "x.tsv").write_text("a\tsentence\n1\tw2\n")
    (tmp_path / "x.txt").write_text("w1\n")
    monkeypatch.chdir(tmp_path)
    for arguments, message in (
        (("--input", "x.tsv", "--keep", "c"), "sentence, not c"),
        (("--input", "x.txt", "--keep", "c"), "x.txt: found text, which has one column"),
        (("--input", "x.tsv", "--keep", "embedding"), "--keep: found embedding"),
        (("--input", "x.txt", "--column", "c"), "x.txt: found the columns sentence, not c"),
        (("--input", "*.jsonl"), "*.jsonl: no such file"),
    ):
        command = ("encode-folder", "--bert_hub", "demo", *arguments, "--out", "out")
        assert message in refused(*command, unchanged=tmp_path)


def test_patterns_name_files_in_order(tmp_path):
    for name in ("b.txt", "a.txt", "[x].txt", "c.tsv"):
        (tmp_path / name).write_text("w1\n")
    (tmp_path / "folder.txt").mkdir()
    found = input_files([tmp_path / "c.tsv", f"{tmp_path}/?.txt", f"{tmp_path}/[x].txt"])
    assert [file.path for file in found] == [
        str(tmp_path / name) for name in ("c.tsv", "a.txt", "b.txt", "[x].txt")
    ]
