"""Assigned partitions, their positions, and the events that change them."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from plog.client.consumer.partition_state import PartitionState, Phase
from plog.client.consumer.reset_target import EARLIEST, LATEST, ResetTo
from plog.client.consumer.subscription_state import SubscriptionState
from plog.client.errors import IllegalState
from plog.client.network.metadata import Broker, ClusterMetadata, PartitionMetadata, TopicMetadata
from plog.client.values import OffsetAndMetadata
from plog.types import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def metadata(
    leader: int = 1, epoch: int = 5, partitions: int = 2, topic_id: bytes = b"\1" * 16
) -> ClusterMetadata:
    known = tuple(
        PartitionMetadata(index=number, leader=leader, leader_epoch=epoch)
        for number in range(partitions)
    )
    topic = TopicMetadata(name="t", topic_id=topic_id, partitions=known)
    return ClusterMetadata(
        brokers=MappingProxyType({1: Broker(id=1, host="x", port=1)}),
        topics=MappingProxyType({"t": topic}),
    )


def positions(*assigned: TopicPartition, default: ResetTo | None = EARLIEST) -> SubscriptionState:
    made = SubscriptionState(default_reset=default)
    made.assign(assigned)
    return made


def state(of: SubscriptionState, partition: TopicPartition = T0) -> PartitionState:
    return of.states[partition]


def test_only_newly_assigned_partitions_need_an_offset() -> None:
    p = positions(T0, T1)
    p.seek(T0, 7)
    p.pause([T0])
    before = state(p).generation
    p.assign([U0, T0])
    assert p.assigned == {U0, T0}
    assert p.needs_offset() == [U0]
    assert (p.position(T0), p.position(U0)) == (7, None)
    assert p.paused == {T0}
    assert state(p).generation == before


def test_reassigned_partition_has_no_position() -> None:
    p = positions(T0)
    p.seek(T0, 7)
    old = state(p)
    generation = old.generation
    p.assign([])
    p.assign([T0])
    assert p.needs_offset() == [T0]
    assert not p.place(old, generation, 9)
    assert p.position(T0) is None


def test_assignment_notifies_engine() -> None:
    p = positions()
    assignments: list[frozenset[TopicPartition]] = []
    p.on_assign = lambda: assignments.append(p.assigned)
    p.assign([T0])
    p.assign([])
    assert assignments == [{T0}, frozenset()]


@pytest.mark.parametrize("method", ["position", "lag"])
def test_unassigned_partition_is_refused(method: str) -> None:
    with pytest.raises(IllegalState, match="t-1 is not assigned"):
        getattr(positions(T0), method)(T1)


def test_seek_requires_assigned_partition_and_valid_offset() -> None:
    p = positions(T0)
    with pytest.raises(IllegalState):
        p.seek(T1, 0)
    with pytest.raises(IllegalState):
        p.request_reset(T1, LATEST)
    with pytest.raises(IllegalState):
        p.pause([T0, T1])
    assert p.paused == frozenset()
    with pytest.raises(ValueError, match="offset -1: it is negative"):
        p.seek(T0, -1)


def test_seek_starts_new_generation_without_buffered_records() -> None:
    p = positions(T0)
    seen = {state(p).generation}
    for offset in (5, 5, 9):
        state(p).buffered_bytes = 100
        p.seek(T0, offset)
        assert (state(p).fetch_offset, state(p).buffered_bytes) == (offset, 0)
        seen.add(state(p).generation)
    assert len(seen) == 4


def test_position_of_older_generation_is_ignored() -> None:
    p = positions(T0)
    [(asked, generation)] = p.begin_initial(0.0)
    p.seek(T0, 3)
    assert not p.place(asked, generation, 100)
    assert not p.reset_by_default(asked, generation)
    assert p.position(T0) == 3


def test_partition_without_offset_is_requested_once_until_retry() -> None:
    p = positions(T0)
    [(asked, generation)] = p.begin_initial(0.0)
    assert p.begin_initial(1000.0) == []
    p.back_off(asked, generation, 1000.0, lambda failures: 5.0 * (failures + 1))
    assert p.begin_initial(1004.0) == []
    assert p.next_retry_s([Phase.NO_OFFSET], 1004.0) == 1005.0
    assert len(p.begin_initial(1005.0)) == 1
    p.back_off(asked, generation, 1005.0, lambda failures: 5.0 * (failures + 1))
    assert p.next_retry_s([Phase.NO_OFFSET], 1005.0) == 1015.0


def test_reset_waits_for_leader() -> None:
    p = positions(T0)
    p.request_reset(T0, LATEST)
    assert p.begin_inquiries(0.0) == []
    assert p.update_leaders(metadata(leader=-1), 0.0) == [T0]
    assert p.begin_inquiries(0.0) == []
    assert p.update_leaders(metadata(), 0.0) == []
    [inquiry] = p.begin_inquiries(0.0)
    assert (inquiry.leader, inquiry.leader_epoch, inquiry.reset) == (1, 5, LATEST)
    assert p.begin_inquiries(0.0) == []
    assert p.place(inquiry.state, inquiry.generation, 44)
    assert (p.position(T0), state(p).phase) == (44, Phase.FETCHING)


def test_position_with_epoch_is_validated_for_each_new_leader_epoch() -> None:
    p = positions(T0)
    p.update_leaders(metadata(epoch=5), 0.0)
    p.seek(T0, 10, leader_epoch=4)
    [inquiry] = p.begin_inquiries(0.0)
    assert (inquiry.reset, inquiry.position, inquiry.position_epoch) == (None, 10, 4)
    assert p.consumed() == {}
    p.validated(inquiry.state, inquiry.generation)
    assert p.consumed() == {T0: OffsetAndMetadata(10, leader_epoch=4)}
    p.update_leaders(metadata(epoch=5), 0.0)
    assert p.begin_inquiries(0.0) == []
    p.update_leaders(metadata(epoch=6), 0.0)
    [again] = p.begin_inquiries(0.0)
    assert again.leader_epoch == 6
    assert again.generation != inquiry.generation


def test_position_without_epoch_is_not_validated() -> None:
    p = positions(T0)
    p.seek(T0, 10)
    p.update_leaders(metadata(epoch=6), 0.0)
    assert p.begin_inquiries(0.0) == []
    assert state(p).phase is Phase.FETCHING


def test_validation_of_older_generation_is_ignored() -> None:
    p = positions(T0)
    p.update_leaders(metadata(), 0.0)
    p.seek(T0, 10, leader_epoch=4)
    [inquiry] = p.begin_inquiries(0.0)
    p.seek(T0, 11, leader_epoch=4)
    p.validated(inquiry.state, inquiry.generation)
    assert state(p).phase is Phase.VALIDATING


def test_recreated_topic_is_read_from_its_beginning() -> None:
    p = positions(T0, default=LATEST)
    p.update_leaders(metadata(), 0.0)
    p.seek(T0, 10)
    state(p).replica, state(p).replica_until_s = 1, 100.0
    p.update_leaders(metadata(topic_id=b"\2" * 16), 0.0)
    assert state(p).replica == -1
    assert p.position(T0) is None
    [inquiry] = p.begin_inquiries(0.0)
    assert inquiry.reset == EARLIEST


def test_recreated_topic_needs_offset_when_reset_is_none() -> None:
    p = positions(T0, default=None)
    p.update_leaders(metadata(), 0.0)
    p.seek(T0, 10)
    p.update_leaders(metadata(topic_id=b"\2" * 16), 0.0)
    assert p.needs_offset() == [T0]


def test_follower_is_dropped_when_it_leaves_the_cluster() -> None:
    p = positions(T0)
    p.update_leaders(metadata(), 0.0)
    state(p).replica, state(p).replica_until_s = 9, 100.0
    assert (state(p).node_at(99.0), state(p).node_at(100.0)) == (9, 1)
    p.update_leaders(metadata(), 0.0)
    assert state(p).node_at(0.0) == 1
    state(p).replica = 1
    assert p.forget_replica(state(p))
    assert not p.forget_replica(state(p))


def read_from_follower(follower: int = 2) -> SubscriptionState:
    """Return positions of t-0, led by broker 1 and read from a follower."""
    p = positions(T0)
    p.update_leaders(with_follower(), 0.0)
    state(p).replica, state(p).replica_until_s = follower, 100.0
    assert state(p).node_at(0.0) == follower
    return p


def with_follower(
    leader: int = 1, epoch: int = 5, offline: tuple[int, ...] = ()
) -> ClusterMetadata:
    partition = PartitionMetadata(index=0, leader=leader, leader_epoch=epoch, offline=offline)
    brokers = {number: Broker(id=number, host="x", port=number) for number in (1, 2, 3)}
    topic = TopicMetadata(name="t", topic_id=b"\1" * 16, partitions=(partition,))
    return ClusterMetadata(brokers=brokers, topics={"t": topic})


def test_follower_is_dropped_when_offline_or_leader_changes() -> None:
    p = read_from_follower()
    p.update_leaders(with_follower(), 1.0)
    assert state(p).node_at(1.0) == 2
    p.update_leaders(with_follower(offline=(2,)), 1.0)
    assert state(p).node_at(1.0) == 1
    p = read_from_follower()
    p.update_leaders(with_follower(leader=3, epoch=6), 1.0)
    assert state(p).node_at(1.0) == 3


def test_unresponsive_follower_is_dropped() -> None:
    p = read_from_follower()
    assert not p.forget_node(3)
    assert p.forget_node(2)
    assert state(p).node_at(1.0) == 1


def test_unknown_broker_leads_nothing() -> None:
    p = positions(T0)
    assert p.update_leaders(metadata(leader=8), 0.0) == [T0]
    assert state(p).leader == -1


def test_unknown_partition_is_reported_periodically() -> None:
    p = positions(T0, TopicPartition("t", 7))
    p.update_leaders(metadata(), 10.0)
    p.update_leaders(metadata(), 20.0)
    assert p.next_unknown_s(60.0) == 70.0
    assert p.unknown_for(60.0, 69.0) == []
    assert [x.partition.partition for x, _ in p.unknown_for(60.0, 70.0)] == [7]
    assert p.unknown_for(60.0, 71.0) == []
    p.update_leaders(metadata(partitions=8), 80.0)
    assert p.next_unknown_s(60.0) is None


def test_lag_counts_to_what_the_consumer_may_read() -> None:
    for read_committed, lag in ((False, 90), (True, 40)):
        p = SubscriptionState(default_reset=EARLIEST, read_committed=read_committed)
        p.assign([T0])
        assert p.lag(T0) is None
        state(p).high_watermark, state(p).last_stable_offset = 100, 50
        assert p.lag(T0) is None
        p.seek(T0, 10)
        assert p.lag(T0) == lag
        p.seek(T0, 1000)
        assert p.lag(T0) == 0


def test_error_is_raised_once_and_cleared_by_seek() -> None:
    p = positions(T0, T1)
    error, other = ValueError("x"), ValueError("y")
    for one in (T0, T1):
        assert p.fail(state(p, one), state(p, one).generation, error)
    p.fail_all("u", other)
    assert p.pop_error() is error
    assert p.pop_error() is other
    assert p.pop_error() is None
    p.fail(state(p), state(p).generation, error)
    assert p.has_error
    p.seek(T0, 0)
    assert not p.has_error
    assert not p.fail(state(p), 0, error)
    p.fail(state(p), state(p).generation, error)
    p.assign([T1])
    assert p.pop_error() is None
