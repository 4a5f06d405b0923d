#!/usr/bin/env bash
# Makes .venv (the project, htrflow and the development tools) and .venv-localstack from the lock files.
#
# Does nothing when both are there and their locks are unchanged. A virtual environment whose install was cut short
# is made anew: half-installed packages look whole to pip. PYTHON names an interpreter to use instead of the first
# fitting one.
set -euo pipefail
cd "$(dirname "$0")/.."

refuse() {
    echo "setup: $*" >&2
    exit 1
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3.11 python3.12 python3}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    refuse "Python 3.11 or 3.12 is needed and ${PYTHON:-none of python3.11, python3.12 and python3} is neither:" \
        "install one of them, or name it with PYTHON=/path/to/python3.12."
}

check_machine() {
    [ "$(uname -sm)" = "Linux x86_64" ] || refuse "this project runs on Linux x86_64, not on $(uname -sm)."
    local pair
    for pair in libGL.so.1:libgl1 libglib-2.0.so.0:libglib2.0-0; do
        "$python" -c "import ctypes; ctypes.CDLL('${pair%%:*}')" 2>/dev/null ||
            refuse "OpenCV needs the shared library ${pair%%:*}, which is missing: install Debian's package ${pair##*:}."
    done
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        refuse "$python cannot make virtual environments: install Debian's package python3-venv."
}

# stamp VENV LOCK: what the environment is made of, in one line.
stamp() {
    local inputs=("$2")
    [ "$1" = .venv ] && inputs+=(pyproject.toml)
    echo "$PWD $("$python" -c 'import sys; print(sys.executable, sys.version.split()[0])') $(cat "${inputs[@]}" | sha256sum)"
}

# install VENV LOCK: bring one environment up to its lock.
install() {
    local venv=$1 lock=$2 wanted
    wanted=$(stamp "$venv" "$lock")
    if [ "$(cat "$venv/complete" 2>/dev/null)" = "$wanted" ]; then
        return
    fi
    if [ -e "$venv/installing" ] || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1 ||
        [ "$(cut -d' ' -f1-3 "$venv/complete" 2>/dev/null)" != "$(cut -d' ' -f1-3 <<<"$wanted")" ]; then
        rm -rf "$venv"
        "$python" -m venv "$venv"
    fi
    rm -f "$venv/complete"
    touch "$venv/installing"
    echo "setup: installing $lock into $venv"
    # Bytecode is made where a module is first imported: most of torch never is.
    # Disk indexes that lack a package make pip print a warning for each: only its errors matter here.
    "$venv/bin/python" -m pip install --quiet --quiet --disable-pip-version-check --no-compile --require-hashes -r "$lock"
    if [ "$venv" = .venv ]; then
        "$venv/bin/python" -m pip install --quiet --quiet --disable-pip-version-check \
            --no-deps --no-build-isolation --editable .
    fi
    rm "$venv/installing"
    echo "$wanted" >"$venv/complete"
}

python=$(find_python)
# Two setups at once take turns; the lock goes with the process.
exec 9<Makefile
flock 9
if [ "$(cat .venv/complete .venv-localstack/complete 2>/dev/null)" = \
    "$(stamp .venv container/locks/dev.txt && stamp .venv-localstack container/locks/localstack.txt)" ]; then
    exit 0
fi
check_machine
trap '[ $? = 0 ] || echo "setup: not finished; the lines above say why. Run it again when that is mended." >&2' EXIT
install .venv container/locks/dev.txt
install .venv-localstack container/locks/localstack.txt
