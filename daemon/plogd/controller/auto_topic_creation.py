"""Topics that are created because a client named them: one creation for all, at a bounded rate.

Metadata requests come here. Requests that name the same missing topic share one creation. At most
``plog.auto.create.topics.max.per.second`` topics are created in a second, and as many may be in
progress or asked for by one request; beyond that a client gets LEADER_NOT_AVAILABLE, which all
clients take for "the topic is being created" and ask again. Called on the reactor's thread.
Source: Kafka 3.9 AutoTopicCreationManager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from plog.errors import LeaderNotAvailable
from plogd.controller.controller import Controller
from plogd.controller.topic_creation import NewTopic
from plogd.metadata.cache import TopicState
from plogd.ports import Clock, Later, Report, Timers, failed
from plogd.waiters import Waiters

_TIMEOUT_MS: Final = 5_000
"""A request waits this long for its topics, which are created nevertheless."""
_REPORT_INTERVAL_MS: Final = 60_000


class AutoTopicCreation:
    """Creates topics on demand; `max_per_second` is read each time, because it may change."""

    def __init__(
        self,
        controller: Controller,
        *,
        max_per_second: Callable[[], int],
        clock: Clock,
        timers: Timers,
        report: Report,
    ) -> None:
        self._controller = controller
        self._max_per_second = max_per_second
        self._clock = clock
        self._timers = timers
        self._report = report
        self._waiters: dict[str, Waiters[TopicState]] = {}
        """The requests that wait for each topic in progress."""
        self._allowance = float(max_per_second())
        """Topics that may be created now; it grows with time up to those of one second."""
        self._allowed_ms = clock.monotonic_ms()
        self._reported_ms: float | None = None

    @property
    def max_per_request(self) -> int:
        """Topics that one request may create; it has to ask for the others again."""
        return self._max_per_second()

    def create(self, name: str) -> Later[TopicState]:
        """Create the topic, or wait for its creation. Raises what `Controller.plan` raises.

        Fails with the KafkaError a client sees; LeaderNotAvailable if it has to ask again.
        """
        waiters = self._waiters.get(name)
        if waiters is not None:
            return self._wait(name, waiters)
        new = NewTopic(name=name)
        self._controller.plan(new)  # A name that cannot be created costs nothing.
        if not self._is_allowed():
            self._report_limit(name)
            return failed(
                LeaderNotAvailable(f"too many topics are being created; ask again for '{name}'")
            )
        waiters = Waiters()
        outcome = self._wait(name, waiters)  # First, for it may fail without a timer.
        self._waiters[name] = waiters
        self._controller.create_topic(new).then(
            lambda topic: self._waiters.pop(name).succeed(topic),
            lambda error: self._waiters.pop(name).fail(error),
        )
        return outcome

    def _wait(self, name: str, waiters: Waiters[TopicState]) -> Later[TopicState]:
        return waiters.wait_until(
            _TIMEOUT_MS,
            self._timers,
            lambda: LeaderNotAvailable(f"topic '{name}' is being created"),
        )

    def _is_allowed(self) -> bool:
        limit = self._max_per_second()
        now_ms = self._clock.monotonic_ms()
        grown = self._allowance + (now_ms - self._allowed_ms) * limit / 1000
        self._allowance, self._allowed_ms = min(float(limit), grown), now_ms
        if self._allowance < 1 or len(self._waiters) >= limit:
            return False
        self._allowance -= 1
        return True

    def _report_limit(self, name: str) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._reported_ms is not None and now_ms < self._reported_ms + _REPORT_INTERVAL_MS:
            return
        self._reported_ms = now_ms
        self._report(
            "postponed automatic creation of topic {topic}: "
            "plog.auto.create.topics.max.per.second={limit} is reached; clients ask again",
            topic=name,
            limit=self._max_per_second(),
            level="warn",
        )
