"""A record of each format is read."""

import json
import pathlib

import pytest

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


def test_every_kind_has_a_record_of_todays_format():
    names = {*_KINDS, "comparison", "isotropy", "scores"}
    assert all((_FOLDER / f"{name}_{FORMAT_VERSION}.json").is_file() for name in names)
