#!/bin/sh
# Makes a virtual environment. Debian and Ubuntu ship Python without the part that puts pip into
# one (python3-venv); where it is missing it is installed, if that can be done without asking.
set -eu
python=$1
venv=$2

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "attnsel needs Python 3.11 or newer; $python is $("$python" -V 2>&1)." \
       "Say another: make PYTHON=python3.12 …" >&2
  exit 1
}

if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
  as_root=""
  if [ "$(id -u)" -ne 0 ]; then
    as_root="sudo -n"
  fi
  echo "installing $package, which Debian and Ubuntu ship apart from Python" >&2
  { $as_root apt-get update -qq && $as_root apt-get install -y -qq "$package"; } >/dev/null 2>&1 || {
    echo "could not; run: sudo apt-get install $package" >&2
    exit 1
  }
fi

rm -rf "$venv"
"$python" -m venv "$venv"
