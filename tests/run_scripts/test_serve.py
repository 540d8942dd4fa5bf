"""The model server, docker or podman gets serve.sh's arguments; stand-ins note them."""

import shutil

import pytest

_STAND_IN = """#!{bash}
printf '%s\\n' "$0" "$@" >"{root}/calls"
exit "${{STAND_IN_STATUS:-0}}"
"""
_SERVER = ["--port=8500", "--rest_api_port=8501", "--model_name=sts"]


@pytest.fixture
def model(tmp_path):
    """An exported model's folder, as far as the script looks at it."""
    folder = tmp_path / "some where" / "sts"
    (folder / "2").mkdir(parents=True)
    (folder / "2" / "saved_model.pb").touch()
    return folder


@pytest.fixture
def tools(repository):
    """Function (programs) that returns options to run where only these are installed."""

    def install(*names):
        folder = repository.root / "tools"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name in names:
            (folder / name).write_text(_STAND_IN.format(bash=shutil.which("bash"), root=repository.root))
            (folder / name).chmod(0o755)
        return {"path": str(folder)}

    return install


@pytest.mark.parametrize(("installed", "runner"), [(["docker", "podman"], "docker"), (["podman"], "podman")])
def test_without_a_server_an_image_runs_with_the_folder(repository, tools, model, installed, runner):
    for variables, image in (({}, "docker.io/tensorflow/serving:2.20.0"), ({"SERVING_IMAGE": "a/b:1"}, "a/b:1")):
        _, (program, *passed) = repository.succeeds("serve.sh", str(model), **tools(*installed), **variables)
        assert program.endswith(f"/{runner}")
        mount = f"--mount=type=bind,source={model},target=/models/model,readonly"
        options = ["--rm", "--init", "--publish=8500:8500", "--publish=8501:8501", mount]
        entry = ["--entrypoint=tensorflow_model_server", image, "--model_base_path=/models/model"]
        assert passed == ["run", *options, *entry, *_SERVER]


def test_mistakes_are_one_line_each(repository, tools, model):
    server = tools("tensorflow_model_server")
    for arguments in ([], ["--port"], [f"{model}/2"], ["nowhere"]):
        repository.refused(*arguments, script="serve.sh", arguments=arguments, **server)
    assert repository.calls() == []
    repository.refused("docker and podman are missing", script="serve.sh", arguments=[str(model)], **tools())
