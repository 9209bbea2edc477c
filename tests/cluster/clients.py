"""Short calls of confluent-kafka for the tests of this folder, with any broker."""

from __future__ import annotations

from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
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


def create(
    broker: Broker, name: str, partitions: int = 1, replicas: int = 1, **config: str
) -> None:
    """Create a topic; `config` with underscores for dots."""
    settings = {key.replace("_", "."): value for key, value in config.items()}
    _create(broker, NewTopic(name, partitions, replicas, config=settings))


def create_on(broker: Broker, name: str, *replicas: int) -> None:
    """Create a topic with one partition on these brokers."""
    _create(broker, NewTopic(name, 1, replica_assignment=[list(replicas)]))


def _create(broker: Broker, topic: NewTopic) -> None:
    client = admin(broker)
    attempts = 0

    def is_created() -> bool:
        nonlocal attempts
        attempts += 1
        [future] = client.create_topics([topic]).values()
        try:
            future.result(TIMEOUT_S)
        except KafkaException as error:
            code = error.args[0].code()
            # Clients repeat the request, but librdkafka does not. The next controller may have
            # completed the creation.
            if code == KafkaError.NOT_CONTROLLER:
                return False
            if code != KafkaError.TOPIC_ALREADY_EXISTS or attempts == 1:
                raise
        return True

    eventually(is_created, f"topic {topic.topic}")


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
        found = _next_values(consumer, count)
        consumer.commit(asynchronous=False)
        return found
    finally:
        consumer.close()


def read(broker: Broker, topic: str, count: int) -> list[bytes]:
    """Read the first records of partition 0 without a group."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return _next_values(consumer, count)
    finally:
        consumer.close()


def _next_values(consumer: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []

    def has_all() -> bool:
        # The call waits for as many records.
        messages = consumer.consume(count - len(found), timeout=1)
        found.extend(each.value() for each in messages if each.error() is None)
        return len(found) >= count

    eventually(has_all, f"{count} records")
    return found


def listed(config: dict[str, Any]) -> Any:
    """Return the cluster's metadata, or None if no broker answers."""
    try:
        return AdminClient(config).list_topics(timeout=1)
    except KafkaException:
        return None
