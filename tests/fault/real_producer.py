"""confluent-kafka's idempotent producer among the arena's clients, checked by the same history.

It retries on its own whatever happens to the broker. Its results enter the history on the arena's
thread, where its callbacks run. Each record counts as a separate batch, because the test cannot
know how librdkafka groups records.
"""

from __future__ import annotations

from typing import Any

from tests.fault.arena import Arena
from tests.helpers.programs.confluent import confluent_kafka
from tests.sim.checker import PartitionKey

_WINDOW = 100
_POLL_MS = 3.0
_SETTINGS = {
    "enable.idempotence": True,
    "log_level": 0,  # It would log every failed connection, and many fail.
    "linger.ms": 1,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "message.timeout.ms": 120_000,
}


class RealProducer:
    """A producer that writes to one partition until the run ends and all records are delivered."""

    def __init__(self, arena: Arena, name: str, topic: str, partition: int, **more: Any) -> None:
        self.name = name
        self.delivered = 0
        self.errors: list[str] = []
        self._arena = arena
        self._topic = topic
        self._partition = partition
        self._number = 0
        self._outstanding = 0
        more = {key.replace("_", "."): value for key, value in more.items()}
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": arena.broker.bootstrap_servers, **_SETTINGS, **more}
        )

    async def run(self) -> None:
        """Produce and poll until the run ends, as a client of the arena."""
        while self._arena.working or self._outstanding:
            while self._arena.working and self._outstanding < _WINDOW:
                self._send()
            self._producer.poll(0)
            await self._arena.sleep(_POLL_MS)

    def run_until_delivered(self, records: int = 1) -> None:
        """Run all clients until `records` more records of this producer are delivered."""
        wanted = self.delivered + records
        self._arena.run_until(lambda: self.delivered >= wanted, "a record of the real producer")

    def _send(self) -> None:
        value = b"%s/%d" % (self.name.encode(), self._number)
        history = self._arena.history
        history.sending(self._topic, self._partition, self.name, self._number, [value])
        self._number += 1
        self._outstanding += 1
        self._producer.produce(
            self._topic, value, partition=self._partition, on_delivery=self._delivered
        )

    def _delivered(self, error: Any, message: Any) -> None:
        self._outstanding -= 1
        if error is not None:
            self.errors.append(str(error))
            return
        self.delivered += 1
        [topic_id] = [
            topic.topic_id
            for topic in self._arena.topics.by_id.values()
            if topic.name == self._topic
        ]
        key = PartitionKey(topic_id, self._partition)
        self._arena.history.acknowledged(key, message.offset(), [message.value()])
