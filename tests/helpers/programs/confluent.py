"""confluent-kafka (librdkafka in Python), reduced to sending and reading messages in one call.

These functions neither commit offsets nor join a group: consumers have assigned partitions.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

confluent_kafka = pytest.importorskip("confluent_kafka")
admin = pytest.importorskip("confluent_kafka.admin")

TIMEOUT_S = 60.0
_NO_MORE = confluent_kafka.KafkaError._PARTITION_EOF


def admin_client(bootstrap_servers: str) -> Any:
    """Return an AdminClient; keep a reference until its futures have results."""
    return admin.AdminClient({"bootstrap.servers": bootstrap_servers})


def create_topic(
    bootstrap_servers: str, topic: str, partitions: int = 1, **config: str | int
) -> None:
    """Create a topic; settings are Kafka's names with `_` for dots."""
    settings = {name.replace("_", "."): str(value) for name, value in config.items()}
    new = admin.NewTopic(topic, partitions, replication_factor=1, config=settings)
    client = admin_client(bootstrap_servers)
    client.create_topics([new], operation_timeout=TIMEOUT_S)[topic].result(TIMEOUT_S)


def produce(
    bootstrap_servers: str,
    topic: str,
    messages: Iterable[Mapping[str, Any]],
    config: Mapping[str, Any] | None = None,
) -> list[Any]:
    """Send messages (arguments of Producer.produce) and wait; return an error or None for each."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap_servers, **(config or {})})
    errors: list[Any] = []

    def delivered(error: Any, _: Any) -> None:
        errors.append(error)

    for message in messages:
        producer.produce(topic, on_delivery=delivered, **message)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0, "some messages were neither delivered nor rejected"
    return errors


@contextmanager
def consumer(bootstrap_servers: str, **config: Any) -> Iterator[Any]:
    """Return a consumer that reports the end of each partition; settings with `_` for dots."""
    settings = {
        name if name.endswith("_cb") else name.replace("_", "."): value
        for name, value in config.items()
    }
    client = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "no group is joined",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            **settings,
        }
    )
    try:
        yield client
    finally:
        assert comes_back_from_close(client, TIMEOUT_S), "the consumer hangs in close()"


def comes_back_from_close(client: Any, timeout_s: float) -> bool:
    """Close a consumer; return whether that took less than `timeout_s`.

    librdkafka may wait in close() forever, especially after a fatal error. So close() runs in a
    thread that delays neither the other tests nor the end of the process.
    """
    closing = threading.Thread(target=client.close, daemon=True)
    closing.start()
    closing.join(timeout_s)
    return not closing.is_alive()


def next_message(client: Any) -> Any:
    """Return the next message, or the next error, of an assigned consumer."""
    while True:
        message = client.poll(TIMEOUT_S)
        assert message is not None, f"no message arrived in {TIMEOUT_S:g} s"
        if not _is_about_the_group(message.error()):
            return message


def _is_about_the_group(error: Any) -> bool:
    """Return whether an error is about the coordinator of the consumer's group.

    librdkafka always looks up the coordinator of its mandatory group.id. It reports once that a
    broker has none, and reads the assigned partitions anyway.
    """
    return error is not None and error.str().startswith("FindCoordinator")


def until_end(client: Any, partitions: int = 1) -> list[Any]:
    """Return all messages until each of `partitions` partitions has reported its end."""
    messages = []
    while partitions:
        message = next_message(client)
        if message.error() is None:
            messages.append(message)
        elif message.error().code() == _NO_MORE:
            partitions -= 1
        else:
            raise confluent_kafka.KafkaException(message.error())
    return messages


def read(
    bootstrap_servers: str, topic: str, partitions: int = 1, offset: int = 0, **config: Any
) -> list[Any]:
    """Return all messages of partitions 0 to `partitions`, each from `offset` to its end."""
    with consumer(bootstrap_servers, **config) as client:
        client.assign([confluent_kafka.TopicPartition(topic, p, offset) for p in range(partitions)])
        return until_end(client, partitions)
