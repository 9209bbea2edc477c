"""Throttles replication to replicas that are not in sync, so that clients keep their bandwidth.

Operators throttle the replicas that a reassignment copies (KIP-73): topics list the throttled
replicas (``leader.replication.throttled.replicas``, ``follower.replication.throttled.replicas``),
and brokers have a rate for what they send as leaders and one for what they receive as followers.
While a rate is exceeded, the leader withholds records from throttled replicas that are not in sync,
and a follower does not fetch the throttled partitions in which it lacks records. Replicas that are
in sync are never delayed, because produce requests wait for them; their bytes count, too.

Called on the reactor thread. Source: Kafka 3.9 ReplicationQuotaManager, ReplicaManager
.shouldLeaderThrottle, AbstractFetcherThread.shouldFollowerThrottle; KIP-73.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from plog.settings import LONG_MAX
from plogd.quota import RateMeter
from plogd.replica.partition import Partition
from plogd.topic_config import TopicConfig

ALL: Final = ("*",)
"""The value of the topic settings that throttles all replicas."""


class ReplicationQuota:
    """What a broker sends as the leader, or receives as a follower, of throttled replicas.

    Args:
        throttled_replicas: returns the topic setting that lists the throttled replicas.
        limit: returns the maximum number of bytes per second.
        samples: number of parts of the window in which the rate is measured.
        sample_ms: duration of a part.
    """

    def __init__(
        self,
        *,
        broker_id: int,
        throttled_replicas: Callable[[TopicConfig], tuple[str, ...]],
        limit: Callable[[], int],
        monotonic_ms: Callable[[], float],
        samples: int,
        sample_ms: float,
    ) -> None:
        self._broker_id = broker_id
        self._throttled_replicas = throttled_replicas
        self._limit = limit
        self._monotonic_ms = monotonic_ms
        # As in Kafka's SimpleRate, a burst counts within one part of the window: there is no idle
        # time before the first fetch that could pay for it.
        self._meter = RateMeter(samples, sample_ms, shortest_window=1)
        self._numbers: dict[str, tuple[TopicConfig, Collection[int] | None]] = {}
        """The partitions with a throttled replica on this broker, by topic, with the settings that
        list them; None for all."""

    def covers(self, partition: Partition) -> bool:
        """Return whether this broker's replica of the partition is throttled."""
        config = partition.log.config
        replicas = self._throttled_replicas(config)
        topic, number = partition.topic_partition
        if not replicas:
            self._numbers.pop(topic, None)
            return False
        known = self._numbers.get(topic)
        # Parsed once, because a list may contain thousands of replicas.
        if known is None or known[0] is not config:
            known = config, self._numbers_in(replicas)
            # Otherwise, `forget` has been called already.
            if not partition.is_deleted:
                self._numbers[topic] = known
        return known[1] is None or number in known[1]

    @property
    def known_topics(self) -> int:
        """Number of topics whose settings are kept."""
        return len(self._numbers)

    def forget(self, topic: str) -> None:
        """Forget a topic, of which this broker may not host any replica any more."""
        self._numbers.pop(topic, None)

    def _numbers_in(self, replicas: tuple[str, ...]) -> Collection[int] | None:
        if replicas == ALL:
            return None
        pairs = (replica.split(":") for replica in replicas)
        return frozenset(int(number) for number, one in pairs if int(one) == self._broker_id)

    def record(self, partition: Partition, size_bytes: int) -> None:
        """Count records that were sent or received."""
        if size_bytes and self.covers(partition):
            self._meter.record(size_bytes, self._monotonic_ms())

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit; without one, nothing has to be counted."""
        return self._limit() < LONG_MAX

    @property
    def is_exceeded(self) -> bool:
        """Whether the rate is above the limit."""
        return self.is_limited and self.rate > self._limit()

    @property
    def rate(self) -> float:
        """Bytes per second of throttled replicas."""
        total, window_ms = self._meter.measure(self._monotonic_ms())
        return total * 1000 / window_ms
