"""Scenarios for admin clients, one class per kind of request.

A client's test file subclasses the classes that the client supports, and provides the fixture
`client` (client_under_test.py).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.helpers.client.client_under_test import Client, GroupFacts, Place, Refused
from tests.helpers.eventually import eventually
from tests.helpers.group.group_scenarios import (
    EACH,
    PARTITIONS,
    commit_all_read,
    create,
    produce_each,
    shared,
    wait_for,
)


def stable(client: Client, group: str) -> GroupFacts | None:
    """Return the description of a group whose members do not join at the moment."""
    facts = client.describe_group(group)
    return facts if facts.state == "Stable" else None


class TopicScenarios:
    """CreateTopics, DeleteTopics, Metadata, CreatePartitions."""

    def test_topic_is_created_listed_described_and_deleted(
        self, client: Client, topic: str
    ) -> None:
        create(client, topic, 3)
        assert client.partition_count(topic) == 3
        with pytest.raises(Refused):
            client.create_topic(topic, 3)
        client.delete_topic(topic)
        # Kafka's brokers apply the change a moment after the response.
        eventually(lambda: topic not in client.topics(), "deletion")
        with pytest.raises(Refused):
            client.delete_topic(topic)

    def test_partitions_can_be_added_but_not_removed(self, client: Client, topic: str) -> None:
        create(client, topic, 2)
        client.add_partitions(topic, 5)
        eventually(lambda: client.partition_count(topic) == 5, "five partitions")
        client.produce(topic, {4: ["to the new one"]})
        with pytest.raises(Refused):
            client.add_partitions(topic, 3)
        assert client.partition_count(topic) == 5


class ConfigScenarios:
    """DescribeConfigs, and AlterConfigs or IncrementalAlterConfigs, whichever the client has."""

    def test_settings_are_described_and_altered(self, client: Client, topic: str) -> None:
        create(client, topic, 1, retention_ms="123456")
        before = client.settings(topic)
        assert before["retention.ms"] == "123456"
        assert before["max.message.bytes"] == "1048588"
        client.alter_settings(topic, {"retention.ms": "98765", "max.message.bytes": "2000"})
        altered = eventually(
            lambda: client.settings(topic) if client.settings(topic) != before else None,
            "altered settings",
        )
        assert (altered["retention.ms"], altered["max.message.bytes"]) == ("98765", "2000")
        with pytest.raises(Refused):
            client.alter_settings(topic, {"retention.ms": "soon"})


class ListGroupScenarios:
    """ListGroups and DescribeGroups."""

    def test_group_is_listed_and_described(self, client: Client, topic: str) -> None:
        create(client, topic)
        member = client.join(topic, topic)
        # A client may join again soon after it has received its partitions.
        facts = eventually(lambda: shared(member) and stable(client, topic), "stable group")
        assert len(facts.members) == 1
        assert topic in client.groups()
        member.leave()
        # Without offsets, the empty group would be deleted before it is described.
        assert client.describe_group(topic).state == "Empty"


class DeleteGroupScenarios:
    """DeleteGroups."""

    def test_group_can_be_deleted_after_its_members_have_left(
        self, client: Client, topic: str
    ) -> None:
        create(client, topic)
        member = client.join(topic, topic)
        wait_for(produce_each(client, topic, "delete"), member)
        commit_all_read(member)
        with pytest.raises(Refused):
            client.delete_group(topic)
        member.leave()
        assert client.committed(topic, topic) != {}
        client.delete_group(topic)
        assert topic not in client.groups()
        assert client.committed(topic, topic) == {}
        with pytest.raises(Refused):
            client.delete_group(topic)


class AlterOffsetScenarios:
    """Offset commits of admin clients for a group without members."""

    def test_offsets_of_a_group_without_members_can_be_altered(
        self, client: Client, topic: str
    ) -> None:
        create(client, topic)
        sent = produce_each(client, topic, "alter")
        client.alter_offsets(topic, topic, {p: EACH - p for p in range(PARTITIONS)})
        assert client.committed(topic, topic) == {p: Place(EACH - p) for p in range(PARTITIONS)}
        member = client.join(topic, topic)
        rest = {f"alter {p} {i}" for p in range(PARTITIONS) for i in range(EACH - p, EACH)}
        assert rest < sent
        wait_for(rest, member)
        assert {read.value for read in member.reads} == rest
        member.leave()


class RecordScenarios:
    """DeleteRecords and ListOffsets."""

    def test_records_are_deleted_up_to_an_offset(self, client: Client, topic: str) -> None:
        create(client, topic)
        sent = produce_each(client, topic, "delete")
        client.delete_records(topic, {1: 7})
        assert client.offsets(topic, "earliest") == {0: 0, 1: 7, 2: 0, 3: 0}
        member = client.join(topic, topic)
        left = sent - {f"delete 1 {i}" for i in range(7)}
        wait_for(left, member)
        assert {read.value for read in member.reads} == left
        member.leave()
        with pytest.raises(Refused):
            client.delete_records(topic, {1: EACH + 1})

    def test_offsets_are_listed_by_end_and_by_time(
        self, client: Client, new_topic: Callable[[], str]
    ) -> None:
        topic = new_topic()
        create(client, topic)
        produce_each(client, topic, "list")
        client.produce(topic, {0: ["one more"]})
        assert client.offsets(topic, "earliest") == dict.fromkeys(range(PARTITIONS), 0)
        assert client.offsets(topic, "latest") == {0: EACH + 1, 1: EACH, 2: EACH, 3: EACH}
        assert client.offsets(topic, 1_000_000_000_000) == dict.fromkeys(range(PARTITIONS), 0)
