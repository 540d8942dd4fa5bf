"""A flow learns every row of a folder once an epoch."""

import copy
import json
import shutil

import numpy as np
import pytest

from bert_flow_tf import BertFlow
from bert_flow_tf.calibration.settings import FitSettings
from bert_flow_tf.scale.settings import ShardSettings
from bert_flow_tf.scale.shards import MANIFEST, Parts
from tests.bert_flow_tf import small_runs
from tests.refusals import refused, succeeds, user_error

pytestmark = pytest.mark.usefixtures("small_default_flow")

SENTENCES = [f"w{i % 50} w{i % 7} w{i % 13}" for i in range(300)]


@pytest.fixture(scope="module")
def model(tiny_encoder_dir):
    return BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8)


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    """Embeddings of the sentences in six parts of 50 rows."""
    path = tmp_path_factory.mktemp("parts")
    (path / "x.txt").write_text("".join(f"{sentence}\n" for sentence in SENTENCES))
    model.encode_dataset(path / "x.txt", path / "embeddings", ShardSettings(shard_rows=50))
    return path / "embeddings"


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
    # The last block is not small.
    assert [len(block) for block in parts.blocks(generator, 130)] == [150, 150]
    assert [len(block) for block in parts.blocks(generator, 200)] == [300]


def test_the_flow_learns_what_it_learns_in_memory(model, folder, tmp_path):
    settings = {
        "flow_model_config": small_runs.small_flow_file(tmp_path),
        "learning_rate": 1e-2,
        "batch_size": 16,
    }
    settings |= {"epochs": 4.5, "seed": 1}
    with pytest.warns(UserWarning, match="fewer than 100"):
        streamed, again = (
            copy.copy(model).fit_dataset(folder, FitSettings(**settings)) for _ in range(2)
        )
        in_memory = copy.copy(model).fit(SENTENCES, **settings, dev_fraction=0)
    assert streamed.fingerprint == again.fingerprint
    found, expected = (
        float(model.bits_per_dim(SENTENCES).mean()) for model in (streamed, in_memory)
    )
    assert abs(found - expected) < 0.05 * (in_memory.history_.losses[0] - expected), (
        found,
        expected,
    )
    training = streamed.record.flow.training
    # There are 1,350 rows in blocks of 300 and one of 150; a step takes 16 or a few more.
    assert (training.settings["sentences"], training.settings["steps"]) == (300, 4 * 18 + 9)


def test_a_folder_that_cannot_be_learned_from_is_named(tiny_encoder_dir, model, folder, tmp_path):
    with user_error(f"{folder}: found embeddings of another model"):
        BertFlow.from_hub(tiny_encoder_dir, max_seq_length=5).fit_dataset(folder)
    unit, none, altered, partial = (
        tmp_path / name for name in ("unit", "none", "altered", "partial")
    )
    for out, text, options in ((unit, "w1\nw2\n", {"normalize_embeddings": True}), (none, "", {})):
        (tmp_path / "x.txt").write_text(text)
        model.encode_dataset(tmp_path / "x.txt", out, ShardSettings(**options))
    part = shutil.copytree(folder, altered) / "part-00000-00003.parquet"
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    manifest = shutil.copytree(folder, partial) / MANIFEST
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"is_complete": False}))
    for path, options, *parts in (
        (unit, {}, f"{unit}: found normalized embeddings"),
        (none, {}, f"{none}: found no embeddings"),
        (partial, {}, f"{partial}: parts are missing"),
        (altered, {}, f"{part}: cannot be read as embeddings"),
        (folder, {"epochs": 0.01}, "fit: found 3 rows in 0.01 epochs", "64"),
        (folder, {"method": "sn"}, "method: found sn with a folder"),
    ):
        with user_error(*parts):
            model.fit_dataset(path, FitSettings(**options))
    assert model.flow is None


def test_the_command_learns_from_a_folder(tiny_encoder_dir, folder, tmp_path):
    config = small_runs.small_flow_file(tmp_path)
    command = (
        "fit",
        "--bert_hub",
        tiny_encoder_dir,
        "--max_seq_length",
        8,
        "--flow_model_config",
        config,
    )
    learning = (
        "--train_batch_size",
        16,
        "--num_train_epochs",
        1,
        "--embeddings",
        folder,
        "--out",
        tmp_path / "model",
    )
    with pytest.warns(UserWarning, match="fewer than 100"):
        said = succeeds(*command, *learning)
    assert said == f"model written: {tmp_path / 'model'} (300 sentences, 18 steps)\n"
    large = ("--train_batch_size", 301, "--embeddings", folder, "--out", tmp_path / "new")
    assert "--embeddings: found 300 rows" in refused(*command, *large, unchanged=tmp_path)
