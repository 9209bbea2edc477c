"""Scenarios of a consumer group for every client: subclass `GroupScenarios` in the client's file.

The file provides the fixture `client` (client_under_test.py). The topics have four partitions.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.helpers.client.client_under_test import Client, Member, Place, Read
from tests.helpers.eventually import eventually

PARTITIONS = 4
EACH = 10


def create(client: Client, topic: str, partitions: int = PARTITIONS, **settings: str) -> None:
    """Create a topic and wait until it is listed: Kafka's brokers learn of it a moment later."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    client.create_topic(topic, partitions, named)
    eventually(lambda: topic in client.topics(), "new topic")


def two_members(client: Client, group: str, topic: str) -> tuple[Member, Member]:
    """Return two members of a new group that share the four partitions."""
    members = client.join(group, topic), client.join(group, topic)
    owned = eventually(lambda: shared(*members), "partitions for both")
    assert set.intersection(*map(set, owned)) == set()
    return members


def shared(*members: Member) -> list[frozenset[int]] | None:
    """Return each member's partitions, once every member has some and none is left."""
    owned = [member.partitions for member in members]
    every = sorted(partition for each in owned for partition in each)
    return owned if all(owned) and every == list(range(PARTITIONS)) else None


def produce_each(client: Client, topic: str, word: str) -> set[str]:
    """Produce ten messages to each partition; return their values."""
    values = {p: [f"{word} {p} {i}" for i in range(EACH)] for p in range(PARTITIONS)}
    client.produce(topic, values)
    return {value for each in values.values() for value in each}


def wait_for(values: Iterable[str], *members: Member) -> None:
    """Wait until the members together have read each of the values."""
    expected = set(values)
    eventually(lambda: expected <= {read.value for read in reads(*members)}, "messages")


def reads(*members: Member) -> list[Read]:
    """Return all messages that they have read, sorted."""
    return sorted(read for member in members for read in list(member.reads))


def commit_all_read(member: Member) -> None:
    """Commit the next offset of each partition that the member owns and has read from."""
    ends = {p: [r.offset for r in member.reads if r.partition == p] for p in member.partitions}
    member.commit({p: Place(max(offsets) + 1) for p, offsets in ends.items() if offsets})


class GroupScenarios:
    """Two members that join and leave, and the offsets that they commit."""

    def test_two_members_share_the_partitions_and_read_each_message_once(
        self, client: Client, topic: str
    ) -> None:
        create(client, topic)
        one, other = two_members(client, topic, topic)
        sent = produce_each(client, topic, "shared")
        wait_for(sent, one, other)
        assert sorted(read.value for read in reads(one, other)) == sorted(sent)
        assert {read.partition for read in one.reads} == one.partitions
        assert [r.offset for r in reads(one, other)] == list(range(EACH)) * PARTITIONS
        one.leave()
        other.leave()

    def test_joining_member_takes_over_partitions_and_leaving_member_hands_them_over(
        self, client: Client, topic: str
    ) -> None:
        create(client, topic)
        stays = client.join(topic, topic)
        eventually(lambda: shared(stays), "all partitions for the first")
        wait_for(produce_each(client, topic, "alone"), stays)
        commit_all_read(stays)
        goes = client.join(topic, topic)
        eventually(lambda: shared(stays, goes), "partitions for both")
        wait_for(produce_each(client, topic, "both"), stays, goes)
        # Messages committed before the rebalance are not read again.
        assert not any(read.value.startswith("alone") for read in goes.reads)
        commit_all_read(stays)
        commit_all_read(goes)
        goes.leave()
        eventually(lambda: shared(stays), "all partitions for the one that stays")
        before = len(stays.reads)
        late = produce_each(client, topic, "late")
        wait_for(late, stays)
        # Neither gaps nor duplicates: each partition continued at its committed offset.
        assert {read.value for read in stays.reads[before:]} == late
        assert len(stays.reads) - before == len(late)
        stays.leave()

    def test_restarted_client_resumes_from_the_committed_offset(
        self, client: Client, topic: str
    ) -> None:
        create(client, topic)
        sent = produce_each(client, topic, "early")
        first = client.join(topic, topic)
        wait_for(sent, first)
        first.commit({p: Place(p + 3) for p in range(PARTITIONS)})
        first.leave()
        late = produce_each(client, topic, "late")
        second = client.join(topic, topic)
        rest = {f"early {p} {i}" for p in range(PARTITIONS) for i in range(p + 3, EACH)}
        wait_for(rest | late, second)
        assert {read.value for read in second.reads} == rest | late
        second.leave()

    def test_member_can_seek(self, client: Client, topic: str) -> None:
        create(client, topic)
        sent = produce_each(client, topic, "seek")
        member = client.join(topic, topic)
        wait_for(sent, member)
        before = len(member.reads)
        member.seek(2, 4)
        again = [f"seek 2 {i}" for i in range(4, EACH)]
        eventually(lambda: len(member.reads) >= before + len(again), "messages again")
        assert [read.value for read in member.reads[before:]] == again
        member.leave()

    def test_commit_keeps_its_metadata(self, client: Client, topic: str) -> None:
        create(client, topic)
        member = client.join(topic, topic)
        eventually(lambda: shared(member), "all partitions")
        sent = produce_each(client, topic, "metadata")
        wait_for(sent, member)
        places = {1: Place(7, "Seite 7 – größer"), 3: Place(2)}
        member.commit(places)
        assert client.committed(topic, topic) == places
        member.leave()
        assert client.committed(topic, topic) == places
