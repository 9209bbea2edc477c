"""Elections: which replica leads next, and which replicas remain in sync (rule C9)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plogd.controller.cluster.leader_election import (
    NO_LEADER,
    Brokers,
    for_shutdown,
    led_by_damaged_replica,
    preferred,
    reassigned,
    uncleanly_led_by,
    with_assignment,
    without_offline_replicas,
    without_restarted,
)
from plogd.controller.replica_assignment import ReplicaAssignment
from plogd.metadata.cache import PartitionState

STATE = PartitionState(
    partition=0, leader=1, leader_epoch=5, replicas=(1, 2, 3), isr=(1, 2, 3), partition_epoch=9
)
ALL = Brokers(live={1, 2, 3})


def _summary(state: PartitionState | None) -> tuple[int, tuple[int, ...], int] | None:
    return None if state is None else (state.leader, state.isr, state.leader_epoch)


# -- brokers go offline and come back ---------------------------------------------------------


@pytest.mark.parametrize(
    ("leader", "isr", "live", "expected"),
    [
        (1, (1, 2, 3), {1, 2, 3}, None),
        # A follower leaves the ISR; the leader keeps its epoch.
        (1, (1, 2, 3), {1, 3}, (1, (1, 3), 5)),
        # The first live member of the ISR in the order of the assignment leads.
        (1, (3, 2, 1), {2, 3}, (2, (3, 2), 6)),
        (1, (1, 3), {2, 3}, (3, (3,), 6)),
        # The last members of the ISR stay in it, because only they have all records.
        (1, (1,), {2, 3}, (NO_LEADER, (1,), 6)),
        (1, (1, 2), {3}, (NO_LEADER, (1, 2), 6)),
        # No change while none of them is back.
        (NO_LEADER, (1, 2), {3}, None),
        (NO_LEADER, (1, 2), {2, 3}, (2, (2,), 6)),
        # Another program has written a leader that is not in sync.
        (1, (2,), {1, 2, 3}, (2, (2,), 6)),
        (1, (2,), {1, 3}, (NO_LEADER, (2,), 6)),
    ],
)
def test_offline_replicas_leave_the_isr_and_its_first_online_member_leads(
    leader: int,
    isr: tuple[int, ...],
    live: set[int],
    expected: tuple[int, tuple[int, ...], int] | None,
) -> None:
    state = replace(STATE, leader=leader, isr=isr)
    assert _summary(without_offline_replicas(state, Brokers(live=live))) == expected


def test_replica_with_a_failed_log_directory_is_offline_although_its_broker_is_live() -> None:
    state = replace(STATE, offline_replicas=(1,))
    assert _summary(without_offline_replicas(state, ALL)) == (2, (2, 3), 6)


def test_broker_that_shuts_down_keeps_its_partitions_but_gets_no_others() -> None:
    brokers = Brokers(live={1, 2, 3}, shutting_down={1, 2})
    assert without_offline_replicas(STATE, brokers) is None
    assert _summary(without_offline_replicas(replace(STATE, leader=NO_LEADER), brokers)) == (
        3,
        (1, 2, 3),
        6,
    )


def test_the_partition_epoch_is_left_to_the_store() -> None:
    changed = without_offline_replicas(STATE, Brokers(live={2}))
    assert changed is not None
    assert changed.partition_epoch == STATE.partition_epoch


BROKER_SETS = st.sets(st.integers(1, 4))


@given(st.lists(st.tuples(BROKER_SETS, BROKER_SETS), max_size=20))
def test_leader_is_always_an_online_member_of_an_isr_that_never_becomes_empty(
    events: list[tuple[set[int], set[int]]],
) -> None:
    state = STATE
    for live, shutting_down in events:
        old, brokers = state, Brokers(live=live, shutting_down=shutting_down)
        state = without_offline_replicas(state, brokers) or state
        assert set() < set(state.isr) <= set(old.isr)
        assert state.leader == NO_LEADER or (state.leader in state.isr and state.leader in live)
        assert (state.leader == old.leader) == (state.leader_epoch == old.leader_epoch)
        assert without_offline_replicas(state, brokers) is None


# -- requested elections ----------------------------------------------------------------------


def test_preferred_leader_must_be_in_sync_and_online() -> None:
    state = replace(STATE, leader=2)
    assert _summary(preferred(state, ALL)) == (1, (1, 2, 3), 6)
    assert preferred(replace(state, isr=(2, 3)), ALL) is None
    assert preferred(state, Brokers(live={2, 3})) is None
    assert preferred(state, Brokers(live={1, 2, 3}, shutting_down={1})) is None


# -- controlled shutdown ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leader", "isr", "shutting_down", "expected"),
    [
        (1, (1, 2, 3), {1}, (2, (2, 3), 6)),
        (1, (1, 2, 3), {2}, (1, (1, 3), 5)),
        (1, (1, 2, 3), {4}, None),
        # No other member of the ISR can lead: the partition stays where it is.
        (1, (1,), {1}, None),
        (1, (1, 2), {1, 2}, None),
    ],
)
def test_partition_is_moved_off_a_broker_that_shuts_down(
    leader: int,
    isr: tuple[int, ...],
    shutting_down: set[int],
    expected: tuple[int, tuple[int, ...], int] | None,
) -> None:
    state = replace(STATE, leader=leader, isr=isr)
    brokers = Brokers(live={1, 2, 3, 4}, shutting_down=shutting_down)
    assert _summary(for_shutdown(state, brokers)) == expected


# -- reassignments ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replicas", "isr", "leader", "live", "expected"),
    [
        # The leader stays, in a new epoch.
        ((3, 1), (1, 2, 3), 1, {1, 2, 3}, (1, (1, 3), 6)),
        # The first replica of the new assignment that is in sync and live leads.
        ((3, 2), (1, 2, 3), 1, {1, 2, 3}, (3, (2, 3), 6)),
        ((3, 2), (1, 2, 3), 1, {1, 2}, (2, (2, 3), 6)),
        # The partition would lose its leader, or the last replica with all records.
        ((3,), (1, 2, 3), 1, {1, 2}, None),
        ((3,), (1, 2), 1, {1, 2, 3}, None),
        # Without a leader, only the replicas change.
        ((1, 2), (1,), NO_LEADER, {2}, (NO_LEADER, (1,), 6)),
        ((2, 3), (1,), NO_LEADER, {2}, None),
    ],
)
def test_partition_gets_other_replicas(
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    leader: int,
    live: set[int],
    expected: tuple[int, tuple[int, ...], int] | None,
) -> None:
    state = replace(STATE, isr=isr, leader=leader)
    new = with_assignment(state, ReplicaAssignment(replicas=replicas), Brokers(live=live))
    assert _summary(new) == expected
    assert new is None or new.replicas == replicas


def test_isr_does_not_shrink_to_replicas_that_have_not_confirmed_their_logs() -> None:
    brokers = Brokers(live={1, 2, 3}, unconfirmed={1, 2})
    for replicas in ((1, 2), (1,)):
        assert with_assignment(STATE, ReplicaAssignment(replicas=replicas), brokers) is None
    new = with_assignment(STATE, ReplicaAssignment(replicas=(1, 3)), brokers)
    assert _summary(new) == (1, (1, 3), 6)
    # Nothing leaves the ISR.
    moving = ReplicaAssignment(replicas=(4, 1, 2, 3), adding=(4,))
    none = Brokers(live={1, 2, 3}, unconfirmed={1, 2, 3})
    assert _summary(with_assignment(STATE, moving, none)) == (1, (1, 2, 3), 6)


@pytest.mark.parametrize("offline", [Brokers(live={2, 3}), ALL])
def test_isr_does_not_shrink_to_a_leader_that_is_offline(offline: Brokers) -> None:
    """The controller may not have elected another leader yet."""
    is_failed = 1 in offline.live
    state = replace(STATE, isr=(1, 2), offline_replicas=(1,) if is_failed else ())
    assert with_assignment(state, ReplicaAssignment(replicas=(1,)), offline) is None
    moving = replace(state, replicas=(1, 2), removing_replicas=(2,))
    assert reassigned(moving, offline) is None
    assert for_shutdown(state, replace(offline, shutting_down={2})) is None


@given(BROKER_SETS, st.sets(st.integers(1, 4), min_size=1), BROKER_SETS)
def test_completed_reassignment_keeps_only_target_replicas_all_of_which_are_in_sync(
    removing: set[int], isr: set[int], live: set[int]
) -> None:
    state = replace(
        STATE,
        leader=min(isr),
        replicas=(1, 2, 3, 4),
        isr=tuple(isr),
        adding_replicas=(4,),
        removing_replicas=tuple(removing),
    )
    target = {1, 2, 3, 4} - removing
    new = reassigned(state, Brokers(live=live))
    if new is not None:
        assert set(new.isr) == set(new.replicas) == target <= isr
        assert new.leader in target
        assert new.leader == state.leader or new.leader in live
        assert not new.is_reassigning
        assert new.leader_epoch == state.leader_epoch + 1
    elif target:
        assert not target <= isr or (not target & live and (min(isr) not in target or target < isr))


def test_leader_that_was_not_in_sync_is_recovering() -> None:
    state = replace(STATE, leader=NO_LEADER, isr=(1,))
    new = uncleanly_led_by(2, state)
    assert _summary(new) == (2, (2,), 6)
    assert new.is_recovering
    assert not uncleanly_led_by(1, state).is_recovering
    # The mark remains until the leader removes it.
    again = without_offline_replicas(replace(new, leader=NO_LEADER), ALL)
    assert again is not None
    assert again.is_recovering


# -- brokers whose disks may be new -----------------------------------------------------------


@pytest.mark.parametrize(
    ("leader", "isr", "live", "unconfirmed", "expected"),
    [
        # The others are dead, but the broker may have lost what they have.
        (1, (1, 2, 3), {1}, {1}, None),
        (NO_LEADER, (1, 2, 3), {1}, {1}, None),
        (2, (1, 2), {1, 3}, {1}, None),
        # A confirmed member leads.
        (1, (1, 2, 3), {2, 3}, {2}, (3, (2, 3), 6)),
        (1, (1, 2, 3), {1, 2}, {1}, (1, (1, 2), 5)),
        # A leader that is the last member anyway needs no election.
        (1, (1,), {1}, {1}, None),
        # Other brokers are not waited for.
        (1, (1,), {2}, {2}, (NO_LEADER, (1,), 6)),
    ],
)
def test_broker_that_has_not_responded_is_not_elected_and_not_left_alone_in_the_isr(
    leader: int,
    isr: tuple[int, ...],
    live: set[int],
    unconfirmed: set[int],
    expected: tuple[int, tuple[int, ...], int] | None,
) -> None:
    """Rule C2."""
    state = replace(STATE, leader=leader, isr=isr)
    brokers = Brokers(live=live, unconfirmed=unconfirmed)
    assert _summary(without_offline_replicas(state, brokers)) == expected


def test_broker_that_stops_does_not_leave_an_unconfirmed_member_alone_in_the_isr() -> None:
    brokers = Brokers(live={1, 2}, shutting_down={1}, unconfirmed={2})
    assert for_shutdown(replace(STATE, isr=(1, 2)), brokers) is None
    assert for_shutdown(replace(STATE, leader=2, isr=(1, 2)), brokers) is None


@pytest.mark.parametrize(
    ("leader", "isr", "live", "restarted", "expected"),
    [
        (1, (1, 2, 3), {1, 2, 3}, {1}, (2, (2, 3), 6)),
        (1, (1, 2, 3), {1, 2, 3}, {3}, (1, (1, 2), 5)),
        # One new epoch, although the leader has been gone and has returned.
        (1, (1,), {1, 2}, {1}, (1, (1,), 6)),
        (1, (1, 2), {1, 2}, {1, 2}, (1, (1, 2), 6)),
        (1, (1, 2), {1, 2, 3}, {3}, None),
        # Other members have died at the same time.
        (1, (1, 2), {1}, {1}, (1, (1,), 6)),
    ],
)
def test_broker_that_has_restarted_leaves_the_isr_if_another_member_is_online(
    leader: int,
    isr: tuple[int, ...],
    live: set[int],
    restarted: set[int],
    expected: tuple[int, tuple[int, ...], int] | None,
) -> None:
    state = replace(STATE, leader=leader, isr=isr)
    assert _summary(without_restarted(state, Brokers(live=live), restarted)) == expected


@pytest.mark.parametrize(
    ("isr", "live", "damaged", "expected"),
    [
        ((1, 2), {1, 2, 3}, {1, 2}, (1, (1,), 6)),
        ((3, 2), {2, 3}, {2, 3}, (2, (2,), 6)),
        # A member that is intact, or may be.
        ((1, 2), {1, 2, 3}, {2}, None),
        ((1, 2), {2, 3}, {1, 2}, None),
    ],
)
def test_damaged_replica_leads_alone_if_all_members_of_the_isr_are_damaged(
    isr: tuple[int, ...],
    live: set[int],
    damaged: set[int],
    expected: tuple[int, tuple[int, ...], int] | None,
) -> None:
    state = replace(STATE, leader=NO_LEADER, isr=isr, offline_replicas=(1, 2, 3))
    assert _summary(led_by_damaged_replica(state, Brokers(live=live), damaged)) == expected
