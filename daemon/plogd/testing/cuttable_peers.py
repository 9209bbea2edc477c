"""Connections to other brokers that a test can cut: requests and responses are held back.

`CuttablePeers` wraps the `Peers` of a broker of a `RunningCluster`. As in a network that drops all
packets, nothing fails before its timeout while the connection is cut, and what was held back
arrives in order when it is restored. It also counts the requests in flight, so that an advance of
the cluster's time can wait for them. Reactor thread only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from plog.errors import RequestTimedOut
from plogd.peers import REQUEST_TIMEOUT_MS, PeerRequest, Peers, PeerUnavailable
from plogd.ports import Clock, Later, Timer, Timers


class CuttablePeers:
    """The `Peers` of one broker; `cut_ids` are the brokers that it cannot reach at first."""

    def __init__(
        self, peers: Peers, clock: Clock, timers: Timers, cut_ids: Collection[int] = ()
    ) -> None:
        self._peers = peers
        self._clock = clock
        self._timers = timers
        self._held: dict[int, deque[Callable[[], None]]] = {one: deque() for one in cut_ids}
        """What is held back, by the broker that cannot be reached."""
        self._in_flight: set[_Asked] = set()
        self._waits: list[_Wait] = []

    def ask(
        self,
        broker_id: int,
        request: PeerRequest,
        lane: str,
        *,
        timeout_ms: float = REQUEST_TIMEOUT_MS,
    ) -> Later[Any]:
        """Send a request; see `Peers.ask`."""
        asked = _Asked(broker_id, self._clock.monotonic_ms() + timeout_ms, self._ended)
        self._in_flight.add(asked)

        def send() -> None:
            if asked.later.done:
                return
            asked.stop_timer()
            rest_ms = max(0.0, asked.deadline_ms - self._clock.monotonic_ms())
            asked.sent = self._peers.ask(broker_id, request, lane, timeout_ms=rest_ms)
            asked.sent.then(
                lambda value: self._pass(asked, lambda: asked.succeed(value)),
                lambda error: self._pass(asked, lambda: asked.fail(error)),
            )

        self._pass(asked, send)
        return asked.later

    def close(self) -> None:
        """Close all connections; see `Peers.close`."""
        for asked in list(self._in_flight):
            # Nothing passes a connection that is cut.
            if asked.broker_id in self._held:
                asked.fail(PeerUnavailable("this broker is stopping"))
        self._peers.close()

    # -- for tests ----------------------------------------------------------------------------

    def cut(self, broker_id: int) -> None:
        """Hold back all requests to a broker and all of its responses."""
        self._held.setdefault(broker_id, deque())
        self._check_waits()

    def heal(self, broker_id: int) -> None:
        """Pass on what was held back, in order."""
        held = self._held.get(broker_id)
        # It stays cut until the last one has passed, so that new requests cannot overtake.
        while held:
            held.popleft()()
        self._held.pop(broker_id, None)

    def in_flight(self) -> Later[None]:
        """Wait until the present requests have ended, except those that are held back."""
        wait = _Wait(set(self._in_flight))
        self._waits.append(wait)
        self._check_waits()
        return wait.later

    # -- requests -----------------------------------------------------------------------------

    def _pass(self, asked: _Asked, step: Callable[[], None]) -> None:
        held = self._held.get(asked.broker_id)
        if held is None:
            step()
            return
        held.append(step)
        if asked.timer is None:
            rest_ms = max(0.0, asked.deadline_ms - self._clock.monotonic_ms())
            asked.timer = self._timers.call_later(rest_ms, asked.expire)

    def _ended(self, asked: _Asked) -> None:
        self._in_flight.discard(asked)
        self._check_waits()

    def _check_waits(self) -> None:
        for wait in list(self._waits):
            wait.requests &= self._in_flight
            if all(asked.broker_id in self._held for asked in wait.requests):
                self._waits.remove(wait)
                wait.later.succeed(None)


class _Wait:
    """A wait for requests."""

    def __init__(self, requests: set[_Asked]) -> None:
        self.requests = requests
        self.later: Later[None] = Later()


class _Asked:
    """A request without an outcome."""

    def __init__(
        self, broker_id: int, deadline_ms: float, on_end: Callable[[_Asked], None]
    ) -> None:
        self.broker_id = broker_id
        self.deadline_ms = deadline_ms
        self.later: Later[Any] = Later(self._cancelled)
        self.sent: Later[Any] | None = None
        self.timer: Timer | None = None
        """Set while the request or its response is held back."""
        self._on_end = on_end

    def succeed(self, value: Any) -> None:
        if not self.later.done:
            self._end()
            self.later.succeed(value)

    def fail(self, error: Exception) -> None:
        if not self.later.done:
            self._end()
            self.later.fail(error)

    def expire(self) -> None:
        self.timer = None
        self.fail(RequestTimedOut(f"broker {self.broker_id} did not respond in time"))

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _cancelled(self) -> None:
        self._end()
        if self.sent is not None:
            self.sent.cancel()

    def _end(self) -> None:
        self.stop_timer()
        self._on_end(self)
