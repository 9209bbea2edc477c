"""What a consumer group has to do for every client: subclass `GroupScenarios` in the client's file.

The file gives the fixture `client` (client_under_test.py). The topics have four partitions.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.helpers.client_under_test import Client, Member, Place, Read
from tests.helpers.eventually import eventually

PARTITIONS = 4
EACH = 10


def create(client: Client, topic: str, partitions: int = PARTITIONS, **settings: str) -> None:
    """Create a topic and wait until it is known, as Kafka's brokers hear of it a moment later."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    client.create_topic(topic, partitions, named)
    eventually(lambda: topic in client.topics(), "new topic")


def two_members(client: Client, group: str, topic: str) -> tuple[Member, Member]:
    """Two members of a new group that have shared the four partitions between them."""
    members = client.join(group, topic), client.join(group, topic)
    owned = eventually(lambda: shared(*members), "partitions for both")
    assert set.intersection(*map(set, owned)) == set()
    return members


def shared(*members: Member) -> list[frozenset[int]] | None:
    """What each owns, once everybody owns something and nothing is left."""
    owned = [member.partitions for member in members]
    every = sorted(partition for each in owned for partition in each)
    return owned if all(owned) and every == list(range(PARTITIONS)) else None


def produce_each(client: Client, topic: str, word: str) -> set[str]:
    """Ten messages in each partition; their values."""
    values = {p: [f"{word} {p} {i}" for i in range(EACH)] for p in range(PARTITIONS)}
    client.produce(topic, values)
    return {value for each in values.values() for value in each}


def wait_for(values: Iterable[str], *members: Member) -> None:
    """Until the members, between them, have read each of the values."""
    expected = set(values)
    eventually(lambda: expected <= {read.value for read in reads(*members)}, "messages")


def reads(*members: Member) -> list[Read]:
    """All that they have read, sorted."""
    return sorted(read for member in members for read in list(member.reads))


def commit_all_read(member: Member) -> None:
    """Commit what is next in each partition the member owns and has read from."""
    ends = {p: [r.offset for r in member.reads if r.partition == p] for p in member.partitions}
    member.commit({p: Place(max(offsets) + 1) for p, offsets in ends.items() if offsets})


class GroupScenarios:
    """Two members, who comes and who goes, and the offsets that they leave behind."""

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

    def test_a_member_that_joins_takes_over_and_one_that_leaves_hands_over(
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
        # What was committed before the rebalance is read by nobody again.
        assert not any(read.value.startswith("alone") for read in goes.reads)
        commit_all_read(stays)
        commit_all_read(goes)
        goes.leave()
        eventually(lambda: shared(stays), "all partitions for the one that stays")
        before = len(stays.reads)
        late = produce_each(client, topic, "late")
        wait_for(late, stays)
        # Neither a gap nor anything twice: the partitions went over where they were committed.
        assert {read.value for read in stays.reads[before:]} == late
        assert len(stays.reads) - before == len(late)
        stays.leave()

    def test_a_restarted_client_resumes_from_the_committed_offset(
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

    def test_a_member_can_seek(self, client: Client, topic: str) -> None:
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

    def test_a_commit_keeps_its_metadata(self, client: Client, topic: str) -> None:
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
