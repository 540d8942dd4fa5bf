"""A copy of the scripts in a repository of its own, so that no test touches the real environment."""

import os
import pathlib
import shutil
import subprocess
import textwrap

import pytest

_SCRIPTS = pathlib.Path(__file__).parents[2] / "run_scripts"
_BASH = shutil.which("bash")

# A Python that can say its version and make environments of itself. pip and everything else only note their arguments;
# `fail_pip` in the repository makes pip print that file and fail.
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
        sleep "${{STAND_IN_PIP_SECONDS:-0}}"
        if [[ -e $root/fail_pip ]]; then cat "$root/fail_pip"; exit 1; fi ;;
      *) printf '%s\\n' "$@" >>"$root/calls"; [[ ! -e $root/fail_run || "$*" != *"$(cat "$root/fail_run")"* ]] ;;
    esac
"""


class Repository:
    """A folder with the scripts, a lock of one package, and a stand-in for Python on the PATH."""

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

    def environment(self, **variables):
        """The environment to run a script in: nothing of the caller's but the PATH, and that behind the stand-in."""
        return {"PATH": f"{self.bin}:{os.environ['PATH']}", **variables}

    def run(self, script, *arguments, path=None, **variables):
        """The finished script, run as a user does, from another folder."""
        environment = self.environment(**variables)
        if path is not None:
            environment["PATH"] = path
        command = [_BASH, str(self.root / "run_scripts" / script), *arguments]
        return subprocess.run(
            command, env=environment, cwd=self.bin, capture_output=True, text=True, check=False, timeout=120
        )

    def calls(self):
        """What the stand-in was asked to do since the last time, one line each."""
        path = self.root / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path)


def assert_one_line_and_status_2(done, *named):
    """The script stopped as for any mistake of a user's: one line on stderr that names things, and status 2."""
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr
    for name in named:
        assert name in done.stderr
