"""Short calls of confluent-kafka for the tests of this folder, with any broker."""

from __future__ import annotations

from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.helpers.eventually import TIMEOUT_S, eventually


class Broker(Protocol):
    """A running broker, or several of them."""

    @property
    def bootstrap_servers(self) -> str:
        """The addresses to connect to."""
        ...


def admin(broker: Broker) -> AdminClient:
    """Return an admin client; its futures fail when it is garbage."""
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


def create(broker: Broker, name: str, partitions: int = 1, **config: str) -> None:
    """Create a topic; `config` with underscores for dots."""
    settings = {key.replace("_", "."): value for key, value in config.items()}
    new = NewTopic(name, partitions, 1, config=settings)
    client = admin(broker)
    [future] = client.create_topics([new]).values()
    future.result(TIMEOUT_S)


def produce(broker: Broker, topic: str, *values: bytes, message_timeout_ms: int = 60_000) -> None:
    """Write records with a new idempotent producer, and wait until all are acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "enable.idempotence": True,
            "message.timeout.ms": message_timeout_ms,
        }
    )
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        errors.extend([error] if error else [])

    for value in values:
        producer.produce(topic, value, on_delivery=delivered)
    assert producer.flush(TIMEOUT_S) == 0
    if errors:
        raise KafkaException(errors[0])


def consume(broker: Broker, topic: str, group: str, count: int) -> list[bytes]:
    """Read `count` new records as the only member of a group, and commit them."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        found: list[bytes] = []

        def poll() -> bool:
            found.extend(
                message.value()
                for message in consumer.consume(count, timeout=1)
                if message.error() is None
            )
            return len(found) >= count

        eventually(poll, f"{count} records")
        consumer.commit(asynchronous=False)
        return found
    finally:
        consumer.close()


def listed(config: dict[str, Any]) -> Any:
    """Return the cluster's metadata, or None if no broker answers."""
    try:
        return AdminClient(config).list_topics(timeout=1)
    except KafkaException:
        return None
