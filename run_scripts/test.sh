#!/usr/bin/env bash
# Sets itself up, then checks style, layers and types, and runs the tests. Arguments go to pytest, with paths from the repository root:
#   bash run_scripts/test.sh
#   bash run_scripts/test.sh tests/glow -k inverse
set -euo pipefail
_here=${BASH_SOURCE[0]}
[[ $_here == */* ]] || _here=./$_here
source "${_here%/*}/setup_env.sh"
cd "$REPOSITORY_ROOT"

style=0
say "ruff check"
"$VENV_PYTHON" -m ruff check --quiet . || style=1
say "ruff format --check"
"$VENV_PYTHON" -m ruff format --check --quiet . || style=1
if ((style)); then
  printf 'error: style, see above; ".venv/bin/ruff check --fix ." and ".venv/bin/ruff format ." fix most of it\n' >&2
fi

checks=$style
say "lint-imports"
"$VENV_PYTHON" -c 'from importlinter.cli import lint_imports_command as main; main()' --no-logo || checks=1
say "mypy"
"$VENV_PYTHON" -m mypy || checks=1

# The tests run even if a check failed: their result is wanted either way, and their closing line is the last.
say "pytest${*:+ $*}"
tests=0
# Two processes: much of a test's time is TensorFlow tracing on one core. A file's tests stay together, for its fixtures;
# tests/conftest.py says which files come first.
"$VENV_PYTHON" -m pytest -rs -n 2 --dist loadfile --no-loadscope-reorder "$@" || tests=$?
exit $((tests ? tests : checks))
