"""Sends that are blocked: they wait for their topic's metadata or for memory, up to max.block.ms.

The part of the producer that lets a record wait. Most records never get here: `ProducerCore.send`
takes them at once, in the caller's thread. Memory is given in the order of the calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from plog.client.errors import BufferExhausted
from plog.client.network.cluster import Cluster
from plog.client.network.metadata import ClusterMetadata, check_topic_names
from plog.client.network.ports import Network
from plog.client.producer.accumulator import Accumulator, Claim
from plog.client.producer.buffer_pool import BufferPoolQueue
from plog.client.producer.metrics import ProducerMetrics
from plog.client.producer.producer_batch import OnDelivery, RecordHandle
from plog.client.producer.record_checks import Headers
from plog.client.producer.topic_lookup import TopicLookup
from plog.client.settings import ProducerSettings
from plog.client.task_completion import TaskCompletion

H = TypeVar("H", bound=RecordHandle)
T = TypeVar("T")


class BlockedSends(Generic[H]):
    """The records of a producer that wait for their topic or for memory. Engine's thread only."""

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
        self._line = BufferPoolQueue(network, self._line_changed)
        self._progress = network.signal()
        """Set when batches have their outcome, when a blocked send ends, and at the end."""
        self._blocked: Counter[str] = Counter()
        """How many sends are blocked, by topic."""

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
        """Take a record without waiting."""
        raise NotImplementedError

    def woken(self) -> None:
        """Have the sender look for work."""
        raise NotImplementedError

    def _check_open(self) -> None:
        """Raise ClosedError if the producer is closed."""
        raise NotImplementedError

    def _learn(self, metadata: ClusterMetadata, topic: str | None = None) -> None:
        """Pass on what is known of the topics."""
        raise NotImplementedError

    # -- waiting --------------------------------------------------------------------------------

    @property
    def has_line(self) -> bool:
        """Whether records wait for memory; a record that must not overtake them waits as well."""
        return bool(self._line)

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
        """As `send`, after waiting for the topic and for memory up to max.block.ms.

        Memory is given in the order of these calls. Raises as `send` and `room`.
        """
        deadline_s = self._network.now_s() + self._settings.max_block_ms / 1000

        record = (topic, value, key, partition, timestamp, headers, on_delivery)

        def attempt() -> H | None:
            return self.send(*record, Claim.FIRST)

        return await self._until_taken(attempt, topic, partition, deadline_s)

    async def _until_taken(
        self,
        attempt: Callable[[], H | None],
        topic: str,
        partition: int | None,
        deadline_s: float,
    ) -> H:
        """Return what `attempt` returns once the topic is known and it is this record's turn."""
        check_topic_names((topic,))
        self._blocked[topic] += 1
        with TaskCompletion(self._unblocked, topic):
            handle = None if self._line else attempt()
            while handle is None:
                await self._find(topic, partition, deadline_s)
                handle = await self._in_turn(attempt, topic, partition, deadline_s)
            return handle

    def _unblocked(self, topic: str) -> None:
        self._blocked[topic] -= 1
        if not self._blocked[topic]:
            del self._blocked[topic]
        self._progress.set()

    async def room(self, topic: str, timeout_s: float, partition: int | None = None) -> None:
        """Wait until the topic, and the partition, is known, and there is memory for a record.

        Raises:
            BufferExhausted: there was none for `timeout_s`.
            UnknownTopicOrPartition, LeaderNotAvailable, RequestTimedOut: the topic did not come.
            InvalidTopicException, TopicAuthorizationFailed: it never will.
            ClosedError: the producer was closed.
        """

        def attempt() -> bool | None:
            self._check_open()
            return self._accumulator.has_room(Claim.FIRST) or None

        deadline_s = self._network.now_s() + timeout_s
        await self._find(topic, partition, deadline_s)
        await self._in_turn(attempt, topic, partition, deadline_s)

    async def _find(self, topic: str, partition: int | None, deadline_s: float) -> None:
        """Wait until the topic, and the partition, is known."""
        self.woken()
        if not self._accumulator.knows(topic, partition):
            await self._lookup.find(topic, partition, deadline_s - self._network.now_s())
            self._check_open()
            self._learn(self._cluster.metadata, topic)

    async def _in_turn(
        self,
        attempt: Callable[[], T | None],
        topic: str,
        partition: int | None,
        deadline_s: float,
    ) -> T | None:
        """Return what `attempt` returns, after all sends that wait for memory already.

        None if something other than memory is missing.
        """
        with self._line.place() as place:
            while True:
                place.news.clear()
                if place.is_first and (got := attempt()) is not None:
                    return got
                self._check_open()
                if not self._accumulator.knows(topic, partition):
                    return None
                self.woken()
                left_s = max(0.0, deadline_s - self._network.now_s())
                if not await place.news.wait(left_s):
                    self._metrics.exhausted()
                    raise BufferExhausted(
                        f"buffer.memory={self._settings.buffer_memory} stayed full for as long as"
                        " max.block.ms allows: records come faster than they are acknowledged"
                    )

    def _line_changed(self, length: int) -> None:
        self._accumulator.line_length = length
