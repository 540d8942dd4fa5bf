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
_TOOLS = ("mktemp", "rm", "sed", "sha256sum")
_STAND_IN = """\
    #!{bash}
    printf '%s\\n' "$0" "$@" >"{root}/calls"
    for argument in "$@"; do
      case $argument in --model_config_file=/dev/*) echo "$(<"${{argument#*=}}")" >"{root}/config" ;; esac
    done
    exit "${{STAND_IN_STATUS:-0}}"
"""


@pytest.fixture
def model(tmp_path):
    """An exported model's folder, as far as the script looks at it."""
    folder = tmp_path / "some where" / "sts"
    (folder / "2").mkdir(parents=True)
    (folder / "2" / "saved_model.pb").write_text("")
    write_server_files(folder, "sts")
    return folder


@pytest.fixture
def serve(repository):
    """Function (arguments, installed) that runs serve.sh where only the named programs are installed."""
    tools = repository.root / "tools"
    tools.mkdir()
    for name in _TOOLS:
        (tools / name).symlink_to(shutil.which(name))

    def run(*arguments, installed=("tensorflow_model_server",), **variables):
        for name in installed:
            program = tools / name
            program.write_text(textwrap.dedent(_STAND_IN.format(bash=shutil.which("bash"), root=repository.root)))
            program.chmod(0o755)
        return repository.run("serve.sh", *map(str, arguments), path=str(tools), **variables)

    return run


@pytest.fixture
def called(repository, serve):
    """Function (arguments, installed) that gives the name of the stand-in that serve.sh called, and its arguments."""

    def run(*arguments, **options):
        done = serve(*arguments, **options)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        program, *passed = repository.calls()
        return program.rpartition("/")[2], passed

    return run


def test_server_on_the_path_gets_ports_and_files(called, repository, model):
    # The script is run in the folder `bin` of the repository.
    for folder in (model, f"../{model.relative_to(repository.root)}/"):
        program, arguments = called(folder)
        assert program == "tensorflow_model_server"
        assert sorted(arguments) == [
            "--model_config_file=/dev/fd/3",
            f"--monitoring_config_file={model}/monitoring.config",
            "--port=8500",
            "--rest_api_port=8501",
        ]
    _, arguments = called(model, "--grpc_port", "9000", "--rest_port=9001", "--enable_batching")
    assert {
        "--port=9000",
        "--rest_api_port=9001",
        "--enable_batching",
        f"--batching_parameters_file={model}/batching_parameters.txt",
    } < set(arguments)


def test_server_on_the_path_reads_a_configuration_with_the_folders_own_path(serve, repository, model, tmp_path):
    (model / "models.config").write_text((model / "models.config").read_text() + "# mine\n")
    odd = model.rename(model.with_name('a "b" \\n & c'))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    assert serve(odd, TMPDIR=str(temporary)).returncode == 0
    text = (repository.root / "config").read_text()
    assert "# mine" in text
    config = text_format.Parse(text, ModelServerConfig())
    assert [(model.name, model.base_path) for model in config.model_config_list.config] == [("sts", str(odd))]
    # Nothing is left of the copy.
    assert list(temporary.iterdir()) == []


def test_status_of_the_server_is_the_scripts(serve, model):
    assert serve(model, STAND_IN_STATUS="7").returncode == 7


@pytest.mark.parametrize(("installed", "runner"), [(["docker", "podman"], "docker"), (["podman"], "podman")])
def test_without_a_server_the_official_image_is_run_with_the_folder_mounted(called, model, installed, runner):
    # Mounted where its configuration looks, whatever the folder is called by now.
    renamed = model.rename(model.with_name("sts-2026"))
    program, arguments = called(renamed, "--grpc_port=9000", "--enable_batching", installed=installed)
    assert program == runner
    assert arguments == [
        "run",
        "--rm",
        "--init",
        "--publish=9000:8500",
        "--publish=8501:8501",
        f"--mount=type=bind,source={renamed},target=/models/sts,readonly",
        "--entrypoint=tensorflow_model_server",
        "docker.io/tensorflow/serving:2.20.0",
        "--port=8500",
        "--rest_api_port=8501",
        "--model_config_file=/models/sts/models.config",
        "--monitoring_config_file=/models/sts/monitoring.config",
        "--enable_batching",
        "--batching_parameters_file=/models/sts/batching_parameters.txt",
    ]


def test_image_can_be_chosen(called, model):
    image = "mirror/serving:2.20.0-gpu"
    assert image in called(model, installed=["docker"], SERVING_IMAGE=image)[1]


def test_without_server_and_container_one_line_says_how_to_get_one(serve, model):
    done = serve(model, installed=[])
    assert_one_line_and_status_2(done, "neither tensorflow_model_server nor docker nor podman", "https://")


def test_help_needs_nothing(serve):
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
        (["nowhere"], "nowhere: is not a folder"),
        (["MODEL/2"], "holds no version such as"),
    ],
)
def test_mistakes_are_one_line_each(serve, repository, model, arguments, named):
    done = serve(*[argument.replace("MODEL", str(model)) for argument in arguments])
    assert_one_line_and_status_2(done, named)
    assert repository.calls() == []


def test_missing_file_is_named_where_it_is_needed(serve, model):
    (model / "batching_parameters.txt").unlink()
    assert serve(model).returncode == 0
    assert_one_line_and_status_2(serve(model, "--enable_batching"), "batching_parameters.txt: cannot be read")
    for name in ("monitoring.config", "models.config"):
        (model / name).unlink()
        assert_one_line_and_status_2(serve(model), f"{model}/{name}: cannot be read")


def test_a_version_of_other_files_than_the_export_wrote_is_not_served(serve, model, repository):
    # As BusyBox's: it knows no long options.
    program = repository.root / "tools" / "sha256sum"
    program.unlink()
    program.write_text(f'#!{shutil.which("bash")}\n[[ $* != *--* ]] && exec {shutil.which("sha256sum")} "$@"\n')
    program.chmod(0o755)
    for number in ("2", "10"):
        version = model / number
        (version / "assets.extra").mkdir(parents=True)
        names = ("saved_model.pb", "tokenizer.json", "vocab.txt")
        for name in names:
            (version / name).write_text(name)
        sums = subprocess.run(["sha256sum", *names], cwd=version, capture_output=True, check=True)
        (version / "assets.extra" / "SHA256SUMS").write_bytes(sums.stdout)
    assert serve(model).returncode == 0
    # The server takes the highest number.
    (model / "2" / "vocab.txt").unlink()
    assert serve(model).returncode == 0
    (model / "10" / "saved_model.pb").write_text("other")
    (model / "10" / "vocab.txt").unlink()
    repository.calls()
    done = serve(model)
    assert_one_line_and_status_2(done, f"{model}/10: found", "saved_model.pb: FAILED, vocab.txt: FAILED", "expected")
    assert repository.calls() == []
    (model / "10" / "assets.extra" / "SHA256SUMS").unlink()
    assert serve(model).returncode == 0


def test_folder_that_cannot_be_served_is_refused(serve, model):
    odd = model.rename(model.with_name("a,b"))
    assert_one_line_and_status_2(serve(odd, installed=["docker"]), "found a comma or a quotation mark")
    config = odd / "models.config"
    config.write_text(config.read_text().replace('"/models/sts"', '"/srv/sts"'))
    assert_one_line_and_status_2(serve(odd), 'found no base_path: "/models/NAME"')
    (odd / "2").rename(odd / "2-old")
    assert_one_line_and_status_2(serve(odd), f"holds no version such as {odd}/1/saved_model.pb")
