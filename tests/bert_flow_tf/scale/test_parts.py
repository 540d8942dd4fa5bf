"""A flow learned from a folder of embeddings: every row once an epoch, the same bits again, and only what is right."""

import json
import shutil

import numpy as np
import pytest

from bert_flow_tf import BertFlow
from bert_flow_tf.scale.shards import MANIFEST, Parts
from tests.refusals import files_below, refused, succeeds, user_error

SENTENCES = [f"w{i % 50} w{i % 7} w{i % 13}" for i in range(300)]


@pytest.fixture(scope="module")
def model(tiny_encoder_dir):
    return BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8)


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    """Embeddings of the sentences in six parts of 50 rows."""
    path = tmp_path_factory.mktemp("parts")
    (path / "x.txt").write_text("".join(f"{sentence}\n" for sentence in SENTENCES))
    model.encode_dataset(path / "x.txt", path / "embeddings", shard_rows=50)
    return path / "embeddings"


def _fitted(tiny_encoder_dir, learn, **settings):
    model = BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8)
    with pytest.warns(UserWarning, match="fewer than 100"):
        return getattr(model, learn)(
            **{"flow_model_config": "config_l2_d2_w32", "batch_size": 16, "epochs": 1} | settings
        )


def test_an_epoch_has_every_row_once_in_another_order_each_time(model, folder):
    parts = Parts(folder)
    generator = np.random.default_rng(1)
    epochs = [list(parts.blocks(generator, 100)) for _ in range(2)]
    assert [[len(block) for block in blocks] for blocks in epochs] == [[100, 100, 100]] * 2
    first, second = (np.concatenate(blocks) for blocks in epochs)
    assert first.dtype == np.float32
    assert not np.array_equal(first, second)
    expected = np.sort(model.encode(SENTENCES), axis=0)
    for rows in (first, second):
        np.testing.assert_allclose(np.sort(rows, axis=0), expected, rtol=0, atol=1e-6)
    # No small rest.
    assert [len(block) for block in parts.blocks(generator, 130)] == [150, 150]
    assert [len(block) for block in parts.blocks(generator, 200)] == [300]


def test_the_flow_learns_what_it_learns_in_memory_and_the_same_bits_again(tiny_encoder_dir, folder):
    def learned(**settings):
        return _fitted(tiny_encoder_dir, **{"learning_rate": 1e-2, "epochs": 4.5} | settings)

    streamed, again = (learned(learn="fit_dataset", folder=folder, seed=1) for _ in range(2))
    assert streamed.fingerprint == again.fingerprint
    in_memory = learned(learn="fit", sentences=SENTENCES, seed=1, dev_fraction=0)
    before = _fitted(tiny_encoder_dir, "fit", sentences=SENTENCES, learning_rate=1e-9)
    losses = [float(model.bits_per_dim(SENTENCES).mean()) for model in (streamed, in_memory, before)]
    assert abs(losses[0] - losses[1]) < 0.05 * (losses[2] - losses[1]), losses
    training = streamed.record.flow.training
    # 1,350 rows, of blocks of 300 and one of 150, in steps of 16 or a few more.
    assert (training.settings["sentences"], training.settings["steps"]) == (300, 4 * 18 + 9)


def test_what_is_not_this_encoders_is_refused(tiny_encoder_dir, model, folder, tmp_path):
    other = BertFlow.from_hub(tiny_encoder_dir, max_seq_length=5)
    with user_error(f"{folder}: found embeddings of another model"):
        other.fit_dataset(folder)
    (tmp_path / "x.txt").write_text("w1\nw2\n")
    model.encode_dataset(tmp_path / "x.txt", tmp_path / "unit", normalize_embeddings=True)
    with user_error("unit: found embeddings of norm 1"):
        model.fit_dataset(tmp_path / "unit")
    with user_error("fit: found 3 rows in 0.01 epochs, expected at least the 64"):
        model.fit_dataset(folder, epochs=0.01)
    with user_error("fit: epochs: found inf, expected a number above 0"):
        model.fit_dataset(folder, epochs=float("inf"))
    (tmp_path / "none.txt").write_text("")
    model.encode_dataset(tmp_path / "none.txt", tmp_path / "none")
    with user_error("none: found no embeddings"):
        model.fit_dataset(tmp_path / "none")
    altered = shutil.copytree(folder, tmp_path / "altered")
    part = altered / "part-00000-00003.parquet"
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    with user_error(f"{part}: cannot be read as embeddings (remove it"):
        model.fit_dataset(altered)
    assert model.flow is None


def test_the_command_learns_from_a_folder_and_refuses_what_is_incomplete(tiny_encoder_dir, folder, tmp_path):
    command = ("fit", "--bert_hub", tiny_encoder_dir, "--max_seq_length", 8, "--flow_model_config", "config_l2_d2_w32")
    learning = (*command, "--train_batch_size", 16, "--num_train_epochs", 1)
    with pytest.warns(UserWarning, match="fewer than 100"):
        said = succeeds(*learning, "--embeddings", folder, "--out", tmp_path / "model")
    assert said == f"model written: {tmp_path / 'model'} (300 sentences, 18 steps)\n"
    before = files_below(tmp_path)
    out = ("--out", tmp_path / "new")
    partial = shutil.copytree(folder, tmp_path / "partial")
    manifest = json.loads((partial / MANIFEST).read_text())
    manifest["is_complete"] = False
    (partial / MANIFEST).write_text(json.dumps(manifest))
    line = refused(*learning, "--embeddings", partial, *out)
    assert line.startswith(f"{partial}: parts are missing")
    shutil.rmtree(partial)
    assert f"{tmp_path / MANIFEST}: no such file" in refused(*learning, "--embeddings", tmp_path, *out)
    assert "301" in refused(*command, "--train_batch_size", 301, "--embeddings", folder, *out)
    both = ("--embeddings", folder, "--input", folder.parent / "x.txt")
    for options in (both, (), ("--embeddings", folder, "--column", "x")):
        assert "--input" in refused(*learning, *options, *out)
    assert files_below(tmp_path) == before
