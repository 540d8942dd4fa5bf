"""Checkpoints are found by folder or prefix."""

import pytest
import tensorflow as tf

from bert_flow_tf.common import checkpoints
from bert_flow_tf.common.checkpoints import Checkpoint, checkpoint_prefix
from tests.refusals import user_error


@pytest.fixture
def prefix(tmp_path):
    """Prefix of a checkpoint of one variable, which holds 1000 ones."""
    path = tmp_path / "model.ckpt-5"
    tf.raw_ops.SaveV2(
        prefix=str(path), tensor_names=["a"], shape_and_slices=[""], tensors=[tf.ones(1000)]
    )
    return path


def test_variables_are_found_by_name(prefix):
    checkpoint = Checkpoint(prefix)
    assert checkpoint.shapes == {"a": [1000]}
    assert checkpoint.read(["a"])["a"].sum() == 1000


def test_a_damaged_checkpoint_is_named(prefix):
    data, index = (
        prefix.with_name(f"model.ckpt-5.{end}") for end in ("data-00000-of-00001", "index")
    )
    data.write_bytes(data.read_bytes()[:100])
    with user_error(f"{prefix}: cannot be read as a checkpoint"):
        Checkpoint(prefix)["a"]
    # The second is shorter than its end says.
    for content in (b"no index", index.read_bytes()[-48:]):
        index.write_bytes(content)
        with user_error(f"{prefix}: cannot be read as a checkpoint"):
            Checkpoint(prefix)


def test_last_whole_checkpoint_is_found_and_named(prefix):
    folder = prefix.parent
    for step in (3, 7):
        for path in folder.glob("model.ckpt-5.*"):
            (folder / path.name.replace("-5", f"-{step}")).write_bytes(
                path.read_bytes()[: 100 if step == 7 else None]
            )
    # A file that someone else made is no step.
    (folder / "model.ckpt-best.index").touch()
    last = checkpoints.last_readable_checkpoint
    assert last(folder, "model.ckpt", 1, remove=False) is None
    assert (
        last(folder, "model.ckpt", 1, remove=True)
        == str(prefix)
        == checkpoints.named_checkpoint(folder)
    )
    assert not list(folder.glob("model.ckpt-3.*"))


def test_a_link_at_an_indexs_name_is_replaced(tmp_path):
    (tmp_path / "a-6.index").symlink_to("outside")
    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(), str(tmp_path), 1, checkpoint_name="a"
    )
    checkpoints.save_checkpoint(manager, 6)
    assert (tmp_path / "a-6.index").is_file() and not (tmp_path / "outside").exists()


def test_a_folder_stands_for_its_checkpoint(tmp_path):
    model, listed = tmp_path / "model.ckpt-5", tmp_path / "checkpoint"
    (tmp_path / "model.ckpt-5.index").touch()
    assert checkpoint_prefix(tmp_path) == checkpoint_prefix(model) == model
    (tmp_path / "model.ckpt-6.index").touch()
    with user_error("found model.ckpt-5, model.ckpt-6"):
        checkpoint_prefix(tmp_path)
    listed.write_text('model_checkpoint_path: "model.ckpt-6"\n')
    assert checkpoint_prefix(tmp_path) == tmp_path / "model.ckpt-6"
    for content in (
        b'model_checkpoint_path: "\xff"\n',
        b'all_model_checkpoint_paths: "model.ckpt-6"\n',
    ):
        listed.write_bytes(content)
        with user_error(f"{listed}: "):
            checkpoint_prefix(tmp_path)
    (tmp_path / "bert_model.ckpt.index").touch()
    assert checkpoint_prefix(tmp_path) == tmp_path / "bert_model.ckpt"
