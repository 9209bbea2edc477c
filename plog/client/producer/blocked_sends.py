"""Blocked sends: records that wait up to max.block.ms for topic metadata or for buffer memory.

Most records need not wait: `ProducerCore.send` accepts them immediately, in the caller's thread.
Waiting records receive memory in the order of the calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from plog.client.errors import BufferExhausted
from plog.client.network.cluster import Cluster
from plog.client.network.metadata import ClusterMetadata, check_topic_names
from plog.client.network.ports import Network
from plog.client.producer.accumulator import Accumulator
from plog.client.producer.buffer_pool import BufferPoolQueue
from plog.client.producer.memory_claim import Claim
from plog.client.producer.metrics import ProducerMetrics
from plog.client.producer.producer_batch import OnDelivery, RecordHandle
from plog.client.producer.record_checks import Headers
from plog.client.producer.topic_lookup import TopicLookup
from plog.client.settings import ProducerSettings
from plog.client.task_completion import TaskCompletion

H = TypeVar("H", bound=RecordHandle)
T = TypeVar("T")


class BlockedSends(Generic[H]):
    """A producer's records that wait for topic metadata or for memory.

    Use only in the engine's thread.
    """

    _cluster: Cluster
    _metrics: ProducerMetrics

    def __init__(
        self,
        network: Network,
        settings: ProducerSettings,
        accumulator: Accumulator[H],
        lookup: TopicLookup,
    ) -> None:
        self._network = network
        self._settings = settings
        self._accumulator = accumulator
        self._lookup = lookup
        self._waiters = BufferPoolQueue(network, self._set_queue_length)
        self._progress = network.signal()
        """Set when a batch is done, when a blocked send ends, and when the producer closes."""
        self._blocked: Counter[str] = Counter()
        """Number of blocked sends, by topic."""

    # -- provided by ProducerCore ---------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
        on_delivery: OnDelivery | None = None,
        claim: Claim = Claim.NEW,
    ) -> H | None:
        """Accept a record without waiting; see `ProducerCore.send`."""
        raise NotImplementedError

    def woken(self) -> None:
        """Wake the sender."""
        raise NotImplementedError

    def _check_open(self) -> None:
        """Raise ClosedError if the producer is closed."""
        raise NotImplementedError

    def _update_topics(self, metadata: ClusterMetadata, topic: str | None = None) -> None:
        """Pass topic metadata to the accumulator."""
        raise NotImplementedError

    # -- waiting --------------------------------------------------------------------------------

    @property
    def has_waiters(self) -> bool:
        """Whether records are waiting for memory; later records must then also wait."""
        return bool(self._waiters)

    async def send_soon(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
        on_delivery: OnDelivery | None = None,
    ) -> H:
        """Accept a record as `send` does, after waiting for its topic and for memory.

        Waits up to max.block.ms; memory is granted in the order of these calls. Raises the errors
        of `send` and `room`.
        """
        # As in Kafka, max.block.ms limits the total wait for the topic and for memory.
        deadline_s = self._network.now_s() + self._settings.max_block_ms / 1000

        record = (topic, value, key, partition, timestamp, headers, on_delivery)

        def attempt() -> H | None:
            return self.send(*record, Claim.FIRST)

        return await self._until_accepted(attempt, topic, partition, deadline_s)

    async def _until_accepted(
        self,
        attempt: Callable[[], H | None],
        topic: str,
        partition: int | None,
        deadline_s: float,
    ) -> H:
        """Return the result of `attempt` once the topic is known and it is this record's turn."""
        check_topic_names((topic,))
        self._blocked[topic] += 1
        with TaskCompletion(self._unblocked, topic):
            # A new record must not overtake records that are waiting.
            handle = None if self._waiters else attempt()
            while handle is None:
                # Repeat the lookup: while the record waits for memory, the topic may be forgotten,
                # or recreated with fewer partitions.
                await self._find(topic, partition, deadline_s)
                handle = await self._in_turn(attempt, topic, partition, deadline_s)
            return handle

    def _unblocked(self, topic: str) -> None:
        self._blocked[topic] -= 1
        if not self._blocked[topic]:
            del self._blocked[topic]
        self._progress.set()

    async def room(self, topic: str, timeout_s: float, partition: int | None = None) -> None:
        """Wait until the topic, or its `partition`, is known and there is memory for a record.

        Raises:
            BufferExhausted: no memory became free within `timeout_s`.
            UnknownTopicOrPartition, LeaderNotAvailable, RequestTimedOut: the topic was not found.
            InvalidTopicException, TopicAuthorizationFailed: the topic cannot be used.
            ClosedError: the producer was closed.
        """

        def attempt() -> bool | None:
            self._check_open()
            # `_in_turn` calls this function only for the first waiter.
            return self._accumulator.has_room(Claim.FIRST) or None

        deadline_s = self._network.now_s() + timeout_s
        await self._find(topic, partition, deadline_s)
        await self._in_turn(attempt, topic, partition, deadline_s)

    async def _find(self, topic: str, partition: int | None, deadline_s: float) -> None:
        """Wait until the topic, or its `partition`, is known."""
        # Memory becomes free only while the sender is running.
        self.woken()
        if not self._accumulator.knows(topic, partition):
            await self._lookup.find(topic, partition, deadline_s - self._network.now_s())
            self._check_open()
            self._update_topics(self._cluster.metadata, topic)

    async def _in_turn(
        self,
        attempt: Callable[[], T | None],
        topic: str,
        partition: int | None,
        deadline_s: float,
    ) -> T | None:
        """Call `attempt` after all sends that are already waiting for memory; return its result.

        Returns None if the topic or the partition is not known.
        """
        with self._waiters.place() as place:
            while True:
                # Clear the signal before the attempt: memory freed during the attempt must end the
                # wait.
                place.news.clear()
                if place.is_first and (got := attempt()) is not None:
                    return got
                self._check_open()
                # The caller must look up the topic again; waiting for memory would not help.
                if not self._accumulator.knows(topic, partition):
                    return None
                self.woken()
                left_s = max(0.0, deadline_s - self._network.now_s())
                if not await place.news.wait(left_s):
                    self._metrics.exhausted()
                    raise BufferExhausted(
                        f"cannot send: buffer.memory={self._settings.buffer_memory} stayed full for"
                        " max.block.ms; send more slowly, or raise one of these settings"
                    )

    def _set_queue_length(self, length: int) -> None:
        self._accumulator.line_length = length
