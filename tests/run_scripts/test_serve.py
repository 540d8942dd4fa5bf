"""The model server that serve.sh starts, seen by stand-ins for it, docker and podman that note how they were called."""

import shutil
import subprocess
import textwrap

import pytest
from google.protobuf import text_format
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from bert_flow_tf.serving.server_files import write_server_files
from tests.run_scripts.conftest import assert_one_line_and_status_2

# What the script itself needs of the machine; nothing else is on its PATH, so that no server or container is there.
_TOOLS = ("mktemp", "rm", "sed")
_STAND_IN = """\
    #!{bash}
    printf '%s\\n' "$0" "$@" >"{root}/calls"
    for argument in "$@"; do
      case $argument in --model_config_file=/dev/*) echo "$(<"${{argument#*=}}")" >"{root}/config" ;; esac
    done
    exit "${{STAND_IN_STATUS:-0}}"
"""
_BASH = shutil.which("bash")


@pytest.fixture
def tools(tmp_path):
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in _TOOLS:
        (folder / name).symlink_to(shutil.which(name))
    return folder


@pytest.fixture
def model(tmp_path):
    """An exported model's folder, as far as the script looks at it."""
    folder = tmp_path / "some where" / "sts"
    (folder / "2").mkdir(parents=True)
    (folder / "2" / "saved_model.pb").write_text("")
    write_server_files(folder, "sts")
    return folder


@pytest.fixture
def serve(repository, tools, model):
    """Function (arguments, installed) that runs serve.sh where only the named programs are installed."""

    def run(*arguments, installed=("tensorflow_model_server",), **variables):
        for name in installed:
            program = tools / name
            program.write_text(textwrap.dedent(_STAND_IN.format(bash=_BASH, root=repository.root)))
            program.chmod(0o755)
        return repository.run("serve.sh", *map(str, arguments), path=str(tools), **variables)

    return run


def called(repository):
    """(name of the stand-in that was called, its arguments)."""
    program, *arguments = repository.calls()
    return program.rpartition("/")[2], arguments


def test_script_is_bash(repository):
    script = repository.root / "run_scripts" / "serve.sh"
    assert subprocess.run([_BASH, "-n", str(script)], check=False).returncode == 0


def test_server_on_the_path_gets_ports_and_files(serve, repository, model):
    done = serve(model)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    program, arguments = called(repository)
    assert program == "tensorflow_model_server"
    assert sorted(arguments) == [
        "--model_config_file=/dev/fd/3",
        f"--monitoring_config_file={model}/monitoring.config",
        "--port=8500",
        "--rest_api_port=8501",
    ]


def test_server_on_the_path_reads_a_configuration_with_the_folders_own_path(serve, repository, model):
    (model / "models.config").write_text((model / "models.config").read_text() + "# mine\n")
    serve(model)
    expected = (model / "models.config").read_text().replace('"/models/sts"', f'"{model}"')
    assert (repository.root / "config").read_text() == expected
    assert str(model) in expected and "# mine" in expected


def test_path_is_escaped_in_the_configuration(serve, repository, model):
    odd = model.rename(model.with_name('a "b" \\n & c'))
    assert serve(odd).returncode == 0
    config = text_format.Parse((repository.root / "config").read_text(), ModelServerConfig())
    assert [(model.name, model.base_path) for model in config.model_config_list.config] == [("sts", str(odd))]


def test_nothing_is_left_of_the_copied_configuration(serve, model, tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    assert serve(model, TMPDIR=str(temporary)).returncode == 0
    assert list(temporary.iterdir()) == []


def test_relative_folder_is_made_absolute(serve, repository, model):
    # The script is run in the folder `bin` of the repository.
    relative = f"../{model.relative_to(repository.root)}/"
    assert serve(relative).returncode == 0
    assert f"--monitoring_config_file={model}/monitoring.config" in called(repository)[1]


@pytest.mark.parametrize(
    "flags", [["--grpc_port", "9000", "--rest_port", "9001"], ["--rest_port=9001", "--grpc_port=9000"]]
)
def test_ports_are_passed_on(serve, repository, model, flags):
    assert serve(*flags, model).returncode == 0
    assert {"--port=9000", "--rest_api_port=9001"} <= set(called(repository)[1])


def test_batching_is_for_those_who_ask(serve, repository, model):
    serve(model, "--enable_batching")
    assert {"--enable_batching", f"--batching_parameters_file={model}/batching_parameters.txt"} <= set(
        called(repository)[1]
    )
    serve(model)
    assert not [argument for argument in called(repository)[1] if argument.startswith(("--enable", "--batching"))]


def test_status_of_the_server_is_the_scripts(serve, model):
    assert serve(model, STAND_IN_STATUS="7").returncode == 7


@pytest.mark.parametrize(("installed", "runner"), [(["docker", "podman"], "docker"), (["podman"], "podman")])
def test_without_a_server_the_official_image_is_run_with_the_folder_mounted(
    serve, repository, model, installed, runner
):
    done = serve(model, "--grpc_port=9000", "--enable_batching", installed=installed)
    assert (done.returncode, done.stderr) == (0, "")
    program, arguments = called(repository)
    assert program == runner
    assert arguments == [
        "run",
        "--rm",
        "--init",
        "--publish=9000:8500",
        "--publish=8501:8501",
        f"--mount=type=bind,source={model},target=/models/sts,readonly",
        "--entrypoint=tensorflow_model_server",
        "docker.io/tensorflow/serving:2.19.1",
        "--port=8500",
        "--rest_api_port=8501",
        "--model_config_file=/models/sts/models.config",
        "--monitoring_config_file=/models/sts/monitoring.config",
        "--enable_batching",
        "--batching_parameters_file=/models/sts/batching_parameters.txt",
    ]


def test_renamed_folder_is_mounted_where_its_configuration_looks(serve, repository, model):
    renamed = model.rename(model.with_name("sts-2026"))
    assert serve(renamed, installed=["docker"]).returncode == 0
    assert f"--mount=type=bind,source={renamed},target=/models/sts,readonly" in called(repository)[1]


def test_image_can_be_chosen(serve, repository, model):
    serve(model, installed=["docker"], SERVING_IMAGE="mirror/serving:2.19.1-gpu")
    assert "mirror/serving:2.19.1-gpu" in called(repository)[1]


def test_without_server_and_container_one_line_says_how_to_get_one(serve, model):
    done = serve(model, installed=[])
    assert_one_line_and_status_2(done, "neither tensorflow_model_server nor docker nor podman", "https://")


def test_help_needs_nothing(serve, model):
    done = serve("--help", installed=[])
    assert done.returncode == 0
    assert done.stdout.startswith("Serves the versions of an exported model") and "--grpc_port" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "no folder given"),
        (["MODEL", "other"], "found other after"),
        (["MODEL", "--port", "8500"], "unknown flag --port"),
        (["MODEL", "--grpc_port"], "--grpc_port: found nothing, expected a port"),
        (["MODEL", "--grpc_port", "0"], "--grpc_port: found 0, expected a port"),
        (["MODEL", "--rest_port=65536"], "--rest_port: found 65536, expected a port"),
        (["MODEL", "--rest_port=http"], "--rest_port: found http, expected a port"),
        (["MODEL", "--rest_port=8500"], "expected another port than --grpc_port"),
        (["nowhere"], "nowhere: is no folder"),
        (["MODEL/2"], "holds no version such as"),
        (["MODEL/.."], "holds no version such as"),
    ],
)
def test_mistakes_are_one_line_each(serve, repository, model, arguments, named):
    done = serve(*[argument.replace("MODEL", str(model)) for argument in arguments])
    assert_one_line_and_status_2(done, named)
    assert repository.calls() == []


@pytest.mark.parametrize("name", ["models.config", "monitoring.config"])
def test_missing_file_is_named(serve, model, name):
    (model / name).unlink()
    assert_one_line_and_status_2(serve(model), f"{model}/{name}: cannot be read")


def test_batching_file_is_needed_only_for_batching(serve, model):
    (model / "batching_parameters.txt").unlink()
    assert serve(model).returncode == 0
    assert_one_line_and_status_2(serve(model, "--enable_batching"), "batching_parameters.txt: cannot be read")


def test_configuration_of_another_path_is_refused(serve, model):
    text = (model / "models.config").read_text()
    (model / "models.config").write_text(text.replace('"/models/sts"', '"/srv/sts"'))
    assert_one_line_and_status_2(serve(model), 'found no base_path: "/models/NAME"')


def test_folder_of_another_name_than_a_number_is_no_version(serve, model):
    (model / "2").rename(model / "2-old")
    assert_one_line_and_status_2(serve(model), f"holds no version such as {model}/1/saved_model.pb")


def test_folder_that_cannot_be_mounted_is_refused(serve, model):
    odd = model.rename(model.with_name("a,b"))
    assert_one_line_and_status_2(serve(odd, installed=["docker"]), "found a comma or a quotation mark")
