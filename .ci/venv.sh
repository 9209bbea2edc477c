# Sourced by ./run and ./test in the root of the repository: install what they need before they run Python.
# Plain POSIX sh. An installed plog does not need this file.

export PYTHONPATH="$PWD:$PWD/daemon${PYTHONPATH:+:$PYTHONPATH}"

# apt_install PACKAGE...: install packages as root or with sudo. If neither is possible, print the names of
# the packages and fail.
apt_install() {
    if [ "$(id -u)" = 0 ]; then
        as_root=
    elif command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
        as_root=sudo
    else
        echo "plog: cannot install $*: this needs root or sudo; install the packages yourself" >&2
        return 1
    fi
    command -v apt-get >/dev/null || {
        echo "plog: cannot install $*: apt-get is missing; install the programs yourself" >&2
        return 1
    }
    echo "plog: installing $* with apt" >&2
    $as_root apt-get -qq update &&
        $as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get -qq install -y --no-install-recommends "$@" >/dev/null
}

# find_python: set $python to a Python that is new enough.
find_python() {
    for python in python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            return 0
        fi
    done
    echo "plog: cannot find Python 3.11 or newer; install it" >&2
    return 1
}

# make_venv run|dev|dev,bench|dev,fuzz|dev,spark [FOLDER]: create a virtual environment with the requirements
# of plog, in .venv by default. `dev` adds those of the tests, `bench` those of the plots, `fuzz` those of the
# fuzzers, `spark` Spark. A copy of setup.cfg marks a finished installation; the environment is kept as long
# as setup.cfg stays the same.
make_venv() {
    venv=${2:-.venv}
    if "$venv/bin/python" -c '' 2>/dev/null && cmp -s setup.cfg "$venv/installed-$1.cfg"; then
        return 0
    fi
    if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        find_python
        "$python" -c 'import ensurepip' 2>/dev/null || apt_install python3-venv
        rm -rf "$venv"
        "$python" -m venv "$venv"
    fi
    echo "plog: installing the requirements into $venv (only once)" >&2
    case $1 in run) extra= ;; *) extra="[$1]" ;; esac
    # A strict editable install: the only kind in which Twisted finds the plugin in twisted/plugins.
    # `return`, because the shell ignores set -e in a function whose failure the caller handles.
    "$venv/bin/python" -m pip install -q --config-settings editable_mode=strict -e ".$extra" || return 1
    cp setup.cfg "$venv/installed-run.cfg"
    [ "$1" = run ] || cp setup.cfg "$venv/installed-$1.cfg"
}

# compile_codec: compile the hot path again if its source has changed (setup.py). If it cannot be compiled,
# setup.py prints the reason in one line, and plog runs the source. With PLOG_INTERPRETED, plog runs the
# source, and the compiled modules are kept for the next run.
compile_codec() {
    [ -z "${PLOG_INTERPRETED:-}" ] || return 0
    .venv/bin/python -c 'import sys
from plog.compiled import is_compiled
from plog.records import codec, produced_batch
from plog.wire import single_produce
sys.exit(not all(map(is_compiled, (codec, produced_batch, single_produce))))' ||
        .venv/bin/python -W ignore setup.py -q build_ext --inplace
}
