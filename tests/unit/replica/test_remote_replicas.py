"""RemoteReplicas: lag, high watermark and changes of the ISR, as plain arithmetic."""

from __future__ import annotations

import pytest

from plog.errors import NotLeaderOrFollower
from plog.types import TopicPartition
from plogd.replica.remote_replicas import RemoteReplica, RemoteReplicas

LAG_MS = 1000.0


def fetched(replica: RemoteReplica, offset: int, end: int, now_ms: float) -> None:
    replica.fetched(
        offset, log_start_offset=0, broker_epoch=1, leader_end_offset=end, now_ms=now_ms
    )


def make(
    isr: tuple[int, ...] = (1, 2, 3),
    *,
    eligible: tuple[int, ...] = (1, 2, 3),
    start: int = 0,
    is_leased: bool = True,
) -> RemoteReplicas:
    return RemoteReplicas(
        TopicPartition("t", 0),
        leader=1,
        replicas=(1, 2, 3),
        isr=isr,
        epoch_start_offset=start,
        is_eligible=lambda one, epoch: one in eligible and epoch == 1,
        is_leased=lambda: is_leased,
        max_lag_ms=lambda: LAG_MS,
        now_ms=0.0,
    )


class TestLag:
    def test_member_has_the_whole_lag_time_to_send_its_first_fetch(self) -> None:
        replicas = make()
        assert replicas.shrunk(5, 0, LAG_MS) is None
        assert replicas.shrunk(5, 0, LAG_MS + 1) == (1,)

    def test_replica_outside_the_isr_is_not_caught_up_before_its_first_fetch(self) -> None:
        replicas = make(isr=(1,))
        assert not replicas.followers[2].is_caught_up(5, 0.0, LAG_MS)

    def test_fetch_of_everything_that_existed_at_the_previous_fetch_counts(self) -> None:
        replica = RemoteReplica(0.0)
        fetched(replica, 0, 10, 500.0)
        fetched(replica, 10, 20, 900.0)
        assert replica.is_caught_up(30, 1500.0, LAG_MS)
        assert not replica.is_caught_up(30, 1501.0, LAG_MS)

    def test_fetch_below_that_does_not_count(self) -> None:
        replica = RemoteReplica(0.0)
        fetched(replica, 0, 10, 500.0)
        fetched(replica, 9, 20, 900.0)
        assert not replica.is_caught_up(30, 1001.0, LAG_MS)

    def test_replica_at_the_end_is_caught_up_without_any_fetch(self) -> None:
        replica = RemoteReplica(0.0)
        fetched(replica, 10, 10, 0.0)
        assert replica.is_caught_up(10, 1e9, LAG_MS)


class TestHighWatermark:
    def test_is_unknown_until_every_member_has_fetched(self) -> None:
        replicas = make()
        fetched(replicas.followers[2], 5, 9, 1.0)
        assert replicas.high_watermark(9, 9, 1.0) == -1
        fetched(replicas.followers[3], 7, 9, 1.0)
        assert replicas.high_watermark(9, 9, 1.0) == 5

    def test_is_at_most_what_the_leader_can_acknowledge(self) -> None:
        replicas = make()
        for one in (2, 3):
            fetched(replicas.followers[one], 9, 9, 1.0)
        assert replicas.high_watermark(4, 9, 1.0) == 4

    def test_waits_for_a_follower_that_is_about_to_join(self) -> None:
        replicas = make(isr=(1, 2))
        fetched(replicas.followers[2], 9, 9, 1.0)
        fetched(replicas.followers[3], 9, 9, 1.0)
        assert replicas.high_watermark(12, 12, 2.0) == 9

    def test_ignores_followers_that_lag_or_may_not_join(self) -> None:
        replicas = make(isr=(1,), eligible=(1, 2))
        fetched(replicas.followers[2], 3, 9, 1.0)
        fetched(replicas.followers[3], 9, 9, 1.0)
        assert replicas.high_watermark(12, 12, 2.0) == 12

    def test_proposed_members_count_until_the_proposal_is_withdrawn(self) -> None:
        replicas = make(isr=(1, 2))
        fetched(replicas.followers[2], 9, 9, 0.0)
        fetched(replicas.followers[3], 4, 9, -LAG_MS * 2)
        assert replicas.high_watermark(9, 9, LAG_MS) == 9
        replicas.proposed = (1, 2, 3)
        assert replicas.high_watermark(9, 9, LAG_MS) == 4
        replicas.withdraw()
        assert replicas.high_watermark(9, 9, LAG_MS) == 9

    def test_members_that_would_be_removed_count_until_that_is_confirmed(self) -> None:
        replicas = make()
        fetched(replicas.followers[2], 9, 9, 1.0)
        fetched(replicas.followers[3], 4, 9, 1.0)
        replicas.proposed = (1, 2)
        assert replicas.high_watermark(9, 9, LAG_MS * 9) == 4
        replicas.confirm((1, 2))
        assert replicas.high_watermark(9, 9, LAG_MS * 9) == 9


class TestIsr:
    def test_follower_joins_at_the_high_watermark(self) -> None:
        replicas = make(isr=(1, 2))
        fetched(replicas.followers[3], 4, 9, 1.0)
        assert replicas.expanded(3, 5) is None
        assert replicas.expanded(3, 4) == (1, 2, 3)

    def test_follower_does_not_join_below_the_start_of_the_epoch(self) -> None:
        replicas = make(isr=(1, 2), start=5)
        fetched(replicas.followers[3], 4, 9, 1.0)
        assert replicas.expanded(3, 4) is None

    def test_ineligible_follower_does_not_join(self) -> None:
        replicas = make(isr=(1, 2), eligible=(1, 2))
        fetched(replicas.followers[3], 9, 9, 1.0)
        assert replicas.expanded(3, 4) is None

    def test_only_one_change_is_proposed_at_a_time(self) -> None:
        replicas = make(isr=(1, 2))
        fetched(replicas.followers[3], 9, 9, 1.0)
        replicas.proposed = (1,)
        assert replicas.expanded(3, 4) is None
        assert replicas.shrunk(20, 4, 1e9) is None

    def test_member_that_lost_committed_records_leaves_at_once(self) -> None:
        replicas = make()
        for one, offset in ((2, 9), (3, 3)):
            fetched(replicas.followers[one], offset, 9, 1.0)
        assert replicas.shrunk(9, 4, 1.0) == (1, 2)

    def test_unassigned_member_leaves(self) -> None:
        replicas = make()
        replicas.assign((1, 2), 0.0)
        assert replicas.shrunk(0, 0, 0.0) == (1, 2)

    def test_reassignment_keeps_what_is_known_about_the_others(self) -> None:
        replicas = make(isr=(1, 2))
        fetched(replicas.followers[2], 9, 9, 1.0)
        replicas.assign((1, 2, 4), 5.0)
        assert {one: known.end_offset for one, known in replicas.followers.items()} == {2: 9, 4: -1}


def test_low_watermark_is_the_smallest_start_of_live_replicas() -> None:
    replicas = make(eligible=(1, 2))
    for one, start in ((2, 3), (3, 1)):
        replicas.followers[one].fetched(
            9, log_start_offset=start, broker_epoch=1, leader_end_offset=9, now_ms=1.0
        )
    assert replicas.low_watermark(5) == 3


class TestLease:
    """Rule C3."""

    def test_leader_whose_lease_has_ended_may_have_been_replaced_by_a_member(self) -> None:
        make().check_lease()
        with pytest.raises(NotLeaderOrFollower, match="another broker may lead t-0"):
            make(is_leased=False).check_lease()

    def test_leader_that_is_alone_in_sync_cannot_have_been_replaced(self) -> None:
        make(isr=(1,), is_leased=False).check_lease()

    def test_proposed_member_may_have_replaced_the_leader(self) -> None:
        replicas = make(isr=(1,), is_leased=False)
        replicas.proposed = (1, 2)
        with pytest.raises(NotLeaderOrFollower):
            replicas.check_lease()
