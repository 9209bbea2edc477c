"""Definition of a shell command, and the port through which commands call ZooKeeper.

Pure: client.py implements the port `ZooKeeper` with kazoo. A command yields the lines of its
output, and passes notes, such as ``Created /a``, to `Console.note`. A command that fails raises
CommandRefused with ZooKeeper's message.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from plog.cli.zookeeper.text_format import Acl, Given, NoSuchNode, Stat, join_path

# ZooKeeper's ZooDefs.Ids.OPEN_ACL_UNSAFE; 31 consists of all five permissions.
OPEN_TO_ALL: Final = Acl("world", "anyone", 31)
# In ZooKeeper's protocol, -1 matches any version.
ANY_VERSION: Final = -1


class ZooKeeper(Protocol):
    """A connection to ZooKeeper. Callers must validate paths; failed calls raise CommandRefused."""

    def get(self, path: str, *, watch: bool = False) -> tuple[bytes | None, Stat]: ...
    def exists(self, path: str, *, watch: bool = False) -> Stat | None: ...
    def children(self, path: str, *, watch: bool = False) -> tuple[list[str], Stat]: ...
    def create(
        self, path: str, data: bytes | None, acls: Sequence[Acl], mode: str, ttl_ms: int
    ) -> str:
        """Create a znode and return its path; `mode` consists of the option letters e, s, c, t."""

    def set(self, path: str, data: bytes, version: int) -> Stat: ...
    def delete(self, path: str, version: int) -> None: ...
    def delete_all(self, paths: Sequence[str]) -> bool:
        """Delete all of `paths`, in this order, or none; return whether they were deleted."""

    def acls(self, path: str) -> tuple[list[Acl], Stat]: ...
    def set_acls(self, path: str, acls: Sequence[Acl], version: int) -> Stat: ...
    def add_auth(self, scheme: str, credential: str) -> None: ...
    def sync(self, path: str) -> None: ...
    def ephemerals(self, path: str) -> list[str]: ...
    def count_below(self, path: str) -> int: ...
    def identities(self) -> list[tuple[str, str]]: ...
    def config(self, *, watch: bool = False) -> tuple[bytes | None, Stat]:
        """Return the ensemble's configuration, which does not depend on the chroot."""

    def reconfigure(
        self, joining: str | None, leaving: str | None, members: str | None, version: int
    ) -> tuple[bytes | None, Stat]:
        """Change the ensemble's membership and return the new configuration.

        A negative `version` matches any version.
        """

    def add_watch(self, path: str, *, recursive: bool) -> None:
        """Set a persistent watch on `path` and, if `recursive`, on the tree below."""

    def remove_watches(self, path: str, option: str, *, local: bool) -> None:
        """Remove watches of children (c), data (d) or any kind (a).

        With `local`, the watches are removed from this session even if the server returns an error.
        """

    def close(self) -> None: ...

    @property
    def state(self) -> str:
        """The connection's state: CONNECTED, CONNECTING or CLOSED."""


class Console(NamedTuple):
    """The environment of a command."""

    client: ZooKeeper
    note: Callable[[str], None]
    """Prints a note on standard error, as ZooKeeper's shell does."""


class Command(NamedTuple):
    """A command: its usage, implementation and options."""

    usage: str
    run: Callable[[Console, Given], Iterator[str]]
    flags: str = ""
    with_value: Collection[str] = ""
    check: Callable[[Given], None] | None = None
    """Called to check the options before the number of words is checked. Raises CommandRefused."""
    min_words: int = 0
    """Minimum number of words after the command's name."""
    watch_replacement: str = ""
    """The options that replace a deprecated second word that sets a watch.

    Empty if the command does not accept this word.
    """


def paths_below(client: ZooKeeper, path: str, *, watch: bool = False) -> Iterator[str]:
    """Yield all paths below `path` in ZooKeeper's order: children first, then each child's tree."""
    # A list instead of recursion, because a tree can be deeper than Python's stack.
    pending = [path]
    while pending:
        parent = pending.pop()
        try:
            names, _ = client.children(parent, watch=watch)
        except NoSuchNode:
            continue  # The znode was deleted in the meantime.
        paths = [join_path(parent, name) for name in sorted(names)]
        yield from paths
        # Paths are taken from the end of the list, so the first child must come last.
        pending += reversed(paths)
