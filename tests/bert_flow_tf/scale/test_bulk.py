"""A folder of embeddings: every row once, the same bytes again, trusted by digests, and whole but for bad shards."""

import json
import resource
import shutil

import numpy as np
import pyarrow.parquet
import pytest

from bert_flow_tf import BertFlow
from bert_flow_tf.scale.bulk import MANIFEST, ShardsError
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
        pyarrow.parquet.write_table(table, folder / f"{i}.parquet")
    return folder


@pytest.fixture(scope="module")
def made(model, tables, tmp_path_factory):
    """A folder of six parts: of every file one of 7 rows and one of 3."""
    out = tmp_path_factory.mktemp("made") / "embeddings"
    model.encode_dataset(f"{tables}/*.parquet", out, keep=["id"], shard_rows=7)
    return out


@pytest.fixture
def again(model, tables):
    """Function (folder, …) that makes the call of `made` again for another folder."""
    return lambda out, **changes: model.encode_dataset(
        f"{tables}/*.parquet", out, **{"keep": ["id"], "shard_rows": 7} | changes
    )


@pytest.fixture
def copy(made, tmp_path):
    return shutil.copytree(made, tmp_path / "embeddings")


def test_parts_hold_every_key_once_with_what_encode_gives(model, made):
    table = pyarrow.parquet.read_table(made)
    assert table.column("id").to_pylist() == list(range(30))
    assert str(table.schema.field("embedding").type) == "fixed_size_list<element: float>[32]"
    found = np.array(table.column("embedding").to_pylist(), np.float32)
    np.testing.assert_allclose(found, model.encode(SENTENCES), rtol=0, atol=1e-6)
    assert sorted(path.name for path in made.iterdir()) == [
        MANIFEST,
        *(f"part-{i:05d}-{j:05d}.parquet" for i in range(3) for j in range(2)),
    ]


def test_a_part_is_float16_and_normalized_where_it_is_asked_for(model, again, tmp_path):
    again(tmp_path / "half", precision="float16", normalize_embeddings=True, keep=None)
    table = pyarrow.parquet.read_table(tmp_path / "half" / "part-00000-00000.parquet")
    assert str(table.schema.field("embedding").type) == "fixed_size_list<element: halffloat>[32]"
    assert table.column("sentence").to_pylist() == SENTENCES[:7]
    expected = model.encode(SENTENCES[:7], normalize_embeddings=True)
    np.testing.assert_allclose(np.array(table.column("embedding").to_pylist()), expected, rtol=0, atol=1e-3)


def test_a_second_call_makes_only_what_is_missing_or_altered_and_gives_the_same_bytes(again, made, copy):
    altered, missing, unlisted, torn = sorted(copy.glob("part-*"))[:4]
    altered.write_bytes(altered.read_bytes()[:-1] + b"x")
    missing.unlink()
    manifest = json.loads((copy / MANIFEST).read_text())
    del manifest["parts"][unlisted.name]
    (copy / MANIFEST).write_text(json.dumps(manifest))
    torn.write_bytes(b"")
    (copy / f".{torn.name}.tmp").touch()
    kept = {path.name: path.stat().st_ino for path in sorted(copy.glob("part-*"))[4:]}
    again(copy)
    assert {name: (copy / name).stat().st_ino for name in kept} == kept
    assert [path.read_bytes() for path in sorted(copy.iterdir())] == [
        path.read_bytes() for path in sorted(made.iterdir())
    ]


def test_what_another_model_or_input_made_is_refused_and_replaced_only_with_overwrite(
    model, tiny_encoder_dir, tables, again, copy, tmp_path
):
    other = BertFlow.from_hub(tiny_encoder_dir, max_seq_length=5)
    assert other.fingerprint != model.fingerprint
    before = files_below(copy)
    arguments = {"keep": ["id"], "shard_rows": 7}
    with user_error(f"{copy}: exists, model: found {other.fingerprint[:12]}"):
        other.encode_dataset(f"{tables}/*.parquet", copy, **arguments)
    with user_error("normalize_embeddings: found True, expected False"):
        again(copy, normalize_embeddings=True)
    with user_error("part-00000-00000.parquet: found it made of other input"):
        again(copy, keep=None)
    with user_error("part-00002-00000.parquet: found it made of other input"):
        model.encode_dataset(f"{tables}/[01].parquet", copy, **arguments)
    assert files_below(copy) == before
    parts = {path.name: path.stat().st_ino for path in copy.glob("part-*")}
    model.encode_dataset(f"{tables}/[01].parquet", copy, **arguments, overwrite=True)
    # What is of this input and model stays.
    assert {path.name: path.stat().st_ino for path in copy.glob("part-*")} == {
        name: inode for name, inode in parts.items() if not name.startswith("part-00002")
    }
    other.encode_dataset(f"{tables}/*.parquet", copy, **arguments, overwrite=True)
    other.encode_dataset(f"{tables}/*.parquet", tmp_path / "new", **arguments)
    new = {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()}
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == new


def test_parts_are_no_input_of_a_second_call(model, tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"sentence": ["w1"]}), tmp_path / "a.parquet")
    pattern, out = f"{tmp_path}/**/*.parquet", tmp_path / "out"
    model.encode_dataset(pattern, out)
    before = files_below(tmp_path)
    with user_error(f"input: found files in {out}, which gets the embeddings"):
        model.encode_dataset(pattern, out)
    assert files_below(tmp_path) == before


def test_what_was_made_is_counted_also_where_it_has_the_same_bytes(tiny_encoder_dir, tmp_path):
    (tmp_path / "a.txt").write_text("w1\nw2\n")
    command = ("encode", "--bert_hub", tiny_encoder_dir, "--max_seq_length", 8, "--shard_rows", 1, "--out")
    command = (*command, tmp_path / "out", "--input", tmp_path / "a.txt")
    assert "2 parts, 2 of them now" in succeeds(*command)
    (tmp_path / "out" / "part-00000-00001.parquet").unlink()
    assert "2 parts, 1 of them now" in succeeds(*command)


def test_shards_that_cannot_be_read_are_named_and_all_others_done(tiny_encoder_dir, made, tables, tmp_path):
    folder = shutil.copytree(tables, tmp_path / "tables")
    good = (folder / "1.parquet").read_bytes()
    rows = pyarrow.parquet.read_table(folder / "2.parquet").to_pylist()
    rows[8]["sentence"] = None
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "2.parquet")
    out = tmp_path / "out"
    arguments = ("--bert_hub", tiny_encoder_dir, "--max_seq_length", 8, "--keep", "id", "--shard_rows", 7, "--out", out)
    command = ("encode", *arguments, "--input", f"{folder}/*.parquet")
    line = refused(*command)
    assert line.startswith(f"part-00002-00001.parquet: {folder}/2.parquet, row 9: sentence: found None")
    assert line.endswith("all others are done, run the same command again when it is mended")
    names = sorted(path.name for path in out.glob("part-*"))
    assert names == [path.name for path in sorted(made.glob("part-*"))[:5]]
    (folder / "1.parquet").write_bytes(b"no Parquet")
    pyarrow.parquet.write_table(pyarrow.table({"id": [1], "text": ["w1"]}), folder / "3.parquet")
    outcome = bert_flow(*command)
    assert outcome.exit_code == 2
    first, third, second, last = outcome.stderr.splitlines()
    assert first.startswith(f"error: part-00001: {folder}/1.parquet: cannot be read as Parquet")
    assert second.startswith("error: part-00002-00001.parquet: ")
    assert (
        third == f"error: part-00003: {folder}/3.parquet: found the columns id, text, expected sentence (see --column)"
    )
    assert last.startswith("error: 3 of 6 shards cannot be read; all others are done")
    assert sorted(path.name for path in out.glob("part-*")) == names
    (folder / "1.parquet").write_bytes(good)
    (folder / "3.parquet").unlink()
    shutil.copy(tables / "2.parquet", folder)
    # Another file than before the mistake, and so both of its shards.
    said = succeeds(*command, "--overwrite")
    assert said == f"embeddings written: {out} (30 of width 32, 6 parts, 2 of them now)\n"
    assert [path.read_bytes() for path in sorted(out.glob("part-*"))] == [
        path.read_bytes() for path in sorted(made.glob("part-*"))
    ]


def test_on_a_full_disk_the_part_is_named_and_those_before_it_stay(model, tmp_path):
    out = tmp_path / "out"
    for i in range(40):
        (tmp_path / f"{i:02d}.txt").write_text("w1\n")
    (tmp_path / "40.txt").write_text("".join(f"w{i} w{j}\n" for i in range(20) for j in range(20)))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A part of one row has some 2 kB, the manifest of forty parts more than this limit, as has that of 400 rows.
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, limits[1]))
    try:
        with user_error(f"{out}/part-00040-00000.parquet: no space left"):
            model.encode_dataset(tmp_path / "*.txt", out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(list(out.glob("part-*"))) == 40


def test_a_line_that_is_mended_leaves_the_parts_of_other_lines(model, tmp_path):
    source, out = tmp_path / "x.jsonl", tmp_path / "out"
    lines = [json.dumps({"sentence": sentence}) for sentence in SENTENCES]
    source.write_text("\n".join([*lines[:12], "{", *lines[13:]]))
    with pytest.raises(ShardsError, match=r"x\.jsonl, line 13: not JSON"):
        model.encode_dataset(source, out, shard_rows=10)
    parts = {path.name: path.stat().st_ino for path in out.glob("part-*")}
    assert list(parts) != []
    source.write_text("\n".join([*lines[:12], '{"sentence": "w"}', *lines[13:]]))
    manifest = model.encode_dataset(source, out, shard_rows=10)
    assert [part.rows for part in manifest.parts.values()] == [10, 10, 10]
    assert {name: (out / name).stat().st_ino for name in parts} == parts


def test_an_embedding_that_float16_cannot_hold_is_refused(model, tables, tmp_path, monkeypatch):
    encode_parts = model.encode_parts

    def scaled(*arguments):
        return ((part, values * 1e6) for part, values in encode_parts(*arguments))

    monkeypatch.setattr(model, "encode_parts", scaled)
    with user_error("found an embedding that is not finite in float16"):
        model.encode_dataset(tables / "0.parquet", tmp_path / "out", precision="float16")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [MANIFEST]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input", "a.txt", "--out", "e.npy", "--keep", "sentence"], "--keep: found --out=e.npy, a file"),
        (["--input", "a.txt", "--out", "e.npy", "--shard_rows", "5"], "--shard_rows: found --out=e.npy, a file"),
        (["--input", "a.txt", "--input", "b.txt", "--out", "e.npy"], "--out=e.npy: found a file for 2 inputs"),
        (["--input", "-", "--out", "new"], "--input: found standard input, expected files"),
        (["--input", "a.txt", "--out", "new", "--column", "x"], "--column: found x for text"),
        (["--input", "a.txt", "--out", "new", "--keep", "x"], "--keep: found x for text"),
        (["--input", "a.tsv", "--out", "new", "--keep", "embedding"], "--keep: found embedding, expected other names"),
        (["--input", "a.txt", "--out", "mine"], "mine: holds no _manifest.json of a folder of embeddings"),
        (["--input", "a.txt", "--out", "a.txt"], "found the ending '.txt', expected .npy"),
    ],
)
def test_a_slip_is_one_line_and_writes_nothing(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "b.txt", "a.tsv"):
        (tmp_path / name).write_text("sentence\n")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    assert message in refused("encode", "--bert_hub", "demo", *arguments, unchanged=tmp_path)
