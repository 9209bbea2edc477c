"""An in-memory ZooKeeper in virtual time: sessions, watches, and the faults of a real one.

`MockZooKeeper` is the ensemble; `connect` returns clients, which implement the port of
plogd/metadata/zookeeper/port.py. Nothing happens outside the timers, so a run with the same seed is
the same run. A test or the simulator causes faults: a connection that is lost before or after a
write is applied (`on_request`), a network that is cut (`cut`), a server that lags behind, so that
reads are stale and watches late (`hold`), a server that has lost its leader (`isolate`), an expired
session (`expire`), a lost quorum, a client whose process dies (`kill`).

As with a real ensemble, a client never sees an older state than before within one session, a watch
event arrives before any response that contains the change, and a session outlives its client by the
session timeout. Source: ZooKeeper 3.8 Programmer's Guide, "Consistency Guarantees".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final

from plog.zookeeper.operations import (
    ClientClosed,
    ConnectionLost,
    Delete,
    NoNode,
    Operation,
    Result,
    SessionExpired,
    SessionState,
    ZnodeStat,
    ZooKeeperError,
)
from plogd.metadata.zookeeper.port import Watch
from plogd.ports import Clock, Later, Timers, ready
from plogd.testing.mock_sessions import MockSession, MockSessions
from plogd.testing.mock_znodes import MockZnodes, Transaction, Znode

LATENCY_MS: Final = 0.5
"""Time that a request or a response takes, each way."""
RECONNECT_MS: Final = 10.0
"""Time between two attempts of a client to connect."""
_READS: Final = frozenset({"get", "exists", "children"})


class Fault(Enum):
    """What happens to a request."""

    NONE = "none"
    LOSE_BEFORE = "lose before"
    """The connection is lost before the request reaches a server."""
    LOSE_AFTER = "lose after"
    """The connection is lost before the response arrives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request, as `on_request` sees it: its kind and path, or the operations of a multi."""

    kind: str
    path: str = ""
    operations: tuple[Operation, ...] = ()


@dataclass(slots=True, kw_only=True)
class _Pending:
    request: Request
    later: Later[Any]
    watch: Watch | None


class MockZooKeeper:
    """An ensemble. `on_request` decides about each request of each client."""

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self.clock = clock
        self.timers = timers
        self.znodes = MockZnodes()
        self.on_request: Callable[[MockZooKeeperClient, Request], Fault] = lambda *_: Fault.NONE
        self.has_quorum = True
        self.sessions = MockSessions(
            clock, timers, has_quorum=lambda: self.has_quorum, expired=self.expire
        )
        self._clients: list[MockZooKeeperClient] = []

    def connect(self, *, session_timeout_ms: int = 6000) -> MockZooKeeperClient:
        """Return a client that connects in the next pass of the timers."""
        client = MockZooKeeperClient(self, session_timeout_ms)
        self._clients.append(client)
        self.timers.call_later(0, client.try_to_connect)
        return client

    # -- for tests ----------------------------------------------------------------------------

    def data(self, path: str) -> bytes | None:
        """Return the data of a znode now, or None."""
        znode = self.znodes.find(path, self.znodes.zxid)
        return None if znode is None else znode.data

    def stat(self, path: str) -> ZnodeStat | None:
        """Return the statistics of a znode now, or None."""
        znode = self.znodes.find(path, self.znodes.zxid)
        return None if znode is None else znode.stat

    def names(self, path: str) -> list[str]:
        """Return the names of a znode's children now."""
        return self.znodes.children(path, self.znodes.zxid)

    def write(self, *operations: Operation) -> None:
        """Apply operations as another program, such as ZooKeeper's shell, without delay."""
        self.apply(operations, session=0)

    def lose_quorum(self) -> None:
        """Stop serving; connections break. Sessions do not expire until `restore_quorum`."""
        self.has_quorum = False
        for client in list(self._clients):
            client.lose_connection()

    def restore_quorum(self) -> None:
        """Serve again; the new leader gives every session its whole timeout."""
        self.has_quorum = True
        self.sessions.restart_all()

    def expire(self, session_id: int) -> None:
        """End a session now; its client learns this when it reconnects."""
        if not self.sessions.end(session_id):
            return
        owned = [
            Delete(path=path)
            for path in self.znodes.paths()
            if (znode := self.znodes.find(path, self.znodes.zxid)) is not None
            and znode.stat.ephemeral_owner == session_id
        ]
        if owned:
            self.apply(owned, session=0)
        for client in list(self._clients):
            if client.session_id == session_id:
                client.lose_connection()

    # -- for clients --------------------------------------------------------------------------

    def apply(self, operations: Sequence[Operation], *, session: int) -> list[Result]:
        """Apply a transaction, and send the events that it causes. Raises MultiFailed."""
        results = self.znodes.apply(operations, session=session, now_ms=self.clock.now_ms())
        for client in list(self._clients):
            client.server_advances()
        self._forget()
        return results

    def closed(self, client: MockZooKeeperClient) -> None:
        """Forget a client."""
        if client in self._clients:
            self._clients.remove(client)

    def _forget(self) -> None:
        views = [client.view for client in self._clients]
        self.znodes.forget(min(views, default=self.znodes.zxid))


class MockZooKeeperClient:
    """A client of a `MockZooKeeper`, connected to a server of its own."""

    def __init__(self, ensemble: MockZooKeeper, session_timeout_ms: int) -> None:
        self._ensemble = ensemble
        self._timeout_ms = session_timeout_ms
        self._session: MockSession | None = None
        self._listeners: list[Callable[[SessionState], None]] = []
        self._generation = 0
        """Number of the connection; events of earlier connections are dropped."""
        self._sent: deque[_Pending] = deque()
        self._waiting: deque[_Pending] = deque()
        self._watches: dict[tuple[str, str], list[Watch]] = {}
        self._is_cut = False
        self._is_held = False
        self._is_isolated = False
        self._is_blocked = False
        """Whether a write is waiting for the leader of a server that has lost it."""
        self._is_closed = False
        self.is_connected = False
        self.view = 0
        """The last transaction that this client's server has applied."""

    # -- the port -----------------------------------------------------------------------------

    @property
    def session_id(self) -> int:
        return 0 if self._session is None else self._session.id

    @property
    def session_timeout_ms(self) -> int:
        return self._timeout_ms

    @property
    def handshake_age_ms(self) -> float:
        connected_ms = 0.0 if self._session is None else self._session.connected_ms
        return self._ensemble.clock.monotonic_ms() - connected_ms

    @property
    def problem(self) -> str:
        return "mock: no response"

    def listen(self, on_state: Callable[[SessionState], None]) -> None:
        self._listeners.append(on_state)

    def get(self, path: str, watch: Watch | None = None) -> Later[tuple[bytes, ZnodeStat]]:
        return self._send(Request(kind="get", path=path), watch)

    def exists(self, path: str, watch: Watch | None = None) -> Later[ZnodeStat | None]:
        return self._send(Request(kind="exists", path=path), watch)

    def children(self, path: str, watch: Watch | None = None) -> Later[list[str]]:
        return self._send(Request(kind="children", path=path), watch)

    def multi(self, operations: Sequence[Operation]) -> Later[list[Result]]:
        return self._send(Request(kind="multi", operations=tuple(operations)))

    def sync(self) -> Later[None]:
        return self._send(Request(kind="sync"))

    def confirm(self) -> Later[None]:
        return self._send(Request(kind="confirm"))

    # -- faults -------------------------------------------------------------------------------

    def cut(self) -> None:
        """Cut the network; the client notices after two thirds of the session timeout."""
        self._is_cut = True
        if self._session is not None and self.is_connected:
            self._ensemble.sessions.disconnected(self._session)
            notice = partial(self._notice, self._generation)
            self._ensemble.timers.call_later(self._timeout_ms * 2 / 3, notice)

    def _notice(self, generation: int) -> None:
        if generation == self._generation:
            self.lose_connection()

    def restore(self) -> None:
        """Restore the network; a connection that was cut is not usable any more."""
        if self._is_isolated:
            self._is_isolated = self._is_held = False
        self._is_cut = self._is_blocked = False
        self.lose_connection()

    def isolate(self) -> None:
        """Let this client's server lose its leader: it answers reads until `restore`, and the
        session expires."""
        self._is_isolated = self._is_held = True
        if self._session is not None and self.is_connected:
            self._ensemble.sessions.isolated(self._session)

    def hold(self) -> None:
        """Stop this client's server from applying transactions: reads are stale, watches late."""
        self._is_held = True

    def catch_up(self) -> None:
        """Let this client's server apply all transactions again."""
        self._is_held = False
        self.server_advances()

    def start(self) -> None:
        """Do nothing: `MockZooKeeper.connect` has started the client."""

    def close(self) -> Later[None]:
        """End the session."""
        session, is_connected = self._session, self.is_connected
        self.kill()
        for pending in self._take_pending():
            pending.later.fail(ClientClosed("the client was closed"))
        if session is not None and is_connected and not self._is_cut:
            self._ensemble.expire(session.id)
        return ready(None)

    def kill(self) -> None:
        """Let the client's process die: no callback runs any more."""
        self._generation += 1
        self._is_closed = True
        self.is_connected = False
        self._ensemble.closed(self)
        if self._session is not None:
            self._ensemble.sessions.disconnected(self._session)

    # -- connection ---------------------------------------------------------------------------

    def try_to_connect(self) -> None:
        """Connect to a server, or try again later; called by timers."""
        if self._is_closed or self.is_connected:
            return
        if self._is_cut or self._is_isolated or not self._ensemble.has_quorum:
            self._ensemble.timers.call_later(RECONNECT_MS, self.try_to_connect)
            return
        session = None if self._session is None else self._ensemble.sessions.get(self._session.id)
        if session is None and self._session is not None:
            self._session = None
            for pending in self._take_pending():
                pending.later.fail(SessionExpired("the session has expired"))
            self._report(SessionState.EXPIRED)
            # A listener may have closed the client, which then opens no session.
            if self._has_closed():
                return
        self._session = session or self._ensemble.sessions.open(self._timeout_ms)
        self._ensemble.sessions.connected(self._session)
        self.is_connected = True
        if not self._is_held:
            self.view = self._ensemble.znodes.zxid
        waiting, self._waiting = self._waiting, deque()
        for pending in waiting:
            self._transmit(pending)
        self._report(SessionState.CONNECTED)

    def _has_closed(self) -> bool:
        return self._is_closed

    def lose_connection(self) -> None:
        """Break the connection; the client notices at once, and tries to connect again."""
        if not self.is_connected or self._is_isolated:
            return
        self.is_connected = False
        self._generation += 1
        self._watches.clear()
        if self._session is not None:
            self._ensemble.sessions.disconnected(self._session)
        for pending in self._take_pending():
            pending.later.fail(ConnectionLost("the connection to ZooKeeper was lost"))
        self._report(SessionState.SUSPENDED)
        self._ensemble.timers.call_later(RECONNECT_MS, self.try_to_connect)

    def _take_pending(self) -> list[_Pending]:
        # All are taken first: a callback may send another request, which must wait.
        pending = [*self._sent, *self._waiting]
        self._sent.clear()
        self._waiting.clear()
        return pending

    def _report(self, state: SessionState) -> None:
        for listener in list(self._listeners):
            listener(state)

    # -- requests -----------------------------------------------------------------------------

    def _send(self, request: Request, watch: Watch | None = None) -> Later[Any]:
        later: Later[Any] = Later()
        pending = _Pending(request=request, later=later, watch=watch)
        if self._is_closed:
            later.fail(ClientClosed("the client was closed"))
        elif self.is_connected:
            self._transmit(pending)
        else:
            self._waiting.append(pending)
        return later

    def _transmit(self, pending: _Pending) -> None:
        self._sent.append(pending)
        self._after_latency(partial(self._arrive, pending))

    def _after_latency(self, function: Callable[[], None]) -> None:
        """Call `function` after the latency, unless the connection is lost until then."""
        generation = self._generation

        def call() -> None:
            if generation == self._generation and not self._is_cut:
                function()

        self._ensemble.timers.call_later(LATENCY_MS, call)

    def _arrive(self, pending: _Pending) -> None:
        """Serve a request that has reached the server."""
        assert self._session is not None
        fault = self._ensemble.on_request(self, pending.request)
        # The hook may have broken the connection, too.
        if not self.is_connected or pending not in self._sent:
            return
        if fault is Fault.LOSE_BEFORE:
            self.lose_connection()
            return
        if self._is_isolated:
            # A read waits for the earlier writes of its client, which are not committed.
            self._is_blocked |= pending.request.kind not in _READS
            if not self._is_blocked:
                self._after_latency(partial(self._respond, *self._outcome(pending)))
            return
        self._ensemble.sessions.touched(self._session)
        seen = self.view
        value, error = self._outcome(pending)
        if fault is Fault.LOSE_AFTER:
            # The next server has at least what the client has seen, which is not this response.
            self.view = seen if self._is_held else self.view
            self.lose_connection()
        else:
            self._after_latency(partial(self._respond, value, error))

    def _outcome(self, pending: _Pending) -> tuple[Any, ZooKeeperError | None]:
        try:
            return self._serve(pending), None
        except ZooKeeperError as error:
            return None, error

    def _serve(self, pending: _Pending) -> Any:
        request, znodes = pending.request, self._ensemble.znodes
        assert self._session is not None
        if request.kind == "multi":
            try:
                return self._ensemble.apply(request.operations, session=self._session.id)
            finally:
                # The server has applied everything up to this transaction before it responds, even
                # if the transaction has failed.
                self._advance_to(znodes.zxid)
        if request.kind in ("sync", "confirm"):
            self._advance_to(znodes.zxid)
            return None
        znode = znodes.find(request.path, self.view)
        if pending.watch is not None and (znode is not None or request.kind == "exists"):
            kind = "children" if request.kind == "children" else "data"
            self._watches.setdefault((kind, request.path), []).append(pending.watch)
        return self._read(request, znode)

    def _read(self, request: Request, znode: Znode | None) -> Any:
        if request.kind == "exists":
            return None if znode is None else znode.stat
        if znode is None:
            raise NoNode(f"{request.path} does not exist")
        if request.kind == "get":
            return znode.data, znode.stat
        return self._ensemble.znodes.children(request.path, self.view)

    def _respond(self, value: Any, error: ZooKeeperError | None) -> None:
        # Responses are in the order of the requests.
        later = self._sent.popleft().later
        if error is None:
            later.succeed(value)
        else:
            later.fail(error)

    # -- watches ------------------------------------------------------------------------------

    def server_advances(self) -> None:
        """Let this client's server apply the newest transactions, unless it is held."""
        if not self._is_held:
            self._advance_to(self._ensemble.znodes.zxid)

    def _advance_to(self, zxid: int) -> None:
        for transaction in self._ensemble.znodes.log:
            if self.view < transaction.zxid <= zxid:
                self._fire(transaction)
        self.view = max(self.view, zxid)

    def _fire(self, transaction: Transaction) -> None:
        keys = [("data", path) for path in transaction.touched]
        keys += [("children", path) for path in (*transaction.parents, *transaction.deleted)]
        for key in keys:
            for watch in self._watches.pop(key, ()):
                # Sent in order with the responses, so that no response overtakes it.
                self._after_latency(watch)
