"""GroupCoordinator beyond single requests: expiration, shards, gauges and shutdown."""

from __future__ import annotations

import dataclasses
import errno

import pytest

from plog.errors import CoordinatorNotAvailable, NotCoordinator
from plog.settings import DAY_MS
from plog.wire.internal.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from plogd.coordinator.group.group_coordinator import OFFSETS_TOPIC
from plogd.coordinator.group.group_shard import SLICE_RECORDS
from plogd.coordinator.runtime.coordinator_result import CoordinatorRecord, Result
from plogd.ports import Later
from tests.helpers.offsets import commit, commit_request, fetch
from tests.helpers.sim.sim_broker import SimBroker, create_topic
from tests.helpers.sim.sim_ports import outcome


@pytest.fixture
def broker() -> SimBroker:
    broker = SimBroker().start()
    create_topic(broker, "t", 3)
    return broker


def clean_up(broker: SimBroker) -> None:
    cleaned = broker.broker.group_coordinator.clean_up()
    broker.settle()
    outcome(cleaned)


def group_ids(broker: SimBroker) -> set[str]:
    laters = broker.broker.group_coordinator.read_all(lambda shard: list(shard.groups.group_ids()))
    return {group_id for later in laters for group_id in outcome(later)}


def metric(broker: SimBroker, name: str) -> float:
    [line] = [
        line for line in broker.metrics.expose().decode().splitlines() if line.startswith(name)
    ]
    return float(line.split()[-1])


def test_expired_offsets_and_their_group_are_removed_permanently(broker: SimBroker) -> None:
    commit(broker, "old", {("t", 0): 1, ("t", 1): 2})
    broker.ports.clock.jump_wall(4 * DAY_MS)
    commit(broker, "young", {("t", 0): 3})
    broker.ports.clock.jump_wall(3 * DAY_MS)
    clean_up(broker)
    assert (fetch(broker, "old"), fetch(broker, "young")) == ({}, {("t", 0): 3})
    assert group_ids(broker) == {"young"}
    assert metric(broker, "kafka_server_group_coordinator_metrics_offset_expiration_count") == 2
    again = broker.restart()
    assert (fetch(again, "old"), fetch(again, "young")) == ({}, {("t", 0): 3})
    assert group_ids(again) == {"young"}


def test_tombstones_are_split_into_several_batches(broker: SimBroker) -> None:
    create_topic(broker, "wide", 180)
    group = "long" * 4_000  # Each record contains the group id.
    for start in range(0, 180, 60):
        codes = commit(broker, group, {("wide", start + number): 1 for number in range(60)})
        assert set(codes.values()) == {0}
    broker.ports.clock.jump_wall(7 * DAY_MS)
    clean_up(broker)
    home = broker.broker.group_coordinator.partition_for(group)
    assert broker.log(OFFSETS_TOPIC, home).log_end_offset == 180 + 180 + 1
    assert fetch(broker, group) == fetch(broker.restart(), group) == {}


def test_many_expired_offsets_are_removed_in_slices(broker: SimBroker) -> None:
    count = 2 * SLICE_RECORDS + 1
    create_topic(broker, "wide", count)
    commit(broker, "g", {("wide", number): 1 for number in range(count)})
    broker.ports.clock.jump_wall(7 * DAY_MS)
    log = broker.log(OFFSETS_TOPIC, broker.broker.group_coordinator.partition_for("g"))
    before = log.log_end_offset
    cleaned = broker.broker.group_coordinator.clean_up()
    ends = set()
    while not cleaned.done:
        broker.ports.timers.run_due()
        broker.ports.jobs.run_all()
        ends.add(log.log_end_offset - before)
    outcome(cleaned)
    assert ends >= {SLICE_RECORDS, 2 * SLICE_RECORDS, count + 1}  # And the tombstone.
    assert group_ids(broker) == set()


def test_recreated_topic_keeps_its_new_offsets(broker: SimBroker) -> None:
    for number in range(3):
        commit(broker, f"g{number}", {("t", 0): 10, ("t", 1): 11})
    state = broker.broker.cache.topic("t")
    assert state is not None
    broker.broker.group_coordinator.topic_stopped(state)  # Nothing is deleted yet.
    asked = broker.begin(commit_request(broker, "g1", {("t", 0): 3}), 8)
    broker.settle()
    asked.response()
    assert fetch(broker, "g0") == fetch(broker, "g2") == {}
    assert fetch(broker, "g1") == {("t", 0): 3}
    assert fetch(broker.restart(), "g1") == {("t", 0): 3}


def test_offset_expiration_is_postponed_when_the_disk_is_full(broker: SimBroker) -> None:
    commit(broker, "g", {("t", 0): 1})
    broker.ports.clock.jump_wall(8 * DAY_MS)
    broker.files.fail_when(lambda op: op.name == "append", errno.ENOSPC)
    clean_up(broker)
    assert fetch(broker, "g") == {("t", 0): 1}
    broker.files.fail_no_more()
    clean_up(broker)
    assert fetch(broker, "g") == {}


def test_group_from_a_kafka_log_keeps_its_state(broker: SimBroker) -> None:
    commit(broker, "g", {("t", 0): 1})
    member = MemberMetadata(member_id="m", client_id="c", client_host="/h", session_timeout=10_000)
    value = GroupMetadataValue(
        protocol_type="connect", generation=3, protocol="p", leader="m", members=[member]
    )
    record = CoordinatorRecord(GroupMetadataKey(group="g"), value)
    broker.broker.group_coordinator.write("g", lambda _: Result(records=[record], response=None))
    broker.settle()
    again = broker.restart()
    again.ports.clock.jump_wall(30 * DAY_MS)
    clean_up(again)
    assert fetch(again, "g") == {("t", 0): 1}


def test_deleting_a_group_deletes_its_offsets(broker: SimBroker) -> None:
    commit(broker, "g", {("t", 0): 1, ("t", 2): 2})
    later = broker.broker.group_coordinator.delete_group("g")
    broker.settle()
    outcome(later)
    assert fetch(broker, "g") == {} and group_ids(broker) == set()
    assert group_ids(broker.restart()) == set()


def test_gauges_count_groups_and_offsets(broker: SimBroker) -> None:
    commit(broker, "g", {("t", 0): 1, ("t", 1): 2, ("t", 9): 3})
    commit(broker, "h", {("t", 0): 1})
    prefix = "kafka_coordinator_group_groupmetadatamanager_"
    assert metric(broker, f"{prefix}numoffsets ") == 3
    assert metric(broker, f"{prefix}numgroups ") == 2
    assert metric(broker, f"{prefix}numgroupsempty ") == 2
    assert metric(broker, "kafka_server_group_coordinator_metrics_offset_commit_count") == 3
    states = 'kafka_server_group_coordinator_metrics_num_partitions{state="active"}'
    assert metric(broker, states) == 50


def test_shutdown_fails_pending_requests_and_loses_nothing(broker: SimBroker) -> None:
    commit(broker, "g", {("t", 0): 1})
    asked = broker.begin(commit_request(broker, "g", {("t", 0): 2}), 8)
    waiting: Later[str] = Later()
    joined = broker.broker.group_coordinator.write(
        "g", lambda _: Result(records=[], response=waiting)
    )
    broker.stop()
    with pytest.raises(NotCoordinator):
        outcome(joined)
    assert asked.is_done
    assert fetch(broker.restart(), "g")["t", 0] in (1, 2)


def test_stopping_broker_creates_no_topic(broker: SimBroker) -> None:
    broker.broker.group_coordinator.shutdown()
    with pytest.raises(CoordinatorNotAvailable):
        outcome(broker.broker.group_coordinator.find("g"))


def test_partition_count_is_fixed_while_the_broker_runs(broker: SimBroker) -> None:
    commit(broker, "g", {("t", 0): 1})
    topic = broker.broker.cache.topic(OFFSETS_TOPIC)
    assert topic is not None
    smaller = dataclasses.replace(topic, partitions=topic.partitions[:30])
    broker.broker.cache.update(smaller)
    broker.broker.group_coordinator.topic_started(smaller)
    assert fetch(broker, "g") == {("t", 0): 1}
