"""A copy of the scripts that leaves the real environment alone."""

import os
import pathlib
import shutil
import subprocess
import textwrap

import pytest

from tests.refusals import refusal

_SCRIPTS = pathlib.Path(__file__).parents[2] / "run_scripts"
_BASH = shutil.which("bash")

# A Python that can say its version and make environments of itself. pip and everything else only
# note their arguments; `fail_pip` in the repository makes pip print that file and fail, `fail_run`
# names what else fails.
_STAND_IN = """\
    #!{bash}
    root={root}
    case "$*" in
      *"sys.version_info[:2])"*) echo "${{STAND_IN_VERSION:-3.11}}" ;;
      *"import ensurepip, venv"*) exit "${{STAND_IN_NO_VENV:-0}}" ;;
      *hashlib*) echo "$(<"$root/requirements.txt")$(<"$root/setup.py")" ;;
      "-m venv"*)
        echo "$*" >>"$root/calls"
        venv=${{!#}}
        mkdir -p "$venv/bin"; touch "$venv/pyvenv.cfg"; cp "$0" "$venv/bin/python" ;;
      "-m pip --version" | "-m pip config"*) exit "${{STAND_IN_NO_PIP:-0}}" ;;
      "-m pip install"*)
        echo "$*" >>"$root/calls"
        while [[ -e $root/hold_pip ]]; do sleep 0.1; done
        if [[ -e $root/fail_pip ]]; then cat "$root/fail_pip"; exit 1; fi ;;
      *) printf '%s\\n' "$@" >>"$root/calls"; [[ ! -e $root/fail_run || "$*" != *"$(cat "$root/fail_run")"* ]] ;;
    esac
"""


class Repository:
    """A folder with the scripts, a lock, and a stand-in for Python."""

    def __init__(self, root: pathlib.Path):
        self.root = root
        shutil.copytree(_SCRIPTS, root / "run_scripts")
        (root / "requirements.txt").write_text("a-package==1.0\n")
        (root / "setup.py").write_text("")
        self.bin = root / "bin"
        self.bin.mkdir()
        self.python = self.bin / "python3.11"
        self.python.write_text(textwrap.dedent(_STAND_IN.format(bash=_BASH, root=root)))
        self.python.chmod(0o755)

    def command(self, script, *arguments, path=None, **variables):
        """Return options of `subprocess` that run a script from another folder."""
        environment = {"PATH": path or f"{self.bin}:{os.environ['PATH']}", **variables}
        command = [_BASH, str(self.root / "run_scripts" / script), *arguments]
        return {"args": command, "env": environment, "cwd": self.bin, "text": True}

    def run(self, script, *arguments, **options):
        """Run a script to its end."""
        return subprocess.run(
            **self.command(script, *arguments, **options), capture_output=True, check=False
        )

    def succeeds(self, script, *arguments, **options):
        """Return what a script prints and what it calls; it must succeed."""
        self.calls()
        done = self.run(script, *arguments, **options)
        assert done.returncode == 0, done.stderr
        return done.stdout, self.calls()

    def refused(self, *named, script="test.sh", arguments=(), **options):
        """Check that a script ends with one line that holds these parts."""
        done = self.run(script, *arguments, **options)
        refusal(done.returncode, done.stderr, *named)

    def calls(self):
        """Return the stand-in's calls since the last time, one line each."""
        path = self.root / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path)


@pytest.fixture(scope="module")
def ready(tmp_path_factory):
    """A repository after set-up, with the folders that `train_siamese.sh` needs."""
    repository = Repository(tmp_path_factory.mktemp("ready"))
    for name in (
        "uncased_L-12_H-768_A-12",
        "uncased_L-24_H-1024_A-16",
        "wwm_uncased_L-24_H-1024_A-16",
    ):
        (repository.bin / "pre" / name).mkdir(parents=True)
    (repository.bin / "glue").mkdir()
    repository.run("test.sh")
    return repository
