"""`ZooKeeper` of plog/cli/zookeeper/commands.py, in memory: enough to test a shell's requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from plog.cli.zookeeper.ports import OPEN_TO_ALL
from plog.cli.zookeeper.text_format import Acl, CommandRefused, NoSuchNode, Stat


@dataclass
class Node:
    """A znode."""

    data: bytes | None = None
    version: int = 0
    mode: str = ""
    acls: list[Acl] = field(default_factory=lambda: [OPEN_TO_ALL])


class FakeZooKeeper:
    """Znodes by path; `watched` and `calls` record the other requests."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {"/": Node()}
        self.watched: list[str] = []
        self.calls: list[str] = []
        self.state = "CONNECTED"
        self.is_undeletable = False
        self.configuration = b"version=0"

    def get(self, path: str, *, watch: bool = False) -> tuple[bytes | None, Stat]:
        node = self._node(path, watch)
        return node.data, self._stat(path)

    def exists(self, path: str, *, watch: bool = False) -> Stat | None:
        self.watched += [path] if watch else []
        return self._stat(path) if path in self.nodes else None

    def children(self, path: str, *, watch: bool = False) -> tuple[list[str], Stat]:
        self._node(path, watch)
        prefix = path.rstrip("/") + "/"
        below = [each.removeprefix(prefix) for each in self.nodes if each.startswith(prefix)]
        # Unsorted, as a server returns them.
        return sorted((x for x in below if x and "/" not in x), reverse=True), self._stat(path)

    def create(
        self, path: str, data: bytes | None, acls: Sequence[Acl], mode: str, ttl_ms: int
    ) -> str:
        path += f"{len(self.nodes):010d}" if "s" in mode else ""
        if path in self.nodes:
            raise CommandRefused(f"Node already exists: {path}")
        self.nodes[path] = Node(data, mode=f"{mode}{ttl_ms or ''}", acls=list(acls))
        return path

    def set(self, path: str, data: bytes, version: int) -> Stat:
        node = self._node(path)
        if version not in (-1, node.version):
            raise CommandRefused(f"version No is not valid : {path}")
        node.data, node.version = data, node.version + 1
        return self._stat(path)

    def delete(self, path: str, version: int) -> None:
        self._node(path)
        self.calls.append(f"delete {path} {version}")
        del self.nodes[path]

    def delete_all(self, paths: Sequence[str]) -> bool:
        self.calls.append(f"delete {' '.join(paths)}")
        if self.is_undeletable:
            return False
        for path in paths:
            assert self.children(path)[0] == [], "it still has children"
            del self.nodes[path]
        return True

    def acls(self, path: str) -> tuple[list[Acl], Stat]:
        return self._node(path).acls, self._stat(path)

    def set_acls(self, path: str, acls: Sequence[Acl], version: int) -> Stat:
        self._node(path).acls = list(acls)
        self.calls.append(f"acls {path} {version}")
        return self._stat(path)

    def add_auth(self, scheme: str, credential: str) -> None:
        self.calls.append(f"auth {scheme} {credential}")

    def sync(self, path: str) -> None:
        self.calls.append(f"sync {path}")

    def ephemerals(self, path: str) -> list[str]:
        return [x for x, node in self.nodes.items() if "e" in node.mode and x.startswith(path)]

    def count_below(self, path: str) -> int:
        return sum(each.startswith(path.rstrip("/") + "/") and each != path for each in self.nodes)

    def identities(self) -> list[tuple[str, str]]:
        return [("ip", "127.0.0.1"), ("digest", "u")]

    def config(self, *, watch: bool = False) -> tuple[bytes | None, Stat]:
        self.watched += ["config"] if watch else []
        return self.configuration, self._stat("/")

    def reconfigure(
        self, joining: str | None, leaving: str | None, members: str | None, version: int
    ) -> tuple[bytes | None, Stat]:
        self.calls.append(f"reconfig {joining} {leaving} {members} {version}")
        return self.configuration, self._stat("/")

    def add_watch(self, path: str, *, recursive: bool) -> None:
        self.calls.append(f"watch {path} {recursive}")

    def remove_watches(self, path: str, option: str, *, local: bool) -> None:
        self.calls.append(f"unwatch {path} {option} {local}")

    def close(self) -> None:
        self.state = "CLOSED"

    def _node(self, path: str, watch: bool = False) -> Node:
        if path not in self.nodes:
            raise NoSuchNode(f"Node does not exist: {path}")
        self.watched += [path] if watch else []
        return self.nodes[path]

    def _stat(self, path: str) -> Stat:
        node = self.nodes[path]
        return Stat(1, 2, 0, 0, node.version, 0, 0, 0, len(node.data or b""), 0, 3)
