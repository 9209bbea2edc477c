"""A client for ZooKeeper on a Twisted reactor, which uses kazoo.

kazoo runs a thread for the connection. Its callbacks only put a function into a queue, which the
reactor's thread empties, so responses, watch events and states arrive in the order in which the
thread has read them. No call of kazoo that waits is made on the reactor's thread.

`KazooZooKeeper` implements the ports of plogd/metadata/zookeeper/port.py and of
plog/client/zookeeper/ports.py. It gets the type of its results as an argument, because their users
wait in different ways. Requests are kazoo's own request objects:
its public functions register their callbacks after the request was sent, so events could overtake
responses. Source: kazoo 2.8 to 2.11 client.py, protocol/connection.py.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import RolledBackError, RuntimeInconsistency
from kazoo.protocol.serialization import (
    CheckVersion,
    Connect,
    Exists,
    GetChildren,
    GetData,
    Sync,
    Transaction,
)
from kazoo.protocol.serialization import Create as KazooCreate
from kazoo.protocol.serialization import Delete as KazooDelete
from kazoo.protocol.serialization import SetData as KazooSetData
from kazoo.security import OPEN_ACL_UNSAFE

from plog.client.network.tls_context import Security
from plog.error_base import PlogError
from plog.zookeeper.connection_handler import ConnectionHandler
from plog.zookeeper.kazoo_errors import error_of
from plog.zookeeper.operations import (
    ANY_VERSION,
    ClientClosed,
    ConnectionLost,
    Create,
    Delete,
    MultiFailed,
    Operation,
    Result,
    SessionExpired,
    SessionState,
    SetData,
    ZnodeStat,
    ZooKeeperError,
)
from plog.zookeeper.sockets import Sockets

_DEFAULT_PORT: Final = 2181
# kazoo waits up to an hour by default, which is longer than any session.
_RETRY: Final = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 1.0}
_STATES: Final = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.EXPIRED,
}
_CALLS_PER_RUN: Final = 256
"""Largest number of responses and events that are handled before the reactor serves others."""
_EPHEMERAL, _SEQUENTIAL = 1, 2
"""The flags of a request that creates a znode."""


class Reactor(Protocol):
    """The part of a Twisted reactor that the client uses."""

    def callFromThread(self, callable: Callable[..., Any], *args: Any) -> None:
        """Call a function on the reactor's thread."""
        ...


class Pending(Protocol):
    """A result that is set later, such as `plogd.ports.Later`."""

    def succeed(self, value: Any) -> None:
        """Set the value."""
        ...

    def fail(self, error: Exception) -> None:
        """Set the error."""
        ...


class InvalidConnectString(PlogError):
    """``zookeeper.connect`` cannot be parsed."""


class KazooZooKeeper:
    """A client that connects after `start`, and reconnects until `close`.

    Args:
        hosts: ``zookeeper.connect``: ``HOST:PORT[,HOST:PORT...][/CHROOT]``. The chroot is created.
        session_timeout_ms: the session timeout to request; the server may grant another one.
        security: the configuration of TLS, or None without TLS.
        pending: returns a new result, such as a `Later`.

    Raises InvalidConnectString.
    """

    def __init__(
        self,
        hosts: str,
        *,
        reactor: Reactor,
        session_timeout_ms: int,
        pending: Callable[[], Any],
        security: Security | None = None,
    ) -> None:
        self.hosts = hosts
        self._reactor = reactor
        self._new_pending = pending
        self._sockets = ConnectionHandler(security)
        self._client = new_kazoo(hosts, self._sockets, session_timeout_ms, security)
        self._sockets.unanswered = self._client._pending
        self._client.add_listener(self._on_kazoo_state)
        self._listeners: list[Callable[[SessionState], None]] = []
        self._outstanding: dict[_Request, None] = {}
        """Requests without a response, in order."""
        self._calls: deque[Callable[[], None]] = deque()
        self._is_scheduled = False
        self._is_closed = False
        self._has_chroot = not self._client.chroot
        self._session_id = 0
        self._session_timeout_ms = session_timeout_ms
        self._handshake_s = time.monotonic()
        self._watch_handshakes()

    # -- connection ---------------------------------------------------------------------------

    @property
    def session_id(self) -> int:
        """The id of the current session; 0 before the first connection."""
        return self._session_id

    @property
    def session_timeout_ms(self) -> int:
        """The session timeout that the server has granted."""
        return self._session_timeout_ms

    @property
    def handshake_age_ms(self) -> float:
        """Time since the handshake of the present connection began."""
        return (time.monotonic() - self._handshake_s) * 1000

    @property
    def problem(self) -> str:
        """Why the last attempt to connect failed, and where; for error messages."""
        return f"{self.hosts}: {self._sockets.problem or 'no response'}"

    def listen(self, on_state: Callable[[SessionState], None]) -> None:
        """Call `on_state` after every change of the session's state."""
        self._listeners.append(on_state)

    def start(self) -> None:
        """Start to connect."""
        self._client.start_async()

    def close(self) -> Any:
        """End the session; the result is set when kazoo's threads have ended."""
        done = self._new_pending()
        if self._is_closed:
            done.succeed(None)
            return done
        self._is_closed = True
        self._fail_outstanding(ClientClosed("the connection to ZooKeeper was closed"))

        def stop() -> None:
            try:
                self._client.stop()
                self._client.close()
            finally:
                # The loop of an asyncio application may have closed, if the wait timed out.
                with contextlib.suppress(RuntimeError):
                    self._reactor.callFromThread(done.succeed, None)

        # kazoo waits for the response of the server, and for its threads.
        threading.Thread(target=stop, name="zookeeper-close", daemon=True).start()
        return done

    def _watch_handshakes(self) -> None:
        """Record the session timeout that the server grants, and when the handshake began.

        kazoo does not keep them.
        """
        connection = self._client._connection
        invoke = connection._invoke

        def recording(timeout: float, request: Any, xid: Any = None) -> Any:
            began_s = time.monotonic()
            result = invoke(timeout, request, xid)
            if isinstance(request, Connect) and result[0].time_out > 0:
                # The session id is set with the state, which follows this in the queue.
                session_id, timeout_ms = result[0].session_id, result[0].time_out
                self._sockets.session_begins(timeout_ms)
                self._push(partial(self._set_session, session_id, timeout_ms, began_s))
            return result

        connection._invoke = recording

    def _set_session(self, session_id: int, timeout_ms: int, began_s: float) -> None:
        self._session_id = session_id
        self._session_timeout_ms = timeout_ms
        self._handshake_s = began_s

    def _on_kazoo_state(self, state: str) -> None:
        """Called on kazoo's thread."""
        self._push(partial(self._on_state, _STATES[state]))

    def _on_state(self, state: SessionState) -> None:
        if self._is_closed:
            return
        if state is SessionState.EXPIRED:
            # kazoo fails these requests after it has reported the state, and can lose some.
            self._fail_outstanding(SessionExpired("the session has expired"))
        if state is SessionState.CONNECTED and not self._has_chroot:
            self._create_chroot()
            return
        self._report(state)

    def _report(self, state: SessionState) -> None:
        for listener in list(self._listeners):
            listener(state)

    def _create_chroot(self) -> None:
        """Create the chroot, then report that the client is connected."""
        parts = self._client.chroot.strip("/").split("/")
        paths = ["/" + "/".join(parts[: length + 1]) for length in range(len(parts))]
        for path in paths:
            request = KazooCreate(path, b"", OPEN_ACL_UNSAFE, 0)
            is_last = path == paths[-1]
            done = partial(self._chroot_created, is_last)
            self._send(request, _Request(self, _Callbacks(done, done)))

    def _chroot_created(self, is_last: bool, outcome: object) -> None:
        # After a lost connection, the next one tries again. Any other error means that the chroot
        # exists, or the first request that uses it will fail with a better message.
        is_lost = isinstance(outcome, (ConnectionLost, SessionExpired, ClientClosed))
        if is_last and not is_lost:
            self._has_chroot = True
            self._report(SessionState.CONNECTED)

    # -- requests -----------------------------------------------------------------------------

    def get(self, path: str, watch: Callable[[], None] | None = None) -> Any:
        """Return the data of a znode."""
        request = GetData(self._server_path(path), self._watcher(watch))
        return self._request(request, lambda found: (found[0] or b"", _stat_of(found[1])))

    def exists(self, path: str, watch: Callable[[], None] | None = None) -> Any:
        """Return the statistics of a znode, or None."""
        request = Exists(self._server_path(path), self._watcher(watch))
        return self._request(request, lambda found: None if found is None else _stat_of(found))

    def children(self, path: str, watch: Callable[[], None] | None = None) -> Any:
        """Return the names of a znode's children."""
        request = GetChildren(self._server_path(path), self._watcher(watch))
        return self._request(request, list)

    def multi(self, operations: Sequence[Operation]) -> Any:
        """Apply all operations, or none."""
        request = Transaction([self._kazoo_operation(one) for one in operations])
        return self._request(request, _results_of)

    def sync(self) -> Any:
        """Wait until the server has applied all earlier writes."""
        return self._request(Sync(self._server_path("/")), lambda _: None)

    def confirm(self) -> Any:
        """Wait for a transaction that changes nothing, which a quorum has to commit."""
        # The root, or the chroot, always exists.
        request = Transaction([CheckVersion(self._server_path("/"), ANY_VERSION)])
        return self._request(request, _check_results)

    def _kazoo_operation(self, operation: Operation) -> Any:
        path = self._server_path(operation.path)
        match operation:
            case Create():
                flags = _EPHEMERAL * operation.ephemeral + _SEQUENTIAL * operation.sequential
                return KazooCreate(path, operation.data, OPEN_ACL_UNSAFE, flags)
            case SetData():
                return KazooSetData(path, operation.data, operation.version)
            case Delete():
                return KazooDelete(path, operation.version)
        return CheckVersion(path, operation.version)

    def _server_path(self, path: str) -> str:
        # kazoo adds the chroot only in its public functions.
        chroot: str = self._client.chroot
        return chroot if chroot and path == "/" else chroot + path

    def _watcher(self, watch: Callable[[], None] | None) -> Callable[[Any], None] | None:
        if watch is None:
            return None
        return lambda _event: self._push(watch)

    def _request(self, request: Any, convert: Callable[[Any], Any]) -> Any:
        pending = self._new_pending()
        if self._is_closed:
            pending.fail(ClientClosed("the connection to ZooKeeper was closed"))
            return pending

        def on_value(value: Any) -> None:
            try:
                converted = convert(value)
            except ZooKeeperError as error:
                pending.fail(error)
            else:
                pending.succeed(converted)

        self._send(request, _Request(self, _Callbacks(on_value, pending.fail)))
        return pending

    def _send(self, request: Any, handle: _Request) -> None:
        self._outstanding[handle] = None
        if self._session_id and not self._client.connected:
            # Until it has connected again, kazoo would queue the request, and it would block this
            # thread when it has queued a few hundred. Its state is newer than the reported one.
            error = ConnectionLost("the connection to ZooKeeper was lost")
            self.deliver(handle, lambda: handle.callbacks.on_error(error))
            return
        self._client._call(request, handle)

    def _fail_outstanding(self, error: ZooKeeperError) -> None:
        outstanding, self._outstanding = self._outstanding, {}
        for handle in outstanding:
            handle.callbacks.on_error(error)

    def deliver(self, handle: _Request, call: Callable[[], None]) -> None:
        """Make `call` on the reactor's thread, unless the request has failed; from any thread."""

        def complete() -> None:
            # kazoo may set an outcome twice, and `_fail_outstanding` may have been faster.
            if handle in self._outstanding:
                del self._outstanding[handle]
                call()

        self._push(complete)

    # -- the queue to the reactor -------------------------------------------------------------

    def _push(self, call: Callable[[], None]) -> None:
        """Append a call for the reactor's thread; from any thread."""
        self._calls.append(call)
        # Without a lock: if two threads schedule at a time, one run has nothing to do.
        if not self._is_scheduled:
            self._is_scheduled = True
            self._reactor.callFromThread(self._drain)

    def _drain(self) -> None:
        # Reset first: a call that is appended from now on schedules another run.
        self._is_scheduled = False
        try:
            for _ in range(_CALLS_PER_RUN):
                if not self._calls:
                    break
                self._calls.popleft()()
        finally:
            # There are more, or one has raised an exception, which the reactor logs.
            if self._calls and not self._is_scheduled:
                self._is_scheduled = True
                self._reactor.callFromThread(self._drain)


class _Callbacks:
    """What to call with the outcome of a request, on the reactor's thread."""

    def __init__(
        self, on_value: Callable[[Any], None], on_error: Callable[[ZooKeeperError], None]
    ) -> None:
        self.on_value = on_value
        self.on_error = on_error


class _Request:
    """What kazoo calls with the outcome of a request, on its own thread."""

    def __init__(self, client: KazooZooKeeper, callbacks: _Callbacks) -> None:
        self._client = client
        self.callbacks = callbacks

    def set(self, value: Any = None) -> None:
        """Deliver a value."""
        self._client.deliver(self, partial(self.callbacks.on_value, value))

    def set_exception(self, error: Exception) -> None:
        """Deliver an error."""
        self._client.deliver(self, partial(self.callbacks.on_error, error_of(error)))


def _stat_of(stat: Any) -> ZnodeStat:
    return ZnodeStat(
        version=stat.version,
        czxid=stat.czxid,
        mzxid=stat.mzxid,
        ctime_ms=stat.ctime,
        ephemeral_owner=stat.ephemeralOwner,
    )


def _results_of(found: Sequence[Any]) -> list[Result]:
    """Return the results of a multi. Raises MultiFailed for the operation that has failed."""
    errors = {index: one for index, one in enumerate(found) if isinstance(one, Exception)}
    for index, error in errors.items():
        # kazoo returns errors as values. The other operations have one of these two.
        if not isinstance(error, RolledBackError | RuntimeInconsistency):
            raise MultiFailed(index, error_of(error))
    if errors:
        raise ZooKeeperError(f"ZooKeeper rejected a transaction: {errors}")
    return [
        one if isinstance(one, str) else None if one is True else _stat_of(one) for one in found
    ]


def _check_results(found: Sequence[Any]) -> None:
    """Raise MultiFailed if an operation of a multi has failed."""
    _results_of(found)


def new_kazoo(
    hosts: str, sockets: Sockets, session_timeout_ms: int, security: Security | None
) -> Any:
    """Return a client of kazoo that does not log. Raises InvalidConnectString."""
    # kazoo logs each attempt to connect, but plog reports the state.
    silent = logging.getLogger("plog.zookeeper.kazoo")
    silent.addHandler(logging.NullHandler())
    silent.propagate = False
    # Formatting a line for each request would take longer than the request.
    silent.setLevel(logging.CRITICAL)
    try:
        client = KazooClient(
            hosts=hosts,
            timeout=session_timeout_ms / 1000,
            handler=sockets,
            connection_retry=dict(_RETRY),
            logger=silent,
            use_ssl=security is not None,
        )
        addresses = [(str(host), int(port or _DEFAULT_PORT)) for host, port in client.hosts]
    except ValueError:
        raise InvalidConnectString(
            f"invalid ZooKeeper address '{hosts}': use HOST:PORT[,HOST:PORT...][/CHROOT]"
        ) from None
    sockets.use(addresses)
    return client
