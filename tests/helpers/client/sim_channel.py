"""A `Channel` of the client's engine over a simulated connection (tests/sim/network.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from plog.client.errors import ConnectionFailed
from plog.client.network.ports import Cancelled
from plog.client.network.twisted_channel import give_up_after
from plog.errors import RequestTimedOut
from plog.wire.schema import ApiMessage
from plogd.ports import Later
from tests.helpers.client.deferred_clock import DeferredClock
from tests.sim.network import Connection, ConnectionLost

R = TypeVar("R", bound=ApiMessage)


class SimChannel:
    """A `Channel` over `connection`. Subclasses cause faults, or record requests."""

    def __init__(self, connection: Connection, address: str, clock: DeferredClock) -> None:
        self.address = address
        self._connection = connection
        self._clock: Any = clock
        self._waiting: list[Deferred[Any]] = []

    @property
    def is_open(self) -> bool:
        return self._connection.is_open

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    def ask(
        self,
        request: ApiMessage,
        response: type[R],
        version: int,
        *,
        timeout_s: float,
        wait_s: float | None = None,
    ) -> Deferred[R]:
        later = self._request(request, version, expects_answer=True)
        answer: Deferred[R] = Deferred(lambda d: d.errback(Failure(Cancelled())))
        self._waiting.append(answer)
        timer = self._clock.callLater(timeout_s, lambda: self._timed_out(answer))

        def end(finish: Callable[[Any], None], outcome: object) -> None:
            if answer in self._waiting:
                self._waiting.remove(answer)
            if timer.active():
                timer.cancel()
            if not answer.called:
                finish(outcome)

        later.then(
            lambda message: end(answer.callback, message),
            lambda error: end(answer.errback, Failure(_lost(error))),
        )
        if wait_s is not None:
            give_up_after(self._clock, answer, wait_s, request, self.address)
        return answer

    def send(self, request: ApiMessage, version: int, *, timeout_s: float) -> Deferred[None]:
        gone: Deferred[None] = Deferred(lambda d: d.errback(Failure(Cancelled())))

        def leave() -> None:
            try:
                later = self._request(request, version, expects_answer=False)
            except ConnectionFailed as error:
                gone.errback(error)
                return
            later.then(lambda _: None, lambda _: None)
            gone.callback(None)

        self._check_open()
        self._write(leave)
        return gone

    def _write(self, leave: Callable[[], None]) -> None:
        """Write the bytes of a request without a response."""
        leave()

    def _check_open(self) -> None:
        if not self.is_open:
            raise ConnectionFailed(f"the connection to {self.address} is closed")

    def _request(self, request: ApiMessage, version: int, *, expects_answer: bool) -> Later[Any]:
        """Send a request; return its response. Fails with ConnectionLost."""
        self._check_open()
        return self._connection.request(request, version, expects_answer=expects_answer)

    def _timed_out(self, answer: Deferred[Any]) -> None:
        self._waiting.remove(answer)
        if not answer.called:
            answer.errback(Failure(RequestTimedOut(f"{self.address} did not respond in time")))
        self.drop()

    def drop(self) -> None:
        """Break the connection."""
        self._connection.drop()

    def close(self) -> None:
        self._connection.drop()


def _lost(error: Exception) -> Exception:
    return ConnectionFailed(str(error)) if isinstance(error, ConnectionLost) else error
