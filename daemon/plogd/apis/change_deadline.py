"""The deadline of requests that change something, but have no timeout of their own.

A write to ZooKeeper waits while ZooKeeper is not reachable, which can take minutes. The client gets
REQUEST_TIMED_OUT before it gives up. A change that has begun continues; one that still waits for an
earlier change is dropped. Requests with a field `timeout_ms` do not use this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from plog.errors import RequestTimedOut
from plogd.broker import Broker
from plogd.ports import Later

T = TypeVar("T")

CHANGE_TIMEOUT_MS: Final = 25_000
"""Less than 30 seconds, the default of request.timeout.ms in Kafka's clients."""


class ChangeDeadline:
    """The time until which one request waits for all its changes."""

    def __init__(self, broker: Broker) -> None:
        self._clock = broker.clock
        self._timers = broker.timers
        self._end_ms = self._clock.monotonic_ms() + CHANGE_TIMEOUT_MS

    def limit(self, change: Callable[[], Later[T]]) -> Later[T]:
        """Start a change; return its outcome, or fail with RequestTimedOut at the deadline.

        Raises RequestTimedOut without starting the change if the deadline has passed.
        """
        left_ms = self._end_ms - self._clock.monotonic_ms()
        if left_ms <= 0:
            raise RequestTimedOut(
                "not changed: earlier changes of the request took too long; send the rest again"
            )
        work = change()

        def expire() -> None:
            outcome.fail(
                RequestTimedOut(
                    f"the change is still being written after {CHANGE_TIMEOUT_MS // 1000} s;"
                    " describe the resource to see whether it was made, or try again"
                )
            )
            work.cancel()

        def cancel() -> None:
            timer.cancel()
            work.cancel()

        def on_value(value: T) -> None:
            # After the timeout, the outcome is dropped.
            if not outcome.done:
                timer.cancel()
                outcome.succeed(value)

        def on_error(error: Exception) -> None:
            if not outcome.done:
                timer.cancel()
                outcome.fail(error)

        timer = self._timers.call_later(left_ms, expire)
        outcome: Later[T] = Later(cancel)
        work.then(on_value, on_error)
        return outcome
