"""The failures of a fetcher, and what its broker reports about them.

A failure is reported once, although it is repeated with every retry, and so is its end. Some errors
are normal for a moment: the controller does not inform all brokers about a new topic or leader at
the same time, so a follower can ask the leader before the leader knows its role. They are reported
only if they last. Partitions that fail or recover in the same response share a line.

Called on the reactor's thread, by follower_fetcher.py.
"""

from __future__ import annotations

from typing import Final

from plog.errors import ErrorCode, KafkaError
from plog.types import TopicPartition
from plogd.ports import Clock, Report
from plogd.replica.topic_start import shown_partitions

LASTING_MS: Final = 5_000.0
"""Time after which a transient error is reported."""
_TRANSIENT: Final = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""The errors of a leader that does not know its role yet."""


class _Failure:
    """A partition that fails."""

    __slots__ = ("is_reported", "since_ms")

    def __init__(self, since_ms: float) -> None:
        self.since_ms = since_ms
        self.is_reported = False


class FetchFailures:
    """The failures of the fetcher for the broker `leader`. `flush` reports what was noted."""

    def __init__(self, leader: int, clock: Clock, report: Report) -> None:
        self._leader = leader
        self._clock = clock
        self._report = report
        self._partitions: dict[TopicPartition, _Failure] = {}
        self._failed: dict[int | type[Exception], tuple[str, list[TopicPartition]]] = {}
        """Partitions to report, by the kind of their error, with the text of the first one: texts
        may contain paths."""
        self._recovered: list[TopicPartition] = []
        """Partitions to report, which had been reported as failed."""
        self.is_leader_failed = False
        """Whether the last request has failed as a whole."""

    def __contains__(self, key: object) -> bool:
        return key in self._partitions

    # -- requests -----------------------------------------------------------------------------

    def leader_failed(self, error: Exception) -> None:
        """Note that a request has failed as a whole, and report it."""
        if not self.is_leader_failed:
            self.is_leader_failed = True
            self._report(
                "cannot fetch from broker {broker}: {error}; retrying",
                broker=self._leader,
                error=str(error),
                level="warn",
            )

    def leader_answered(self) -> None:
        """Note that the leader has answered a request."""
        if self.is_leader_failed:
            self.is_leader_failed = False
            self._report("fetching from broker {broker} again", broker=self._leader)

    # -- partitions ---------------------------------------------------------------------------

    def failed(self, key: TopicPartition, error: Exception) -> None:
        """Note that a partition could not be fetched, appended or truncated."""
        now_ms = self._clock.monotonic_ms()
        failure = self._partitions.get(key)
        if failure is None:
            failure = self._partitions[key] = _Failure(now_ms)
        is_transient = isinstance(error, KafkaError) and error.code in _TRANSIENT
        if failure.is_reported or (is_transient and now_ms - failure.since_ms < LASTING_MS):
            return
        failure.is_reported = True
        kind = error.code if isinstance(error, KafkaError) else type(error)
        self._failed.setdefault(kind, (str(error), []))[1].append(key)

    def succeeded(self, key: TopicPartition) -> None:
        """Note that a partition was fetched, and that its records can be acknowledged."""
        failure = self._partitions.pop(key, None)
        if failure is not None and failure.is_reported:
            self._recovered.append(key)

    def forget(self, key: TopicPartition) -> None:
        """Forget a partition that is not followed any more."""
        self._partitions.pop(key, None)

    def flush(self) -> None:
        """Report the partitions that have failed or recovered since the last call."""
        failed, self._failed = self._failed, {}
        for error, keys in failed.values():
            self._report(
                "cannot replicate {partitions} from broker {broker}: {error}; retrying",
                partitions=_named(keys),
                topic_partitions=keys,
                broker=self._leader,
                error=error,
                level="warn",
            )
        recovered, self._recovered = self._recovered, []
        if recovered:
            self._report(
                "replicating {partitions} from broker {broker} again",
                partitions=_named(recovered),
                topic_partitions=recovered,
                broker=self._leader,
            )


def _named(keys: list[TopicPartition]) -> str:
    if len(keys) == 1:
        return str(keys[0])
    return f"{len(keys)} partitions ({shown_partitions(keys)})"
