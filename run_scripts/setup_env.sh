# The other scripts source this file. It makes or reuses .venv at the repository root from requirements.txt, and sets VENV_PYTHON.
# Without Python 3.10 to 3.13 or a package index, the script stops with one line and exit status 2.
#
#   PYTHON   name or path of the Python that .venv is made with (default: the first of python3.11, python3.12, python3.13,
#            python3.10, python3 and python on the PATH that runs and is 3.10 to 3.13)
#
# pip's own variables (PIP_INDEX_URL, PIP_CONFIG_FILE, ...) say where the packages come from.

set -euo pipefail

_script=${BASH_SOURCE[0]}
[[ $_script == */* ]] || _script=./$_script
REPOSITORY_ROOT=$(cd "${_script%/*}/.." && pwd)
VENV=$REPOSITORY_ROOT/.venv
VENV_PYTHON=$VENV/bin/python
_stamp=$VENV/.bert_flow_setup
_log=$VENV/setup.log

say() { printf '%s\n' "$*"; }

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 2
}

# Prints "3.11" for a Python that really runs; a version manager's shim can be on the PATH and still fail.
python_version() {
  "$1" -I -S -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null </dev/null
}

is_supported() { [[ $1 =~ ^3\.1[0-3]$ ]]; }

can_make_environments() { "$1" -I -c 'import ensurepip, venv' >/dev/null 2>&1 </dev/null; }

# Sets BASE_PYTHON and BASE_VERSION.
find_python() {
  local name path version unable="" found=""
  if [[ -n ${PYTHON:-} ]]; then
    version=$(python_version "$PYTHON") || fail "PYTHON=$PYTHON does not run; expected a Python 3.10 to 3.13"
    is_supported "$version" || fail "PYTHON=$PYTHON is Python $version; expected 3.10 to 3.13"
    can_make_environments "$PYTHON" || fail_without_venv "$PYTHON" "$version"
    BASE_PYTHON=$PYTHON BASE_VERSION=$version
    return
  fi
  for name in python3.11 python3.12 python3.13 python3.10 python3 python; do
    while IFS= read -r path; do
      version=$(python_version "$path") || continue
      if ! is_supported "$version"; then
        found="$found${found:+, }$path is $version"
      elif ! can_make_environments "$path"; then
        unable=${unable:-$path $version}
      else
        BASE_PYTHON=$path BASE_VERSION=$version
        return
      fi
    done < <(type -aP "$name" || true)
  done
  [[ -z $unable ]] || fail_without_venv "${unable% *}" "${unable##* }"
  fail "no Python 3.10 to 3.13 on the PATH${found:+ ($found)}; install one, or set PYTHON to its path"
}

fail_without_venv() {
  fail "$1 (Python $2) has no venv and ensurepip modules; on Debian and Ubuntu: apt install python$2-venv"
}

# .venv depends on all of this; the repository's path is included because the installed command contains it.
setup_digest() {
  "$VENV_PYTHON" -I -S -c '
import hashlib, sys
digest = hashlib.sha256(repr((sys.version_info[:3], sys.argv[1])).encode())
for name in ("requirements.txt", "setup.py", "run_scripts/setup_env.sh"):
    with open(sys.argv[1] + "/" + name, "rb") as file:
        digest.update(hashlib.sha256(file.read()).digest())
print(digest.hexdigest())' "$REPOSITORY_ROOT" 2>/dev/null
}

is_set_up() {
  local digest recorded
  [[ -x $VENV_PYTHON && -r $_stamp ]] || return 1
  digest=$(setup_digest) || return 1
  read -r recorded <"$_stamp" || return 1
  # "pip install ." replaces the editable install by a copy, which would run old code after an update.
  [[ $recorded == "$digest" ]] && ! compgen -G "$VENV/lib/python3*/site-packages/bert_flow_tf" >/dev/null
}

make_venv() {
  local version
  if [[ -e $VENV && ! -e $VENV/pyvenv.cfg && -n $(ls -A "$VENV") ]]; then
    fail "$VENV is not a virtual environment; move it away, the scripts make their own there"
  fi
  if [[ -e $VENV/pyvenv.cfg ]] && version=$(python_version "$VENV_PYTHON"); then
    if [[ -n ${PYTHON:-} ]]; then
      find_python
      [[ $version == "$BASE_VERSION" ]] || fail "$VENV was made with Python $version but PYTHON=$PYTHON is $BASE_VERSION; remove $VENV or unset PYTHON"
    fi
    is_supported "$version" || fail "$VENV was made with Python $version; expected 3.10 to 3.13: remove it, the scripts will make it again"
    if "$VENV_PYTHON" -m pip --version >/dev/null 2>&1; then
      say "Reusing $VENV (Python $version)"
      return
    fi
  fi
  find_python
  say "Making $VENV with $BASE_PYTHON (Python $BASE_VERSION)"
  # --clear removes the rest of an interrupted set-up, such as an environment without pip.
  "$BASE_PYTHON" -m venv --clear "$VENV" >/dev/null || fail "$BASE_PYTHON -m venv could not make $VENV"
}

index_url() {
  local url=${PIP_INDEX_URL:-}
  [[ -n $url ]] || url=$("$VENV_PYTHON" -m pip config get global.index-url 2>/dev/null) || url=https://pypi.org/simple
  # Do not show a user name and password in the address.
  [[ $url == *://*@* ]] && url=${url%%://*}://${url#*@}
  printf '%s' "$url"
}

pip_install() {
  local what=$1 last
  shift
  # Old versions of pip build source distributions inside .venv unless this variable is set, and seqeval's build fails there. New versions,
  # which always isolate builds, ignore it.
  if ! PIP_USE_PEP517=1 "$VENV_PYTHON" -m pip install --quiet --progress-bar off --no-input --disable-pip-version-check "$@" >"$_log" 2>&1 </dev/null; then
    # pip says "from versions: none" both for an index that does not answer and for one without the package.
    if grep -qE 'Retrying \(|ConnectionError|ConnectTimeout|Read timed out|ProxyError|SSLError|from versions: none' "$_log"; then
      last=$(sed -n 's/.*satisfies the requirement \([^ ]*\).*/ or has no \1/p' "$_log" | head -n 1)
      fail "could not install $what: the package index $(index_url) cannot be reached$last; set PIP_INDEX_URL to one that can (pip's messages: $_log)"
    fi
    if grep -q "DO NOT MATCH THE HASHES" "$_log"; then
      last=$(sed -n '/DO NOT MATCH THE HASHES/,$ s/^ *\([^ ]*\) from .*/\1/p' "$_log" | head -n 1)
      fail "could not install $what: the file found of $last has another SHA-256 than requirements.txt says; set PIP_INDEX_URL to an index that you trust (pip's messages: $_log)"
    fi
    last=$(grep -iE "^ *error: " "$_log" | tail -n 1 | sed "s/^ *[Ee][Rr][Rr][Oo][Rr]: //") || last="pip failed"
    fail "could not install $what: $last (pip's messages: $_log)"
  fi
}

set_up() {
  local started=$SECONDS digest
  make_venv
  say "Installing requirements.txt into $VENV (some minutes the first time)"
  # Python compiles a module at its first import; compiling all takes longer than the rest of the installation.
  pip_install requirements.txt --no-compile --require-hashes -r "$REPOSITORY_ROOT/requirements.txt"
  # Build with the lock's setuptools, without a second copy from the index. The mode "compat" adds a path instead of an import finder,
  # because in the repository's parent folder Python would import the repository's folder before it asks a finder.
  pip_install "bert-flow-tf itself" --no-deps --no-build-isolation --config-settings editable_mode=compat -e "$REPOSITORY_ROOT"
  # The stamp is renamed into place last, so that an interrupted installation is repeated.
  digest=$(setup_digest) || fail "$VENV_PYTHON does not run after the installation"
  printf '%s\n' "$digest" >"$_stamp.new"
  mv -f "$_stamp.new" "$_stamp"
  say "Set up in $((SECONDS - started)) s"
}

if ! is_set_up; then
  [[ -r $REPOSITORY_ROOT/requirements.txt ]] || fail "$REPOSITORY_ROOT/requirements.txt is missing"
  # If two scripts start at once, the second waits and then finds the work done.
  if command -v flock >/dev/null; then
    exec 9>"$REPOSITORY_ROOT/.venv.lock"
    if ! flock -n 9; then
      say "Another script is setting up $VENV; waiting for it"
      flock 9
    fi
    is_set_up || set_up
    exec 9>&-
  else
    set_up
  fi
fi

# Container images often set this variable. pip compiled nothing, so every process would compile TensorFlow again, for 5 s.
unset PYTHONDONTWRITEBYTECODE
# Users cannot act on the libraries' deprecation warnings.
export PYTHONWARNINGS=${PYTHONWARNINGS:-ignore::DeprecationWarning,ignore::FutureWarning,ignore:pkg_resources is deprecated:UserWarning}
