"""The configuration that a model server is given, read as the server reads it."""

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, wrappers_pb2
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from bert_flow_tf.errors import UserError
from bert_flow_tf.serving.server_files import write_server_files

NAMES = {"models.config", "batching_parameters.txt", "monitoring.config"}

# Messages of the server that no package has, as far as they are used here. Names and kinds of the fields are those of
# https://github.com/tensorflow/serving: session_bundle_config.proto and monitoring_config.proto.
_MESSAGES = {
    "BatchingParameters": {
        "max_batch_size": "Int64Value",
        "batch_timeout_micros": "Int64Value",
        "max_enqueued_batches": "Int64Value",
        "num_batch_threads": "Int64Value",
        "max_execution_batch_size": "Int64Value",
        "enable_large_batch_splitting": "BoolValue",
        "pad_variable_length_inputs": bool,
    },
    "PrometheusConfig": {"enable": bool, "path": str},
    "MonitoringConfig": {"prometheus_config": "PrometheusConfig"},
}


@pytest.fixture(scope="module")
def server_messages():
    """Function from a message's name to its class."""
    field_proto = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="server.proto", package="server", syntax="proto3")
    file.dependency.append(wrappers_pb2.DESCRIPTOR.name)
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field_name, kind) in enumerate(fields.items(), start=1):
            field = message.field.add(name=field_name, number=number, label=field_proto.LABEL_OPTIONAL)
            if kind in (bool, str):
                field.type = {bool: field_proto.TYPE_BOOL, str: field_proto.TYPE_STRING}[kind]
            else:
                field.type = field_proto.TYPE_MESSAGE
                field.type_name = f".server.{kind}" if kind in _MESSAGES else f".google.protobuf.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"server.{name}"))


@pytest.fixture
def folder(tmp_path):
    """A model's folder with the files."""
    assert write_server_files(tmp_path / "sts", "sts") == []
    return tmp_path / "sts"


def contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_three_files_are_written_that_anybody_may_read(folder):
    assert set(contents(folder)) == NAMES
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o644}


def test_newest_version_of_the_named_model_is_served_from_where_the_official_image_has_it(folder):
    parsed = text_format.Parse((folder / "models.config").read_text(), ModelServerConfig())
    (model,) = parsed.model_config_list.config
    assert (model.name, model.base_path, model.model_platform) == ("sts", "/models/sts", "tensorflow")
    assert model.model_version_policy.WhichOneof("policy_choice") == "latest"
    assert model.model_version_policy.latest.num_versions == 1


def test_batches_are_run_in_parts_and_may_be_empty(folder, server_messages):
    text = (folder / "batching_parameters.txt").read_text()
    parameters = text_format.Parse(text, server_messages("BatchingParameters")())
    # What the server's CreateBatchScheduler and SharedBatchScheduler ask for.
    assert 0 < parameters.max_execution_batch_size.value <= parameters.max_batch_size.value
    assert parameters.enable_large_batch_splitting.value
    assert parameters.max_enqueued_batches.value * parameters.max_execution_batch_size.value >= (
        parameters.max_batch_size.value
    )
    assert parameters.batch_timeout_micros.value > 0
    # The server pads with a tensor's first value, which in a mask is a 1.
    assert not parameters.pad_variable_length_inputs
    assert not [line for line in text.splitlines() if line.startswith(("allowed_batch_sizes", "num_batch_threads"))]


def test_prometheus_is_served_at_its_usual_path(folder, server_messages):
    text = (folder / "monitoring.config").read_text()
    parsed = text_format.Parse(text, server_messages("MonitoringConfig")()).prometheus_config
    assert (parsed.enable, parsed.path) == (True, "/monitoring/prometheus/metrics")


def test_files_that_are_there_already_stay(folder):
    before = {path.name: path.stat().st_ino for path in folder.iterdir()}
    assert write_server_files(folder, "sts") == []
    assert {path.name: path.stat().st_ino for path in folder.iterdir()} == before


@pytest.fixture
def edited(folder):
    """The folder after an operator changed one file and removed another."""
    (folder / "models.config").write_text("# mine\n")
    (folder / "monitoring.config").unlink()
    return folder


def test_edited_file_is_refused_and_nothing_is_written(edited):
    before = contents(edited)
    with pytest.raises(UserError, match=r"models\.config: exists and is not what would be written"):
        write_server_files(edited, "sts")
    assert contents(edited) == before


def test_edited_file_is_overwritten_where_that_is_wanted(edited):
    assert write_server_files(edited, "sts", overwrite=True) == []
    assert set(contents(edited)) == NAMES
    assert 'name: "sts"' in contents(edited)["models.config"]


def test_edited_file_is_kept_where_that_is_wanted_and_the_others_are_written(edited):
    assert write_server_files(edited, "sts", keep_changed=True) == [edited / "models.config"]
    assert set(contents(edited)) == NAMES
    assert contents(edited)["models.config"] == "# mine\n"


@pytest.mark.parametrize("name", ["", "a/b", "my model", 'a"b', "..", "modèle", "a\n"])
def test_name_that_is_no_part_of_a_url_is_refused(tmp_path, name):
    with pytest.raises(UserError, match="model name: found"):
        write_server_files(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


def test_folder_where_a_file_should_be_is_named(tmp_path):
    (tmp_path / "models.config").mkdir()
    with pytest.raises(UserError, match=r"models\.config: cannot be read"):
        write_server_files(tmp_path, "sts")
    assert [path.name for path in tmp_path.iterdir()] == ["models.config"]
