"""Implement the `ZooKeeper` port in ports.py with kazoo.

Only zookeeper-shell imports this module. requests.py encodes
the requests that kazoo does not support, which ZooKeeper 3.5 to 3.7 added (containers, TTLs, whoami
and others). watches.py tracks the watches, because kazoo only supports one-time watches and drops
them when the connection is lost. kazoo calls `on_event` in a separate thread.

Source: ZooKeeper 3.8 CliWrapperException, KeeperException, ClientCnxn.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
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
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import Callback, KeeperState
from kazoo.security import ACL, Id

from plog.cli.zookeeper import requests
from plog.cli.zookeeper.requests import Request
from plog.cli.zookeeper.text_format import Acl, CommandRefused, NoSuchNode, Stat
from plog.cli.zookeeper.watches import ABSENT, CHILDREN, DATA, PERSISTENT, RECURSIVE, Watches
from plog.client.network.tls_context import Security
from plog.error_base import PlogError
from plog.zookeeper.kazoo_errors import CODES, NO_WATCHER, QUOTA_EXCEEDED, CodeError
from plog.zookeeper.sockets import Sockets

T = TypeVar("T")
OnEvent = Callable[[str, str, "str | None"], None]

CONNECT_S: Final = 10.0
RESPONSE_S: Final = 30.0
# kazoo has no event for an address that refuses the connection, so both waits check periodically.
_POLL_S: Final = 0.02
_WAIT_S: Final = 0.25
_DEFAULT_PORT: Final = 2181
# The texts without KeeperErrorCode are taken from CliWrapperException.
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
    UnimplementedError: "KeeperErrorCode = Unimplemented for {path}: "
    "this version of the server does not support it",
    ConnectionLoss: "KeeperErrorCode = ConnectionLoss for {path}",
    ConnectionClosedError: "KeeperErrorCode = ConnectionLoss for {path}",
    SessionExpiredError: "KeeperErrorCode = Session expired for {path}",
    KazooTimeoutError: "KeeperErrorCode = ConnectionLoss for {path}: the server does not respond",
}
_STATES: Final = {
    KazooState.CONNECTED: "SyncConnected",
    KazooState.SUSPENDED: "Disconnected",
    KazooState.LOST: "Expired",
}
_CONFIG_PATH: Final = "/zookeeper/config"


class ZooKeeperUnreachable(PlogError):
    """No connection could be opened; the message includes the addresses and the cause."""


class KazooConnection:
    """An open connection to an ensemble, created by `connect`."""

    def __init__(self, client: Any, sockets: Sockets, on_event: OnEvent) -> None:
        self._client = client
        self._sockets = sockets
        self._on_event = on_event
        self._watches = Watches()

    @property
    def state(self) -> str:
        """The connection's state: CONNECTED, CONNECTING or CLOSED."""
        if self._client.state == KazooState.LOST:
            return "CLOSED"
        return "CONNECTED" if self._client.connected else "CONNECTING"

    def get(self, path: str, *, watch: bool = False) -> tuple[bytes | None, Stat]:
        """Return the data and statistics of a znode."""
        return self._get(path, self._server_path(path), watch)

    def exists(self, path: str, *, watch: bool = False) -> Stat | None:
        """Return the statistics of a znode, or None if the znode does not exist."""
        on_server = self._server_path(path)
        request = requests.exists(on_server, watch=watch)
        stat: Stat | None = self._send(path, self._watching(request, DATA, on_server, watch))
        # The server has set a watch that fires when the znode is created. kazoo does not decode a
        # response for a missing znode, and therefore has not called `on_response`.
        if stat is None and watch:
            self._watches.add(ABSENT, on_server)
        return stat

    def children(self, path: str, *, watch: bool = False) -> tuple[list[str], Stat]:
        """Return the names of a znode's children, and its own statistics."""
        on_server = self._server_path(path)
        request = requests.get_children(on_server, watch=watch)
        return self._send(path, self._watching(request, CHILDREN, on_server, watch))

    def create(
        self, path: str, data: bytes | None, acls: Sequence[Acl], mode: str, ttl_ms: int
    ) -> str:
        """Create a znode and return its path, including the number of a sequential znode."""
        request = requests.create(self._server_path(path), data, acls, mode, ttl_ms)
        created = self._send(path, request)
        return str(self._client.unchroot(created))

    def set(self, path: str, data: bytes, version: int) -> Stat:
        """Replace the data of a znode."""
        return Stat(*self._result(path, self._client.set_async(path, data, version)))

    def delete(self, path: str, version: int) -> None:
        """Delete a znode."""
        self._result(path, self._client.delete_async(path, version))

    def delete_all(self, paths: Sequence[str]) -> bool:
        """Delete all of `paths`, in this order, or none; return whether they were deleted."""
        transaction = self._client.transaction()
        for path in paths:
            transaction.delete(path)
        # kazoo returns the errors from a transaction instead of raising them.
        results = self._result(paths[-1], transaction.commit_async())
        return not any(isinstance(result, Exception) for result in results)

    def acls(self, path: str) -> tuple[list[Acl], Stat]:
        """Return the ACLs and statistics of a znode."""
        acls, stat = self._result(path, self._client.get_acls_async(path))
        return [Acl(acl.id.scheme, acl.id.id, acl.perms) for acl in acls], Stat(*stat)

    def set_acls(self, path: str, acls: Sequence[Acl], version: int) -> Stat:
        """Replace the ACLs of a znode."""
        kazoo_acls = [ACL(acl.permissions, Id(acl.scheme, acl.id)) for acl in acls]
        return Stat(*self._result(path, self._client.set_acls_async(path, kazoo_acls, version)))

    def add_auth(self, scheme: str, credential: str) -> None:
        """Add an identity to the session."""
        try:
            self._client.add_auth_async(scheme, credential).get(timeout=RESPONSE_S)
        # A server closes the connection after a failed authentication, so the error can also be a
        # lost connection.
        except (KazooException, KazooTimeoutError) as error:
            raise CommandRefused(
                f"KeeperErrorCode = AuthFailed for {scheme}: the server has closed the connection"
            ) from error

    def sync(self, path: str) -> None:
        """Wait until the server has caught up with the leader."""
        self._result(path, self._client.sync_async(path))

    def ephemerals(self, path: str) -> list[str]:
        """Return the paths of this session's ephemeral znodes at and below `path`."""
        found = self._send(path, requests.get_ephemerals(self._server_path(path)))
        return [str(self._client.unchroot(each)) for each in found]

    def count_below(self, path: str) -> int:
        """Return the number of znodes below `path`."""
        return self._send(path, requests.get_all_children_number(self._server_path(path)))

    def identities(self) -> list[tuple[str, str]]:
        """Return the scheme and user of each identity of this session."""
        return self._send("/", requests.who_am_i())

    def config(self, *, watch: bool = False) -> tuple[bytes | None, Stat]:
        """Return the ensemble's configuration, which does not depend on the chroot."""
        return self._get(_CONFIG_PATH, _CONFIG_PATH, watch)

    def reconfigure(
        self, joining: str | None, leaving: str | None, members: str | None, version: int
    ) -> tuple[bytes | None, Stat]:
        """Change the ensemble's membership and return the new configuration."""
        return self._send("", requests.reconfig(joining, leaving, members, version))

    def add_watch(self, path: str, *, recursive: bool) -> None:
        """Set a persistent watch on `path` and, if `recursive`, on the tree below."""
        on_server = self._server_path(path)
        kind = RECURSIVE if recursive else PERSISTENT
        request = requests.add_watch(on_server, recursive=recursive)
        self._send(path, self._watching(request, kind, on_server, True))

    def remove_watches(self, path: str, option: str, *, local: bool) -> None:
        """Remove watches of children (c), data (d) or any kind (a).

        With `local`, the watches are removed from this session even if the server returns an error.
        """
        on_server = self._server_path(path)
        events = self._watches.removal_events(on_server, option)
        if not events:
            # No request is sent, because the server would remove half of a persistent watch.
            raise CommandRefused(_text(CodeError(NO_WATCHER), path))
        try:
            self._send(path, requests.remove_watches(on_server, option))
        except CommandRefused:
            if not local:
                raise
        self._watches.remove(on_server, option)
        state = "SyncConnected" if self._client.connected else "Disconnected"
        for event in events:
            self._dispatch_event(state, event, path)

    def close(self) -> None:
        """End the session; the server deletes its ephemeral znodes."""
        # Remove the listener first: it would report the end of the session as a lost connection.
        self._client.remove_listener(self._on_state)
        self._client.stop()
        self._client.close()

    def listen(self) -> None:
        """Start reporting connection state changes and watch events."""
        self._client.add_listener(self._on_state)
        # kazoo discards events of watches that it has not set itself.
        self._client._connection._read_watch_event = self._read_event

    def _on_state(self, state: str) -> None:
        # kazoo reports a failed authentication as LOST, but ZooKeeper's shell reports it as
        # AuthFailed.
        has_failed = self._client.client_state == KeeperState.AUTH_FAILED
        # The watches end with the session. On a new connection in the same session, the client has
        # to set them again.
        if state == KazooState.LOST:
            self._watches.clear()
        elif state == KazooState.CONNECTED:
            for paths in self._watches.batches():
                request = requests.set_watches(self._client.last_zxid, *paths)
                self._client._call(request, self._client.handler.async_result())
        self._on_event("AuthFailed" if has_failed else _STATES[state], "None", None)

    def _read_event(self, data: bytes, position: int) -> None:
        """Decode an event on kazoo's reading thread, and report it on the callback thread."""
        kind, on_server = requests.read_event(data, position)
        if kind is None or self._client._stopped.is_set():
            return
        self._watches.fired(kind, on_server)
        self._dispatch_event("SyncConnected", kind, self._client.unchroot(on_server))

    def _dispatch_event(self, state: str, kind: str, path: str) -> None:
        callback = Callback("watch", self._on_event, (state, kind, path))
        self._client.handler.dispatch_callback(callback)

    def _watching(self, request: Request[T], kind: str, on_server: str, watch: bool) -> Request[T]:
        """Return `request`, which records a watch when its response arrives."""
        # On the reading thread, so that an event that follows the response finds the watch.
        if watch:
            request.on_response = partial(self._watches.add, kind, on_server)
        return request

    def _server_path(self, path: str) -> str:
        # kazoo adds the chroot only to the requests that it encodes itself.
        chroot: str = self._client.chroot
        return chroot if chroot and path == "/" else chroot + path

    def _get(self, path: str, on_server: str, watch: bool) -> tuple[bytes | None, Stat]:
        request = requests.get_data(on_server, watch=watch)
        return self._send(path, self._watching(request, DATA, on_server, watch))

    def _send(self, path: str, request: Request[T]) -> T:
        pending = self._client.handler.async_result()
        # kazoo has no public method for requests that it does not define.
        self._client._call(request, pending)
        result: T = self._result(path, pending)
        return result

    def _result(self, path: str, pending: Any) -> Any:
        """Wait for the result of an asynchronous call. Raises CommandRefused."""
        try:
            return self._wait(pending)
        except NoNodeError as error:
            raise NoSuchNode(_text(error, path)) from error
        except (KazooException, KazooTimeoutError) as error:
            raise CommandRefused(_text(error, path)) from error

    def _wait(self, pending: Any) -> Any:
        """Wait up to RESPONSE_S, or until the connection is lost and all addresses have failed."""
        # kazoo keeps retrying, even if all addresses refuse connections.
        deadline = time.monotonic() + RESPONSE_S
        while True:
            try:
                return pending.get(timeout=_WAIT_S)
            except KazooTimeoutError:
                is_lost = not self._client.connected and self._sockets.has_tried_all
                if is_lost or time.monotonic() > deadline:
                    raise


def _text(error: Exception, path: str) -> str:
    """Return the message that ZooKeeper's shell prints for `error`."""
    text = _TEXTS.get(type(error))
    if text is not None:
        return text.format(path=path)
    code = getattr(error, "code", None)
    if code == QUOTA_EXCEEDED:
        return f"Quota has exceeded : {path}"
    name = CODES.get(code or 0, type(error).__name__.removesuffix("Error"))
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

    Raises ZooKeeperUnreachable after CONNECT_S, or when connecting to every address has failed.
    """
    try:
        client, sockets = _prepared(hosts, security, session_timeout_s, read_only)
    except ValueError:
        raise ZooKeeperUnreachable(
            f"invalid ZooKeeper address '{hosts}': use HOST:PORT[,HOST:PORT...][/CHROOT]"
        ) from None
    deadline = time.monotonic() + CONNECT_S
    # KazooClient.start would retry until its timeout, even if all addresses refuse connections.
    live = client.start_async()
    while not live.wait(_POLL_S):
        if time.monotonic() > deadline or sockets.has_tried_all:
            client.stop()
            client.close()
            raise ZooKeeperUnreachable(
                f"cannot connect to ZooKeeper at {hosts}: {sockets.problem or 'no response'}"
            )
    connection = KazooConnection(client, sockets, on_event)
    connection.listen()
    return connection


def _prepared(
    hosts: str, security: Security | None, session_timeout_s: float, read_only: bool
) -> tuple[Any, Sockets]:
    sockets = Sockets(security)
    # kazoo logs each attempt to connect, but plog reports a failure once.
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
    sockets.use([(str(host), int(port or _DEFAULT_PORT)) for host, port in client.hosts])
    sockets.resolve()
    return client, sockets
