"""FollowerFetcher: what a follower copies, truncates and acknowledges."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Any

import pytest

from plog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from plogd.ports import ready, spawn
from tests.helpers.sim.sim_replicas import KEY, SimReplicas


def started(count: int = 2, **settings: Any) -> SimReplicas:
    replicas = SimReplicas(count, **settings)
    replicas.elect(1)
    replicas.settle()
    return replicas


def test_follower_has_the_same_bytes_as_its_leader() -> None:
    replicas = started()
    for number in range(10):
        replicas.produce(*[b"%d" % number] * (number + 1))
        replicas.settle()
    assert replicas.end_offsets == {1: 55, 2: 55}
    assert replicas.records(1) == replicas.records(2)
    leader, follower = replicas.partition(1).log, replicas.partition(2).log
    assert follower.leader_epochs.entries == leader.leader_epochs.entries


def test_follower_keeps_the_state_of_producers() -> None:
    replicas = started()
    replicas.produce(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    replicas.settle()
    replicas.elect(2)
    replicas.settle()
    # A retry to the new leader is recognized as a duplicate.
    assert replicas.produce(b"a", producer_id=7, producer_epoch=0, base_sequence=0) == 0
    assert replicas.leader.log.log_end_offset == 1


def test_next_fetch_waits_until_the_records_are_durable() -> None:
    replicas = started()
    replicas.produce(b"a")
    leader, follower = replicas.brokers[1], replicas.brokers[2]
    leader.settle()
    replicas.leaders[2][-1].deliver()
    follower.ports.timers.run_due()
    # Appended, but the job that syncs has not run.
    assert replicas.end_offsets == {1: 1, 2: 1}
    assert replicas.partition(2).log.durable_end_offset == 0
    assert replicas.leaders[2][-1].pending == []
    follower.settle()
    assert len(replicas.leaders[2][-1].pending) == 1


def test_first_fetch_in_an_epoch_waits_until_earlier_records_are_durable() -> None:
    replicas = started(3)
    replicas.produce(b"a")
    replicas.brokers[1].settle()
    replicas.leaders[2][-1].deliver()
    follower = replicas.brokers[2]
    follower.ports.timers.run_due()
    assert replicas.partition(2).log.durable_end_offset == 0
    replicas.leaders[3][-1].deliver()
    replicas.brokers[3].settle()
    # A fetch would tell the new leader that the record is durable on this broker.
    replicas.elect(3)
    follower.ports.timers.run_due()
    assert replicas.leaders[2][-1].broker_id == 3
    assert replicas.leaders[2][-1].pending == []
    follower.settle()
    assert replicas.partition(2).log.durable_end_offset == 1
    assert len(replicas.leaders[2][-1].pending) == 1


def test_broker_does_not_fetch_while_it_is_not_registered() -> None:
    replicas = SimReplicas(2)
    replicas.broker_epochs[2] = -1
    replicas.elect(1)
    replicas.produce(b"a")
    replicas.advance(5_000)
    assert replicas.leaders[2][-1].pending == []
    assert replicas.end_offsets == {1: 1, 2: 0}
    replicas.broker_epochs[2] = 7
    replicas.advance(2_000)
    assert replicas.end_offsets == {1: 1, 2: 1}
    assert replicas.leader.remote is not None
    assert replicas.leader.remote.followers[2].broker_epoch == 7


def test_append_wakes_a_fetch_that_waits_for_records() -> None:
    replicas = started()
    ((asked, _),) = replicas.leaders[2][-1].pending
    assert not asked.is_done
    replicas.produce(b"a")
    replicas.brokers[1].ports.timers.run_due()  # Only the end of the turn; no sync has run.
    assert asked.is_done
    assert replicas.partition(1).log.durable_end_offset == 0


def test_deposed_leader_truncates_the_records_that_its_successor_lacks() -> None:
    replicas = started()
    replicas.produce(b"a")
    replicas.settle()
    replicas.cut(2, 1)
    replicas.produce(b"lost")
    replicas.produce(b"lost")
    replicas.settle()
    replicas.elect(2)
    replicas.produce(b"kept")
    replicas.advance(2000)
    assert replicas.end_offsets == {1: 2, 2: 2}
    assert replicas.records(1) == replicas.records(2)
    assert b"lost" not in replicas.records(1)
    assert replicas.high_watermarks == {1: 2, 2: 2}


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "leader-epoch-checkpoint"])
def test_truncation_that_a_full_disk_has_prevented_is_completed_later(name: str) -> None:
    """The first file is written before any record is removed, and the second one after that."""
    replicas = started()
    replicas.produce(b"a")
    replicas.settle()
    replicas.cut(2, 1)
    replicas.produce(b"lost")
    replicas.settle()
    files = replicas.brokers[1].files
    files.fail_when(lambda operation: name in operation.path, errno.ENOSPC)
    replicas.elect(2)
    replicas.produce(b"kept")
    replicas.advance(5_000)
    assert replicas.partition(1).log.is_truncating
    assert not replicas.partition(1).log.offline
    files.fail_no_more()
    replicas.advance(5_000)
    assert replicas.end_offsets == {1: 2, 2: 2}
    assert replicas.records(1) == replicas.records(2)
    assert replicas.high_watermarks == {1: 2, 2: 2}


def test_follower_does_not_truncate_to_its_high_watermark() -> None:
    # KIP-101: the follower has the record, but has not learned that it is committed.
    replicas = started()
    replicas.produce(b"a")
    replicas.settle()
    replicas.advance(1000)
    replicas.produce(b"b")
    replicas.settle()
    replicas.cut(2, 1)
    replicas.elect(1)
    replicas.settle()
    replicas.elect(2)
    replicas.settle()
    assert replicas.end_offsets == {1: 2, 2: 2}
    assert replicas.leader.high_watermark == 2


def test_two_elections_in_a_row_leave_equal_logs() -> None:
    # KIP-279: a follower that missed an epoch compares epochs until they match.
    replicas = started(3)
    replicas.produce(b"a")
    replicas.settle()
    for other in (2, 3):
        replicas.cut(other, 1)
    replicas.produce(b"x1")
    replicas.settle()
    replicas.cut(1, 2)
    replicas.cut(3, 2)
    replicas.elect(2)
    replicas.produce(b"y1")
    replicas.produce(b"y2")
    replicas.settle()
    replicas.heal()
    replicas.elect(3)
    replicas.produce(b"z1")
    replicas.advance(3000)
    assert replicas.records(1) == replicas.records(2) == replicas.records(3)
    assert replicas.end_offsets == {1: 2, 2: 2, 3: 2}


def test_truncation_below_the_high_watermark_is_reported() -> None:
    replicas = started()
    replicas.produce(b"a")
    replicas.advance(2000)
    replicas.cut(2, 1)
    # An unclean election of a replica without the record.
    replicas.partition(1).log.truncate_fully(0)
    replicas.settle()
    replicas.heal()
    replicas.elect(1)
    replicas.advance(3000)
    assert replicas.end_offsets == {1: 0, 2: 0}
    assert any("below its high watermark" in line for line in replicas.brokers[2].reports)


def test_empty_follower_begins_where_the_log_of_the_leader_begins() -> None:
    replicas = SimReplicas(2, topic={"segment_bytes": str(1 << 20)})
    replicas.cut(2, 1)
    replicas.elect(1, isr=[1])
    for _ in range(6):
        replicas.produce(b"x" * 300_000)
    replicas.settle()
    replicas.leader.log.delete_records_before(4)
    replicas.heal()
    replicas.advance(3000)
    follower = replicas.partition(2).log
    assert (follower.log_start_offset, follower.log_end_offset) == (4, 6)
    assert replicas.records(1) == replicas.records(2)


def test_empty_follower_begins_inside_a_batch() -> None:
    replicas = SimReplicas(2)
    replicas.cut(2, 1)
    replicas.elect(1, isr=[1])
    replicas.produce(b"a", b"b", b"c")
    replicas.produce(b"d", b"e", b"f")
    replicas.settle()
    replicas.leader.log.delete_records_before(4)
    replicas.heal()
    replicas.advance(5000)
    follower = replicas.partition(2).log
    assert (follower.log_start_offset, follower.log_end_offset) == (4, 6)


def test_start_of_the_log_follows_deleted_records() -> None:
    replicas = started()
    replicas.produce(b"a")
    replicas.produce(b"b")
    replicas.advance(2000)
    replicas.leader.log.delete_records_before(1)
    replicas.advance(1000)
    assert replicas.partition(2).log.log_start_offset == 1


def test_leader_that_does_not_answer_is_reported_once_and_retried() -> None:
    replicas = started()
    replicas.cut(2, 1)
    replicas.advance(10_000)
    failures = [
        line for line in replicas.brokers[2].reports if "cannot fetch from broker 1" in line
    ]
    assert len(failures) == 1
    replicas.heal()
    replicas.produce(b"a")
    replicas.advance(2000)
    assert replicas.end_offsets == {1: 1, 2: 1}
    assert replicas.brokers[2].reports.count("fetching from broker 1 again") == 1


def test_full_disk_and_its_end_are_reported_once() -> None:
    replicas = started()
    files, reports = replicas.brokers[2].files, replicas.brokers[2].reports
    files.fail_when(lambda operation: operation.name == "append", errno.ENOSPC)
    replicas.produce(b"a")
    replicas.advance(5000)
    failures = [line for line in reports if "cannot replicate t-0 from broker 1" in line]
    assert len(failures) == 1
    files.fail_no_more()
    replicas.advance(5000)
    assert replicas.end_offsets == {1: 1, 2: 1}
    assert reports.count("replicating t-0 from broker 1 again") == 1


def test_partition_with_an_error_is_reported_once_and_retried() -> None:
    replicas = started()
    state = replicas.state
    replicas.state = replace(state, leader_epoch=state.leader_epoch + 1)
    replicas.send_state(2)  # The leader does not know the new epoch yet.
    replicas.advance(5000)
    reports = replicas.brokers[2].reports
    assert len([line for line in reports if "cannot replicate t-0 from broker 1" in line]) == 1
    assert any("UNKNOWN_LEADER_EPOCH" in line for line in reports)
    replicas.send_state(1)
    replicas.produce(b"a")
    replicas.advance(2000)
    assert replicas.end_offsets == {1: 1, 2: 1}


@pytest.mark.parametrize("is_of_request", [True, False])
def test_unknown_error_is_reported_and_retried(is_of_request: bool) -> None:
    replicas = started()
    leader = replicas.leaders[2][-1]
    send = leader.fetch

    def refuse(request: FetchRequest) -> Any:
        partition = PartitionData(error_code=9999)
        topic = FetchableTopicResponse(topic_id=replicas.leader.topic_id, partitions=[partition])
        return ready(
            FetchResponse(error_code=9999) if is_of_request else FetchResponse(responses=[topic])
        )

    leader.fetch = refuse  # type: ignore[method-assign]
    replicas.advance(1000)  # Until the request in flight has been answered.
    replicas.produce(b"a")
    replicas.advance(5000)
    assert replicas.end_offsets == {1: 1, 2: 0}
    assert any("error 9999" in line for line in replicas.brokers[2].reports)
    leader.fetch = send  # type: ignore[method-assign]
    replicas.advance(2000)
    assert replicas.end_offsets == {1: 1, 2: 1}


def test_follower_in_an_old_epoch_waits_for_the_controller() -> None:
    replicas = started()
    state = replicas.state
    replicas.state = replace(state, leader_epoch=state.leader_epoch + 1)
    replicas.send_state(1)
    replicas.produce(b"a")
    replicas.advance(5000)
    assert len(replicas.fetchers[2]) == 0
    replicas.send_state(2)
    replicas.advance(2000)
    assert replicas.end_offsets == {1: 1, 2: 1}


def test_response_of_an_earlier_epoch_is_dropped() -> None:
    replicas = started()
    replicas.produce(b"a")
    replicas.brokers[1].settle()
    late = replicas.leaders[2][-1]
    replicas.partition(2).make_follower(replicas.state)
    replicas.elect(1)
    late.deliver()
    assert replicas.end_offsets[2] == 0
    replicas.advance(1000)
    assert replicas.records(1) == replicas.records(2)


def test_removed_partition_is_not_fetched_any_more() -> None:
    replicas = started()
    replicas.fetchers[2].remove(KEY)
    replicas.produce(b"a")
    replicas.advance(5000)
    assert replicas.end_offsets == {1: 1, 2: 0}
    assert len(replicas.fetchers[2]) == 0


def test_removed_partition_is_released_when_its_truncation_has_ended() -> None:
    replicas = started()
    replicas.produce(b"a")
    replicas.settle()
    replicas.cut(2, 1)
    replicas.produce(b"lost", acks=1)
    replicas.settle()
    replicas.elect(2)
    fetcher = replicas.fetchers[1]
    while not replicas.partition(1).log.is_truncating:
        replicas.brokers[2].settle()
        replicas.leaders[1][-1].deliver()
    fetcher.remove(KEY)
    released = spawn(fetcher.released(KEY))
    assert not released.done
    replicas.settle()
    assert released.done
    assert replicas.end_offsets == {1: 1, 2: 1}
    assert spawn(fetcher.released(KEY)).done


def test_removal_during_an_append_does_not_stop_the_fetcher() -> None:
    """An empty follower that starts inside a batch removes its log first, which takes jobs."""
    replicas = SimReplicas(2)
    replicas.cut(2, 1)
    replicas.elect(1, isr=[1])
    for _ in range(3):
        replicas.produce(b"a", b"b", b"c")
    replicas.settle()
    replicas.leader.log.delete_records_before(4)
    log = replicas.partition(2).log
    replicas.heal()
    replicas.elect(1, isr=[1])
    follower = replicas.brokers[2]
    # First, the log begins at offset 4; then, at the base offset of the batch that contains it.
    while log.log_start_offset != 3:
        follower.ports.timers.run_due()
        if follower.ports.jobs.waiting:
            follower.ports.jobs.run_one()
        replicas.brokers[1].settle()
        replicas.leaders[2][-1].deliver()
    assert log.is_truncating
    fetcher = replicas.fetchers[2]
    fetcher.remove(KEY)
    replicas.settle()
    assert log.log_end_offset == 9
    fetcher.add(replicas.partition(2))
    replicas.produce(b"d")
    replicas.advance(3000)
    assert replicas.end_offsets == {1: 10, 2: 10}


def test_requests_after_the_first_contain_only_changes() -> None:
    replicas = SimReplicas(2)
    sent: list[FetchRequest] = []
    replicas.elect(1)
    leader = replicas.leaders[2][-1]
    send = leader.fetch

    def fetch(request: FetchRequest) -> Any:
        sent.append(request)
        return send(request)

    leader.fetch = fetch  # type: ignore[method-assign]
    replicas.advance(2000)
    assert len(sent) >= 3
    assert all(request.session_epoch > 0 and not request.topics for request in sent[1:])


@pytest.mark.parametrize("victim", [1, 2])
def test_failed_log_directory_stops_only_its_own_replica(victim: int) -> None:
    replicas = started(3)
    replicas.partition(victim).log.go_offline()
    broker = replicas.brokers[victim].broker
    broker.replica_manager.log_dir_failed([replicas.partition(victim).log])
    if victim == 1:
        replicas.elect(2, isr=[2, 3])
    else:
        replicas.elect(1, isr=[1, 3])
    replicas.produce(b"a")
    replicas.advance(2000)
    others = [one for one in replicas.ids if one != victim]
    assert all(replicas.high_watermarks[one] == 1 for one in others)
