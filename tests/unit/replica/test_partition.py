"""One partition: epochs, the high watermark, who may append, what may be seen."""

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
from plogd.replica.partition import Partition
from tests.helpers.sim_broker import SimBroker, create_topic, records_of
from tests.helpers.sim_ports import START_MS


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


def test_the_high_watermark_follows_what_is_durable() -> None:
    broker, partition = make()
    append(partition, b"a", b"b")
    assert (partition.log.log_end_offset, partition.high_watermark) == (2, 0)
    broker.settle()
    assert partition.high_watermark == 2


def test_a_flush_that_is_relaxed_later_shows_what_was_appended_before() -> None:
    broker, partition = make()
    append(partition, b"a", b"b")
    partition.update_config(replace(partition.log.config, flush_messages=100))
    assert (partition.high_watermark, partition.log.durable_end_offset) == (2, 0)
    broker.settle()
    assert partition.log.durable_end_offset == 2


def test_a_flush_that_is_tightened_later_syncs_what_was_appended_before() -> None:
    broker, partition = make(flush_messages="100")
    append(partition, b"a", b"b")
    broker.settle()
    assert (partition.high_watermark, partition.log.durable_end_offset) == (2, 0)
    partition.update_config(replace(partition.log.config, flush_messages=1))
    assert partition.high_watermark == 2
    broker.settle()
    assert partition.log.durable_end_offset == 2


def test_with_a_relaxed_flush_it_follows_the_append() -> None:
    _, partition = make(flush_messages="100")
    append(partition, b"a")
    assert partition.high_watermark == 1


def test_flush_before_visible_holds_it_back_whatever_the_interval() -> None:
    broker = SimBroker(plog_flush_before_visible=True).start()
    create_topic(broker, "t", flush_messages="100")
    partition = broker.broker.replica_manager.partition("t", 0)
    append(partition, b"a")
    assert partition.high_watermark == 0
    broker.settle()
    assert partition.high_watermark == 1


def test_nothing_unsynced_is_shown_to_a_reader() -> None:
    broker, partition = make()
    append(partition, b"a")
    assert partition.read(0, 1000, at_least_one=True).region is None
    broker.settle()
    read = partition.read(0, 1000, at_least_one=True)
    assert read.nbytes > 0
    read.close()


@pytest.mark.parametrize(("epoch", "error"), [(1, FencedLeaderEpoch), (3, UnknownLeaderEpoch)])
def test_a_client_with_another_leader_epoch_is_fenced(epoch: int, error: type[Exception]) -> None:
    _, partition = make()
    partition.make_leader(state_with(leader_epoch=2))
    with pytest.raises(error):
        partition.check_leader(epoch)
    assert isinstance(partition.read(0, 10, leader_epoch=epoch, at_least_one=True).error, error)
    partition.check_leader(2)
    partition.check_leader(-1)


def test_who_does_not_lead_says_so() -> None:
    _, partition = make()
    partition.make_leader(state_with(leader=9, leader_epoch=1))
    with pytest.raises(NotLeaderOrFollower):
        append(partition, b"a")


def test_a_deleted_partition_is_unknown_and_an_offline_one_a_storage_error() -> None:
    _, partition = make()
    partition.log.go_offline()
    assert isinstance(partition.problem(), KafkaStorageError)
    partition.is_deleted = True
    assert isinstance(partition.problem(), UnknownTopicOrPartition)


def test_acks_all_needs_enough_replicas_in_sync() -> None:
    _, partition = make(min_insync_replicas="2")
    partition.make_leader(state_with(replicas=(1, 2), isr=(1,), leader_epoch=1))
    with pytest.raises(NotEnoughReplicas):
        append(partition, b"a")
    assert append(partition, b"a", acks=1) == 0


def test_min_insync_replicas_is_never_more_than_there_are_replicas() -> None:
    _, partition = make(min_insync_replicas="2")
    assert append(partition, b"a") == 0


def test_a_transactional_batch_is_refused_before_it_is_written() -> None:
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


def test_an_offset_above_the_high_watermark_reads_nothing() -> None:
    _, partition = make()
    append(partition, b"a", b"b")
    read = partition.read(1, 1000, at_least_one=True)
    assert (read.error, read.nbytes, read.high_watermark) == (None, 0, 0)


class TestEndOfAnEpoch:
    """A leader's epoch begins with its leading, not with its first record."""

    def test_an_epoch_without_records_begins_and_ends_where_the_leader_began(self) -> None:
        broker, partition = make()
        append(partition, b"a", b"b")
        broker.settle()
        partition.make_leader(state_with(leader_epoch=4))
        assert partition.end_offset_for_epoch(4) == (4, 2)
        assert partition.end_offset_for_epoch(3) == (0, 2)
        assert partition.end_offset_for_epoch(0) == (0, 2)
        assert partition.end_offset_for_epoch(5) == (-1, -1)

    def test_its_records_change_only_its_own_end(self) -> None:
        broker, partition = make()
        append(partition, b"a", b"b")
        partition.make_leader(state_with(leader_epoch=4))
        append(partition, b"c")
        broker.settle()
        assert partition.end_offset_for_epoch(4) == (4, 3)
        assert partition.end_offset_for_epoch(3) == (0, 2)

    def test_before_the_first_record_every_older_epoch_ends_at_the_beginning(self) -> None:
        _, partition = make()
        partition.make_leader(state_with(leader_epoch=4))
        assert partition.end_offset_for_epoch(2) == (2, 0)
        assert partition.end_offset_for_epoch(-1) == (-1, -1)


class TestDivergence:
    """A reader that says which epoch it read last is told where its log parts from ours."""

    def two_epochs(self) -> Partition:
        broker, partition = make()
        append(partition, b"a", b"b")
        broker.settle()
        partition.make_leader(state_with(leader_epoch=2))
        append(partition, b"c")
        broker.settle()
        return partition

    def test_one_that_agrees_gets_data(self) -> None:
        read = self.two_epochs().read(2, 1000, last_fetched_epoch=0, at_least_one=True)
        assert (read.diverging_epoch, read.nbytes > 0) == (None, True)
        read.close()

    def test_one_that_went_on_in_the_old_epoch_is_sent_back(self) -> None:
        read = self.two_epochs().read(3, 1000, last_fetched_epoch=1, at_least_one=True)
        assert (read.diverging_epoch, read.region) == ((0, 2), None)

    def test_an_epoch_we_never_had_is_out_of_range(self) -> None:
        read = self.two_epochs().read(3, 1000, last_fetched_epoch=7, at_least_one=True)
        assert isinstance(read.error, OffsetOutOfRange)

    def test_an_offset_below_the_log_is_out_of_range_all_the_same(self) -> None:
        partition = self.two_epochs()
        partition.log.log_start_offset = 1
        read = partition.read(0, 1000, last_fetched_epoch=0, at_least_one=True)
        assert isinstance(read.error, OffsetOutOfRange)


def test_a_new_leader_does_not_tell_the_end_before_it_knows_what_is_committed() -> None:
    broker, partition = make()
    append(partition, b"a")
    partition.make_leader(state_with(leader_epoch=1))
    with pytest.raises(OffsetNotAvailable):
        partition.check_offset_is_known()
    broker.settle()
    partition.check_offset_is_known()


def test_the_high_watermark_does_not_fall_with_a_new_leader_epoch() -> None:
    broker, partition = make()
    append(partition, b"a")
    broker.settle()
    partition.make_leader(state_with(leader_epoch=1))
    assert partition.high_watermark == 1


def test_a_read_that_fails_with_an_error_has_no_offsets() -> None:
    _, partition = make()
    read = partition.read(9, 10, at_least_one=True)
    assert (read.error_code, read.high_watermark, read.log_start_offset) == (1, -1, -1)
