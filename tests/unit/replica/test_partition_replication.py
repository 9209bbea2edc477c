"""Partition and its followers: high watermark, ISR and what a follower takes over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plog.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    NotEnoughReplicas,
    NotLeaderOrFollower,
)
from plogd.ports import spawn
from plogd.replica.partition import Partition
from tests.helpers.sim.sim_broker import produce_request
from tests.helpers.sim.sim_ports import outcome
from tests.helpers.sim.sim_replicas import SimReplicas

LAG_MS = 30_000


def append_nothing(follower: Partition, *, leader_epoch: int, leader_high_watermark: int) -> None:
    outcome(
        spawn(
            follower.append_records_to_follower(
                memoryview(b""),
                leader_epoch=leader_epoch,
                leader_high_watermark=leader_high_watermark,
                now_ms=0,
            )
        )
    )


def test_high_watermark_waits_for_the_slowest_in_sync_replica() -> None:
    replicas = SimReplicas(3)
    replicas.elect(1)
    replicas.settle()
    replicas.cut(3, 1)
    replicas.produce(b"a")
    replicas.settle()
    assert replicas.end_offsets == {1: 1, 2: 1, 3: 0}
    replicas.advance(1000)
    assert replicas.high_watermarks == {1: 0, 2: 0, 3: 0}
    replicas.heal()
    replicas.advance(2000)  # Followers learn the high watermark from their next fetch.
    assert replicas.high_watermarks == {1: 1, 2: 1, 3: 1}
    assert replicas.records(1) == replicas.records(2) == replicas.records(3) != b""


def test_high_watermark_does_not_pass_records_that_the_leader_has_not_synced() -> None:
    replicas = SimReplicas(2)
    replicas.elect(1)
    replicas.settle()
    replicas.produce(b"a")
    # The follower syncs first.
    leader, follower = replicas.brokers[1], replicas.brokers[2]
    leader.ports.timers.run_due()
    replicas.leaders[2][-1].deliver()
    follower.ports.settle()
    assert replicas.end_offsets == {1: 1, 2: 1}
    assert replicas.partition(2).log.durable_end_offset == 1
    assert replicas.leader.log.durable_end_offset == 0
    assert replicas.leader.high_watermark == 0
    replicas.settle()
    assert replicas.leader.high_watermark == 1


def test_high_watermark_starts_unknown_in_a_new_epoch() -> None:
    replicas = SimReplicas(2)
    replicas.elect(1)
    replicas.produce(b"a")
    replicas.settle()
    replicas.cut(2, 1)
    replicas.elect(1)
    replicas.produce(b"b")
    replicas.settle()
    # The follower's position in the previous epoch does not count.
    assert (replicas.leader.high_watermark, replicas.end_offsets[2]) == (1, 1)


def test_follower_that_falls_behind_leaves_the_isr_when_the_controller_confirms_it() -> None:
    replicas = SimReplicas(2)
    replicas.elect(1)
    replicas.settle()
    replicas.cut(2, 1)
    replicas.produce(b"a")
    replicas.advance(LAG_MS - 1000)
    replicas.leader.check_isr()
    assert replicas.proposals == []
    replicas.advance(2000)
    replicas.leader.check_isr()
    assert [one.isr for one in replicas.proposals] == [(1,)]
    # Until then, both the old and the new members count.
    assert replicas.leader.high_watermark == 0
    replicas.leader.check_isr()
    assert len(replicas.proposals) == 1
    replicas.confirm()
    assert (replicas.leader.isr, replicas.leader.high_watermark) == ((1,), 1)


def test_answer_of_the_controller_does_not_restore_a_leader_that_has_resigned() -> None:
    replicas = SimReplicas(2)
    replicas.elect(1, isr=[1])
    replicas.settle()
    assert [one.isr for one in replicas.proposals] == [(1, 2)]
    # In the same epoch, as before a role change that waits for a slow disk.
    leader = replicas.leader
    leader.make_follower(replace(replicas.state, leader=-1))
    replicas.confirm()
    assert (leader.leader, leader.remote) == (-1, None)


def test_follower_that_keeps_up_with_constant_writes_stays_in_the_isr() -> None:
    replicas = SimReplicas(2)
    replicas.elect(1)
    for _ in range(60):
        replicas.produce(b"a")
        # The follower's fetch never reaches the end at the time of the fetch.
        replicas.advance(1000)
        replicas.produce(b"b")
        replicas.leader.check_isr()
    assert replicas.proposals == []


def test_follower_that_has_caught_up_joins_the_isr() -> None:
    replicas = SimReplicas(2)
    replicas.elect(1, isr=[1])
    replicas.produce(b"a")
    replicas.settle()
    assert [one.isr for one in replicas.proposals] == [(1, 2)]
    replicas.cut(2, 1)
    replicas.produce(b"b")
    replicas.settle()
    # A proposed member counts, because the controller may have confirmed it already.
    assert replicas.leader.high_watermark == 1
    replicas.confirm()
    assert (replicas.leader.isr, replicas.leader.high_watermark) == ((1, 2), 1)


def test_follower_below_the_start_of_the_epoch_does_not_join() -> None:
    replicas = SimReplicas(3)
    replicas.elect(1, isr=[1, 2])
    replicas.cut(3, 1)
    replicas.settle()
    replicas.produce(b"a")
    replicas.settle()
    replicas.proposals.clear()
    # The new leader has not learned the high watermark 1, so 0 is not a safe lower bound.
    replicas.cut(1, 2)
    replicas.elect(2, isr=[1, 2])
    assert replicas.leader.epoch_start_offset == 1
    partition = replicas.leader
    read = partition.read_for_follower(
        3,
        0,
        1,
        broker_epoch=1,
        leader_epoch=partition.leader_epoch,
        last_fetched_epoch=-1,
        log_start_offset=0,
        at_least_one=False,
    )
    read.close()
    assert read.error is None
    assert replicas.proposals == []


def test_idle_follower_does_not_leave_the_isr_when_a_record_arrives() -> None:
    replicas = SimReplicas(2)
    replicas.elect(1)
    replicas.settle()
    replicas.produce(b"a")
    replicas.advance(3 * LAG_MS)
    replicas.cut(2, 1)
    replicas.produce(b"b")
    replicas.settle()
    replicas.leader.check_isr()
    assert replicas.proposals == []
    replicas.advance(LAG_MS + 1000)
    replicas.leader.check_isr()
    assert len(replicas.proposals) == 1


def test_ineligible_replica_is_withdrawn_from_the_proposal() -> None:
    replicas = SimReplicas(2)
    replicas.elect(1, isr=[1])
    replicas.settle()
    replicas.cut(2, 1)
    replicas.advance(LAG_MS + 1000)
    replicas.produce(b"a")
    replicas.settle()
    assert replicas.leader.high_watermark == 0
    replicas.proposals.pop().later.fail(IneligibleReplica())
    assert replicas.leader.high_watermark == 1


def test_follower_that_is_not_live_or_has_restarted_does_not_join() -> None:
    replicas = SimReplicas(2)
    replicas.broker_epochs[2] = 7
    replicas.elect(1, isr=[1])
    replicas.settle()
    replicas.proposals.clear()
    partition = replicas.leader
    partition.remote.proposed = None  # type: ignore[union-attr]
    for epoch, expected in ((6, 0), (7, 1)):
        read = partition.read_for_follower(
            2,
            0,
            1,
            broker_epoch=epoch,
            leader_epoch=partition.leader_epoch,
            last_fetched_epoch=-1,
            log_start_offset=0,
            at_least_one=False,
        )
        if epoch == 6:  # The fetcher has already fetched in epoch 7.
            assert isinstance(read.error, NotLeaderOrFollower)
        assert len(replicas.proposals) == expected


def test_too_few_in_sync_replicas_reject_acks_all_and_stop_the_high_watermark() -> None:
    replicas = SimReplicas(2, topic={"min_insync_replicas": "2"})
    replicas.elect(1)
    replicas.settle()
    replicas.cut(2, 1)
    replicas.advance(LAG_MS + 1000)
    replicas.produce(b"a", acks=1)
    replicas.settle()
    replicas.advance(LAG_MS + 1000)
    replicas.leader.check_isr()
    replicas.confirm()
    assert replicas.leader.isr == (1,)
    with pytest.raises(NotEnoughReplicas):
        replicas.produce(b"b")
    # A record that consumers have read could otherwise be lost with one broker.
    assert replicas.leader.high_watermark == 0


def test_only_assigned_followers_may_fetch() -> None:
    replicas = SimReplicas(2)
    replicas.elect(1)
    for stranger in (1, 9):
        read = replicas.leader.read_for_follower(
            stranger,
            0,
            1000,
            broker_epoch=1,
            leader_epoch=replicas.leader.leader_epoch,
            last_fetched_epoch=-1,
            log_start_offset=0,
            at_least_one=True,
        )
        assert isinstance(read.error, NotLeaderOrFollower)


def test_follower_rejects_requests_and_records_of_another_epoch() -> None:
    replicas = SimReplicas(2)
    replicas.elect(1)
    replicas.settle()
    follower = replicas.partition(2)
    assert isinstance(follower.problem(), NotLeaderOrFollower)
    with pytest.raises(FencedLeaderEpoch):
        append_nothing(follower, leader_epoch=99, leader_high_watermark=0)


def test_high_watermark_of_a_follower_never_decreases() -> None:
    replicas = SimReplicas(2)
    replicas.elect(1)
    replicas.produce(b"a", b"b")
    replicas.advance(1000)
    follower = replicas.partition(2)
    assert follower.high_watermark == 2
    append_nothing(follower, leader_epoch=follower.leader_epoch, leader_high_watermark=1)
    assert follower.high_watermark == 2


def test_deposed_leader_fails_requests_that_wait_for_followers() -> None:
    replicas = SimReplicas(2)
    replicas.elect(1)
    replicas.settle()
    replicas.cut(2, 1)
    asked = replicas.brokers[1].begin(produce_request("t", b"a"), 9)
    replicas.settle()
    assert not asked.is_done
    replicas.elect(2)
    replicas.settle()
    error_code = asked.response().responses[0].partition_responses[0].error_code
    assert error_code == NotLeaderOrFollower.code


def test_records_of_a_later_epoch_do_not_acknowledge_earlier_ones() -> None:
    """The same partition object may lead again, with other records at the same offsets."""
    replicas = SimReplicas(2)
    replicas.elect(1)
    replicas.settle()
    replicas.cut(2, 1)
    asked = replicas.brokers[1].begin(produce_request("t", b"lost"), 9)
    replicas.brokers[1].ports.jobs.run_all()
    # In one turn of broker 1, which does not complete the request as a follower.
    replicas.elect(2)
    replicas.partition(1).log.truncate_to(0)
    replicas.brokers[1].ports.jobs.run_all()
    replicas.elect(1, isr=[1])
    replicas.produce(b"kept")
    replicas.settle()
    assert replicas.leader.high_watermark == 1
    error_code = asked.response().responses[0].partition_responses[0].error_code
    assert error_code == NotLeaderOrFollower.code
