"""Lookups of offsets by timestamp and by special timestamp."""

from __future__ import annotations

import errno

import pytest

from plog.errors import KafkaStorageError, NotLeaderOrFollower, UnknownLeaderEpoch
from plogd.ports import Later
from plogd.replica.offset_lookup import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    NOT_FOUND,
    FoundOffset,
    look_up_offset,
)
from plogd.replica.partition import Partition
from tests.helpers.sim.sim_broker import SimBroker, create_topic, records_of
from tests.helpers.sim.sim_ports import settled


def make(*timestamps: int) -> tuple[SimBroker, Partition]:
    """Return a partition with one record per batch, at these timestamps."""
    broker = SimBroker().start()
    create_topic(broker, "t")
    partition = broker.broker.replica_manager.partition("t", 0)
    for timestamp in timestamps:
        view = memoryview(bytearray(records_of((b"v",), now_ms=timestamp)))
        partition.append_records_to_leader(view, required_acks=1, now_ms=timestamp)
    broker.settle()
    return broker, partition


def look_up(broker: SimBroker, partition: Partition, timestamp: int) -> FoundOffset:
    found = look_up_offset(partition, timestamp, leader_epoch=-1, queue=broker.broker.time_lookups)
    result = settled(broker.ports, found)
    assert isinstance(result, FoundOffset)
    return result


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [
        (LATEST, FoundOffset(-1, 3, 0)),
        (EARLIEST, FoundOffset(-1, 0, 0)),
        (EARLIEST_LOCAL, FoundOffset(-1, 0, 0)),
        (LATEST_TIERED, NOT_FOUND),
        (EARLIEST_PENDING_UPLOAD, NOT_FOUND),
        (MAX_TIMESTAMP, FoundOffset(300, 1, 0)),
        (0, FoundOffset(100, 0, 0)),
        (100, FoundOffset(100, 0, 0)),
        (101, FoundOffset(300, 1, 0)),
        (301, NOT_FOUND),
    ],
)
def test_offset_is_found_for_each_timestamp(timestamp: int, found: FoundOffset) -> None:
    broker, partition = make(100, 300, 200)
    assert look_up(broker, partition, timestamp) == found


@pytest.mark.parametrize("timestamp", [MAX_TIMESTAMP, 0, 100])
def test_look_up_by_time_finds_nothing_in_an_empty_partition(timestamp: int) -> None:
    broker, partition = make()
    found = look_up_offset(partition, timestamp, leader_epoch=-1, queue=broker.broker.time_lookups)
    assert found == NOT_FOUND


def test_empty_partition_starts_and_ends_at_offset_0() -> None:
    broker, partition = make()
    assert look_up(broker, partition, EARLIEST) == FoundOffset(-1, 0, 0)
    assert look_up(broker, partition, LATEST) == FoundOffset(-1, 0, 0)


def test_look_up_reads_the_disk_in_a_job() -> None:
    broker, partition = make(100)
    found = look_up_offset(partition, 50, leader_epoch=-1, queue=broker.broker.time_lookups)
    assert isinstance(found, Later)
    assert broker.ports.jobs.waiting == ["time:/data"]


def test_uncommitted_records_are_not_found() -> None:
    broker, partition = make(100)
    view = memoryview(bytearray(records_of((b"v",), now_ms=500)))
    partition.append_records_to_leader(view, required_acks=1, now_ms=500)
    found = look_up_offset(partition, 400, leader_epoch=-1, queue=broker.broker.time_lookups)
    assert isinstance(found, Later)
    broker.ports.jobs.run_one("time:/data")
    assert settled(broker.ports, found) == NOT_FOUND


def test_look_up_checks_the_leader_epoch() -> None:
    broker, partition = make(100)
    with pytest.raises(UnknownLeaderEpoch):
        look_up_offset(partition, LATEST, leader_epoch=5, queue=broker.broker.time_lookups)


def test_look_up_fails_when_the_partition_is_deleted_meanwhile() -> None:
    broker, partition = make(100)
    found = look_up_offset(partition, 50, leader_epoch=-1, queue=broker.broker.time_lookups)
    partition.leader = 9
    with pytest.raises(NotLeaderOrFollower):
        settled(broker.ports, found)


def test_look_up_fails_with_storage_error_when_the_disk_fails() -> None:
    broker, partition = make(100)
    broker.files.fail_when(lambda operation: operation.path.endswith((".log", "index")), errno.EIO)
    found = look_up_offset(partition, 50, leader_epoch=-1, queue=broker.broker.time_lookups)
    with pytest.raises(KafkaStorageError):
        settled(broker.ports, found)
