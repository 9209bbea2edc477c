"""An application that sends records with the library's idempotent producer.

The history knows each batch as the library encodes it, and each acknowledgment as the application
receives it. So it checks that records which were acknowledged exist once, at this offset, and that
the records of each partition are in the order in which they were sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plog.client.errors import BufferExhausted
from plog.client.producer.core import ProducerCore
from plog.client.producer.producer_batch import SendHandle
from plog.client.settings import ProducerSettings
from plog.client.values import RecordMetadata
from plog.errors import KafkaError
from plog.records.reader import iter_records
from plog.types import TopicPartition
from plog.wire.messages.produce import ProduceRequest
from plog.wire.schema import ApiMessage
from tests.sim.checker import Anomaly
from tests.sim.cluster.library.library_client import LIBRARY_TOPICS, LibraryClient
from tests.sim.cluster.library.library_network import OnResponse
from tests.sim.network import Connection

if TYPE_CHECKING:
    from tests.sim.cluster.cluster_world import ClusterWorld

_NEVER_MS = 3_600_000
_LINGER_MS = (0, 5, 100)
_KEYS = 20


class LibraryProducer(LibraryClient):
    """Sends to some partitions of topics that keep all records."""

    def __init__(self, cluster: ClusterWorld, name: str) -> None:
        super().__init__(cluster, name)
        self._number = 0
        self._lives = 0
        self._sent: dict[bytes, int] = {}
        """The number of each record that was passed to the library."""
        partitions = [
            TopicPartition(plan.name, number)
            for plan in cluster.plans
            if plan.name in LIBRARY_TOPICS
            for number in range(plan.partitions)
        ]
        self._partitions = self.chance.sample(partitions, self.chance.randint(1, len(partitions)))

    async def work(self) -> None:
        if not await self.until_topics_are_known():
            return
        while self.cluster.working:
            self._lives += 1
            await self._live()

    async def _live(self) -> None:
        """Create a producer, send records, and close it."""
        chance = self.chance
        options = self.options(
            linger_ms=chance.choice(_LINGER_MS),
            batch_size=chance.choice((1, 200, 2_000)),
            compression_type=chance.choice(("none", "gzip", "lz4", "zstd")),
            max_in_flight_requests_per_connection=chance.randint(1, 5),
            max_block_ms=chance.choice((1_000, _NEVER_MS)),
        )
        longest_ms = options["linger_ms"] + options["request_timeout_ms"]
        options["delivery_timeout_ms"] = chance.choice((longest_ms, _NEVER_MS))
        settings = ProducerSettings.from_options(None, **options)
        cluster = self.cluster_client(settings)
        core = ProducerCore[SendHandle](cluster, self.network, settings)
        for _ in range(chance.choice((20, 100, 1_000))):
            if not self.cluster.working:
                break
            await self._send_some(core)
            await self.pause()
            if chance.random() < 0.02:
                self.network.drop_one()
            if chance.random() < 0.05:
                await core.flush()
        await core.flush()
        await core.close()
        await cluster.close()

    async def _send_some(self, core: ProducerCore[SendHandle]) -> None:
        partition = self.chance.choice(self._partitions)
        for _ in range(self.chance.choice((1, 1, 3, 10))):
            self._number += 1
            padding = b"." * self.chance.choice((0, 10, 100))
            value = b"%s/%d/%s" % (self.name.encode(), self._number, padding)
            self._sent[value] = self._number

            def delivered(
                metadata: RecordMetadata | None, error: Exception | None, value: bytes = value
            ) -> None:
                self._delivered(partition, value, metadata, error)

            try:
                await core.send_soon(
                    partition.topic,
                    value,
                    b"k%d" % self.chance.randrange(_KEYS),
                    partition.partition,
                    on_delivery=delivered,
                )
            except (BufferExhausted, KafkaError) as error:
                # No broker has returned metadata within max.block.ms, or the memory is full.
                self.cluster.count(f"library records not accepted: {type(error).__name__}")

    def _delivered(
        self,
        partition: TopicPartition,
        value: bytes,
        metadata: RecordMetadata | None,
        error: Exception | None,
    ) -> None:
        # The library logs exceptions of this function.
        try:
            if metadata is not None:
                self._acknowledged(partition, value, metadata)
            elif isinstance(error, KafkaError):
                self.cluster.count(f"library records not delivered: {type(error).__name__}")
            else:
                raise Anomaly("unexpected-error", f"{self.name}: {value!r} failed: {error!r}")
        except Anomaly as anomaly:
            self.cluster.fail(anomaly)

    def _acknowledged(
        self, partition: TopicPartition, value: bytes, metadata: RecordMetadata
    ) -> None:
        self.cluster.count("library records acknowledged")
        if metadata.topic_partition != partition:
            raise Anomaly("bad-answer", f"{self.name}: {value!r} is in {metadata.topic_partition}")
        if metadata.offset >= 0:
            self.cluster.history.acknowledged(self.key_of(partition), metadata.offset, [value])

    # -- what it sends ------------------------------------------------------------------------

    def sending(
        self, request: ApiMessage, version: int, connection: Connection
    ) -> OnResponse | None:
        if isinstance(request, ProduceRequest):
            for topic in request.topic_data:
                for data in topic.partition_data:
                    assert isinstance(data.records, bytes | memoryview)
                    self._sending_batch(topic.name, data.index, data.records)
        return None

    def _sending_batch(self, topic: str, partition: int, batch: bytes | memoryview) -> None:
        """Record a batch that is sent for the first time."""
        records = list(iter_records(memoryview(batch)))
        values = [record.value or b"" for record in records]
        known = [value in self.cluster.history.origins for value in values]
        if all(known):
            return
        if any(known):
            raise Anomaly("bad-answer", f"{self.name} sends {values} in other batches than before")
        session = f"{self.name}.{topic}-{partition}"
        self.cluster.history.sending(topic, partition, session, self._sent[values[0]], values)
