#!/bin/sh
# Makes .venv with this project in it, editable. Called by `make setup` when pyproject.toml has changed.
# Environment: PYTHON (an interpreter to use), VENV (default .venv), CONSTRAINTS (a file for pip), PYTHON_MAX (the newest
# version of Python that will do, as 3.11).
set -eu
venv=${VENV:-.venv}
say() { printf '== %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

suits() {
  "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= tuple(map(int, sys.argv[1].split("."))))' \
    "${PYTHON_MAX:-3.99}" >/dev/null 2>&1
}
has_ensurepip() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

find_python() {
  without=
  for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python; do
    if command -v "$candidate" >/dev/null 2>&1 && suits "$candidate"; then
      if has_ensurepip "$candidate"; then echo "$candidate"; return; fi
      without=${without:-$candidate}
    fi
  done
  wanted=" or later"
  [ -z "${PYTHON_MAX:-}" ] || wanted=" to $PYTHON_MAX"
  [ -n "$without" ] || fail "no Python 3.11$wanted on the PATH. Install one, or name it: make setup PYTHON=/path/to/python3"
  echo "$without"
}

# Debian and Ubuntu split ensurepip off into a package of its own; then any pip, virtualenv or uv on the machine will do.
make_venv() {
  python=$1
  if has_ensurepip "$python"; then "$python" -m venv "$venv"; return; fi
  if command -v uv >/dev/null 2>&1; then uv venv --seed --python "$python" "$venv"; return; fi
  if "$python" -c 'import virtualenv' >/dev/null 2>&1; then "$python" -m virtualenv -q "$venv"; return; fi
  if "$python" -c 'import venv, pip' >/dev/null 2>&1; then
    "$python" -m venv --without-pip "$venv"
    "$python" -m pip --python "$venv/bin/python" install -q pip
    return
  fi
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  fail "$python cannot make virtual environments: it has neither ensurepip nor pip, and there is no uv or virtualenv.
  Debian, Ubuntu:  apt-get install python$version-venv
  without root:    install uv, or name another interpreter: make setup PYTHON=/path/to/python3"
}

# pip is silent for minutes, or writes hundreds of lines: a line every ten seconds says what it is at.
install() {
  log=$(mktemp)
  say "installing penstock and what it needs into $venv: about three minutes, of which the most is for 600 MB"
  say "that are fetched once (PySpark above all); less than a minute if pip has them from before"
  began=$(date +%s)
  "$venv/bin/python" -m pip install --progress-bar off --disable-pip-version-check ${CONSTRAINTS:+-c "$CONSTRAINTS"} \
    -e '.[java,kafka,avro,s3,hdfs,rocksdb,demo,dev]' >"$log" 2>&1 &
  pip=$!
  trap 'kill "$pip" 2>/dev/null; rm -f "$log"; exit 130' INT TERM
  looked=0
  while kill -0 "$pip" 2>/dev/null; do
    sleep 1
    looked=$((looked + 1))
    [ $((looked % 10)) -ne 0 ] || say "$(($(date +%s) - began)) s: $(pip_is_at)"
  done
  wait "$pip" || { tail -40 "$log" >&2; rm -f "$log"; fail "pip could not install what penstock needs"; }
  trap - INT TERM
  rm -f "$log"
  say "installed after $(($(date +%s) - began)) s"
}
pip_is_at() {
  at=$(grep -E '^ *(Collecting|Downloading|Building|Installing|Preparing)' "$log" | tail -n 1 |
    sed -e 's/^ *//' -e 's/^\(Installing collected packages\).*/\1/' -e 's/-py[23].*whl//' | cut -c 1-72)
  echo "${at:-looking for packages}"
}

tell_java() {
  "$venv/bin/python" - <<'EOF'
from penstock.spark.cluster.java import find_java
home, refused = find_java()
print("== Java:", f"of {home}" if home else "the machine's own", *(f"(not {r})" for r in refused))
EOF
}

if [ -x "$venv/bin/python" ] && ! suits "$venv/bin/python"; then
  say "$venv is of another Python: making it again"
  rm -rf "$venv"
fi
if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
  python=$(find_python)
  say "making a virtual environment in $venv with $("$python" --version)"
  rm -rf "$venv"
  make_venv "$python"
fi
install
tell_java
touch "$venv/.installed"
