"""The session with ZooKeeper: its lease, its heartbeat, and waiting for the connection.

`Session` is a `ZooKeeperClient` that adds these to another one. The lease is the time until which
the ensemble cannot have ended the session, by the monotonic clock. It can end while the client
still seems to be connected: the client notices a dead connection later.

Only the leader of the ensemble ends sessions: not before one session timeout has passed since it
last noticed the session, and up to a tick later, because it checks them once per tick. A new leader
gives all sessions their whole timeout. A response alone does not renew the session, for two
reasons:

- A server that has lost its leader, or a leader that has lost its quorum, continues to answer reads
  until it notices that, which takes up to ``syncLimit`` ticks. The leader, or the next one, does
  not learn about these reads. The heartbeat is therefore a transaction, which a quorum has to
  commit.
- A server reports the requests of its clients to the leader only when the leader pings it, twice
  per tick. If the server loses the leader right after the transaction, the leader has not learned
  about the transaction's client. It has learned about requests that were answered before the last
  ping.

The lease is therefore renewed when the response to a heartbeat arrives. It ends one session timeout
after an earlier heartbeat was sent: the last one that was answered before the ping that preceded
the present one. Sessions last at least two ticks (``minSessionTimeout``), so this ping was sent at
most a quarter of a session timeout earlier. Until then, the lease counts from the handshake, which
always goes to the leader.

Source: ZooKeeper 3.8 SessionTrackerImpl, ExpiryQueue, LearnerSessionTracker, Leader.lead,
LearnerHandler.run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from plog.zookeeper.operations import (
    ClientClosed,
    ConnectionLost,
    Operation,
    Result,
    SessionExpired,
    SessionState,
    ZnodeStat,
)
from plogd.metadata.zookeeper.port import Watch, ZooKeeperClient
from plogd.notify_all import notify_all
from plogd.ports import Clock, Later, Timer, Timers, spawn

T = TypeVar("T")

HEARTBEATS_PER_TIMEOUT: Final = 6
"""After a heartbeat, two thirds of the session timeout are left, and at least half of it always."""
_PINGS_PER_TIMEOUT: Final = 4
"""How often a leader pings its servers in the shortest possible session timeout, two ticks."""
LOST: Final = (ConnectionLost, SessionExpired)
"""The errors of a request that may succeed on the next connection."""


class Session:
    """A client with a lease. Create it before the client's first connection."""

    def __init__(self, client: ZooKeeperClient, *, clock: Clock, timers: Timers) -> None:
        self._client = client
        self._clock = clock
        self._timers = timers
        self._listeners: list[Callable[[SessionState], None]] = []
        self._waiting: list[Later[None]] = []
        self._watching: list[Later[None]] = []
        """Waits for a watch, which end when the connection is lost."""
        self._heartbeat: Timer | None = None
        self._answered: deque[tuple[float, float]] = deque()
        """When the heartbeats of this connection were sent and answered, without those before the
        one that has set `_noticed_ms`."""
        self._unanswered_connection = 0
        """The connection on which a heartbeat waits for its response, or 0."""
        self._noticed_ms = 0.0
        """The leader has noticed the session at this time or later."""
        self._lease_end_ms = -1.0
        self._lease_timer: Timer | None = None
        self.on_lease_ended: Callable[[], None] = lambda: None
        """Called when the lease has ended, unless the session was lost before."""
        self._is_closed = False
        self.state = SessionState.SUSPENDED
        self.connections = 0
        """Number of connections so far; a change means that watches and responses were lost."""
        client.listen(self._on_state)

    @property
    def session_id(self) -> int:
        """The id of the current session."""
        return self._client.session_id

    @property
    def session_timeout_ms(self) -> int:
        """The session timeout that the server has granted."""
        return self._client.session_timeout_ms

    @property
    def handshake_age_ms(self) -> float:
        """Time since the handshake of the present connection began."""
        return self._client.handshake_age_ms

    @property
    def problem(self) -> str:
        """Why the client cannot connect."""
        return self._client.problem

    @property
    def lease_end_ms(self) -> float:
        """Until when the current session cannot have expired, by the monotonic clock."""
        return self._lease_end_ms

    def listen(self, on_state: Callable[[SessionState], None]) -> None:
        """Call `on_state` after every change of the session's state."""
        self._listeners.append(on_state)

    def connected(self) -> Later[None]:
        """Wait until the session is connected; fails with ClientClosed after `close`."""
        later: Later[None] = Later()
        if self._is_closed:
            later.fail(ClientClosed("the connection to ZooKeeper was closed"))
        elif self.state is SessionState.CONNECTED:
            later.succeed(None)
        else:
            self._waiting.append(later)
        return later

    def until_disconnected(self, watch: Later[None], connection: int) -> Later[None]:
        """Wait for a watch; fails with ConnectionLost if the connection, and so the watch, is lost.

        `connection` is the value of `connections` from before the watch was set.
        """
        outcome: Later[None] = Later()
        if self.state is not SessionState.CONNECTED or connection != self.connections:
            outcome.fail(ConnectionLost("the connection to ZooKeeper was lost"))
            return outcome
        self._watching.append(outcome)

        def fired(_: None) -> None:
            if not outcome.done:
                self._watching.remove(outcome)
                outcome.succeed(None)

        watch.then(fired, outcome.fail)
        return outcome

    def retry(self, request: Callable[[], Coroutine[Later[Any], Any, T]]) -> Later[T]:
        """Run `request` until it is not interrupted by a lost connection; only for reads."""
        return spawn(self._retry(request))

    async def _retry(self, request: Callable[[], Coroutine[Later[Any], Any, T]]) -> T:
        while True:
            await self.connected()
            try:
                return await request()
            except LOST:
                continue

    def close(self) -> None:
        """Stop the heartbeat, and fail everything that waits for a connection."""
        self._is_closed = True
        self._stop_heartbeat()
        self._stop_lease_timer()
        self.state = SessionState.SUSPENDED
        waiting = [*self._waiting, *self._watching]
        self._waiting, self._watching = [], []
        for later in waiting:
            if not later.done:
                later.fail(ClientClosed("the connection to ZooKeeper was closed"))

    # -- requests -----------------------------------------------------------------------------

    def get(self, path: str, watch: Watch | None = None) -> Later[tuple[bytes, ZnodeStat]]:
        """Return the data of a znode."""
        return self._client.get(path, watch)

    def exists(self, path: str, watch: Watch | None = None) -> Later[ZnodeStat | None]:
        """Return the statistics of a znode, or None."""
        return self._client.exists(path, watch)

    def children(self, path: str, watch: Watch | None = None) -> Later[list[str]]:
        """Return the names of a znode's children."""
        return self._client.children(path, watch)

    def multi(self, operations: Sequence[Operation]) -> Later[list[Result]]:
        """Apply all operations, or none."""
        return self._client.multi(operations)

    def sync(self) -> Later[None]:
        """Wait until this client's server has applied all earlier writes."""
        return self._client.sync()

    def confirm(self) -> Later[None]:
        """Wait for a transaction that changes nothing."""
        return self._client.confirm()

    # -- the lease ----------------------------------------------------------------------------

    def _beat(self) -> None:
        interval_ms = self._client.session_timeout_ms / HEARTBEATS_PER_TIMEOUT
        self._heartbeat = self._timers.call_later(interval_ms, self._beat)
        # One at a time, so that a server that hangs does not have to answer all of them later.
        if self._unanswered_connection == self.connections:
            return
        self._unanswered_connection = self.connections
        answered = partial(self._renew, self._clock.monotonic_ms(), self.connections)
        self._client.confirm().then(answered, self._not_answered)

    def _stop_heartbeat(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            self._heartbeat = None

    def _renew(self, sent_ms: float, connection: int, _: None) -> None:
        """Renew the lease with the response to a heartbeat of the given connection."""
        if self._heartbeat is None or connection != self.connections:
            return  # The connection was lost, or the session is closed.
        self._unanswered_connection = 0
        timeout_ms = self._client.session_timeout_ms
        ping_ms = sent_ms - timeout_ms / _PINGS_PER_TIMEOUT
        while self._answered and self._answered[0][1] <= ping_ms:
            self._noticed_ms, _answered_ms = self._answered.popleft()
        self._answered.append((sent_ms, self._clock.monotonic_ms()))
        self._lease_end_ms = max(self._lease_end_ms, self._noticed_ms + timeout_ms)
        if self._lease_timer is None:
            self._check_lease()

    def _not_answered(self, error: Exception) -> None:
        self._unanswered_connection = 0
        if isinstance(error, ClientClosed):  # The broker is stopping.
            self._stop_heartbeat()
            self._stop_lease_timer()

    def _check_lease(self) -> None:
        """Wait until the lease ends; a renewal only moves `lease_end_ms`, not the timer."""
        self._lease_timer = None
        left_ms = self._lease_end_ms - self._clock.monotonic_ms()
        if left_ms > 0:
            self._lease_timer = self._timers.call_later(left_ms, self._check_lease)
        else:
            self.on_lease_ended()

    def _stop_lease_timer(self) -> None:
        if self._lease_timer is not None:
            self._lease_timer.cancel()
            self._lease_timer = None

    # -- state --------------------------------------------------------------------------------

    def _on_state(self, state: SessionState) -> None:
        if self._is_closed:
            return
        self.state = state
        self._stop_heartbeat()
        if state is SessionState.EXPIRED:
            self._lease_end_ms = -1.0
            self._stop_lease_timer()
        if state is not SessionState.CONNECTED:
            watching, self._watching = self._watching, []
            error = ConnectionLost("the connection to ZooKeeper was lost")
            notify_all(
                [
                    *(partial(each, state) for each in self._listeners),
                    *(partial(later.fail, error) for later in watching if not later.done),
                ]
            )
            return
        self.connections += 1
        self._answered.clear()
        self._noticed_ms = self._clock.monotonic_ms() - self._client.handshake_age_ms
        self._beat()
        waiting, self._waiting = self._waiting, []
        # The listeners first: they learn that watches were lost before a request is repeated.
        notify_all(
            [
                *(partial(each, state) for each in self._listeners),
                *(partial(later.succeed, None) for later in waiting),
            ]
        )


def _ignore(_: object) -> None:
    """Drop the outcome of work."""


def start_until_lost(work: Coroutine[Later[Any], Any, None]) -> None:
    """Start work that ends with the connection, and that the next connection starts again."""
    spawn(work).then(_ignore, _ignore_lost)


def _ignore_lost(error: Exception) -> None:
    if not isinstance(error, (*LOST, ClientClosed)):
        raise error
