#!/usr/bin/env bash
# Makes the lock file requirements.txt from requirements.in and constraints.in; existing pins stay if they fit.
# This needs uv (pip install uv) and passes arguments to it: bash run_scripts/lock.sh --upgrade
set -euo pipefail
_here=${BASH_SOURCE[0]}
[[ $_here == */* ]] || _here=./$_here
cd "${_here%/*}/.."
command -v uv >/dev/null || {
  printf 'error: uv: no such program, expected it on PATH (pip install uv)\n' >&2
  exit 2
}
new=$(mktemp requirements.XXXXXXXX)
trap 'rm -f "$new"' EXIT
cp requirements.txt "$new"
options=(--universal --python-version 3.10 -c constraints.in --no-annotate --no-header --generate-hashes --quiet)
uv pip compile requirements.in "${options[@]}" -o "$new" "$@" >/dev/null
{
  printf '# Complete lock for Python 3.10 to 3.13, every package pinned with the SHA-256 of its files. Made from requirements.in\n'
  printf '# and constraints.in by run_scripts/lock.sh.\n'
  cat "$new"
} >requirements.txt
