"""Partition: leader epochs, high watermark, and checks of appends and reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plog.errors import (
    FencedLeaderEpoch,
    InvalidTxnState,
    KafkaStorageError,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from plogd.metadata.cache import PartitionState
from plogd.replica.divergence import end_offset_for_epoch
from plogd.replica.partition import Partition
from tests.helpers.sim.sim_broker import SimBroker, create_topic, records_of
from tests.helpers.sim.sim_time import START_MS


def make(**config: Any) -> tuple[SimBroker, Partition]:
    broker = SimBroker().start()
    create_topic(broker, "t", **config)
    return broker, broker.broker.replica_manager.partition("t", 0)


def append(partition: Partition, *values: bytes, acks: int = -1, **batch: Any) -> int:
    view = memoryview(bytearray(records_of(values, **batch)))
    return partition.append_records_to_leader(
        view, required_acks=acks, now_ms=START_MS
    ).first_offset


def state_with(**changes: Any) -> PartitionState:
    values: dict[str, Any] = {
        "partition": 0,
        "leader": 1,
        "leader_epoch": 0,
        "replicas": (1,),
        "isr": (1,),
        "partition_epoch": 0,
    }
    return PartitionState(**(values | changes))


def test_high_watermark_follows_the_durable_end() -> None:
    broker, partition = make()
    append(partition, b"a", b"b")
    assert (partition.log.log_end_offset, partition.high_watermark) == (2, 0)
    broker.settle()
    assert partition.high_watermark == 2


def test_raising_flush_messages_makes_earlier_records_visible() -> None:
    broker, partition = make()
    append(partition, b"a", b"b")
    partition.update_config(replace(partition.log.config, flush_messages=100))
    assert (partition.high_watermark, partition.log.durable_end_offset) == (2, 0)
    broker.settle()
    assert partition.log.durable_end_offset == 2


def test_lowering_flush_messages_syncs_earlier_records() -> None:
    broker, partition = make(flush_messages="100")
    append(partition, b"a", b"b")
    broker.settle()
    assert (partition.high_watermark, partition.log.durable_end_offset) == (2, 0)
    partition.update_config(replace(partition.log.config, flush_messages=1))
    assert partition.high_watermark == 2
    broker.settle()
    assert partition.log.durable_end_offset == 2


def test_high_watermark_follows_appends_when_flush_is_relaxed() -> None:
    _, partition = make(flush_messages="100")
    append(partition, b"a")
    assert partition.high_watermark == 1


def test_flush_before_visible_delays_the_high_watermark_at_any_interval() -> None:
    broker = SimBroker(plog_flush_before_visible=True).start()
    create_topic(broker, "t", flush_messages="100")
    partition = broker.broker.replica_manager.partition("t", 0)
    append(partition, b"a")
    assert partition.high_watermark == 0
    broker.settle()
    assert partition.high_watermark == 1


def test_unsynced_records_are_not_visible() -> None:
    broker, partition = make()
    append(partition, b"a")
    assert partition.read(0, 1000, at_least_one=True).region is None
    broker.settle()
    read = partition.read(0, 1000, at_least_one=True)
    assert read.nbytes > 0
    read.close()


@pytest.mark.parametrize(("epoch", "error"), [(1, FencedLeaderEpoch), (3, UnknownLeaderEpoch)])
def test_client_with_another_leader_epoch_is_fenced(epoch: int, error: type[Exception]) -> None:
    _, partition = make()
    partition.make_leader(state_with(leader_epoch=2))
    with pytest.raises(error):
        partition.check_leader(epoch)
    assert isinstance(partition.read(0, 10, leader_epoch=epoch, at_least_one=True).error, error)
    partition.check_leader(2)
    partition.check_leader(-1)


def test_broker_that_is_not_the_leader_refuses_requests() -> None:
    _, partition = make()
    partition.make_leader(state_with(leader=9, leader_epoch=1))
    with pytest.raises(NotLeaderOrFollower):
        append(partition, b"a")


def test_deleted_partition_is_unknown_and_offline_partition_is_a_storage_error() -> None:
    _, partition = make()
    partition.log.go_offline()
    assert isinstance(partition.problem(), KafkaStorageError)
    partition.is_deleted = True
    assert isinstance(partition.problem(), UnknownTopicOrPartition)


def test_acks_all_requires_min_insync_replicas() -> None:
    _, partition = make(min_insync_replicas="2")
    partition.make_leader(state_with(replicas=(1, 2), isr=(1,), leader_epoch=1))
    with pytest.raises(NotEnoughReplicas):
        append(partition, b"a")
    assert append(partition, b"a", acks=1) == 0


def test_min_insync_replicas_is_limited_to_the_replica_count() -> None:
    _, partition = make(min_insync_replicas="2")
    assert append(partition, b"a") == 0


def test_transactional_batch_is_refused_before_it_is_written() -> None:
    _, partition = make()
    with pytest.raises(InvalidTxnState):
        append(
            partition, b"a", is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0
        )
    assert partition.log.log_end_offset == 0


def test_offsets_outside_the_log_are_out_of_range() -> None:
    broker, partition = make()
    append(partition, b"a")
    broker.settle()
    assert isinstance(partition.read(2, 10, at_least_one=True).error, OffsetOutOfRange)
    assert isinstance(partition.read(-1, 10, at_least_one=True).error, OffsetOutOfRange)
    at_the_end = partition.read(1, 10, at_least_one=True)
    assert (at_the_end.error, at_the_end.high_watermark, at_the_end.region) == (None, 1, None)


def test_read_above_the_high_watermark_returns_nothing() -> None:
    _, partition = make()
    append(partition, b"a", b"b")
    read = partition.read(1, 1000, at_least_one=True)
    assert (read.error, read.nbytes, read.high_watermark) == (None, 0, 0)


class TestEndOfAnEpoch:
    """A leader epoch starts when the leader takes over, not with its first record."""

    def test_epoch_without_records_starts_and_ends_at_the_leader_start_offset(self) -> None:
        broker, partition = make()
        append(partition, b"a", b"b")
        broker.settle()
        partition.make_leader(state_with(leader_epoch=4))
        assert end_offset_for_epoch(partition, 4) == (4, 2)
        assert end_offset_for_epoch(partition, 3) == (0, 2)
        assert end_offset_for_epoch(partition, 0) == (0, 2)
        assert end_offset_for_epoch(partition, 5) == (-1, -1)

    def test_records_change_only_the_end_of_their_own_epoch(self) -> None:
        broker, partition = make()
        append(partition, b"a", b"b")
        partition.make_leader(state_with(leader_epoch=4))
        append(partition, b"c")
        broker.settle()
        assert end_offset_for_epoch(partition, 4) == (4, 3)
        assert end_offset_for_epoch(partition, 3) == (0, 2)

    def test_older_epochs_end_at_the_start_before_the_first_record(self) -> None:
        _, partition = make()
        partition.make_leader(state_with(leader_epoch=4))
        assert end_offset_for_epoch(partition, 2) == (2, 0)
        assert end_offset_for_epoch(partition, -1) == (-1, -1)


class TestDivergence:
    """A reader that sends its last fetched epoch learns where its log diverges."""

    def two_epochs(self) -> Partition:
        broker, partition = make()
        append(partition, b"a", b"b")
        broker.settle()
        partition.make_leader(state_with(leader_epoch=2))
        append(partition, b"c")
        broker.settle()
        return partition

    def test_reader_without_divergence_gets_data(self) -> None:
        read = self.two_epochs().read(2, 1000, last_fetched_epoch=0, at_least_one=True)
        assert (read.diverging_epoch, read.nbytes > 0) == (None, True)
        read.close()

    def test_reader_that_continued_in_an_old_epoch_gets_the_diverging_epoch(self) -> None:
        read = self.two_epochs().read(3, 1000, last_fetched_epoch=1, at_least_one=True)
        assert (read.diverging_epoch, read.region) == ((0, 2), None)

    def test_unknown_last_fetched_epoch_is_out_of_range(self) -> None:
        read = self.two_epochs().read(3, 1000, last_fetched_epoch=7, at_least_one=True)
        assert isinstance(read.error, OffsetOutOfRange)

    def test_offset_below_the_log_start_is_out_of_range_with_an_epoch(self) -> None:
        partition = self.two_epochs()
        partition.log.log_start_offset = 1
        read = partition.read(0, 1000, last_fetched_epoch=0, at_least_one=True)
        assert isinstance(read.error, OffsetOutOfRange)


def test_new_leader_withholds_the_end_offset_until_the_high_watermark_is_known() -> None:
    broker, partition = make()
    append(partition, b"a")
    partition.make_leader(state_with(leader_epoch=1))
    with pytest.raises(OffsetNotAvailable):
        partition.check_offset_is_known()
    broker.settle()
    partition.check_offset_is_known()


def test_high_watermark_does_not_decrease_with_a_new_leader_epoch() -> None:
    broker, partition = make()
    append(partition, b"a")
    broker.settle()
    partition.make_leader(state_with(leader_epoch=1))
    assert partition.high_watermark == 1


def test_failed_read_has_no_offsets() -> None:
    _, partition = make()
    read = partition.read(9, 10, at_least_one=True)
    assert (read.error_code, read.high_watermark, read.log_start_offset) == (1, -1, -1)
