"""The configuration that a model server is given, read as the server reads it."""

import re

import pytest
from google.protobuf import empty_pb2, text_format
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from bert_flow_tf.serving.server_files import check_destination, write_server_files
from tests.refusals import user_error


@pytest.fixture
def folder(tmp_path):
    """A model's folder with the files."""
    assert write_server_files(tmp_path / "sts", "sts") == []
    return tmp_path / "sts"


def settings_of(path):
    """dict of a configuration's settings, each a line `name: value` or `name { value: value }`."""
    text = path.read_text()
    # No package has the server's own messages; this checks the syntax.
    text_format.Parse(text, empty_pb2.Empty(), allow_unknown_field=True)
    return dict(re.findall(r"^ *(\w+)(?: { value)?: (\S+)(?: })?$", text, re.MULTILINE))


def test_newest_version_of_the_named_model_is_served_from_where_the_official_image_has_it(folder):
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o644}
    parsed = text_format.Parse((folder / "models.config").read_text(), ModelServerConfig())
    (model,) = parsed.model_config_list.config
    assert (model.name, model.base_path, model.model_platform) == ("sts", "/models/sts", "tensorflow")
    assert model.model_version_policy.latest.num_versions == 1


def test_batches_are_run_in_parts_and_may_be_empty(folder):
    # Names and kinds of the fields: session_bundle_config.proto of https://github.com/tensorflow/serving.
    found = settings_of(folder / "batching_parameters.txt")
    assert found.pop("enable_large_batch_splitting") == "true"
    # The server pads with a tensor's first value, which in a mask is a 1.
    assert found.pop("pad_variable_length_inputs") == "false"
    assert found.keys() == {
        *("max_batch_size", "max_execution_batch_size", "batch_timeout_micros", "max_enqueued_batches")
    }
    # What the server's CreateBatchScheduler and SharedBatchScheduler ask for.
    sizes = {name: int(value) for name, value in found.items()}
    most, part = sizes["max_batch_size"], sizes["max_execution_batch_size"]
    assert 0 < part <= most <= part * sizes["max_enqueued_batches"]
    assert sizes["batch_timeout_micros"] > 0


def test_prometheus_is_served_at_its_usual_path(folder):
    expected = {"enable": "true", "path": '"/monitoring/prometheus/metrics"'}
    assert settings_of(folder / "monitoring.config") == expected


def test_edited_file_stays_and_the_others_are_written(folder):
    (folder / "models.config").write_text("# mine\n")
    (folder / "monitoring.config").unlink()
    assert write_server_files(folder, "sts") == [folder / "models.config"]
    assert {path.name for path in folder.iterdir()} == {
        *("models.config", "batching_parameters.txt", "monitoring.config")
    }
    assert (folder / "models.config").read_text() == "# mine\n"


def test_next_version_is_one_above_the_highest(tmp_path):
    assert check_destination(tmp_path / "new", None, overwrite=False) == tmp_path / "new" / "1"
    for name in ("4", "10", "²", "latest"):
        (tmp_path / name).mkdir()
    assert check_destination(tmp_path, None, overwrite=False) == tmp_path / "11"


@pytest.mark.parametrize("name", ["", "a/b", 'a"b', "..", "modèle", "a\n"])
def test_name_that_is_no_part_of_a_url_is_refused(tmp_path, name):
    with user_error("model name: found"):
        write_server_files(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


def test_folder_where_a_file_should_be_is_named(tmp_path):
    (tmp_path / "models.config").mkdir()
    with user_error("models.config: cannot be read"):
        write_server_files(tmp_path, "sts")
    assert [path.name for path in tmp_path.iterdir()] == ["models.config"]
