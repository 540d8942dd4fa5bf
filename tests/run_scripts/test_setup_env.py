"""The scripts set themselves up; test.sh stands for all."""

import hashlib
import subprocess
import sys
import zipfile


def _installs(calls):
    return [line for line in calls if line.startswith("-m pip install")]


def test_lock_then_package_are_installed_again_if_changed(repository):
    printed, calls = repository.succeeds("test.sh")
    assert calls[0] == f"-m venv --clear {repository.root}/.venv"
    lock, package = _installs(calls)
    assert lock.endswith(f"-r {repository.root}/requirements.txt")
    options = "--no-deps --no-build-isolation --config-settings editable_mode=compat"
    assert package.endswith(f"{options} -e {repository.root}")
    assert "Making" in printed and "Installing requirements.txt" in printed
    # A finished set-up needs no Python on the path.
    printed, calls = repository.succeeds("test.sh", path="/nonexistent")
    assert _installs(calls) == [] and "Installing" not in printed
    (repository.root / "requirements.txt").write_text("a-package==2.0\n")
    printed, calls = repository.succeeds("test.sh")
    assert len(_installs(calls)) == 2 and "Reusing" in printed
    assert not any("venv --clear" in line for line in calls)
    # "pip install ." puts a copy where the scripts installed a link.
    copy = repository.root / ".venv" / "lib" / "python3.11" / "site-packages" / "bert_flow_tf"
    copy.mkdir(parents=True)
    _, calls = repository.succeeds("test.sh")
    assert len(_installs(calls)) == 2
    copy.rmdir()
    # An environment without pip is made again.
    (repository.root / ".venv" / ".bert_flow_setup").unlink()
    _, calls = repository.succeeds("test.sh", STAND_IN_NO_PIP="1")
    assert calls[0].startswith("-m venv --clear")


def test_an_interrupted_installation_is_done_again(repository):
    (repository.root / "fail_pip").write_text("ERROR: interrupted\n")
    repository.refused("interrupted", "setup.log")
    (repository.root / "fail_pip").unlink()
    assert len(_installs(repository.succeeds("test.sh")[1])) == 2


def test_two_scripts_at_once_install_once(repository):
    hold = repository.root / "hold_pip"
    hold.touch()
    command = repository.command("test.sh")
    both = [subprocess.Popen(**command, stdout=subprocess.PIPE, bufsize=1) for _ in range(2)]
    first_lines = [process.stdout.readline() for process in both]
    assert sum("waiting for it" in line for line in first_lines) == 1
    hold.unlink()
    assert [(process.communicate(), process.returncode)[1] for process in both] == [0, 0]
    assert len(_installs(repository.calls())) == 2  # The lock and the package, by one of the two.


def test_a_folder_that_is_no_environment_is_left_alone(repository):
    precious = repository.root / ".venv" / "precious"
    precious.parent.mkdir()
    precious.touch()
    repository.refused("is not a virtual environment")
    assert precious.exists()


def test_pips_errors_are_one_line_without_passwords(repository):
    # The real Python and the real pip: what pip says then is what the script has to understand.
    pip = {"PYTHON": sys.executable, "PIP_CONFIG_FILE": "/dev/null"}
    index = {"PIP_INDEX_URL": "http://user:secret@127.0.0.1:1/simple", "PIP_RETRIES": "0"}
    repository.refused(
        "index http://127.0.0.1:1/simple cannot be reached", "a-package==1.0", **pip, **index
    )
    assert not (repository.root / ".venv" / ".bert_flow_setup").exists()
    wheel = repository.root / "a_package-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("a_package.py", "")
        for name, text in {
            "METADATA": "Metadata-Version: 2.1\nName: a-package\nVersion: 1.0\n",
            "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            "RECORD": "",
        }.items():
            archive.writestr(f"a_package-1.0.dist-info/{name}", text)
    local = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(repository.root)}
    for digest, message in (
        (
            "0" * 64,
            "the file found of a-package==1.0 has another SHA-256 than requirements.txt says",
        ),
        ("", "Hashes are required in --require-hashes mode"),
        # What comes next is the package itself, which this repository lacks.
        (hashlib.sha256(wheel.read_bytes()).hexdigest(), "could not install bert-flow-tf itself"),
    ):
        (repository.root / "requirements.txt").write_text(
            "a-package==1.0" + (digest and f" --hash=sha256:{digest}")
        )
        repository.refused(message, **pip, **local)
        installed = list((repository.root / ".venv" / "lib").rglob("a_package.py"))
        assert bool(installed) == ("itself" in message)
