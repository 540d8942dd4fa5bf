"""The check of a commit installs further packages and tests several Pythons."""

import pathlib
import shutil
import subprocess

_CI = pathlib.Path(__file__).parents[2] / ".ci"


def test_tests_run_without_packages_that_cannot_be_installed(repository):
    shutil.copytree(_CI, repository.root / ".ci")
    repository.succeeds("test.sh")
    (repository.root / "fail_pip").write_text("ERROR: no such package\n")
    printed, calls = repository.succeeds("../.ci/run", "tests/glow")
    assert ".ci/requirements.txt is not installed (see " in printed
    # A further package must not change a version of the lock.
    assert " -c /" in next(line for line in calls if "requirements.txt" in line)
    assert "pytest" in calls and calls[-1] == "tests/glow"


def test_oldest_and_newest_python_test_what_is_committed(repository):
    shutil.copytree(_CI, repository.root / ".ci")
    (repository.root / ".ci" / "not_committed").touch()
    git = ["git", "-C", str(repository.root), "-c", "user.name=a", "-c", "user.email=a@b"]
    for arguments in (["init", "-q"], ["add", "run_scripts", "requirements.txt", "setup.py"], ["commit", "-qm", "all"]):
        subprocess.run([*git, *arguments], check=True)
    paths = {version: repository.bin / f"python{version}" for version in ("3.10", "3.13")}
    for version, path in paths.items():
        own = f'\n[[ $* != *sys.executable* ]] || {{ echo "$0"; exit 0; }}\nSTAND_IN_VERSION={version}\n'
        path.write_text(repository.python.read_text().replace("\n", own, 1))
        path.chmod(0o755)
    printed, calls = repository.succeeds("../.ci/pythons")
    made = [line.rpartition(" with ")[2] for line in printed.splitlines() if line.startswith("Making ")]
    assert made == [f"{path} (Python {version})" for version, path in paths.items()]
    assert calls.count("tests/golden") == 2
    repository.refused("python3.9: no such program", script="../.ci/pythons", arguments=["3.9"])
