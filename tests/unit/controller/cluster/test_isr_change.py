"""AlterPartition: which changes of an ISR the controller accepts (KIP-497, KIP-841, KIP-903)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plog.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    NotController,
)
from plogd.controller.cluster.isr_change import UNKNOWN_BROKER_EPOCH, IsrChange, changed_state
from plogd.metadata.cache import PartitionState

STATE = PartitionState(
    partition=0, leader=1, leader_epoch=5, replicas=(1, 2, 3), isr=(1, 2), partition_epoch=9
)
EPOCHS = {1: 101, 2: 102, 3: 103}


def _change(
    *isr: int | tuple[int, int], leader: int = 1, leader_epoch: int = 5, partition_epoch: int = 9
) -> PartitionState:
    members = [one if isinstance(one, tuple) else (one, EPOCHS[one]) for one in isr]
    change = IsrChange(
        leader=leader, leader_epoch=leader_epoch, partition_epoch=partition_epoch, isr=members
    )
    return changed_state("t-0", STATE, change, broker_epochs=EPOCHS, shutting_down={4})


def test_leader_adds_and_removes_members() -> None:
    assert _change(1, 2, 3).isr == (1, 2, 3)
    shrunk = _change(1)
    assert (shrunk.isr, shrunk.leader, shrunk.leader_epoch) == ((1,), 1, 5)


def test_member_whose_broker_epoch_the_leader_does_not_know_is_accepted() -> None:
    assert _change(1, 2, (3, UNKNOWN_BROKER_EPOCH)).isr == (1, 2, 3)


def test_repeated_request_gets_the_state_that_the_first_has_written() -> None:
    assert _change(2, 1, partition_epoch=8) is STATE


@pytest.mark.parametrize(
    ("epochs", "error"),
    [
        ({"leader_epoch": 4}, FencedLeaderEpoch),
        ({"partition_epoch": 8}, InvalidUpdateVersion),
        # Another controller knows a newer state.
        ({"leader_epoch": 6}, NotController),
        ({"partition_epoch": 10}, NotController),
    ],
)
def test_request_must_be_based_on_the_current_epochs(
    epochs: dict[str, int], error: type[KafkaError]
) -> None:
    with pytest.raises(error, match="t-0"):
        _change(1, 2, 3, **epochs)


@pytest.mark.parametrize(
    ("isr", "message"),
    [
        ((2, 3), "lacks the leader 1"),
        ((1, 1, 2), "different replicas"),
        ((1, (4, -1)), "different replicas"),
        ((), "lacks the leader 1"),
    ],
)
def test_isr_must_contain_the_leader_and_only_replicas(
    isr: tuple[int | tuple[int, int], ...], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        _change(*isr)


def test_only_the_leader_may_change_the_isr() -> None:
    with pytest.raises(InvalidRequest, match="t-0 is led by broker 1, not 2"):
        _change(1, 2, 3, leader=2)


@pytest.mark.parametrize(
    ("epochs", "shutting_down", "problem"),
    [
        ({1: 101, 2: 102}, set(), "is not registered"),
        (EPOCHS, {3}, "is shutting down"),
        ({**EPOCHS, 3: 104}, set(), "has the broker epoch 104, not 103"),
    ],
)
def test_member_must_be_live_in_the_epoch_in_which_it_fetched(
    epochs: dict[int, int], shutting_down: set[int], problem: str
) -> None:
    change = IsrChange(
        leader=1, leader_epoch=5, partition_epoch=9, isr=[(1, 101), (2, 102), (3, 103)]
    )
    with pytest.raises(IneligibleReplica, match=f"broker 3 cannot be in sync.*{problem}"):
        changed_state("t-0", STATE, change, broker_epochs=epochs, shutting_down=shutting_down)


# -- recovery after an unclean election (KIP-704) ---------------------------------------------


def _recovered(
    *isr: int, was_recovering: bool, is_recovering: bool = False, partition_epoch: int = 9
) -> PartitionState:
    state = replace(STATE, isr=(1,), is_recovering=was_recovering)
    change = IsrChange(
        leader=1,
        leader_epoch=5,
        partition_epoch=partition_epoch,
        isr=[(one, EPOCHS[one]) for one in isr],
        is_recovering=is_recovering,
    )
    return changed_state("t-0", state, change, broker_epochs=EPOCHS, shutting_down=())


def test_leader_that_changes_the_isr_has_recovered() -> None:
    assert not _recovered(1, 2, was_recovering=True).is_recovering
    # It can also say so without another member.
    assert not _recovered(1, was_recovering=True).is_recovering


def test_leader_can_go_on_recovering_alone() -> None:
    assert _recovered(1, was_recovering=True, is_recovering=True, partition_epoch=8).is_recovering


@pytest.mark.parametrize(("isr", "was_recovering"), [((1, 2), True), ((1,), False)])
def test_other_leaders_cannot_recover(isr: tuple[int, ...], was_recovering: bool) -> None:
    with pytest.raises(InvalidRequest, match="unclean election"):
        _recovered(*isr, was_recovering=was_recovering, is_recovering=True)
