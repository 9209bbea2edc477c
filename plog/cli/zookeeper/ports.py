"""What a command of ZooKeeper's shell is, and the ZooKeeper it asks.

Pure: `ZooKeeper` is the port that client.py fills with kazoo. A command yields the lines
of its output; remarks, such as ``Created /a``, go through `Console.note`, because ZooKeeper prints
them on standard error. What it cannot do raises CommandRefused with ZooKeeper's words.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from plog.cli.zookeeper.text_format import Acl, Given, NoSuchNode, Stat, join_path

OPEN_TO_ALL: Final = Acl("world", "anyone", 31)
ANY_VERSION: Final = -1


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
    def config(self, *, watch: bool = False) -> tuple[bytes | None, Stat]:
        """The ensemble's configuration, wherever the root is."""

    def reconfigure(
        self, joining: str | None, leaving: str | None, members: str | None, version: int
    ) -> tuple[bytes | None, Stat]:
        """Change the ensemble; its configuration from then on. A version below 0 is any."""

    def add_watch(self, path: str, *, recursive: bool) -> None:
        """Tell of a path, and of what is below it if `recursive`, until that is revoked."""

    def remove_watches(self, path: str, option: str, *, local: bool) -> None:
        """Revoke watches of children (c), data (d) or all (a); `local`: without a server, too."""

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
    with_value: Collection[str] = ""
    check: Callable[[Given], None] | None = None
    """Looks at the options before the words are counted. Raises CommandRefused."""
    least: int = 0
    """Words it needs behind its name."""
    old_watch: str = ""
    """What is said instead today, where another word behind the path once asked for a watch."""


def paths_below(client: ZooKeeper, path: str, *, watch: bool = False) -> Iterator[str]:
    """All paths below one, in ZooKeeper's order: a node's children, then what is below each."""
    waiting = [path]
    while waiting:
        parent = waiting.pop()
        try:
            names, _ = client.children(parent, watch=watch)
        except NoSuchNode:
            continue  # Deleted while we were on the way.
        paths = [join_path(parent, name) for name in sorted(names)]
        yield from paths
        waiting += reversed(paths)
