# Sourced by the scripts in this folder: cached Debian trees, and temporary copies of them.
# Needs root, mmdebstrap, and an apt configuration with a Debian mirror.

# Trees and packages do not depend on the umask of the caller.
umask 022

TREES=${XDG_CACHE_HOME:-${HOME:?}/.cache}/plog/trees

# fail MESSAGE: print it with the script's name and exit.
fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}

# require COMMAND...: exit with a message that lists all missing commands; `root` stands for the
# permissions of root.
require() {
    missing=
    for command in "$@"; do
        if [ "$command" = root ]; then
            [ "$(id -u)" = 0 ] || missing="$missing root"
        else
            command -v "$command" >/dev/null || missing="$missing $command"
        fi
    done
    [ -z "$missing" ] || fail "missing:$missing; install the packages of missing commands, and run" \
        "the script as root if root is missing"
}

# known_suite SUITE: exit unless plog is packaged for the suite.
known_suite() {
    case ${1:-} in
        bookworm | trixie) ;;
        *) fail "unknown suite '${1:-}'; use bookworm or trixie" ;;
    esac
}

# apt_sources SUITE: print the lines of sources.list, with the mirrors that this host's apt uses.
apt_sources() {
    targets=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages')
    main=$(echo "$targets" | sed -n 's/^Debian //p' | head -n 1)
    security=$(echo "$targets" | sed -n 's/^Debian-Security //p' | head -n 1)
    [ -n "$main" ] || fail "cannot find a Debian mirror: this host's apt has no index of Debian;" \
        "add Debian's main archive to its sources and run 'apt-get update'"
    echo "deb $main $1 main"
    echo "deb $main $1-updates main"
    [ -z "$security" ] || echo "deb $security $1-security main"
}

# cached_tree NAME SUITE VARIANT PACKAGE...: print the path of a Debian tree with these packages.
# The tree is built once, and again when the list of packages changes. To update it, delete it.
cached_tree() {
    name=$1 suite=$2 variant=$3
    shift 3
    tree=$TREES/$name-$suite
    wanted="$variant $*"
    mkdir -p "$TREES"
    # The scripts for several suites may run concurrently; only one of them builds a tree.
    exec 9>"$tree.lock"
    flock 9
    if [ ! -d "$tree" ] || [ "$(cat "$tree.packages" 2>/dev/null)" != "$wanted" ]; then
        echo "${0##*/}: building the tree $tree" >&2
        rm -rf "$tree" "$tree.new" "$tree.packages"
        # mmdebstrap reads the sources from standard input. Downloaded packages and indexes stay
        # out of the tree, so that nothing is installed from the network by mistake.
        apt_sources "$suite" | mmdebstrap --quiet --mode=root --variant="$variant" \
            --include="$(echo "$*" | tr ' ' ,)" --aptopt='Acquire::Languages "none"' \
            "$suite" "$tree.new" - >&2
        mv "$tree.new" "$tree"
        echo "$wanted" >"$tree.packages"
    fi
    exec 9>&-
    echo "$tree"
}

# in_copy TREE NETWORK FOLDER COMMAND...: run a command as root in a temporary copy of the tree (an
# overlay in memory) and in separate namespaces, with FOLDER of this host mounted at /build. NETWORK
# is `offline` or `online`.
in_copy() {
    lower=$1 network=$2 folder=$3
    shift 3
    # Without a separate network namespace, the command uses this host's network.
    case $network in
        offline) network=--net ;;
        online) network= ;;
    esac
    mount_point=$(mktemp -d)
    code=0
    # shellcheck disable=SC2016,SC2086
    unshare --mount --pid --fork --kill-child --ipc --uts $network sh -euc '
        lower=$1 folder=$2 copy=$3
        shift 3
        mount -t tmpfs -o mode=755 plog-copy "$copy"
        mkdir "$copy/upper" "$copy/work" "$copy/root"
        mount -t overlay -o "lowerdir=$lower,upperdir=$copy/upper,workdir=$copy/work" \
            plog-copy "$copy/root"
        cd "$copy/root"
        mkdir -p build
        mount --bind "$folder" build
        mount -t proc proc proc
        mount -t tmpfs -o mode=755 plog-dev dev
        for device in null zero full random urandom tty; do
            touch "dev/$device"
            mount --bind "/dev/$device" "dev/$device"
        done
        ln -s /proc/self/fd dev/fd
        mkdir -m 1777 dev/shm
        exec chroot . /usr/bin/env -i --chdir=/build PATH=/usr/sbin:/usr/bin:/sbin:/bin \
            HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
    ' sh "$lower" "$folder" "$mount_point" "$@" || code=$?
    # The mounts ended with their namespace.
    rmdir "$mount_point"
    return $code
}
