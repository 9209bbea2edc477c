"""The clients of a cluster with faults: producers with acks=all, and members of groups.

librdkafka, the Java client and plog's own client produce and consume at the same time. All
producers are idempotent, so that a record is in the log once, and have one request in flight: after
a restart, a leader may know only the last batch of a producer (docs/reliability.md). Each client
runs in a thread of its own, or in a JVM, until the load ends. They report to a `History`.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

import plog
from plog.errors import PlogError
from tests.cluster.faults.history import History, value_of
from tests.helpers.eventually import eventually
from tests.helpers.programs.kafka_tools import KafkaTools

_PAUSE_S: Final = 0.01
"""Between two records of a producer, so that the brokers are not busy all the time."""
_DELIVERY_TIMEOUT_MS: Final = 180_000
"""Longer than any fault, so that every record is acknowledged in the end."""
_JAVA_PRODUCER: Final = {
    "enable.idempotence": "true",
    "acks": "all",
    "retries": "2147483647",
    "max.in.flight.requests.per.connection": "1",
    "delivery.timeout.ms": str(_DELIVERY_TIMEOUT_MS),
    "request.timeout.ms": "5000",
    "max.block.ms": str(_DELIVERY_TIMEOUT_MS),
    "metadata.max.age.ms": "2000",
}
_JAVA_CONSUMER: Final = {"metadata.max.age.ms": "2000", "request.timeout.ms": "5000"}
_PER_SECOND: Final = "50"

T = TypeVar("T")

CONFLUENT_GROUP: Final = "confluent-readers"
PLOG_GROUP: Final = "plog-readers"
_JAVA_GROUP: Final = "java-readers"


class Load:
    """Clients that use `topic` until `stop`; `stop` waits until all records are acknowledged."""

    def __init__(
        self, bootstrap_servers: str, topic: str, partitions: int, history: History, seed: int
    ) -> None:
        self._servers = bootstrap_servers
        self._topic = topic
        self._partitions = partitions
        self._history = history
        self._random = random.Random(seed)
        self._is_stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._errors: list[Exception] = []

    def start(self) -> None:
        """Start one producer and one member of a group with each of both libraries."""
        for work in (
            self._produce_with_confluent,
            self._produce_with_plog,
            self._consume_with_confluent,
            self._consume_with_plog,
        ):
            thread = threading.Thread(
                target=self._run, args=(work,), name=work.__name__, daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """End the clients. Raises the first error of a client."""
        self._is_stopping.set()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def give_up(self) -> None:
        """End the clients without a check; has no effect after `stop`."""
        self._is_stopping.set()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        # Raised by `stop`, in the test's thread.
        except Exception as error:
            self._errors.append(error)

    # -- producers ----------------------------------------------------------------------------

    def _produce_with_confluent(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._servers,
                "enable.idempotence": True,
                "max.in.flight": 1,
                "message.timeout.ms": _DELIVERY_TIMEOUT_MS,
                "socket.timeout.ms": 5000,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 2000,
                "log_level": 0,
            }
        )

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self._history.acknowledged(message.partition(), message.offset(), message.value())
            else:
                self._history.rejected(error.name())

        number = 0
        while not self._is_stopping.is_set():
            value = value_of("confluent", number)
            producer.produce(
                self._topic, value, partition=self._any_partition(), on_delivery=delivered
            )
            producer.poll(_PAUSE_S)
            number += 1
        assert producer.flush(_DELIVERY_TIMEOUT_MS / 1000) == 0

    def _produce_with_plog(self) -> None:
        number = 0
        with plog.Producer(
            bootstrap_servers=self._servers,
            delivery_timeout_ms=_DELIVERY_TIMEOUT_MS,
            request_timeout_ms=5000,
            max_block_ms=_DELIVERY_TIMEOUT_MS,
            metadata_max_age_ms=2000,
            max_in_flight_requests_per_connection=1,
        ) as producer:
            while not self._is_stopping.wait(_PAUSE_S):
                value = value_of("plog", number)
                producer.send(
                    self._topic,
                    value,
                    partition=self._any_partition(),
                    on_delivery=lambda metadata, error, value=value: self._plog_delivered(
                        value, metadata, error
                    ),
                )
                number += 1
            producer.flush()

    def _plog_delivered(self, value: bytes, metadata: Any, error: Exception | None) -> None:
        if error is None:
            self._history.acknowledged(metadata.partition, metadata.offset, value)
        else:
            self._history.rejected(type(error).__name__)

    def _any_partition(self) -> int:
        return self._random.randrange(self._partitions)

    # -- consumers ----------------------------------------------------------------------------

    def _consume_with_confluent(self) -> None:
        consumer = Consumer(confluent_member(self._servers, CONFLUENT_GROUP))
        try:
            consumer.subscribe([self._topic])
            while not self._is_stopping.is_set():
                for message in consumer.consume(100, timeout=0.2):
                    if message.error() is None:
                        self._history.read(message.partition(), message.offset(), message.value())
                self._commit_with_confluent(consumer)
        finally:
            consumer.close()

    def _commit_with_confluent(self, consumer: Consumer) -> None:
        try:
            committed = consumer.commit(asynchronous=False)
        # No new records, a rebalance, or a coordinator that is moving.
        except KafkaException as error:
            self._history.count(f"commit: {error.args[0].name()}")
            return
        for each in committed:
            if each.error is None and each.offset >= 0:
                self._history.committed(CONFLUENT_GROUP, each.partition, each.offset)

    def _consume_with_plog(self) -> None:
        with plog.Consumer(
            self._topic,
            bootstrap_servers=self._servers,
            group_id=PLOG_GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            metadata_max_age_ms=2000,
            request_timeout_ms=5000,
        ) as consumer:
            while not self._is_stopping.is_set():
                records = consumer.consume(100, 0.2)
                ends: dict[plog.TopicPartition, int] = {}
                for record in records:
                    self._history.read(record.partition, record.offset, record.value or b"")
                    ends[plog.TopicPartition(record.topic, record.partition)] = record.offset + 1
                if not ends:
                    continue
                try:
                    consumer.commit(ends, timeout_s=10)
                except (PlogError, TimeoutError) as error:
                    self._history.count(f"commit: {type(error).__name__}")
                    continue
                for partition, offset in ends.items():
                    self._history.committed(PLOG_GROUP, partition.partition, offset)


def confluent_member(servers: str, group: str) -> dict[str, Any]:
    """Return the settings of a group's member that commits by itself."""
    return {
        "bootstrap.servers": servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 10_000,
        "socket.timeout.ms": 5000,
        "reconnect.backoff.max.ms": 500,
        "topic.metadata.refresh.interval.ms": 2000,
        # It would report every broker that does not run.
        "log_level": 0,
    }


@contextmanager
def java_clients(servers: str, topic: str, folder: Path, history: History) -> Iterator[None]:
    """Run Kafka's VerifiableProducer and VerifiableConsumer within the block."""
    tools = KafkaTools.installed()
    for name, settings in (("producer", _JAVA_PRODUCER), ("consumer", _JAVA_CONSUMER)):
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        (folder / f"java-{name}.properties").write_text(text)
    common = ("--bootstrap-server", servers, "--topic", topic, "--command-config")
    with ExitStack() as stack:
        consumer = stack.enter_context(
            tools.start(
                "VerifiableConsumer", *common, folder / "java-consumer.properties",
                "--group-id", _JAVA_GROUP, "--verbose",
            )
        )  # fmt: skip
        producer = stack.enter_context(
            tools.start(
                "VerifiableProducer", *common, folder / "java-producer.properties",
                "--throughput", _PER_SECOND, "--value-prefix", "7",
            )
        )  # fmt: skip
        yield
        producer.stop()
        consumer.stop()
        _report_java(producer.lines, history)
        _report_java(consumer.lines, history)


def _report_java(lines: Any, history: History) -> None:
    """Report the events in the output of both programs."""
    for line in lines:
        if not line.startswith("{"):
            continue
        event = json.loads(line)
        match event["name"]:
            case "producer_send_success":
                value = event["value"].encode()
                history.acknowledged(event["partition"], event["offset"], value)
            case "producer_send_error":
                history.rejected(event["exception"].rpartition(".")[2])
            case "record_data":
                history.read(event["partition"], event["offset"], event["value"].encode())


def read_all(servers: str, topic: str, partitions: int) -> dict[int, list[tuple[int, bytes]]]:
    """Return the offsets and values of all records of a topic, by partition."""
    consumer = Consumer(confluent_member(servers, "final-reader"))
    try:
        found: dict[int, list[tuple[int, bytes]]] = {}
        for number in range(partitions):
            partition = TopicPartition(topic, number, 0)
            start, end = _repeat(partial(consumer.get_watermark_offsets, partition, timeout=10))
            assert start == 0
            consumer.assign([partition])
            log = found[number] = []
            eventually(partial(_read_on, consumer, end, log), f"records of partition {number}")
        return found
    finally:
        consumer.close()


def _read_on(consumer: Consumer, end: int, log: list[tuple[int, bytes]]) -> bool:
    """Add records to `log`; return whether it reaches `end`."""
    if end == 0:
        return True
    # The call waits for as many records.
    for message in consumer.consume(1000, timeout=0.2):
        # The consumer repeats a fetch that has failed.
        if message.error() is None:
            log.append((message.offset(), message.value()))
    return bool(log) and log[-1][0] >= end - 1


def _repeat(ask: Callable[[], T]) -> T:
    """Return the first result of a call that fails while leaders or coordinators move."""

    def attempt() -> list[T]:
        try:
            return [ask()]
        except KafkaException:
            return []

    [found] = eventually(attempt, "response of a leader or coordinator")
    return found


def fetch_commits(servers: str, topic: str, partitions: int, history: History) -> None:
    """Report the committed offsets of both groups."""
    for group in (CONFLUENT_GROUP, PLOG_GROUP):
        consumer = Consumer(confluent_member(servers, group))
        try:
            wanted = [TopicPartition(topic, number) for number in range(partitions)]
            for each in _repeat(partial(consumer.committed, wanted, timeout=10)):
                assert each.error is None, each.error
                history.fetched_commit(group, each.partition, each.offset)
        finally:
            consumer.close()
