"""`ZooKeeper` of zookeeper_commands.py, filled by kazoo.

The only module of the command line that imports kazoo, and imported by zookeeper-shell alone. What
kazoo has no call for (containers, TTLs, whoami and others of ZooKeeper 3.5 to 3.7) is encoded here.
TLS is ours and not kazoo's, which does not look whose name a certificate bears. kazoo calls
`on_event` in a thread of its own.

Source: ZooKeeper 3.8 zookeeper.jute, ZooDefs.OpCode, CreateMode, CliWrapperException.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    BadArgumentsError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    NotReadOnlyCallError,
    SessionExpiredError,
    UnimplementedError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.serialization import (
    int_struct,
    long_struct,
    read_buffer,
    read_string,
    stat_struct,
    write_buffer,
    write_string,
)
from kazoo.protocol.states import KeeperState
from kazoo.security import ACL, Id

from plog.cli.zookeeper_text import Acl, CommandRefused, Stat
from plog.client.errors import TlsFailed
from plog.client.security import Security
from plog.client.tls_failures import tls_failure
from plog.error_base import PlogError

T = TypeVar("T")
OnEvent = Callable[[str, str, "str | None"], None]

CONNECT_S: Final = 10.0
ANSWER_S: Final = 30.0
_LOOK_S: Final = 0.02
_SLICE_S: Final = 0.25
_DEFAULT_PORT: Final = 2181
_TEXTS: Final[dict[type[Exception], str]] = {
    NoNodeError: "Node does not exist: {path}",
    NoChildrenForEphemeralsError: "Ephemerals cannot have children: {path}",
    NodeExistsError: "Node already exists: {path}",
    NotEmptyError: "Node not empty: {path}",
    NotReadOnlyCallError: "Not a read-only call: {path}",
    InvalidACLError: "Acl is not valid : {path}",
    NoAuthError: "Insufficient permission : {path}",
    BadArgumentsError: "Arguments are not valid : {path}",
    BadVersionError: "version No is not valid : {path}",
    UnimplementedError: "KeeperErrorCode = Unimplemented for {path}: this server is too old for it",
    ConnectionLoss: "KeeperErrorCode = ConnectionLoss for {path}",
    ConnectionClosedError: "KeeperErrorCode = ConnectionLoss for {path}",
    SessionExpiredError: "KeeperErrorCode = Session expired for {path}",
    KazooTimeoutError: "KeeperErrorCode = ConnectionLoss for {path}: it does not answer",
}
_EVENTS: Final = {
    "CREATED": "NodeCreated",
    "DELETED": "NodeDeleted",
    "CHANGED": "NodeDataChanged",
    "CHILD": "NodeChildrenChanged",
}
_STATES: Final = {
    KazooState.CONNECTED: "SyncConnected",
    KazooState.SUSPENDED: "Disconnected",
    KazooState.LOST: "Expired",
}
# Type of the request and flags of ZooKeeper's CreateMode, by the letters of the options.
_CREATE: Final = {
    "": (1, 0),
    "e": (1, 1),
    "s": (1, 2),
    "es": (1, 3),
    "c": (19, 4),
    "t": (21, 5),
    "st": (21, 6),
}
_CONFIG_PATH: Final = "/zookeeper/config"
_GET_DATA = 4
_GET_EPHEMERALS, _GET_ALL_CHILDREN_NUMBER, _WHO_AM_I = 103, 104, 107


class ZooKeeperUnreachable(PlogError):
    """There is no connection; the text says to whom and why."""


class KazooConnection:
    """An open connection to an ensemble; made by `connect`."""

    def __init__(self, client: Any, sockets: _Sockets, on_event: OnEvent) -> None:
        self._client = client
        self._sockets = sockets
        self._on_event = on_event

    @property
    def state(self) -> str:
        """CONNECTED, CONNECTING or CLOSED."""
        if self._client.state == KazooState.LOST:
            return "CLOSED"
        return "CONNECTED" if self._client.connected else "CONNECTING"

    def get(self, path: str, *, watch: bool = False) -> tuple[bytes | None, Stat]:
        """A znode's data and statistics."""
        data, stat = self._ask(path, self._client.get_async(path, self._watch(watch)))
        return data, Stat(*stat)

    def exists(self, path: str, *, watch: bool = False) -> Stat | None:
        """A znode's statistics; None if there is none."""
        stat = self._ask(path, self._client.exists_async(path, self._watch(watch)))
        return None if stat is None else Stat(*stat)

    def children(self, path: str, *, watch: bool = False) -> tuple[list[str], Stat]:
        """The names of a znode's children, and its statistics."""
        asked = self._client.get_children_async(path, self._watch(watch), include_data=True)
        names, stat = self._ask(path, asked)
        return list(names), Stat(*stat)

    def create(
        self, path: str, data: bytes | None, acls: Sequence[Acl], mode: str, ttl_ms: int
    ) -> str:
        """Create a znode; its path, which the server completes if it is sequential."""
        kind, flags = _CREATE[mode]
        entries = [
            int_struct.pack(acl.permissions) + _string(acl.scheme) + _string(acl.id) for acl in acls
        ]
        body = [
            _string(self._below_chroot(path)),
            write_buffer(data),
            int_struct.pack(len(entries)),
            *entries,
            int_struct.pack(flags),
        ]
        if kind == _CREATE["t"][0]:
            body.append(long_struct.pack(ttl_ms))
        created: str = self._send(path, _Request(kind, b"".join(body), _read_text))
        return str(self._client.unchroot(created))

    def set(self, path: str, data: bytes, version: int) -> Stat:
        """Change a znode's data."""
        return Stat(*self._ask(path, self._client.set_async(path, data, version)))

    def delete(self, path: str, version: int) -> None:
        """Delete a znode."""
        self._ask(path, self._client.delete_async(path, version))

    def delete_all(self, paths: Sequence[str]) -> bool:
        """Delete these in this order, all or none; whether that went well."""
        transaction = self._client.transaction()
        for path in paths:
            transaction.delete(path)
        results = self._ask(paths[-1], transaction.commit_async())
        return not any(isinstance(result, Exception) for result in results)

    def acls(self, path: str) -> tuple[list[Acl], Stat]:
        """A znode's ACLs, and its statistics."""
        acls, stat = self._ask(path, self._client.get_acls_async(path))
        return [Acl(acl.id.scheme, acl.id.id, acl.perms) for acl in acls], Stat(*stat)

    def set_acls(self, path: str, acls: Sequence[Acl], version: int) -> Stat:
        """Change a znode's ACLs."""
        wanted = [ACL(acl.permissions, Id(acl.scheme, acl.id)) for acl in acls]
        return Stat(*self._ask(path, self._client.set_acls_async(path, wanted, version)))

    def add_auth(self, scheme: str, credential: str) -> None:
        """Log in, besides what one is already."""
        try:
            self._client.add_auth_async(scheme, credential).get(timeout=ANSWER_S)
        except (KazooException, KazooTimeoutError) as error:
            raise CommandRefused(
                f"KeeperErrorCode = AuthFailed for {scheme}: the server has closed the connection"
            ) from error

    def sync(self, path: str) -> None:
        """Let the server catch up with its leader."""
        self._ask(path, self._client.sync_async(path))

    def ephemerals(self, path: str) -> list[str]:
        """Paths of this session's ephemeral znodes at and below a path."""
        body = _string(self._below_chroot(path))
        found = self._send(path, _Request(_GET_EPHEMERALS, body, _read_texts))
        return [str(self._client.unchroot(each)) for each in found]

    def count_below(self, path: str) -> int:
        """How many znodes are below a path."""
        body = _string(self._below_chroot(path))
        return self._send(path, _Request(_GET_ALL_CHILDREN_NUMBER, body, _read_int))

    def identities(self) -> list[tuple[str, str]]:
        """Scheme and user of all that this session is logged in as."""
        return self._send("/", _Request(_WHO_AM_I, b"", _read_pairs))

    def config(self) -> tuple[bytes | None, Stat]:
        """The ensemble's configuration, wherever the root is."""
        request = _Request(_GET_DATA, _string(_CONFIG_PATH) + b"\0", _read_data)
        return self._send(_CONFIG_PATH, request)

    def close(self) -> None:
        """End the session: its ephemeral znodes go."""
        self._client.remove_listener(self._on_state)
        self._client.stop()
        self._client.close()

    def listen(self) -> None:
        """Tell of the connection from now on."""
        self._client.add_listener(self._on_state)

    def _on_state(self, state: str) -> None:
        has_failed = self._client.client_state == KeeperState.AUTH_FAILED
        self._on_event("AuthFailed" if has_failed else _STATES[state], "None", None)

    def _watch(self, wanted: bool) -> Callable[[Any], None] | None:
        return self._on_watch if wanted else None

    def _on_watch(self, event: Any) -> None:
        kind = _EVENTS.get(event.type)
        if kind is not None:  # Else it concerns the connection, of which `_on_state` tells.
            self._on_event("SyncConnected", kind, event.path)

    def _below_chroot(self, path: str) -> str:
        chroot: str = self._client.chroot
        return path if not chroot else chroot + path.rstrip("/")

    def _send(self, path: str, request: _Request[T]) -> T:
        asked = self._client.handler.async_result()
        self._client._call(request, asked)
        answer: T = self._ask(path, asked)
        return answer

    def _ask(self, path: str, asked: Any) -> Any:
        """What comes of an asynchronous call. Raises CommandRefused."""
        try:
            return self._wait(asked)
        except (KazooException, KazooTimeoutError) as error:
            text = _TEXTS.get(type(error))
            name = type(error).__name__.removesuffix("Error")
            text = text or f"KeeperErrorCode = {name} for {{path}}"
            raise CommandRefused(text.format(path=path)) from error

    def _wait(self, asked: Any) -> Any:
        """The answer; no longer than ANSWER_S, and not for a server that is not there any more."""
        deadline = time.monotonic() + ANSWER_S
        while True:
            try:
                return asked.get(timeout=_SLICE_S)
            except KazooTimeoutError:
                is_lost = not self._client.connected and self._sockets.has_tried_all
                if is_lost or time.monotonic() > deadline:
                    raise


def connect(
    hosts: str,
    on_event: OnEvent,
    *,
    security: Security | None = None,
    session_timeout_s: float = 30.0,
    read_only: bool = False,
) -> KazooConnection:
    """Connect to ``HOST:PORT[,HOST:PORT...][/CHROOT]``.

    Raises ZooKeeperUnreachable: after CONNECT_S, or once every address has refused.
    """
    try:
        client, sockets = _prepared(hosts, security, session_timeout_s, read_only)
    except ValueError:
        raise ZooKeeperUnreachable(
            f"'{hosts}' is no address of ZooKeeper: HOST:PORT[,HOST:PORT...][/CHROOT]"
        ) from None
    deadline = time.monotonic() + CONNECT_S
    live = client.start_async()
    while not live.wait(_LOOK_S):
        if time.monotonic() > deadline or sockets.has_tried_all:
            client.stop()
            client.close()
            raise ZooKeeperUnreachable(
                f"cannot connect to ZooKeeper at {hosts}: {sockets.problem or 'it does not answer'}"
            )
    connection = KazooConnection(client, sockets, on_event)
    connection.listen()
    return connection


def _prepared(
    hosts: str, security: Security | None, session_timeout_s: float, read_only: bool
) -> tuple[Any, _Sockets]:
    sockets = _Sockets(security)
    # What went wrong is told by us, once.
    silent = logging.getLogger("plog.cli.zookeeper")
    silent.addHandler(logging.NullHandler())
    silent.propagate = False
    client = KazooClient(
        hosts=hosts,
        timeout=session_timeout_s,
        handler=sockets,
        read_only=read_only,
        logger=silent,
        use_ssl=security is not None,
    )
    sockets.resolve([(str(host), int(port or _DEFAULT_PORT)) for host, port in client.hosts])
    return client, sockets


class _Sockets(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler, with our TLS, and a memory of why there is no connection."""

    def __init__(self, security: Security | None) -> None:
        super().__init__()
        self._security = security
        self._name_by_address: dict[str, str] = {}
        self._untried: set[str] = set()
        self.problem = ""

    @property
    def has_tried_all(self) -> bool:
        """Whether every address has refused us since one last took us."""
        return not self._untried

    def resolve(self, hosts: Sequence[tuple[str, int]]) -> None:
        """Remember whose address each is: kazoo connects to addresses."""
        for name, port in hosts:
            try:
                found = socket.getaddrinfo(name, port, 0, 0, socket.IPPROTO_TCP)
            except OSError as error:
                self.problem = f"there is no host {name}: {error.strerror or error}"
                continue
            for *_, address in found:
                self._name_by_address[str(address[0])] = name
        self._untried = set(self._name_by_address)

    def create_connection(
        self, address: tuple[str, int], timeout: float | None = None, **_: object
    ) -> socket.socket:
        """A connected socket. Raises OSError, which kazoo takes for a reason to try again."""
        host = self._name_by_address.get(address[0], address[0])
        limit_s = CONNECT_S if timeout is None else min(timeout, CONNECT_S)
        try:
            context = self._security.make_ssl_context() if self._security else None
            connected = socket.create_connection(address[:2], limit_s)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                connected = context.wrap_socket(connected, server_hostname=host)
            self._untried = set(self._name_by_address)
            return connected
        except (OSError, TlsFailed) as error:
            shown = f"{host}:{address[1]}"
            explained = tls_failure(error, address=shown, host=host)
            self.problem = str(explained or getattr(error, "strerror", None) or error)
            self._untried.discard(address[0])
            raise OSError(self.problem) from error


# -- requests kazoo does not have ----------------------------------------------------------------


class _Request(Generic[T]):
    """A request as kazoo's connection takes one: it encodes itself, and decodes its answer."""

    def __init__(self, kind: int, body: bytes, decode: Callable[[bytes, int], T]) -> None:
        self.type = kind
        self._body = body
        self.deserialize = decode

    def serialize(self) -> bytes:
        """The request behind its header."""
        return self._body


def _string(text: str) -> bytes:
    return bytes(write_string(text))


def _read_int(data: bytes, position: int) -> int:
    number: int = int_struct.unpack_from(data, position)[0]
    return number


def _read_data(data: bytes, position: int) -> tuple[bytes | None, Stat]:
    content, position = read_buffer(data, position)
    return content, Stat(*stat_struct.unpack_from(data, position))


def _read_text(data: bytes, position: int) -> str:
    return read_string(data, position)[0] or ""


def _read_texts(data: bytes, position: int) -> list[str]:
    return _read_many(data, position, 1)


def _read_pairs(data: bytes, position: int) -> list[tuple[str, str]]:
    texts = _read_many(data, position, 2)
    return list(zip(texts[::2], texts[1::2], strict=True))


def _read_many(data: bytes, position: int, texts_each: int) -> list[str]:
    """A vector of records that are texts; null, which is -1 long, is an empty one."""
    count = max(_read_int(data, position), 0)
    position += int_struct.size
    texts = []
    for _ in range(count * texts_each):
        text, position = read_string(data, position)
        texts.append(text or "")
    return texts
