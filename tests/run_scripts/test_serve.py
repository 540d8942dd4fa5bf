"""The model server that serve.sh starts, seen by stand-ins for it, docker and podman that note how they were called."""

import shutil
import textwrap

import pytest

from tests.run_scripts.conftest import assert_one_line_and_status_2

_STAND_IN = """\
    #!{bash}
    printf '%s\\n' "$0" "$@" >"{root}/calls"
    exit "${{STAND_IN_STATUS:-0}}"
"""


@pytest.fixture
def model(tmp_path):
    """An exported model's folder, as far as the script looks at it."""
    folder = tmp_path / "some where" / "sts"
    (folder / "2").mkdir(parents=True)
    (folder / "2" / "saved_model.pb").write_text("")
    return folder


@pytest.fixture
def serve(repository):
    """Function (arguments, installed) that runs serve.sh where only the named programs are installed."""
    tools = repository.root / "tools"
    tools.mkdir()

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


def test_server_on_the_path_gets_folder_ports_and_arguments(called, repository, model):
    # The script is run in the folder `bin` of the repository.
    for folder in (model, f"../{model.relative_to(repository.root)}/"):
        program, arguments = called(folder, "--enable_batching")
        assert program == "tensorflow_model_server"
        assert arguments == [
            f"--model_base_path={model}",
            "--port=8500",
            "--rest_api_port=8501",
            "--model_name=sts",
            "--enable_batching",
        ]


def test_status_of_the_server_is_the_scripts(serve, model):
    assert serve(model, STAND_IN_STATUS="7").returncode == 7


@pytest.mark.parametrize(("installed", "runner"), [(["docker", "podman"], "docker"), (["podman"], "podman")])
def test_without_a_server_the_official_image_runs_with_the_folder_mounted(called, model, installed, runner):
    program, arguments = called(model, installed=installed)
    assert program == runner
    assert arguments == [
        "run",
        "--rm",
        "--init",
        "--publish=8500:8500",
        "--publish=8501:8501",
        f"--mount=type=bind,source={model},target=/models/model,readonly",
        "--entrypoint=tensorflow_model_server",
        "docker.io/tensorflow/serving:2.20.0",
        "--model_base_path=/models/model",
        "--port=8500",
        "--rest_api_port=8501",
        "--model_name=sts",
    ]


def test_image_can_be_chosen(called, model):
    image = "mirror/serving:2.20.0-gpu"
    assert image in called(model, installed=["docker"], SERVING_IMAGE=image)[1]


def test_mistakes_are_one_line_each(serve, repository, model):
    for arguments, named in (
        ([], "''"),
        (["--port"], "'--port'"),
        ([model / "2"], f"{model}/2"),
        (["nowhere"], "nowhere"),
    ):
        assert_one_line_and_status_2(serve(*arguments), named)
    assert repository.calls() == []
    (repository.root / "tools" / "tensorflow_model_server").unlink()
    assert_one_line_and_status_2(serve(model, installed=[]), "tensorflow_model_server", "docker", "podman", "https://")
