"""A consumer's engine on the simulated network, as a face would drive it.

    site = ConsumerSite(auto_offset_reset="earliest")
    site.create("t", 2)
    site.produce("t", b"a", b"b")
    site.core.assign([TopicPartition("t", 0)])
    records = site.take(2)

`take` lets time pass until the records have arrived, and raises the engine's errors.
"""

from __future__ import annotations

from typing import Any

from plog.client.consumer.core import ConsumerCore
from plog.client.network.cluster import Cluster
from plog.client.settings import ConsumerSettings
from plog.client.values import ConsumerRecord
from plog.records.batch import iter_batches
from plog.types import TopicPartition
from plog.wire.messages.delete_topics import DeleteTopicsRequest
from tests.helpers.client.client_on_sim_network import SimNetwork
from tests.helpers.sim.sim_broker import LOG_DIR, create_topic

WITHIN_MS = 60_000.0


class ConsumerSite:
    """A consumer's engine. `options` are its settings, `broker` those of SimBroker."""

    def __init__(
        self,
        seed: int = 0,
        *,
        broker: dict[str, Any] | None = None,
        parts: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.sim = SimNetwork(seed, **(broker or {}))
        options.setdefault("auto_offset_reset", "earliest")
        self.settings = ConsumerSettings.from_options(
            {"bootstrap_servers": ",".join(SimNetwork.bootstrap_servers)}, **options
        )
        self.news = 0
        self.rooms = 0
        self.cluster, self.core = self.another(**(parts or {}))
        self.core.on_data = self._on_data

    def another(self, **parts: Any) -> tuple[Cluster, ConsumerCore]:
        """Return another consumer with the same settings."""
        cluster = Cluster(self.sim, self.settings)
        return cluster, ConsumerCore(cluster, self.sim, self.settings, **parts)

    def _on_data(self) -> None:
        self.news += 1

    def create(self, topic: str, partitions: int = 1, **config: str) -> list[TopicPartition]:
        """Create a topic; return its partitions."""
        create_topic(self.sim.broker, topic, partitions, **config)
        return [TopicPartition(topic, number) for number in range(partitions)]

    def produce(self, topic: str, *values: bytes, partition: int = 0, **batch: Any) -> int:
        """Append a batch; return the offset of its first record."""
        answer = self.sim.broker.produce(topic, *values, partition=partition, **batch)
        assert answer.error_code == 0
        return answer.base_offset

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000)
        [result] = self.sim.broker.ask(request, 5).responses
        assert result.error_code == 0

    def damage(self, topic: str, base_offset: int) -> None:
        """Flip a bit in the last record of the batch at `base_offset`, on the broker's disk."""
        files = self.sim.broker.files
        path = f"{LOG_DIR}/{topic}-0/{0:020}.log"
        content = bytearray(files.read_file(path))
        [end] = [
            position + header.size_bytes
            for position, header in iter_batches(bytes(content))
            if header.base_offset == base_offset
        ]
        content[end - 2] ^= 1
        files.overwrite(path, bytes(content))

    def take(self, count: int, at_most: int = 1000) -> list[ConsumerRecord]:
        """Return `count` records, letting time pass until they have arrived."""
        taken: list[ConsumerRecord] = []
        failure: list[Exception] = []

        def enough() -> bool:
            try:
                while len(taken) < count and (
                    more := self.core.take(min(at_most, count - len(taken)))
                ):
                    taken.extend(more)
            except Exception as error:
                failure.append(error)
            return bool(failure) or len(taken) == count

        self.sim.run_until(enough, WITHIN_MS)
        if failure:
            raise failure[0]
        return taken

    def values(self, count: int) -> list[bytes]:
        """Return the values of the next records."""
        return [record.value for record in self.take(count)]

    def error(self) -> Exception:
        """Return the next error of the engine, letting time pass; discard records."""
        failure: list[Exception] = []

        def failed() -> bool:
            try:
                assert self.core.take(1) == []
            except AssertionError:
                raise
            except Exception as error:
                failure.append(error)
            return bool(failure)

        self.sim.run_until(failed, WITHIN_MS * 10)
        return failure[0]

    def nothing_for(self, ms: float) -> None:
        """Let time pass, and assert that no record arrives."""
        self.sim.advance(ms)
        more = self.core.take(1000)
        assert more == [], (
            f"{len(more)} arrived, from offset {more[0].offset} of {more[0].partition}"
        )

    def close(self) -> None:
        """Close the consumer, and assert that nothing keeps running."""
        self.sim.run(self.core.close())
        self.sim.run(self.cluster.close())
