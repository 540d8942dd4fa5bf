#!/usr/bin/env bash
# Sets up .venv, then shows the paper's effect: masked language modelling narrows the space of embeddings, the flow undoes it.
# By default, it uses the demo encoder, WordNet's text and the sample data; --help names the variables that change this.
set -euo pipefail
_here=${BASH_SOURCE[0]}
[[ $_here == */* ]] || _here=./$_here
if [[ ${1:-} == --help || ${1:-} == -h ]]; then
  # Read the Python module's help text from its file, which needs no environment.
  sed -e '1s/^"""//' -e '/^"""$/Q' "${_here%/*}/../benchmarks/paper_effect.py"
  exit 0
fi
source "${_here%/*}/setup_env.sh"
exec "$VENV_PYTHON" -m benchmarks.paper_effect "$@"
