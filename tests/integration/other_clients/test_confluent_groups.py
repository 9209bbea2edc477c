"""Groups of confluent-kafka: the scenarios for all clients, then features specific to librdkafka.

These are static members, cooperative rebalances, max.poll.interval.ms and several concurrent
groups. The other test_confluent_….py files test the rest of this client.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

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
from tests.helpers.client.client_under_test import Place
from tests.helpers.eventually import eventually
from tests.helpers.group.group_scenarios import (
    EACH,
    PARTITIONS,
    GroupScenarios,
    create,
    produce_each,
    reads,
    shared,
    wait_for,
)
from tests.helpers.programs.confluent import confluent_kafka
from tests.helpers.programs.confluent_client import ConfluentClient

ALL = frozenset(range(PARTITIONS))
SHORT_SESSION_MS = 1000


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[ConfluentClient]:
    """A new client for each test: its threads are cheap."""
    client = ConfluentClient(broker.bootstrap_servers)
    yield client
    client.close()


class TestGroups(GroupScenarios):
    """The group scenarios, run with confluent-kafka."""


class TestAdmin(
    TopicScenarios,
    ConfigScenarios,
    ListGroupScenarios,
    DeleteGroupScenarios,
    AlterOffsetScenarios,
    RecordScenarios,
):
    """The admin scenarios that confluent-kafka can perform."""


def test_cooperative_rebalance_revokes_only_reassigned_partitions(
    client: ConfluentClient, topic: str
) -> None:
    create(client, topic)
    sticky = {"partition_assignment_strategy": "cooperative-sticky"}
    stays = client.join(topic, topic, **sticky)
    eventually(lambda: shared(stays), "all partitions for the first")
    joins = client.join(topic, topic, **sticky)
    eventually(lambda: shared(stays, joins), "partitions for both")
    taken = joins.partitions
    assert len(taken) == 2
    # Only those two were ever revoked; the others were consumed without interruption.
    assert [ps for event, ps in stays.events if event == "revoked"] == [taken]
    assert frozenset().union(*(ps for e, ps in stays.events if e == "assigned")) == ALL
    wait_for(produce_each(client, topic, "sticky"), stays, joins)
    joins.leave()
    eventually(lambda: shared(stays), "all partitions again")
    assert [ps for event, ps in stays.events if event == "revoked"] == [taken]
    assert [ps for event, ps in stays.events if event == "lost"] == []


@pytest.mark.parametrize("restarted", [0, 1])
def test_static_member_restarts_without_a_rebalance(
    client: ConfluentClient, topic: str, restarted: int
) -> None:
    """Whether or not the restarted member is the group's leader."""
    create(client, topic)
    names = ["one", "other"]
    members = [client.join(topic, topic, group_instance_id=name) for name in names]
    eventually(lambda: shared(*members), "partitions for both")
    wait_for(produce_each(client, topic, "before"), *members)
    leaves, stays = members[restarted], members[1 - restarted]
    owned, events = leaves.partitions, list(stays.events)
    leaves.commit({partition: Place(EACH) for partition in owned})
    leaves.leave()  # The consumer closes, but a static member sends no LeaveGroup.
    sent = produce_each(client, topic, "while it is down")
    restarted_member = client.join(topic, topic, group_instance_id=names[restarted])
    eventually(lambda: restarted_member.partitions == owned, "the same partitions")
    wait_for(sent, stays, restarted_member)
    assert stays.events == events
    assert {read.value for read in restarted_member.reads} < sent


def test_older_member_is_fenced_when_two_share_an_instance_id(
    client: ConfluentClient, topic: str
) -> None:
    create(client, topic)
    older = client.join(topic, topic, group_instance_id="same")
    eventually(lambda: shared(older), "all partitions")
    newer = client.join(topic, topic, group_instance_id="same")
    eventually(lambda: newer.partitions == ALL, "all partitions for the newer")
    [error] = eventually(lambda: older.errors[:1], "an error for the older")
    # librdkafka reports fatal errors with its own code; the broker's error is in the text.
    assert error.code() == confluent_kafka.KafkaError._FATAL
    assert "FENCED_INSTANCE_ID" in error.str() or "fenced" in error.str().lower()


def test_three_concurrent_groups_keep_their_members(client: ConfluentClient, topic: str) -> None:
    """No member receives UNKNOWN_MEMBER_ID: every commit succeeds, and no member rejoins."""
    create(client, topic)
    names = [f"{topic}-{number}" for number in range(3)]
    groups = {name: [client.join(name, topic) for _ in range(2)] for name in names}
    for members in groups.values():
        eventually(lambda members=members: shared(*members), "partitions for both")
    all_members = [member for members in groups.values() for member in members]
    events = [list(member.events) for member in all_members]
    for turn in range(1, 6):
        sent = produce_each(client, topic, f"turn {turn}")
        for members in groups.values():
            wait_for(sent, *members)
            for member in members:
                member.commit({p: Place(turn * EACH) for p in member.partitions})
    assert [list(member.events) for member in all_members] == events
    assert [member.errors for member in all_members] == [[]] * 6
    for name, members in groups.items():
        assert len(reads(*members)) == 5 * EACH * PARTITIONS
        assert client.committed(name, topic) == {p: Place(5 * EACH) for p in ALL}


def test_slow_member_keeps_its_partitions_while_it_polls_in_time(
    client: ConfluentClient, topic: str
) -> None:
    """A poll may come several session timeouts after the last: a thread sends heartbeats."""
    create(client, topic)
    limits = {"session_timeout_ms": SHORT_SESSION_MS, "max_poll_interval_ms": 60_000}
    slow, other = (client.join(topic, topic, **limits) for _ in range(2))
    eventually(lambda: shared(slow, other), "partitions for both")
    events = list(slow.events), list(other.events)
    slow.call(lambda: threading.Event().wait(2.5 * SHORT_SESSION_MS / 1000))
    wait_for(produce_each(client, topic, "slow"), slow, other)
    assert (slow.events, other.events) == events


def test_member_that_stops_polling_is_removed_once_and_rejoins_once(
    client: ConfluentClient, topic: str
) -> None:
    create(client, topic)
    limits = {"session_timeout_ms": SHORT_SESSION_MS, "max_poll_interval_ms": SHORT_SESSION_MS}
    other = client.join(topic, topic, session_timeout_ms=SHORT_SESSION_MS)
    stuck = client.join(topic, topic, **limits)
    eventually(lambda: shared(stuck, other), "partitions for both")
    half = other.partitions
    events = len(other.events)
    stuck.call(lambda: eventually(lambda: other.partitions == ALL, "all partitions for the other"))
    eventually(lambda: stuck.errors, "an error for the stuck member")
    assert stuck.errors[0].code() == confluent_kafka.KafkaError._MAX_POLL_EXCEEDED
    eventually(lambda: shared(stuck, other), "partitions for both again")
    wait_for(produce_each(client, topic, "back"), stuck, other)
    # Two rebalances: one after the stuck member's removal, one after its return.
    rebalance_events = [event for event, _ in other.events[events:]]
    assert rebalance_events == ["revoked", "assigned"] * 2
    assert other.events[events + 1] == ("assigned", ALL)
    assert len(half) == 2
