"""Checkpoints are found by folder or prefix, and a broken one is one line."""

import pytest
import tensorflow as tf

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.checkpoints import (
    Checkpoint,
    checkpoint_files,
    checkpoint_prefix,
    named_checkpoint,
    whole_checkpoint,
)


@pytest.fixture
def prefix(tmp_path):
    """Prefix of a checkpoint of one variable, which holds 1000 ones."""
    path = tmp_path / "model.ckpt-5"
    tf.raw_ops.SaveV2(prefix=str(path), tensor_names=["a"], shape_and_slices=[""], tensors=[tf.ones(1000)])
    return path


def test_variables_are_read_by_name_and_its_files_are_data_and_index(prefix):
    checkpoint = Checkpoint(prefix)
    assert "a" in checkpoint and "b" not in checkpoint
    assert checkpoint.shapes == {"a": [1000]} and checkpoint.dtypes == {"a": tf.float32}
    assert checkpoint.read(["a"])["a"].sum() == 1000
    (prefix.parent / "model.ckpt-5.meta").touch()
    assert list(checkpoint_files(prefix)) == ["model.ckpt-5.data-00000-of-00001", "model.ckpt-5.index"]


def test_an_index_that_is_none_and_data_that_is_cut_are_named(prefix):
    data = prefix.with_name("model.ckpt-5.data-00000-of-00001")
    data.write_bytes(data.read_bytes()[:100])
    with pytest.raises(UserError, match=r"model\.ckpt-5: cannot be read as a checkpoint"):
        Checkpoint(prefix)["a"]
    index = prefix.with_name("model.ckpt-5.index")
    # The second is shorter than its end says.
    for text in ("no index", index.read_bytes()[-48:].decode("latin-1")):
        index.write_text(text, encoding="latin-1")
        with pytest.raises(UserError, match=r"model\.ckpt-5: cannot be read as a checkpoint: "):
            Checkpoint(prefix)


def test_last_whole_checkpoint_is_found_and_named(prefix):
    folder = prefix.parent
    for step in (3, 7):
        for path in checkpoint_files(prefix).values():
            (folder / path.name.replace("-5", f"-{step}")).write_bytes(path.read_bytes()[: 100 if step == 7 else None])
    assert whole_checkpoint(folder, "model.ckpt", 1, remove=False) is None
    assert whole_checkpoint(folder, "model.ckpt", 1, remove=True) == str(prefix) == named_checkpoint(folder)
    assert checkpoint_files(folder / "model.ckpt-3") == {}


def test_a_folder_stands_for_its_checkpoint(tmp_path):
    with pytest.raises(UserError, match="found no checkpoint, expected one"):
        checkpoint_prefix(tmp_path)
    (tmp_path / "model.ckpt-5.index").touch()
    assert checkpoint_prefix(tmp_path) == checkpoint_prefix(tmp_path / "model.ckpt-5") == tmp_path / "model.ckpt-5"
    (tmp_path / "model.ckpt-6.index").touch()
    with pytest.raises(UserError, match=r"found model\.ckpt-5, model\.ckpt-6, expected one"):
        checkpoint_prefix(tmp_path)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-6"\n')
    assert checkpoint_prefix(tmp_path) == tmp_path / "model.ckpt-6"
    (tmp_path / "checkpoint").write_bytes(b'model_checkpoint_path: "\xff"\n')
    with pytest.raises(UserError, match="checkpoint: cannot be read as TensorFlow's list"):
        checkpoint_prefix(tmp_path)
    (tmp_path / "checkpoint").write_text('all_model_checkpoint_paths: "model.ckpt-6"\n')
    with pytest.raises(UserError, match="expected TensorFlow's list of checkpoints"):
        checkpoint_prefix(tmp_path)
    (tmp_path / "bert_model.ckpt.index").touch()
    assert checkpoint_prefix(tmp_path) == tmp_path / "bert_model.ckpt"
    with pytest.raises(UserError, match=r"neither a folder nor a checkpoint's prefix: there is no other\.index"):
        checkpoint_prefix(tmp_path / "other")
