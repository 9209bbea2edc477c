# Functions that ./run and ./test need before Python runs. They source this file in the repository's
# root. Plain POSIX sh; an installed plog does not need it.

export PYTHONPATH="$PWD:$PWD/daemon${PYTHONPATH:+:$PYTHONPATH}"

# apt_install PACKAGE...: install as root or with sudo; if neither works, print the packages and fail.
apt_install() {
    if [ "$(id -u)" = 0 ]; then
        as_root=
    elif command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
        as_root=sudo
    else
        echo "plog: cannot install $*: neither root nor sudo; install them as root" >&2
        return 1
    fi
    command -v apt-get >/dev/null || { echo "plog: cannot install $*: there is no apt-get; install them with your package manager" >&2; return 1; }
    echo "plog: installing $* (apt)" >&2
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
    echo "plog: needs Python 3.11 or newer" >&2
    return 1
}

# make_venv run|dev|dev,bench|dev,fuzz: create .venv with plog's requirements; `dev` adds those of the
# tests, `bench` those of the plots. A copy of setup.cfg marks a finished installation; .venv is kept
# until setup.cfg changes.
make_venv() {
    if .venv/bin/python -c '' 2>/dev/null && cmp -s setup.cfg ".venv/installed-$1.cfg"; then
        return 0
    fi
    if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
        find_python
        "$python" -c 'import ensurepip' 2>/dev/null || apt_install python3-venv
        rm -rf .venv
        "$python" -m venv .venv
    fi
    echo "plog: installing requirements into .venv, only this time" >&2
    case $1 in run) extra= ;; *) extra="[$1]" ;; esac
    # A strict editable install: the only kind in which Twisted finds the plugin in twisted/plugins.
    .venv/bin/python -m pip install -q --config-settings editable_mode=strict -e ".$extra"
    cp setup.cfg .venv/installed-run.cfg
    [ "$1" = run ] || cp setup.cfg ".venv/installed-$1.cfg"
}

# compile_codec: compile the record codec if its source has changed (setup.py). If that fails,
# setup.py prints the reason in one line, and plog interprets the source.
compile_codec() {
    .venv/bin/python -c 'import sys, plog.records as r; sys.exit(not r.codec_is_compiled())' ||
        .venv/bin/python -W ignore setup.py -q build_ext --inplace
}
