"""What the check of a commit installs beside the lock, and what it does where it cannot."""

import pathlib
import shutil
import subprocess

from tests.run_scripts.conftest import assert_one_line_and_status_2

_CI = pathlib.Path(__file__).parents[2] / ".ci"


def test_what_cannot_be_installed_is_named_and_the_tests_run_without_it(repository):
    shutil.copytree(_CI, repository.root / ".ci")
    assert repository.run("test.sh").returncode == 0
    (repository.root / "fail_pip").write_text("ERROR: no such package\n")
    repository.calls()
    done = repository.run("../.ci/run", "tests/glow")
    assert done.returncode == 0, done.stderr
    assert ".ci/requirements.txt is not installed (see " in done.stdout
    calls = repository.calls()
    # What comes with dependencies must not change what the lock says.
    assert " -c /" in next(line for line in calls if "requirements.txt" in line)
    assert "pytest" in calls and calls[-1] == "tests/glow"


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
