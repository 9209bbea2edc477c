"""Transactional producers of plog, confluent-kafka (librdkafka) and Java, with one interface.

A producer is identified by its transactional.id; all records go to partition 0, one per batch, so
that a transaction has many batches.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import plog
from tests.helpers.client.faces import Face
from tests.helpers.programs.confluent import confluent_kafka, consumer
from tests.helpers.programs.java_process import JavaProcess

TIMEOUT_S = 60.0
_LONG_MS = 600_000
"""No transaction that a test leaves open may time out."""


class Refused(Exception):
    """The broker rejects this producer: it is fenced, or its transaction has ended."""


class Transactions(Protocol):
    """Producers of one library, by transactional.id."""

    def open(self, name: str, timeout_ms: int = _LONG_MS) -> None:
        """Open a producer; an earlier one with this id is renamed to ``old-<id>`` and fenced."""

    def begin(self, name: str) -> None: ...

    def send(self, name: str, topic: str, value: str) -> int:
        """Send, and wait; return the offset. Raises Refused."""

    def offsets(self, name: str, group: str, topic: str, offset: int) -> None:
        """Commit an offset of a group as part of the transaction."""

    def commit(self, name: str) -> None:
        """Raises Refused."""

    def abort(self, name: str) -> None: ...


class JavaTransactions:
    """programs.Transactions, in its JVM."""

    def __init__(self, process: JavaProcess) -> None:
        self._process = process

    def ask(self, *words: object) -> list[str]:
        """Return its response to a line."""
        start = len(self._process.lines)
        self._process.tell(" ".join(map(str, words)))
        line = self._process.wait_for("^(ok|failed)", start).string
        outcome, *result = line.split()
        if outcome != "ok":
            raise Refused(line)
        return result

    def open(self, name: str, timeout_ms: int = _LONG_MS) -> None:
        self.ask("open", name, timeout_ms)

    def begin(self, name: str) -> None:
        self.ask("begin", name)

    def send(self, name: str, topic: str, value: str) -> int:
        return int(self.ask("send", name, topic, value)[0])

    def offsets(self, name: str, group: str, topic: str, offset: int) -> None:
        self.ask("offsets", name, group, topic, offset)

    def commit(self, name: str) -> None:
        self.ask("commit", name)

    def abort(self, name: str) -> None:
        self.ask("abort", name)

    def look(self, isolation_level: str, topic: str, timestamp: int) -> Sight:
        """Return the records of the topic that Java's consumer sees."""
        end, position, lag, found, *records = self.ask("look", isolation_level, topic, timestamp)
        read = [(int(offset), value) for offset, _, value in map(_parted, records)]
        return Sight(int(end), int(position), int(lag), int(found), read)


class Sight(NamedTuple):
    """The records that a consumer sees in a partition that it has read to its end."""

    end: int
    position: int
    lag: int
    offset_at_time: int
    """The first visible offset at or after a given time; -1 without any."""
    records: list[tuple[int, str]]
    """Offsets and values."""


def _parted(text: str) -> tuple[str, str, str]:
    return text.partition("=")


class PlogTransactions:
    """plog's producers, through one of the faces."""

    def __init__(self, face: Face, bootstrap_servers: str) -> None:
        self._face = face
        self._bootstrap_servers = bootstrap_servers
        self._producers: dict[str, Any] = {}

    def open(self, name: str, timeout_ms: int = _LONG_MS) -> None:
        if name in self._producers:
            self._producers[f"old-{name}"] = self._producers[name]
        self._producers[name] = producer = self._face.producer(
            bootstrap_servers=self._bootstrap_servers,
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            linger_ms=0,
        )
        producer.init_transactions(TIMEOUT_S)

    def begin(self, name: str) -> None:
        self._producers[name].begin_transaction()

    def send(self, name: str, topic: str, value: str) -> int:
        sent = self._producers[name].send(topic, value.encode(), partition=0)
        offset: int = sent.result(TIMEOUT_S).offset
        return offset

    def offsets(self, name: str, group: str, topic: str, offset: int) -> None:
        offsets = {plog.TopicPartition(topic, 0): offset}
        self._producers[name].send_offsets_to_transaction(offsets, group, TIMEOUT_S)

    def commit(self, name: str) -> None:
        try:
            self._producers[name].commit_transaction(TIMEOUT_S)
        except plog.KafkaError as error:
            raise Refused(error) from error

    def abort(self, name: str) -> None:
        self._producers[name].abort_transaction(TIMEOUT_S)


class ConfluentTransactions:
    """librdkafka's producers."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._producers: dict[str, Any] = {}

    def open(self, name: str, timeout_ms: int = _LONG_MS) -> None:
        if name in self._producers:
            self._producers[f"old-{name}"] = self._producers[name]
        self._producers[name] = producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._bootstrap_servers,
                "transactional.id": name,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        producer.init_transactions(TIMEOUT_S)

    def begin(self, name: str) -> None:
        self._producers[name].begin_transaction()

    def send(self, name: str, topic: str, value: str) -> int:
        deliveries: list[Any] = []
        producer = self._producers[name]
        producer.produce(
            topic, value, partition=0, on_delivery=lambda *outcome: deliveries.append(outcome)
        )
        producer.flush(TIMEOUT_S)
        [(error, message)] = deliveries
        if error is not None:
            raise Refused(error)
        return int(message.offset())

    def offsets(self, name: str, group: str, topic: str, offset: int) -> None:
        with consumer(self._bootstrap_servers, group_id=group) as member:
            self._producers[name].send_offsets_to_transaction(
                [confluent_kafka.TopicPartition(topic, 0, offset)],
                member.consumer_group_metadata(),
                TIMEOUT_S,
            )

    def commit(self, name: str) -> None:
        try:
            self._producers[name].commit_transaction(TIMEOUT_S)
        except confluent_kafka.KafkaException as error:
            raise Refused(error) from error

    def abort(self, name: str) -> None:
        self._producers[name].abort_transaction(TIMEOUT_S)
