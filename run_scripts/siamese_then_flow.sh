#!/usr/bin/env bash
# Sets up .venv, then runs the whole method and prints a table: siamese NLI fine-tuning, scores, the flow, scores, an export.
# By default, it uses the demo encoder and the sample data; --help names the environment variables that change this.
set -euo pipefail
_here=${BASH_SOURCE[0]}
[[ $_here == */* ]] || _here=./$_here
if [[ ${1:-} == --help || ${1:-} == -h ]]; then
  # Read the Python module's help text from its file, which needs no environment.
  sed -e '1s/^"""//' -e '/^"""$/Q' "${_here%/*}/../bert_flow_tf/original/recipe.py"
  exit 0
fi
source "${_here%/*}/setup_env.sh"
exec "$VENV_PYTHON" -m bert_flow_tf.original.recipe "$@"
