"""How the scripts set themselves up: seen through test.sh, whose set-up is everyone's."""

import hashlib
import shutil
import subprocess
import sys
import zipfile

from tests.run_scripts.conftest import assert_one_line_and_status_2


def _installs(calls):
    return [line for line in calls if line.startswith("-m pip install")]


def test_first_run_makes_an_environment_installs_the_lock_then_the_package(repository):
    done = repository.run("test.sh")
    assert done.returncode == 0, done.stderr
    calls = repository.calls()
    assert calls[0] == f"-m venv --clear {repository.root}/.venv"
    lock, package = _installs(calls)
    assert lock.endswith(f"-r {repository.root}/requirements.txt")
    assert package.endswith(
        f"--no-deps --no-build-isolation --config-settings editable_mode=compat -e {repository.root}"
    )
    assert "Making" in done.stdout and "Installing requirements.txt" in done.stdout
    # Set up, it installs nothing and needs no Python on the path.
    done = repository.run("test.sh", path="/nonexistent")
    assert done.returncode == 0, done.stderr
    assert _installs(repository.calls()) == []
    assert "Installing" not in done.stdout


def test_a_changed_lock_is_installed_into_the_same_environment(repository):
    repository.run("test.sh")
    repository.calls()
    (repository.root / "requirements.txt").write_text("a-package==2.0\n")
    done = repository.run("test.sh")
    calls = repository.calls()
    assert len(_installs(calls)) == 2
    assert not any("venv --clear" in line for line in calls)
    assert "Reusing" in done.stdout


def test_an_interrupted_installation_is_done_again(repository):
    (repository.root / "fail_pip").write_text("ERROR: interrupted\n")
    assert_one_line_and_status_2(repository.run("test.sh"), "interrupted", "setup.log")
    (repository.root / "fail_pip").unlink()
    repository.calls()
    assert repository.run("test.sh").returncode == 0
    assert len(_installs(repository.calls())) == 2


def test_an_environment_without_pip_is_made_again(repository):
    repository.run("test.sh")
    (repository.root / ".venv" / ".bert_flow_setup").unlink()
    repository.calls()
    repository.run("test.sh", STAND_IN_NO_PIP="1")
    assert repository.calls()[0].startswith("-m venv --clear")


def test_python_keeps_what_it_compiled_where_the_environment_forbids_it(repository):
    repository.run("test.sh")
    python = repository.root / ".venv" / "bin" / "python"
    python.write_text(
        python.read_text().replace(
            "root=", "[[ $* != '-m pytest'* || -z $PYTHONDONTWRITEBYTECODE ]] || exit 1\nroot=", 1
        )
    )
    assert repository.run("test.sh", PYTHONDONTWRITEBYTECODE="1").returncode == 0


def test_two_scripts_at_once_install_once(repository):
    command = ["bash", str(repository.root / "run_scripts" / "test.sh")]
    environment = repository.environment(STAND_IN_PIP_SECONDS="1")
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert len(_installs(repository.calls())) == 2  # The lock and the package, by one of the two.
    assert sum("waiting for it" in output for output in outputs) == 1


def test_an_unsupported_python_is_passed_over_and_named(repository):
    done = repository.run("test.sh", path=str(repository.bin), STAND_IN_VERSION="3.14")
    assert_one_line_and_status_2(done, "no Python 3.10 to 3.13", f"{repository.python} is 3.14")


def test_a_python_that_does_not_run_is_passed_over(repository):
    broken = repository.bin / "broken"
    broken.mkdir()
    (broken / "python3.11").write_text("#!/bin/sh\nexit 127\n")
    (broken / "python3.11").chmod(0o755)
    done = repository.run("test.sh", path=f"{broken}:{repository.environment()['PATH']}")
    assert done.returncode == 0, done.stderr
    assert f"with {repository.python} " in done.stdout


def test_a_python_without_venv_is_one_line_with_the_package_to_install(repository):
    done = repository.run("test.sh", path=str(repository.bin), STAND_IN_NO_VENV="1")
    assert_one_line_and_status_2(done, "ensurepip", "apt install python3.11-venv")


def test_the_python_variable_wins_and_is_checked(repository):
    other = repository.root / "mine"
    other.write_text(repository.python.read_text())
    other.chmod(0o755)
    assert f"with {other} " in repository.run("test.sh", PYTHON=str(other)).stdout
    shutil.rmtree(repository.root / ".venv")
    assert_one_line_and_status_2(repository.run("test.sh", PYTHON="/no/python"), "PYTHON=/no/python does not run")
    done = repository.run("test.sh", PYTHON=str(other), STAND_IN_VERSION="3.9")
    assert_one_line_and_status_2(done, f"PYTHON={other} is Python 3.9")


def test_a_folder_that_is_no_environment_is_left_alone(repository):
    precious = repository.root / ".venv" / "precious"
    precious.parent.mkdir()
    precious.write_text("")
    assert_one_line_and_status_2(repository.run("test.sh"), "is not a virtual environment")
    assert precious.exists()


def test_an_index_that_does_not_answer_is_one_line_without_passwords(repository):
    # The real Python and the real pip: what pip says then is what the script has to understand.
    done = repository.run(
        "test.sh",
        PYTHON=sys.executable,
        PIP_CONFIG_FILE="/dev/null",
        PIP_INDEX_URL="http://user:secret@127.0.0.1:1/simple",
        PIP_RETRIES="0",
    )
    assert_one_line_and_status_2(
        done, "the package index http://127.0.0.1:1/simple cannot be reached", "a-package==1.0"
    )
    assert not (repository.root / ".venv" / ".bert_flow_setup").exists()


def test_a_package_with_another_digest_than_the_locks_is_not_installed(repository):
    # The real pip, as above, and a wheel that another lock would take.
    wheel = repository.root / "a_package-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("a_package.py", "")
        archive.writestr("a_package-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: a-package\nVersion: 1.0\n")
        archive.writestr(
            "a_package-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("a_package-1.0.dist-info/RECORD", "")
    options = {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(repository.root)}
    site_packages = repository.root / ".venv" / "lib"
    for digest, message in (
        ("0" * 64, "the file found of a-package==1.0 has another SHA-256 than requirements.txt says"),
        ("", "Hashes are required in --require-hashes mode"),
        # What comes next is the package itself, which this repository lacks.
        (hashlib.sha256(wheel.read_bytes()).hexdigest(), "could not install bert-flow-tf itself"),
    ):
        (repository.root / "requirements.txt").write_text("a-package==1.0" + (digest and f" --hash=sha256:{digest}"))
        assert_one_line_and_status_2(repository.run("test.sh", PYTHON=sys.executable, **options), message)
        assert bool(list(site_packages.rglob("a_package.py"))) == ("itself" in message)
