"""OffsetFetch on a complete broker: every version, and no offset of -1 before loading has ended."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.delete_topics import DeleteTopicsRequest
from plog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from plogd.coordinator.runtime.shard_runtime import ShardState
from tests.helpers.offsets import commit, commit_request, fetch, fetch_request, topic_id
from tests.helpers.sim.sim_broker import SimBroker, create_topic

BY_NAME = range(1, 10)


@pytest.fixture(scope="module")
def broker() -> SimBroker:
    broker = SimBroker().start()
    create_topic(broker, "t", 3)
    create_topic(broker, "u")
    commit(broker, "g", {("t", 0): 10, ("t", 2): 12, ("u", 0): 20}, metadata="m", leader_epoch=6)
    commit(broker, "h", {("u", 0): 30})
    return broker


def groups(broker: SimBroker, version: int, *asked: OffsetFetchRequestGroup, **fields: Any) -> Any:
    request = OffsetFetchRequest(groups=list(asked), **fields)
    return broker.ask(request, version).groups


@pytest.mark.parametrize("version", BY_NAME)
def test_named_offsets_are_fetched_in_every_version(broker: SimBroker, version: int) -> None:
    keys = [("t", 0), ("t", 1), ("nobody", 9)]
    found = {("t", 0): 10, ("t", 1): -1, ("nobody", 9): -1}
    assert fetch(broker, "g", keys, version=version) == found


@pytest.mark.parametrize("version", range(2, 10))
def test_all_offsets_are_fetched_in_every_version_that_supports_it(
    broker: SimBroker, version: int
) -> None:
    found = {("t", 0): 10, ("t", 2): 12, ("u", 0): 20}
    assert fetch(broker, "g", version=version) == found
    assert fetch(broker, "nobody", version=version) == {}


@pytest.mark.parametrize("version", BY_NAME)
def test_metadata_and_leader_epoch_are_included(broker: SimBroker, version: int) -> None:
    answer = broker.ask(fetch_request("g", [("t", 0), ("t", 1)], version=version), version)
    topic = (answer.groups[0] if version >= 8 else answer).topics[0]
    epoch = 6 if version >= 5 else -1
    actual = [
        (one.metadata, one.committed_leader_epoch, one.error_code) for one in topic.partitions
    ]
    assert actual == [("m", epoch, 0), ("", -1, 0)]


@pytest.mark.parametrize("version", [8, 9])
def test_each_group_has_its_own_outcome(broker: SimBroker, version: int) -> None:
    home = broker.broker.group_coordinator.partition_for
    shard = broker.broker.group_coordinator.runtime.shards[home("gone")]
    state, shard.state = shard.state, ShardState.FAILED
    asked = [
        OffsetFetchRequestGroup(group_id="h", topics=None),
        OffsetFetchRequestGroup(group_id="gone", topics=None),
        OffsetFetchRequestGroup(group_id="", topics=None),
    ]
    answer = groups(broker, version, *asked)
    shard.state = state
    assert home("gone") not in (home("h"), home(""))
    assert [one.error_code for one in answer] == [0, ErrorCode.NOT_COORDINATOR, 0]
    assert [one.group_id for one in answer] == [one.group_id for one in asked]
    assert [len(one.topics) for one in answer] == [1, 0, 0]
    assert groups(broker, version) == []


def test_group_named_repeatedly_is_answered_once(broker: SimBroker) -> None:
    everything = OffsetFetchRequestGroup(group_id="h", topics=None)
    nothing = OffsetFetchRequestGroup(group_id="h", topics=[])
    for asked in ([everything, everything], [everything, nothing], [nothing, everything]):
        [group] = groups(broker, 8, *asked)
        assert (group.error_code, len(group.topics)) == (0, 1)


@pytest.mark.parametrize("version", [7, 8])
def test_partition_named_repeatedly_is_answered_once(broker: SimBroker, version: int) -> None:
    if version < 8:
        topics: Any = [
            OffsetFetchRequestTopic(name="t", partition_indexes=[0] * 1000 + [1]),
            OffsetFetchRequestTopic(name="t", partition_indexes=[1, 0]),
        ]
        request = OffsetFetchRequest(group_id="g", topics=topics)
        answered = broker.ask(request, version).topics
    else:
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1, 0])] * 2
        asked = OffsetFetchRequestGroup(group_id="g", topics=topics)
        [group] = groups(broker, version, asked, asked)
        answered = group.topics
    [topic] = answered
    assert [(one.partition_index, one.committed_offset) for one in topic.partitions] == [
        (0, 10),
        (1, -1),
    ]


def test_offsets_are_fetched_by_topic_id(broker: SimBroker) -> None:
    asked = OffsetFetchRequestGroup(
        group_id="g",
        topics=[
            OffsetFetchRequestTopics(topic_id=topic_id(broker, "t"), partition_indexes=[0, 1]),
            OffsetFetchRequestTopics(topic_id=b"?" * 16, partition_indexes=[0, 1]),
        ],
    )
    [group] = groups(broker, 10, asked)
    actual = {
        topic.topic_id: [(one.committed_offset, one.error_code) for one in topic.partitions]
        for topic in group.topics
    }
    assert group.error_code == 0
    assert actual == {
        topic_id(broker, "t"): [(10, 0), (-1, 0)],
        b"?" * 16: [(-1, ErrorCode.UNKNOWN_TOPIC_ID)] * 2,
    }


def test_all_offsets_are_fetched_with_topic_ids(broker: SimBroker) -> None:
    [group] = groups(broker, 10, OffsetFetchRequestGroup(group_id="g", topics=None))
    assert {topic.topic_id for topic in group.topics} == {
        topic_id(broker, "t"),
        topic_id(broker, "u"),
    }


@pytest.mark.parametrize("version", [7, 8, 9])
def test_require_stable_changes_nothing_without_transactions(
    broker: SimBroker, version: int
) -> None:
    found = fetch(broker, "h", version=version, require_stable=True)
    assert found == {("u", 0): 30}


def test_member_id_and_epoch_are_accepted(broker: SimBroker) -> None:
    asked = OffsetFetchRequestGroup(group_id="h", member_id="m", member_epoch=3, topics=None)
    [group] = groups(broker, 9, asked)
    assert (group.error_code, len(group.topics)) == (0, 1)


def test_offset_is_returned_only_when_it_is_durable() -> None:
    broker = SimBroker().start()
    create_topic(broker, "t")
    commit(broker, "g", {("t", 0): 1})
    broker.begin(commit_request(broker, "g", {("t", 0): 2}), 8)
    asked = broker.begin(fetch_request("g"), 8)
    assert not asked.is_done
    broker.settle()
    assert asked.response().groups[0].topics[0].partitions[0].committed_offset == 2


def test_first_request_creates_the_topic_and_finds_nothing() -> None:
    broker = SimBroker().start()
    create_topic(broker, "t")
    assert fetch(broker, "g", [("t", 0)]) == {("t", 0): -1}
    assert fetch(broker, "g", [("t", 0)], version=1) == {("t", 0): -1}


def test_missing_offset_is_not_reported_while_offsets_are_loading() -> None:
    broker = SimBroker().start()
    create_topic(broker, "t")
    commit(broker, "g", {("t", 0): 7})
    again = SimBroker(files=broker.files.kill())
    started = again.broker.start()
    while not started.done:
        again.ports.jobs.run_one()
        again.ports.timers.run_due()
    seen = set()
    for version in BY_NAME:
        request = fetch_request("g", [("t", 0)], version=version)
        answer = again.begin(request, version).response()
        holder = answer.groups[0] if version >= 8 else answer
        if version == 1:
            [holder] = answer.topics[0].partitions
            assert holder.committed_offset == -1
        seen.add(holder.error_code)
    assert seen == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    codes = again.begin(commit_request(again, "g", {("t", 0): 8}), 8).response().topics[0]
    assert codes.partitions[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    again.settle()
    assert fetch(again, "g") == {("t", 0): 7}


def test_slow_disk_is_an_error_that_old_clients_retry() -> None:
    broker = SimBroker().start()
    create_topic(broker, "t")
    commit(broker, "g", {("t", 0): 1})
    broker.begin(commit_request(broker, "g", {("t", 0): 2}), 8)
    asked = broker.begin(fetch_request("g"), 8)
    broker.ports.timers.advance(5_000)
    assert asked.response().groups[0].error_code == ErrorCode.NOT_COORDINATOR


def test_offsets_of_a_deleted_topic_are_left_out_by_id() -> None:
    broker = SimBroker().start()
    create_topic(broker, "t")
    create_topic(broker, "u")
    commit(broker, "g", {("t", 0): 1, ("u", 0): 2})
    # As if the broker had crashed first.
    broker.broker.replica_manager.topics.on_topic_stopped = lambda _: None
    broker.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    [group] = groups(broker, 10, OffsetFetchRequestGroup(group_id="g", topics=None))
    assert [topic.topic_id for topic in group.topics] == [topic_id(broker, "u")]
    assert fetch(broker, "g") == {("t", 0): 1, ("u", 0): 2}
