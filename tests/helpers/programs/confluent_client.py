"""confluent-kafka as a `Client` (client_under_test.py): group members and admin requests.

Tests of behavior specific to librdkafka pass settings to a member and check its `events`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.helpers.client.client_under_test import (
    FETCH_WAIT_MS,
    HEARTBEAT_MS,
    SESSION_TIMEOUT_MS,
    TIMEOUT_S,
    GroupFacts,
    Place,
    PollingMember,
    Read,
    Refused,
)
from tests.helpers.programs.confluent import (
    admin,
    comes_back_from_close,
    confluent_kafka,
    create_topic,
    produce,
)

TopicPartition = confluent_kafka.TopicPartition
_POLL_S = 0.05
_CLOSE_S = 30.0


class ConfluentMember(PollingMember):
    """A Consumer. `events` contains the calls of its callbacks: ("assigned", {0, 2}), …"""

    def __init__(
        self, bootstrap_servers: str, group: str, topic: str, settings: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.events: list[tuple[str, frozenset[int]]] = []
        self.errors: list[Any] = []
        self._topic = topic
        self._settings = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "fetch.wait.max.ms": FETCH_WAIT_MS,
            **settings,
        }
        self.consumer: Any = None

    def open(self) -> None:
        """Subscribe."""
        self.consumer = confluent_kafka.Consumer(self._settings)
        self.consumer.subscribe(
            [self._topic],
            on_assign=self._callback("assigned"),
            on_revoke=self._callback("revoked"),
            on_lost=self._callback("lost"),
        )

    def _callback(self, event: str) -> Any:
        def called(_: Any, partitions: list[Any]) -> None:
            self.events.append((event, frozenset(each.partition for each in partitions)))

        return called

    def poll(self) -> None:
        """Poll once: a message, an error, or nothing."""
        message = self.consumer.poll(_POLL_S)
        self.partitions = frozenset(each.partition for each in self.consumer.assignment())
        if message is None:
            return
        if message.error() is not None:
            self.errors.append(message.error())
        else:
            read = Read(message.partition(), message.offset(), message.value().decode())
            self.reads.append(read)

    def close(self) -> None:
        """Leave the group; a static member only closes the consumer.

        After a fatal error (its instance id was taken over), librdkafka may hang in close(); then
        this does not wait for it.
        """
        is_back = comes_back_from_close(self.consumer, _CLOSE_S)
        has_failed = any(error.code() == confluent_kafka.KafkaError._FATAL for error in self.errors)
        assert is_back or has_failed, "the consumer hangs in close()"

    def commit(self, places: Mapping[int, Place]) -> None:
        """Commit, and wait for the response. Raises Refused."""
        offsets = [
            TopicPartition(self._topic, partition, place.offset, place.metadata)
            for partition, place in places.items()
        ]
        self.call(lambda: self._commit(offsets))

    def _commit(self, offsets: list[Any]) -> None:
        for each in result_of(self.consumer.commit, offsets=offsets, asynchronous=False):
            if each.error is not None:
                raise Refused(each.error.name())

    def seek(self, partition: int, offset: int) -> None:
        """Continue reading from this position."""
        self.call(lambda: self.consumer.seek(TopicPartition(self._topic, partition, offset)))


class ConfluentClient:
    """Creates a Producer for each call, an AdminClient, and members."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.admin = admin.AdminClient({"bootstrap.servers": bootstrap_servers})
        self._members: list[ConfluentMember] = []

    def close(self) -> None:
        """Close the members."""
        for member in self._members:
            member.leave()

    def join(self, group: str, topic: str, **settings: Any) -> ConfluentMember:
        """Start a new member; settings with `_` for dots."""
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self._members.append(ConfluentMember(self.bootstrap_servers, group, topic, named))
        self._members[-1].start()
        return self._members[-1]

    def produce(self, topic: str, values: Mapping[int, list[str]]) -> None:
        """Send the messages, and wait for all acknowledgments."""
        sent = [
            {"partition": partition, "value": value}
            for partition, each in values.items()
            for value in each
        ]
        assert set(produce(self.bootstrap_servers, topic, sent)) == {None}

    def create_topic(
        self, topic: str, partitions: int, settings: Mapping[str, str] | None = None
    ) -> None:
        """CreateTopics."""
        config = {name.replace(".", "_"): value for name, value in (settings or {}).items()}
        result_of(create_topic, self.bootstrap_servers, topic, partitions, **config)

    def delete_topic(self, topic: str) -> None:
        """DeleteTopics."""
        self._run(self.admin.delete_topics, [topic])

    def topics(self) -> set[str]:
        """Metadata of all topics."""
        return set(self.admin.list_topics(timeout=TIMEOUT_S).topics)

    def partition_count(self, topic: str) -> int:
        """Metadata of one topic."""
        return len(self.admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions)

    def add_partitions(self, topic: str, total: int) -> None:
        """CreatePartitions."""
        self._run(self.admin.create_partitions, [admin.NewPartitions(topic, total)])

    def settings(self, topic: str) -> dict[str, str]:
        """DescribeConfigs."""
        [result] = self._run(self.admin.describe_configs, [_resource(topic)])
        return {name: entry.value for name, entry in result.items()}

    def alter_settings(self, topic: str, changes: Mapping[str, str]) -> None:
        """IncrementalAlterConfigs."""
        operation = admin.AlterConfigOpType.SET
        entries = [
            admin.ConfigEntry(name, value, incremental_operation=operation)
            for name, value in changes.items()
        ]
        self._run(self.admin.incremental_alter_configs, [_resource(topic, entries)])

    def groups(self) -> set[str]:
        """ListGroups."""
        result = self.admin.list_consumer_groups().result(TIMEOUT_S)
        assert result.errors == []
        return {each.group_id for each in result.valid}

    def describe_group(self, group: str) -> GroupFacts:
        """DescribeGroups."""
        [result] = self._run(self.admin.describe_consumer_groups, [group])
        members = tuple(member.client_id for member in result.members)
        return GroupFacts(result.state.name.capitalize(), members)

    def delete_group(self, group: str) -> None:
        """DeleteGroups."""
        self._run(self.admin.delete_consumer_groups, [group])

    def committed(self, group: str, topic: str) -> dict[int, Place]:
        """OffsetFetch of all partitions of the group."""
        asked = confluent_kafka.ConsumerGroupTopicPartitions(group)
        [result] = self._run(self.admin.list_consumer_group_offsets, [asked])
        assert [each.error for each in result.topic_partitions if each.error] == []
        return {x.partition: Place(x.offset, x.metadata or "") for x in result.topic_partitions}

    def alter_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """OffsetCommit without a member id."""
        places = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        wanted = confluent_kafka.ConsumerGroupTopicPartitions(group, places)
        [result] = self._run(self.admin.alter_consumer_group_offsets, [wanted])
        for each in result.topic_partitions:
            if each.error is not None:
                raise Refused(each.error.name())

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """DeleteRecords."""
        wanted = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
        self._run(self.admin.delete_records, wanted)

    def offsets(self, topic: str, when: str | int) -> dict[int, int]:
        """ListOffsets."""
        if isinstance(when, str):
            spec = getattr(admin.OffsetSpec, when)()
        else:
            spec = admin.OffsetSpec.for_timestamp(when)
        asked = {TopicPartition(topic, p): spec for p in range(self.partition_count(topic))}
        futures = self.admin.list_offsets(asked)
        return {at.partition: future.result(TIMEOUT_S).offset for at, future in futures.items()}

    def _run(self, request: Any, *arguments: Any) -> list[Any]:
        futures = request(*arguments)
        return [result_of(future.result, TIMEOUT_S) for future in futures.values()]


def result_of(request: Any, *arguments: Any, **options: Any) -> Any:
    """Return the result; an error of librdkafka becomes Refused."""
    try:
        return request(*arguments, **options)
    except confluent_kafka.KafkaException as error:
        raise Refused(error.args[0].name()) from error


def _resource(topic: str, changes: list[Any] | None = None) -> Any:
    return admin.ConfigResource(admin.ResourceType.TOPIC, topic, incremental_configs=changes)
