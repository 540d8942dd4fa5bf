"""A record of each format is read."""

import json
import pathlib
import shutil

import numpy as np
import pytest

from bert_flow_tf import BertFlow, load_calibration
from bert_flow_tf.common.json_files import FORMAT_VERSION, read_json
from bert_flow_tf.common.losses import Losses
from bert_flow_tf.encoder.weights import SourceRecord
from bert_flow_tf.model.any_encoder import SavedCalibration
from bert_flow_tf.model.saved_model import SavedModelConfig
from bert_flow_tf.report.collected import read_result
from bert_flow_tf.scale.shards import Manifest

_FOLDER = pathlib.Path(__file__).parent / "formats"
_KINDS = {
    "calibration": SavedCalibration,
    "encoder": SourceRecord,
    "losses": Losses,
    "manifest": Manifest,
    "model": SavedModelConfig,
}


@pytest.mark.parametrize("name", sorted(path.stem for path in _FOLDER.glob("*.json")))
def test_record_of_each_format_is_read(name):
    path = _FOLDER / f"{name}.json"
    kind = _KINDS.get(name.partition("_")[0])
    found = read_json(path, kind, expected="a record") if kind else read_result(path)
    assert found is not None
    assert json.loads(path.read_text(encoding="utf-8"))["format_version"] == found.format_version


def test_a_padded_matrix_is_read_as_it_is(small_encoder_dir, tmp_path):
    # Earlier files hold the matrix of whitening-3 with columns of zeros behind it.
    shutil.copytree(_FOLDER / "padded", tmp_path / "saved")
    shutil.copytree(small_encoder_dir, tmp_path / "saved" / "encoder")
    model = BertFlow.from_pretrained(tmp_path / "saved")
    arrays = np.load(tmp_path / "saved" / "flow.npz")
    assert arrays["matrix"].shape == (8, 8)
    for name, variable in model.flow.variables_by_path.items():
        np.testing.assert_array_equal(variable, arrays[name])
    found = model.encode(["The cat sat", "the cats ."])
    assert found.shape == (2, model.embedding_size) == (2, 8)
    assert found[:, :3].all() and not found[:, 3:].any()
    pooled = model.encode_pooled(["The cat sat", "the cats ."])
    expected = (pooled - arrays["mean"]) @ arrays["matrix"]
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())
    again = BertFlow.from_pretrained(model.save(tmp_path / "again"))
    np.testing.assert_array_equal(again.encode(["The cat sat", "the cats ."]), found)


def test_a_padded_calibration_is_read_as_it_is():
    found = load_calibration(_FOLDER / "padded")
    arrays = np.load(_FOLDER / "padded" / "calibration.npz")
    u = np.eye(6, dtype=np.float32)
    z = found.transform(u)
    assert not z[:, 2:].any() and found.calibration.output_size == 6
    np.testing.assert_array_equal(z, (u - arrays["mean"]) @ arrays["matrix"])


def test_every_kind_has_a_record_of_todays_format():
    names = {*_KINDS, "comparison", "isotropy", "scores"}
    assert all((_FOLDER / f"{name}_{FORMAT_VERSION}.json").is_file() for name in names)
