"""Commands of ZooKeeper's shell: their options, requests and output.

Pure: the commands only use the ports in ports.py. This module contains the table of all commands;
The quota commands are in quotas.py, and the ensemble commands in ensemble.py. Source: ZooKeeper 3.8
org.apache.zookeeper.cli.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Final

from plog.cli.zookeeper import ensemble as zookeeper_ensemble
from plog.cli.zookeeper import quotas as zookeeper_quotas
from plog.cli.zookeeper.ports import ANY_VERSION, OPEN_TO_ALL, Command, Console, paths_below
from plog.cli.zookeeper.text_format import (
    Acl,
    CommandRefused,
    Given,
    acl_lines,
    check_path,
    list_text,
    parse_acls,
    parse_options,
    stat_lines,
)
from plog.version import VERSION

_TTL_MAX_MS: Final = (1 << 40) - 1  # Five bytes of ephemeralOwner contain the TTL.
_BATCH: Final = 1000  # The default for `deleteall -b`.
_WATCH_MODES: Final = ("PERSISTENT", "PERSISTENT_RECURSIVE")
_INT: Final = range(-(1 << 31), 1 << 31)


def run_command(console: Console, words: Sequence[str]) -> Iterator[str]:
    """Run the command in `words` and yield the lines of its output. Raises CommandRefused."""
    name = words[0]
    command = COMMANDS[name]
    given = parse_options(words[1:], command.flags, command.with_value)
    # ZooKeeper's shell also checks the options before it counts the words.
    if command.check is not None:
        command.check(given)
    if len(given.words) < command.min_words:
        raise CommandRefused(f"{name} {command.usage}")
    # Before ZooKeeper 3.5, a second word of any text set a watch.
    if command.watch_replacement and len(given.words) > 1:
        console.note(
            f"'{name} path [watch]' has been deprecated. "
            f"Please use '{name} {command.watch_replacement} path' instead."
        )
        # The old form means the same as the option -w.
        given = Given(given.words[:1], {**given.options, "w": ""})
    yield from command.run(console, given)


# -- reading -----------------------------------------------------------------------------------


def _get(console: Console, given: Given) -> Iterator[str]:
    path = check_path(given.words[0])
    data, stat = console.client.get(path, watch="w" in given.options)
    shown = b"null" if data is None else data
    if "x" in given.options:
        yield from hex_lines(shown)
    elif "b" in given.options:
        yield base64.b64encode(shown).decode()
    else:
        yield shown.decode(errors="replace")
    if "s" in given.options:
        yield from stat_lines(stat)


def hex_lines(data: bytes) -> Iterator[str]:
    """Yield a hex dump with sixteen bytes per line, in hexadecimal and as characters."""
    yield "         +-------------------------------------------------+"
    yield "         |  0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f |"
    yield "+--------+-------------------------------------------------+----------------+"
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        # Control characters would disturb the terminal.
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield f"|{start:08x}| {row.hex(' '):<48}|{text:<16}|"
    yield "+--------+-------------------------------------------------+----------------+"


def _stat(console: Console, given: Given) -> Iterator[str]:
    path = check_path(given.words[0])
    stat = console.client.exists(path, watch="w" in given.options)
    if stat is None:
        raise CommandRefused(f"Node does not exist: {path}")
    yield from stat_lines(stat)


def _ls(console: Console, given: Given) -> Iterator[str]:
    path, watch = check_path(given.words[0]), "w" in given.options
    if "R" in given.options:
        # `paths_below` ignores missing znodes, but a get fails if the path does not exist.
        console.client.get(path, watch=watch)
        yield path
        yield from paths_below(console.client, path, watch=watch)
        return
    names, stat = console.client.children(path, watch=watch)
    yield list_text(sorted(names))
    if "s" in given.options:
        yield from stat_lines(stat)


def _count(console: Console, given: Given) -> Iterator[str]:
    yield str(console.client.count_below(check_path(given.words[0])))


def _ephemerals(console: Console, given: Given) -> Iterator[str]:
    path = check_path(given.words[0]) if given.words else "/"
    yield list_text(console.client.ephemerals(path))


def _add_watch(console: Console, given: Given) -> Iterator[str]:
    mode = given.options.get("m", "PERSISTENT_RECURSIVE").upper()
    if len(given.words) > 1 or mode not in _WATCH_MODES:
        raise CommandRefused(f"addWatch {COMMANDS['addWatch'].usage}")
    recursive = mode == "PERSISTENT_RECURSIVE"
    console.client.add_watch(check_path(given.words[0]), recursive=recursive)
    yield from ()  # All commands are generators, even without output.


def _remove_watches(console: Console, given: Given) -> Iterator[str]:
    option = next((each for each in "cd" if each in given.options), "a")
    path = check_path(given.words[0])
    console.client.remove_watches(path, option, local="l" in given.options)
    yield from ()


# -- changing ----------------------------------------------------------------------------------


def _create(console: Console, given: Given) -> Iterator[str]:
    path, *more = given.words
    options = given.options
    if "c" in options and ("e" in options or "s" in options):
        raise CommandRefused(
            "-c cannot be combined with -s or -e. Containers cannot be ephemeral or sequential."
        )
    for other, kind in (("e", "Ephemeral"), ("c", "Container")):
        if "t" in options and other in options:
            raise CommandRefused(f"TTLs cannot be used with {kind} znodes")
    ttl_ms = _ttl_ms(options["t"]) if "t" in options else 0
    # The name of a sequential znode can be empty, because the server appends a number.
    check_path(f"{path}1" if "s" in options else path)
    # As in ZooKeeper's shell, a znode without data contains null, not an empty text.
    data = more[0].encode() if more else None
    acls = [OPEN_TO_ALL]
    if len(more) > 1:
        acls = _acls(console, more[1], path)
    mode = "".join(letter for letter in "esct" if letter in options)
    console.note(f"Created {console.client.create(path, data, acls, mode, ttl_ms)}")
    yield from ()


def _ttl_ms(text: str) -> int:
    try:
        ttl_ms = int(text)
    except ValueError:
        raise CommandRefused("-t argument must be a long value") from None
    if not 0 < ttl_ms <= _TTL_MAX_MS:
        raise CommandRefused(f"ttl must be positive and cannot be larger than: {_TTL_MAX_MS}")
    return ttl_ms


def _set(console: Console, given: Given) -> Iterator[str]:
    path, text = check_path(given.words[0]), given.words[1]
    data = text.encode()
    if "b" in given.options:
        try:
            # Without `validate`, Python silently skips invalid characters.
            data = base64.b64decode(text, validate=True)
        except ValueError as error:
            raise CommandRefused(f"cannot decode the data as base64: {error}") from None
    stat = console.client.set(path, data, _version(given))
    if "s" in given.options:
        yield from stat_lines(stat)


def _delete(console: Console, given: Given) -> Iterator[str]:
    if len(given.words) > 1:
        console.note(
            "'delete path [version]' has been deprecated. "
            "Please use 'delete [-v version] path' instead."
        )
    console.client.delete(check_path(given.words[0]), _version(given))
    yield from ()


def _delete_all(console: Console, given: Given) -> Iterator[str]:
    path = check_path(given.words[0])
    batch = max(given.number("b", _BATCH), 1)
    console.client.children(path)  # Raises NoSuchNode if the path does not exist.
    paths = [path, *paths_below(console.client, path)]
    # ZooKeeper does not delete a znode with children, so descendants must come first.
    paths.reverse()
    for start in range(0, len(paths), batch):
        # Each batch is a transaction, whose request must fit the server's limit (jute.maxbuffer).
        if not console.client.delete_all(paths[start : start + batch]):
            console.note("Failed to delete some node(s) in the subtree!")
            break
    yield from ()


def _version(given: Given) -> int:
    version = given.number("v", ANY_VERSION)
    if version not in _INT:
        raise CommandRefused("-v argument must be an int value")
    return version


# -- access control ----------------------------------------------------------------------------


def _get_acl(console: Console, given: Given) -> Iterator[str]:
    acls, stat = console.client.acls(check_path(given.words[0]))
    yield from acl_lines(acls)
    if "s" in given.options:
        yield from stat_lines(stat)


def _set_acl(console: Console, given: Given) -> Iterator[str]:
    path = check_path(given.words[0])
    acls, version = _acls(console, given.words[1], path), _version(given)
    stat = console.client.set_acls(path, acls, version)
    if "R" in given.options:
        for each in paths_below(console.client, path):
            console.client.set_acls(each, acls, version)
    elif "s" in given.options:
        yield from stat_lines(stat)


def _acls(console: Console, text: str, path: str) -> list[Acl]:
    acls, problems = parse_acls(text)
    for problem in problems:
        console.note(problem)
    # As in ZooKeeper's shell, entries that cannot be parsed are only skipped.
    if not acls:
        raise CommandRefused(f"Acl is not valid : {path}")
    return acls


def _add_auth(console: Console, given: Given) -> Iterator[str]:
    scheme, *rest = given.words
    console.client.add_auth(scheme, rest[0] if rest else "")
    yield from ()


def _who_am_i(console: Console, _: Given) -> Iterator[str]:
    yield "Auth scheme: User"
    for scheme, user in console.client.identities():
        yield f"{scheme}: {user}"


# -- the connection ----------------------------------------------------------------------------


def _sync(console: Console, given: Given) -> Iterator[str]:
    console.client.sync(check_path(given.words[0]))
    yield "Sync is OK"


def _show_version(_: Console, __: Given) -> Iterator[str]:
    yield f"ZooKeeper CLI version: plog {VERSION}"


COMMANDS: Final[dict[str, Command]] = {
    "addWatch": Command(
        f"[-m mode] path # optional mode is one of [{', '.join(_WATCH_MODES)}]"
        " - default is PERSISTENT_RECURSIVE",
        _add_watch,
        with_value="m",
        min_words=1,
    ),
    "addauth": Command("scheme auth", _add_auth, min_words=1),
    "config": zookeeper_ensemble.CONFIG,
    "create": Command(
        "[-s] [-e] [-c] [-t ttl] path [data] [acl]",
        _create,
        flags="esc",
        with_value="t",
        min_words=1,
    ),
    "delete": Command("[-v version] path", _delete, with_value="v", min_words=1),
    "deleteall": Command("path [-b batch size]", _delete_all, with_value="b", min_words=1),
    "delquota": zookeeper_quotas.DELETE,
    "get": Command(
        "[-s] [-w] [-b] [-x] path", _get, flags="swbx", min_words=1, watch_replacement="[-s] [-w]"
    ),
    "getAcl": Command("[-s] path", _get_acl, flags="s", min_words=1),
    "getAllChildrenNumber": Command("path", _count, min_words=1),
    "getEphemerals": Command("[path]", _ephemerals),
    "listquota": zookeeper_quotas.LIST,
    "ls": Command("[-s] [-w] [-R] path", _ls, flags="swR", min_words=1, watch_replacement="[-w]"),
    "reconfig": zookeeper_ensemble.RECONFIG,
    "removewatches": Command("path [-c|-d|-a] [-l]", _remove_watches, flags="cdal", min_words=1),
    "set": Command(
        "[-s] [-v version] [-b] path data", _set, flags="sb", with_value="v", min_words=2
    ),
    "setAcl": Command(
        "[-s] [-v version] [-R] path acl", _set_acl, flags="sR", with_value="v", min_words=2
    ),
    "setquota": zookeeper_quotas.SET,
    "stat": Command("[-w] path", _stat, flags="w", min_words=1, watch_replacement="[-w]"),
    "sync": Command("path", _sync, min_words=1),
    "version": Command("", _show_version),
    "whoami": Command("", _who_am_i),
}
