"""What the check of a commit installs beside the lock, and what it does where it cannot."""

import pathlib
import shutil
import subprocess

from tests.run_scripts.conftest import assert_one_line_and_status_2

_CI = pathlib.Path(__file__).parents[2] / ".ci"


def test_what_cannot_be_installed_is_named_and_the_tests_run_without_it(repository):
    shutil.copytree(_CI, repository.root / ".ci")
    for name in ("apt-get", "npm"):
        (repository.bin / name).write_text("#!/bin/sh\nexit 100\n")
        (repository.bin / name).chmod(0o755)
    assert repository.run("test.sh").returncode == 0
    (repository.root / "fail_pip").write_text("ERROR: no such package\n")
    repository.calls()
    done = repository.run("../.ci/run", "tests/glow")
    assert done.returncode == 0, done.stderr
    told = next(line for line in done.stdout.splitlines() if line.startswith("Not installed, so"))
    assert " build twine mkdocs tf2onnx onnxruntime mteb axe-core (see " in told
    calls = repository.calls()
    # PyTorch comes alone, for CPUs; what comes with dependencies must not change what the lock says.
    assert " -c /" in next(line for line in calls if "requirements.txt" in line)
    assert next(line for line in calls if "torch" in line).endswith("torch==2.13.0+cpu")
    assert "pytest" in calls and calls[-1] == "tests/glow"


def test_nothing_is_skipped_where_all_is_there(repository):
    shutil.copytree(_CI, repository.root / ".ci")
    assert repository.run("test.sh").returncode == 0
    for name in ("chromium", "curl"):
        (repository.bin / name).symlink_to(shutil.which("true"))
    axe = repository.root / ".venv" / "share" / "axe-core" / "node_modules" / "axe-core" / "axe.min.js"
    axe.parent.mkdir(parents=True)
    axe.touch()
    # Whatever is asked of this Python, no module is missing; pytest fails unless the variable is there.
    python = repository.root / ".venv" / "bin" / "python"
    stand_in = repository.root / "stand_in"
    python.rename(stand_in)
    python.write_text(
        f"#!{shutil.which('bash')}\n"
        "case $* in\n"
        "  *find_spec*) exit 1 ;;\n"
        "  '-m pytest'*) [[ $BERT_FLOW_REQUIRE_ALL == 1 ]] || exit 1 ;;\n"
        "esac\n"
        f'exec {stand_in} "$@"\n'
    )
    python.chmod(0o755)
    done = repository.run("../.ci/run")
    assert (done.returncode, "skipped" in done.stdout) == (0, False), done.stderr


def test_the_oldest_and_the_newest_python_run_the_fast_tests_of_what_is_committed(repository):
    shutil.copytree(_CI, repository.root / ".ci")
    (repository.root / ".ci" / "not_committed").touch()
    git = ["git", "-C", str(repository.root), "-c", "user.name=a", "-c", "user.email=a@b"]
    for arguments in (["init", "-q"], ["add", "run_scripts", "requirements.txt", "setup.py"], ["commit", "-qm", "all"]):
        subprocess.run([*git, *arguments], check=True)
    stand_in = repository.python.read_text()
    for version in ("3.10", "3.13"):
        # It names itself, and is of its version.
        path = repository.bin / f"python{version}"
        path.write_text(
            stand_in.replace(
                "\n", f'\n[[ $* != *sys.executable* ]] || {{ echo "$0"; exit 0; }}\nSTAND_IN_VERSION={version}\n', 1
            )
        )
        path.chmod(0o755)
    done = repository.run("../.ci/pythons")
    assert done.returncode == 0, done.stderr
    made = [line for line in done.stdout.splitlines() if line.startswith("Making ")]
    assert [line.rpartition(" with ")[2] for line in made] == [
        f"{repository.bin}/python{version} (Python {version})" for version in ("3.10", "3.13")
    ]
    assert repository.calls().count("tests/golden") == 2
    assert_one_line_and_status_2(repository.run("../.ci/pythons", "3.9"), "python3.9: no such program")
