"""Groups, offsets and admin requests of kafka-python, a client written in pure Python.

It uses the newest versions it supports (JoinGroup 7, OffsetFetch 8, …); its relative aiokafka uses
old ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.admin_scenarios import (
    AlterOffsetScenarios,
    ConfigScenarios,
    DeleteGroupScenarios,
    ListGroupScenarios,
    RecordScenarios,
    TopicScenarios,
)
from tests.helpers.client.client_under_test import (
    FETCH_WAIT_MS,
    HEARTBEAT_MS,
    SESSION_TIMEOUT_MS,
    GroupFacts,
    Place,
    PollingMember,
    Read,
    Refused,
)
from tests.helpers.eventually import eventually
from tests.helpers.group.group_scenarios import GroupScenarios

kafka = pytest.importorskip("kafka")
kafka_admin = pytest.importorskip("kafka.admin")
kafka_errors = pytest.importorskip("kafka.errors")

TopicPartition = kafka.TopicPartition
OffsetSpec = kafka_admin.OffsetSpec


_REBALANCE_TIMEOUT_S = 20.0


class KafkaPythonMember(PollingMember):
    """A KafkaConsumer, which only one thread may use."""

    def __init__(self, bootstrap_servers: str, group: str, topic: str) -> None:
        super().__init__()
        self._bootstrap_servers = bootstrap_servers
        self._group, self._topic = group, topic
        self.consumer: Any = None

    def open(self) -> None:
        """Fetch the topic's partitions, then subscribe.

        Otherwise kafka-python 3.0.12 joins without them and joins again. It then waits forever if a
        poll times out in between: need_rejoin() is already false, and nothing awaits the join.
        """
        self.consumer = kafka.KafkaConsumer(
            bootstrap_servers=self._bootstrap_servers,
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            fetch_max_wait_ms=FETCH_WAIT_MS,
        )
        assert self.consumer.partitions_for_topic(self._topic)
        self.consumer.subscribe([self._topic])

    def poll(self) -> None:
        """Poll once."""
        for messages in self.consumer.poll(timeout_ms=FETCH_WAIT_MS).values():
            self.reads.extend(Read(m.partition, m.offset, m.value.decode()) for m in messages)
        self.partitions = frozenset(each.partition for each in self.consumer.assignment())

    def close(self) -> None:
        """Leave the group."""
        self.consumer.close()

    def commit(self, places: Mapping[int, Place]) -> None:
        """Commit `places` and wait for the response.

        If a poll times out during a join, kafka-python may wait forever for its end (see `open`),
        so after some seconds this subscribes again, which starts another join.
        """
        offsets = {
            TopicPartition(self._topic, partition): kafka.OffsetAndMetadata(
                place.offset, place.metadata, -1
            )
            for partition, place in places.items()
        }

        def has_committed() -> bool:
            try:
                self.call(lambda: self.consumer.commit(offsets))
            except kafka_errors.RebalanceInProgressError:
                # On a busy machine, a rebalance may still be completed by the next polls.
                return False
            return True

        try:
            eventually(has_committed, "commit", _REBALANCE_TIMEOUT_S)
        except AssertionError:
            self.call(self._subscribe_again)
            eventually(has_committed, "commit outside of a rebalance")

    def _subscribe_again(self) -> None:
        self.consumer.unsubscribe()
        self.consumer.subscribe([self._topic])

    def seek(self, partition: int, offset: int) -> None:
        """Continue reading at `offset`."""
        self.call(lambda: self.consumer.seek(TopicPartition(self._topic, partition), offset))


class KafkaPythonClient:
    """KafkaProducer, KafkaAdminClient, and the members it has started."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._admin = kafka_admin.KafkaAdminClient(bootstrap_servers=bootstrap_servers)
        self._producer = kafka.KafkaProducer(bootstrap_servers=bootstrap_servers)
        self._members: list[KafkaPythonMember] = []

    def close(self) -> None:
        """Close all clients."""
        for member in self._members:
            member.leave()
        self._producer.close()
        self._admin.close()

    def join(self, group: str, topic: str) -> KafkaPythonMember:
        """Return a new member of `group`."""
        self._members.append(KafkaPythonMember(self._bootstrap_servers, group, topic))
        self._members[-1].start()
        return self._members[-1]

    def produce(self, topic: str, values: Mapping[int, list[str]]) -> None:
        """Send `values` and wait for all acknowledgements."""
        futures = [
            self._producer.send(topic, value.encode(), partition=partition)
            for partition, each in values.items()
            for value in each
        ]
        for future in futures:
            future.get(60)

    def create_topic(
        self, topic: str, partitions: int, settings: Mapping[str, str] | None = None
    ) -> None:
        """CreateTopics."""
        wanted = {
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": dict(settings or {}),
        }
        _run(self._admin.create_topics, {topic: wanted}, wait_for_metadata=True)

    def delete_topic(self, topic: str) -> None:
        """DeleteTopics."""
        _run(self._admin.delete_topics, [topic])

    def topics(self) -> set[str]:
        """Metadata for all topics."""
        return set(self._admin.list_topics())

    def partition_count(self, topic: str) -> int:
        """Metadata for one topic."""
        [described] = self._admin.describe_topics([topic])
        return len(described["partitions"])

    def add_partitions(self, topic: str, total: int) -> None:
        """CreatePartitions."""
        _run(self._admin.create_partitions, {topic: total})

    def settings(self, topic: str) -> dict[str, str]:
        """DescribeConfigs."""
        resource = kafka_admin.ConfigResource(kafka_admin.ConfigResourceType.TOPIC, topic)
        settings = self._admin.describe_configs([resource], config_filter="all")["topic"][topic]
        return {name: facts["value"] for name, facts in settings.items()}

    def alter_settings(self, topic: str, changes: Mapping[str, str]) -> None:
        """IncrementalAlterConfigs."""
        resource = kafka_admin.ConfigResource(
            kafka_admin.ConfigResourceType.TOPIC, topic, dict(changes)
        )
        result = self._admin.alter_configs([resource])["topic"][topic]
        if result != "OK":
            raise Refused(result)

    def groups(self) -> set[str]:
        """ListGroups."""
        return {each["group_id"] for each in self._admin.list_groups()}

    def describe_group(self, group: str) -> GroupFacts:
        """DescribeGroups."""
        facts = self._admin.describe_groups([group])[group]
        members = tuple(member["client_id"] for member in facts["members"])
        return GroupFacts(facts["group_state"], members)

    def delete_group(self, group: str) -> None:
        """DeleteGroups."""
        result = self._admin.delete_groups([group])[group]
        if result != "OK":
            raise Refused(result)

    def committed(self, group: str, topic: str) -> dict[int, Place]:
        """OffsetFetch for all of the group's offsets."""
        offsets = self._admin.list_group_offsets(group)[group]
        return {at.partition: Place(x.offset, x.metadata) for at, x in offsets.items()}

    def alter_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """OffsetCommit without a member."""
        places = {
            TopicPartition(topic, partition): kafka.OffsetAndMetadata(offset, "", -1)
            for partition, offset in offsets.items()
        }
        for error in self._admin.alter_group_offsets(group, places).values():
            if error is not kafka_errors.NoError:
                raise Refused(error.__name__)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """DeleteRecords."""
        _run(self._admin.delete_records, {TopicPartition(topic, p): n for p, n in before.items()})

    def offsets(self, topic: str, when: str | int) -> dict[int, int]:
        """ListOffsets."""
        spec = OffsetSpec[when.upper()] if isinstance(when, str) else when
        asked = {TopicPartition(topic, p): spec for p in range(self.partition_count(topic))}
        offsets = self._admin.list_partition_offsets(asked)
        return {at.partition: found.offset for at, found in offsets.items()}


def _run(request: Any, *arguments: Any, **options: Any) -> Any:
    try:
        return request(*arguments, **options)
    except kafka_errors.BrokerResponseError as error:
        raise Refused(type(error).__name__) from error


@pytest.fixture(scope="module")
def client(broker: BrokerProcess) -> Iterator[KafkaPythonClient]:
    """One client for the whole file."""
    client = KafkaPythonClient(broker.bootstrap_servers)
    yield client
    client.close()


class TestGroups(GroupScenarios):
    """The group scenarios, run with kafka-python."""


class TestAdmin(
    TopicScenarios,
    ConfigScenarios,
    ListGroupScenarios,
    DeleteGroupScenarios,
    AlterOffsetScenarios,
    RecordScenarios,
):
    """The admin scenarios that kafka-python can perform."""
