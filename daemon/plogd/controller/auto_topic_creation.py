"""Create missing topics automatically when clients send Metadata requests, at a bounded rate.

Requests for the same missing topic share one creation. At most
``plog.auto.create.topics.max.per.second`` topics are created per second; the same bound applies to
the number of creations in progress, and to the topics created by one request. Beyond the bound, a
client receives LEADER_NOT_AVAILABLE and retries. So does a client of a broker that is not the
controller.

Called on the reactor thread.
Source: Kafka 3.9 AutoTopicCreationManager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from plog.errors import LeaderNotAvailable, NotController
from plogd.controller.controller import Controller
from plogd.controller.topic_creation import NewTopic
from plogd.metadata.cache import TopicState
from plogd.peers import PeerUnavailable
from plogd.ports import Later, Ports, failed
from plogd.waiters import Waiters

_TIMEOUT_MS: Final = 5_000
"""Maximum time that a request waits for its topics; their creation continues afterward."""
# Clients retry until the topic exists; a line for each attempt would fill the log.
_REPORT_INTERVAL_MS: Final = 60_000


class AutoTopicCreation:
    """Creates topics on demand; `max_per_second` returns the current value of the setting."""

    def __init__(
        self,
        controller: Controller,
        ports: Ports,
        *,
        max_per_second: Callable[[], int],
        create_elsewhere: Callable[[NewTopic], Later[None]] | None = None,
    ) -> None:
        """`create_elsewhere` creates a topic on another broker, which is the controller."""
        self._controller = controller
        self._create_elsewhere = create_elsewhere
        self._max_per_second = max_per_second
        self._clock = ports.clock
        self._timers = ports.timers
        self._report = ports.report
        self._waiters: dict[str, Waiters[TopicState]] = {}
        """Waiting requests, by the name of the topic that is being created."""
        # Initially full, so that applications can create their topics as soon as the broker starts.
        self._allowance = float(max_per_second())
        """Number of topics that may be created now; it grows with time, at most to the limit."""
        self._allowed_ms = ports.clock.monotonic_ms()
        self._reported_ms: float | None = None

    @property
    def max_per_request(self) -> int:
        """Maximum number of topics created for one request; clients request the rest again."""
        return self._max_per_second()

    def create(self, name: str) -> Later[TopicState]:
        """Create the topic, or wait for its creation. Raises the same errors as `Controller.plan`.

        Fails with the KafkaError for the client, which retries after LeaderNotAvailable.
        """
        # All clients of a new topic request it at about the same time.
        waiters = self._waiters.get(name)
        if waiters is not None:
            return self._wait(name, waiters)
        new = NewTopic(name=name)
        try:
            self._controller.plan(new)  # An invalid name does not use up the allowance.
        except NotController:
            if self._create_elsewhere is None:
                raise _not_created(name) from None
        if not self._is_allowed():
            self._report_limit(name)
            # To clients, this error means that the topic is being created, so they retry.
            return failed(
                LeaderNotAvailable(
                    f"cannot create topic '{name}' yet: too many topics are being created; retry"
                )
            )
        waiters = Waiters()
        # Set the timer before registering the topic: if this fails, nothing must have changed.
        outcome = self._wait(name, waiters)
        self._waiters[name] = waiters
        if self._create_elsewhere is None or self._controller.is_active:
            self._controller.create_topic(new).then(
                lambda topic: self._waiters.pop(name).succeed(topic),
                lambda error: self._failed(name, error),
            )
        else:
            self._create_elsewhere(new).then(
                # Clients see it a moment later, when the controller has sent it.
                lambda _: self._waiters.pop(name).fail(_not_created(name)),
                lambda error: self._failed(name, error),
            )
        return outcome

    def _failed(self, name: str, error: Exception) -> None:
        # Clients do not expect NOT_CONTROLLER or NETWORK_EXCEPTION in a Metadata response.
        is_elsewhere = isinstance(error, (NotController, PeerUnavailable))
        reason = _not_created(name) if is_elsewhere else error
        self._waiters.pop(name).fail(reason)

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
        # The number of creations in progress is also bounded: on a slow disk, the rate alone would
        # let them accumulate.
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
            "plog.auto.create.topics.max.per.second={limit} is reached; clients will retry",
            topic=name,
            limit=self._max_per_second(),
            level="warn",
        )


def _not_created(name: str) -> LeaderNotAvailable:
    return LeaderNotAvailable(
        f"cannot create topic '{name}' yet: this broker is not the controller; retry"
    )
