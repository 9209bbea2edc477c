"""`ZooKeeper` of ports.py, filled by kazoo.

The only module of the command line that imports kazoo, and imported by zookeeper-shell alone. What
kazoo has no call for (containers, TTLs, whoami and others of ZooKeeper 3.5 to 3.7) is encoded in
requests.py. Watches are ours, too: kazoo knows only those that fire once, and forgets
them with the connection. TLS is ours and not kazoo's, which does not look whose name a certificate
bears. kazoo calls `on_event` in a thread of its own.

Source: ZooKeeper 3.8 CliWrapperException, KeeperException, ClientCnxn.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    EXCEPTIONS,
    BadArgumentsError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    InvalidACLError,
    KazooException,
    NewConfigNoQuorumError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    NotReadOnlyCallError,
    ReconfigInProcessError,
    SessionExpiredError,
    UnimplementedError,
    ZookeeperError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import Callback, KeeperState
from kazoo.security import ACL, Id

from plog.cli.zookeeper import requests
from plog.cli.zookeeper.requests import Request
from plog.cli.zookeeper.text_format import Acl, CommandRefused, NoSuchNode, Stat
from plog.cli.zookeeper.watches import ABSENT, CHILDREN, DATA, PERSISTENT, RECURSIVE, Watches
from plog.client.errors import TlsFailed
from plog.client.network.tls_context import Security
from plog.client.network.tls_failures import tls_failure
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
    ReconfigInProcessError: "Another reconfiguration is in progress -- concurrent reconfigs "
    "not supported (yet)",
    NewConfigNoQuorumError: "No quorum of new config is connected and up-to-date with the leader "
    "of last committed config - try invoking reconfiguration after new servers are connected "
    "and synced",
    UnimplementedError: "KeeperErrorCode = Unimplemented for {path}: this server is too old for it",
    ConnectionLoss: "KeeperErrorCode = ConnectionLoss for {path}",
    ConnectionClosedError: "KeeperErrorCode = ConnectionLoss for {path}",
    SessionExpiredError: "KeeperErrorCode = Session expired for {path}",
    KazooTimeoutError: "KeeperErrorCode = ConnectionLoss for {path}: it does not answer",
}
_STATES: Final = {
    KazooState.CONNECTED: "SyncConnected",
    KazooState.SUSPENDED: "Disconnected",
    KazooState.LOST: "Expired",
}
_CONFIG_PATH: Final = "/zookeeper/config"
# Errors kazoo does not know, at which it would give up the connection.
_CODES: Final = {
    -120: "Ephemeral node on local session",
    -121: "No such watcher",
    -122: "Request timeout",
    -123: "Reconfig is disabled",
    -124: "Session closed because client failed to authenticate",
    -125: "Quota has exceeded",
    -127: "Op throttled due to high load",
}
_QUOTA_EXCEEDED, _NO_WATCHER = -125, -121


class _CodeError(ZookeeperError):  # type: ignore[misc]
    """An error of _CODES."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code


for _code in _CODES:
    EXCEPTIONS.setdefault(_code, partial(_CodeError, _code))


class ZooKeeperUnreachable(PlogError):
    """There is no connection; the text says to whom and why."""


class KazooConnection:
    """An open connection to an ensemble; made by `connect`."""

    def __init__(self, client: Any, sockets: _Sockets, on_event: OnEvent) -> None:
        self._client = client
        self._sockets = sockets
        self._on_event = on_event
        self._watches = Watches()

    @property
    def state(self) -> str:
        """CONNECTED, CONNECTING or CLOSED."""
        if self._client.state == KazooState.LOST:
            return "CLOSED"
        return "CONNECTED" if self._client.connected else "CONNECTING"

    def get(self, path: str, *, watch: bool = False) -> tuple[bytes | None, Stat]:
        """A znode's data and statistics."""
        return self._get(path, self._server_path(path), watch)

    def exists(self, path: str, *, watch: bool = False) -> Stat | None:
        """A znode's statistics; None if there is none."""
        on_server = self._server_path(path)
        request = requests.exists(on_server, watch=watch)
        stat: Stat | None = self._send(path, self._watching(request, DATA, on_server, watch))
        if stat is None and watch:
            self._watches.add(ABSENT, on_server)
        return stat

    def children(self, path: str, *, watch: bool = False) -> tuple[list[str], Stat]:
        """The names of a znode's children, and its statistics."""
        on_server = self._server_path(path)
        request = requests.get_children(on_server, watch=watch)
        return self._send(path, self._watching(request, CHILDREN, on_server, watch))

    def create(
        self, path: str, data: bytes | None, acls: Sequence[Acl], mode: str, ttl_ms: int
    ) -> str:
        """Create a znode; its path, which the server completes if it is sequential."""
        request = requests.create(self._server_path(path), data, acls, mode, ttl_ms)
        created = self._send(path, request)
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
        found = self._send(path, requests.get_ephemerals(self._server_path(path)))
        return [str(self._client.unchroot(each)) for each in found]

    def count_below(self, path: str) -> int:
        """How many znodes are below a path."""
        return self._send(path, requests.get_all_children_number(self._server_path(path)))

    def identities(self) -> list[tuple[str, str]]:
        """Scheme and user of all that this session is logged in as."""
        return self._send("/", requests.who_am_i())

    def config(self, *, watch: bool = False) -> tuple[bytes | None, Stat]:
        """The ensemble's configuration, wherever the root is."""
        return self._get(_CONFIG_PATH, _CONFIG_PATH, watch)

    def reconfigure(
        self, joining: str | None, leaving: str | None, members: str | None, version: int
    ) -> tuple[bytes | None, Stat]:
        """Change the ensemble; its configuration from then on."""
        return self._send("", requests.reconfig(joining, leaving, members, version))

    def add_watch(self, path: str, *, recursive: bool) -> None:
        """Tell of a path, and of what is below it if `recursive`, until that is revoked."""
        on_server = self._server_path(path)
        kind = RECURSIVE if recursive else PERSISTENT
        request = requests.add_watch(on_server, recursive=recursive)
        self._send(path, self._watching(request, kind, on_server, True))

    def remove_watches(self, path: str, option: str, *, local: bool) -> None:
        """Revoke watches of children (c), data (d) or all (a); `local`: without a server, too."""
        on_server = self._server_path(path)
        events = self._watches.revocable(on_server, option)
        if not events:  # The server is not asked: it would take half of a persistent one.
            raise CommandRefused(_text(_CodeError(_NO_WATCHER), path))
        try:
            self._send(path, requests.remove_watches(on_server, option))
        except CommandRefused:
            if not local:
                raise
        self._watches.revoke(on_server, option)
        state = "SyncConnected" if self._client.connected else "Disconnected"
        for event in events:
            self._tell_in_turn(state, event, path)

    def close(self) -> None:
        """End the session: its ephemeral znodes go."""
        self._client.remove_listener(self._on_state)
        self._client.stop()
        self._client.close()

    def listen(self) -> None:
        """Tell of the connection and of watches from now on."""
        self._client.add_listener(self._on_state)
        # What kazoo would drop as an event nobody waits for.
        self._client._connection._read_watch_event = self._read_event

    def _on_state(self, state: str) -> None:
        has_failed = self._client.client_state == KeeperState.AUTH_FAILED
        if state == KazooState.LOST:
            self._watches.clear()
        elif state == KazooState.CONNECTED:
            for paths in self._watches.batches():
                request = requests.set_watches(self._client.last_zxid, *paths)
                self._client._call(request, self._client.handler.async_result())
        self._on_event("AuthFailed" if has_failed else _STATES[state], "None", None)

    def _read_event(self, data: bytes, position: int) -> None:
        """Take an event, in the thread that reads, and let another one tell it."""
        kind, on_server = requests.read_event(data, position)
        if kind is None or self._client._stopped.is_set():
            return
        self._watches.fired(kind, on_server)
        self._tell_in_turn("SyncConnected", kind, self._client.unchroot(on_server))

    def _tell_in_turn(self, state: str, kind: str, path: str) -> None:
        told = Callback("watch", self._on_event, (state, kind, path))
        self._client.handler.dispatch_callback(told)

    def _watching(self, request: Request[T], kind: str, on_server: str, watch: bool) -> Request[T]:
        """The request, by whose answer there will be a watch."""
        if watch:
            request.on_answer = partial(self._watches.add, kind, on_server)
        return request

    def _server_path(self, path: str) -> str:
        chroot: str = self._client.chroot
        return chroot if chroot and path == "/" else chroot + path

    def _get(self, path: str, on_server: str, watch: bool) -> tuple[bytes | None, Stat]:
        request = requests.get_data(on_server, watch=watch)
        return self._send(path, self._watching(request, DATA, on_server, watch))

    def _send(self, path: str, request: Request[T]) -> T:
        asked = self._client.handler.async_result()
        self._client._call(request, asked)
        answer: T = self._ask(path, asked)
        return answer

    def _ask(self, path: str, asked: Any) -> Any:
        """What comes of an asynchronous call. Raises CommandRefused."""
        try:
            return self._wait(asked)
        except NoNodeError as error:
            raise NoSuchNode(_text(error, path)) from error
        except (KazooException, KazooTimeoutError) as error:
            raise CommandRefused(_text(error, path)) from error

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


def _text(error: Exception, path: str) -> str:
    """What ZooKeeper's shell says of an error; it names no path where there is none."""
    text = _TEXTS.get(type(error))
    if text is not None:
        return text.format(path=path)
    code = getattr(error, "code", None)
    if code == _QUOTA_EXCEEDED:
        return f"Quota has exceeded : {path}"
    name = _CODES.get(code or 0, type(error).__name__.removesuffix("Error"))
    return f"KeeperErrorCode = {name}{f' for {path}' if path else ''}"


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
