"""When a position is reset by auto.offset.reset, and which error replaces the reset."""

from __future__ import annotations

import pytest

from plog.client.consumer.offset_reset import (
    reset_out_of_range,
    reset_truncated,
    reset_uncommitted,
)
from plog.client.consumer.partition_state import Inquiry, PartitionState, Phase
from plog.client.consumer.reset_target import LATEST, ResetTo
from plog.client.consumer.subscription_state import SubscriptionState
from plog.types import TopicPartition
from plog.wire.messages.offset_for_leader_epoch import EpochEndOffset

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def assigned(default_reset: ResetTo | None) -> SubscriptionState:
    positions = SubscriptionState(default_reset=default_reset)
    positions.assign([T0, T1])
    return positions


def reading(default_reset: ResetTo | None, offset: int) -> tuple[SubscriptionState, PartitionState]:
    """Return the state of a consumer with a position in t-0."""
    positions = assigned(default_reset)
    positions.seek(T0, offset)
    return positions, positions.states[T0]


def inquiry(state: PartitionState) -> Inquiry:
    return Inquiry(
        state=state,
        generation=state.generation,
        leader=1,
        leader_epoch=3,
        reset=None,
        position=state.position,
        position_epoch=2,
    )


def test_uncommitted_partitions_are_reset() -> None:
    positions = assigned(LATEST)
    wanted = [(state, state.generation) for state in positions.states.values()]
    assert reset_uncommitted(positions, wanted) == []
    for state in positions.states.values():
        assert (state.phase, state.reset) == (Phase.RESETTING, LATEST)


def test_one_error_names_all_uncommitted_partitions_when_reset_is_none() -> None:
    positions = assigned(None)
    wanted = [(state, state.generation) for state in positions.states.values()]
    lacking = reset_uncommitted(positions, wanted)
    assert [(state.partition, generation) for state, generation, _ in lacking] == [
        (state.partition, generation) for state, generation in wanted
    ]
    [error] = {error for _, _, error in lacking}
    assert "t-0, t-1" in str(error)
    assert "auto.offset.reset is none" in str(error)
    assert all(state.phase is Phase.NO_OFFSET for state in positions.states.values())


def test_position_out_of_range_is_reset() -> None:
    positions, state = reading(LATEST, 12)
    assert reset_out_of_range(positions, state, state.generation, 12) is None
    assert (state.phase, state.reset) == (Phase.RESETTING, LATEST)


def test_position_out_of_range_is_an_error_when_reset_is_none() -> None:
    positions, state = reading(None, 12)
    error = reset_out_of_range(positions, state, state.generation, 12)
    assert "offset 12 of t-0 is out of range" in str(error)
    assert (state.phase, state.position) == (Phase.FETCHING, 12)


def test_late_response_resets_no_newer_position() -> None:
    positions, state = reading(LATEST, 12)
    generation = state.generation
    positions.seek(T0, 5)
    reset_out_of_range(positions, state, generation, 12)
    assert (state.phase, state.position) == (Phase.FETCHING, 5)


@pytest.mark.parametrize(
    ("epoch", "end_offset", "position", "phase"),
    [(2, 10, 10, Phase.FETCHING), (-1, -1, None, Phase.RESETTING)],
    ids=["to the end in common", "by policy without an epoch in common"],
)
def test_position_in_a_truncated_part_is_reset(
    epoch: int, end_offset: int, position: int | None, phase: Phase
) -> None:
    positions, state = reading(LATEST, 12)
    end = EpochEndOffset(partition=0, leader_epoch=epoch, end_offset=end_offset)
    assert reset_truncated(positions, inquiry(state), end) is None
    assert (state.position, state.phase) == (position, phase)


def test_truncation_is_an_error_when_reset_is_none() -> None:
    positions, state = reading(None, 12)
    end = EpochEndOffset(partition=0, leader_epoch=2, end_offset=10)
    error = reset_truncated(positions, inquiry(state), end)
    assert "truncated before the position 12, to 10" in str(error)
    assert state.position == 12
