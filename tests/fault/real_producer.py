"""confluent-kafka's idempotent producer among the arena's clients, checked by the same history.

It retries by itself whatever happens to the broker. What it is told goes into the history on the
arena's thread, where its callbacks run. Each of its records counts as a batch of its own: how
librdkafka groups them is not ours to know.
"""

from __future__ import annotations

from typing import Any

from tests.fault.arena import Arena
from tests.helpers.confluent import confluent_kafka
from tests.sim.checker import PartitionKey

_WINDOW = 100
_POLL_MS = 3.0
_SETTINGS = {
    "enable.idempotence": True,
    "log_level": 0,  # It tells of every connection that fails, and many do.
    "linger.ms": 1,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "message.timeout.ms": 120_000,
}


class RealProducer:
    """Writes to one partition until the work is over and all is delivered."""

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
        """What it does, as a client of the arena."""
        while self._arena.working or self._outstanding:
            while self._arena.working and self._outstanding < _WINDOW:
                self._send()
            self._producer.poll(0)
            await self._arena.sleep(_POLL_MS)

    def run_until_delivered(self, records: int = 1) -> None:
        """Let all clients go on until it was told of so many more records."""
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
