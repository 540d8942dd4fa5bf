#!/usr/bin/env bash
# Sets up .venv, checks style, plain English, layers and types, and runs the tests. Arguments go to pytest:
#   bash run_scripts/test.sh
#   bash run_scripts/test.sh tests/glow -k inverse
set -euo pipefail
_here=${BASH_SOURCE[0]}
[[ $_here == */* ]] || _here=./$_here
source "${_here%/*}/setup_env.sh"
cd "$REPOSITORY_ROOT"

# This first import compiles TensorFlow and Ray, which each test process would do otherwise. Ray, which may be missing, comes last.
"$VENV_PYTHON" -c 'import bert_flow_tf.api, sklearn.linear_model, ray.train.tensorflow' >/dev/null 2>&1 &

style=0
say "ruff check"
"$VENV_PYTHON" -m ruff check --quiet . || style=1
# This rule, still in preview, finds the description of an argument that is gone.
"$VENV_PYTHON" -m ruff check --quiet --preview --select DOC102 . || style=1
say "ruff format --check"
"$VENV_PYTHON" -m ruff format --check --quiet . || style=1
if ((style)); then
  printf 'error: style, see above; ".venv/bin/ruff check --fix ." and ".venv/bin/ruff format ." fix most of it\n' >&2
fi

checks=$style
say "plain English"
"$VENV_PYTHON" -m tools.english || checks=1
say "lint-imports"
"$VENV_PYTHON" -c 'from importlinter.cli import lint_imports_command as main; main()' --no-logo || checks=1
say "mypy"
"$VENV_PYTHON" -m mypy || checks=1

# Run the tests even if a check failed, because both results are useful.
say "pytest${*:+ $*}"
tests=0
# TensorFlow traces on one core, so several processes save time: one more than two cores have, because some tests wait.
# A file's tests share fixtures, so they stay together; tests/conftest.py orders the files.
"$VENV_PYTHON" -m pytest -rs -n 3 --dist loadfile --no-loadscope-reorder "$@" || tests=$?
exit $((tests ? tests : checks))
