"""The check of a commit installs further packages and tests several Pythons."""

import pathlib
import shutil

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
