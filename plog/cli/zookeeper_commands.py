"""The commands of ZooKeeper's shell: what they take, ask and print.

Pure over one port, `ZooKeeper`, which zookeeper_client.py fills with kazoo. A command yields the
lines of its output; remarks, such as ``Created /a``, go through `Console.note`, because ZooKeeper
prints them on standard error. What it cannot do raises CommandRefused with ZooKeeper's words.

Not there: addWatch, removewatches, reconfig and the quotas. Source: ZooKeeper 3.8
org.apache.zookeeper.cli.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from plog.cli.zookeeper_text import (
    Acl,
    CommandRefused,
    Given,
    Stat,
    acl_lines,
    check_path,
    join_path,
    list_text,
    parse_acls,
    parse_options,
    stat_lines,
)
from plog.version import VERSION

OPEN_TO_ALL: Final = Acl("world", "anyone", 31)
_ANY_VERSION: Final = -1
_TTL_MAX_MS: Final = (1 << 40) - 1
_BATCH: Final = 1000
_INT: Final = range(-(1 << 31), 1 << 31)


class ZooKeeper(Protocol):
    """A connection. Paths are checked; what fails raises CommandRefused."""

    def get(self, path: str, *, watch: bool = False) -> tuple[bytes | None, Stat]: ...
    def exists(self, path: str, *, watch: bool = False) -> Stat | None: ...
    def children(self, path: str, *, watch: bool = False) -> tuple[list[str], Stat]: ...
    def create(
        self, path: str, data: bytes | None, acls: Sequence[Acl], mode: str, ttl_ms: int
    ) -> str:
        """`mode` is made of the options' letters: e, s, c, t."""

    def set(self, path: str, data: bytes, version: int) -> Stat: ...
    def delete(self, path: str, version: int) -> None: ...
    def delete_all(self, paths: Sequence[str]) -> bool:
        """Delete these in this order, all or none; whether that went well."""

    def acls(self, path: str) -> tuple[list[Acl], Stat]: ...
    def set_acls(self, path: str, acls: Sequence[Acl], version: int) -> Stat: ...
    def add_auth(self, scheme: str, credential: str) -> None: ...
    def sync(self, path: str) -> None: ...
    def ephemerals(self, path: str) -> list[str]: ...
    def count_below(self, path: str) -> int: ...
    def identities(self) -> list[tuple[str, str]]: ...
    def config(self) -> tuple[bytes | None, Stat]:
        """The ensemble's configuration, wherever the root is."""

    def close(self) -> None: ...

    @property
    def state(self) -> str:
        """CONNECTED, CONNECTING or CLOSED."""


class Console(NamedTuple):
    """What a command works with: a connection, and who hears its remarks."""

    client: ZooKeeper
    note: Callable[[str], None]


class Command(NamedTuple):
    """A command: how it is used, and the options it takes."""

    usage: str
    run: Callable[[Console, Given], Iterator[str]]
    flags: str = ""
    with_value: str = ""
    least: int = 0
    """Words it needs behind its name."""
    old_watch: str = ""
    """What is said instead today, where another word behind the path once asked for a watch."""


def run_command(console: Console, words: Sequence[str]) -> Iterator[str]:
    """The lines of the command that `words` are. Raises CommandRefused."""
    name = words[0]
    command = COMMANDS[name]
    given = parse_options(words[1:], command.flags, command.with_value)
    if len(given.words) < command.least:
        raise CommandRefused(f"{name} {command.usage}")
    if command.old_watch and len(given.words) > 1:
        console.note(
            f"'{name} path [watch]' has been deprecated. "
            f"Please use '{name} {command.old_watch} path' instead."
        )
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
    """Sixteen bytes a line, in hexadecimal and as characters."""
    yield "         +-------------------------------------------------+"
    yield "         |  0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f |"
    yield "+--------+-------------------------------------------------+----------------+"
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
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
        # Asks for the data, so that a path that is not there is refused.
        console.client.get(path, watch=watch)
        yield path
        yield from _below(console.client, path, watch=watch)
        return
    names, stat = console.client.children(path, watch=watch)
    yield list_text(sorted(names))
    if "s" in given.options:
        yield from stat_lines(stat)


def _below(client: ZooKeeper, path: str, *, watch: bool = False) -> Iterator[str]:
    """All paths below one, in ZooKeeper's order: a node's children, then what is below each."""
    waiting = [path]
    while waiting:
        parent = waiting.pop()
        try:
            names, _ = client.children(parent, watch=watch)
        except CommandRefused:
            if client.exists(parent) is not None:
                raise
            continue  # Deleted while we were on the way.
        paths = [join_path(parent, name) for name in sorted(names)]
        yield from paths
        waiting += reversed(paths)


def _count(console: Console, given: Given) -> Iterator[str]:
    yield str(console.client.count_below(check_path(given.words[0])))


def _ephemerals(console: Console, given: Given) -> Iterator[str]:
    path = check_path(given.words[0]) if given.words else "/"
    yield list_text(console.client.ephemerals(path))


def _config(console: Console, given: Given) -> Iterator[str]:
    data, stat = console.client.config()
    yield (b"null" if data is None else data).decode(errors="replace")
    if "s" in given.options:
        yield from stat_lines(stat)


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
    # The server puts a number behind a sequential node's name, which may be empty.
    check_path(f"{path}1" if "s" in options else path)
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
            data = base64.b64decode(text, validate=True)
        except ValueError as error:
            raise CommandRefused(f"the data is not base64: {error}") from None
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
    console.client.children(path)  # Refused if it is not there.
    paths = [path, *_below(console.client, path)]
    # Those below a node come behind it, so backwards each node is empty when its turn comes.
    paths.reverse()
    for start in range(0, len(paths), batch):
        if not console.client.delete_all(paths[start : start + batch]):
            console.note("Failed to delete some node(s) in the subtree!")
            break
    yield from ()


def _version(given: Given) -> int:
    version = given.number("v", _ANY_VERSION)
    if version not in _INT:
        raise CommandRefused("-v argument must be an int value")
    return version


# -- who may -----------------------------------------------------------------------------------


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
        for each in _below(console.client, path):
            console.client.set_acls(each, acls, version)
    elif "s" in given.options:
        yield from stat_lines(stat)


def _acls(console: Console, text: str, path: str) -> list[Acl]:
    acls, problems = parse_acls(text)
    for problem in problems:
        console.note(problem)
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
    "addauth": Command("scheme auth", _add_auth, least=1),
    "config": Command("[-s]", _config, flags="s"),
    "create": Command(
        "[-s] [-e] [-c] [-t ttl] path [data] [acl]", _create, flags="esc", with_value="t", least=1
    ),
    "delete": Command("[-v version] path", _delete, with_value="v", least=1),
    "deleteall": Command("path [-b batch size]", _delete_all, with_value="b", least=1),
    "get": Command("[-s] [-w] [-b] [-x] path", _get, flags="swbx", least=1, old_watch="[-s] [-w]"),
    "getAcl": Command("[-s] path", _get_acl, flags="s", least=1),
    "getAllChildrenNumber": Command("path", _count, least=1),
    "getEphemerals": Command("[path]", _ephemerals),
    "ls": Command("[-s] [-w] [-R] path", _ls, flags="swR", least=1, old_watch="[-w]"),
    "set": Command("[-s] [-v version] [-b] path data", _set, flags="sb", with_value="v", least=2),
    "setAcl": Command(
        "[-s] [-v version] [-R] path acl", _set_acl, flags="sR", with_value="v", least=2
    ),
    "stat": Command("[-w] path", _stat, flags="w", least=1, old_watch="[-w]"),
    "sync": Command("path", _sync, least=1),
    "version": Command("", _show_version),
    "whoami": Command("", _who_am_i),
}
