"""Decide about a leader's request to change its in-sync replicas (AlterPartition, KIP-497).

The request names the leader epoch and partition epoch that it is based on. It is accepted only if
both are current, so that a deposed leader, or a leader whose ISR the controller has changed, cannot
overwrite a newer state. New members must be live, and in the broker epoch in which they fetched
(KIP-841, KIP-903): a broker that has restarted since may have lost records.

This module does not perform I/O; the controller writes the result. Source: Kafka 3.9
KafkaController.doAlterPartition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from plog.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    NotController,
)
from plogd.metadata.cache import PartitionState

UNKNOWN_BROKER_EPOCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChange:
    """A leader's request for one partition."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: Sequence[tuple[int, int]]
    """The members of the new ISR with their broker epochs; -1 if the leader does not know it."""
    is_recovering: bool = False
    """Whether the leader still recovers from an unclean election (KIP-704)."""


def changed_state(
    name: str,
    state: PartitionState,
    change: IsrChange,
    *,
    broker_epochs: Mapping[int, int],
    shutting_down: Collection[int],
) -> PartitionState:
    """Return the state after the change; the same object if the partition already has it.

    `broker_epochs` contains the live brokers; `name` is the partition's name for messages. Raises
    NotController if the request knows newer epochs than this controller, FencedLeaderEpoch or
    InvalidUpdateVersion if it knows older ones, InvalidRequest, or IneligibleReplica.
    """
    _check_epochs(name, state, change)
    members = tuple(broker_id for broker_id, _ in change.isr)
    _check_members(name, state, change.leader, members)
    if change.is_recovering and (len(members) > 1 or not state.is_recovering):
        raise InvalidRequest(
            f"{name}: only a leader that is alone in the ISR after an unclean election recovers"
        )
    if set(members) == set(state.isr) and change.is_recovering == state.is_recovering:
        # A repeated request, whose first response was lost.
        return state
    if change.partition_epoch < state.partition_epoch:
        raise InvalidUpdateVersion(
            f"{name}: the partition epoch is {state.partition_epoch}, not"
            f" {change.partition_epoch}; its leader or ISR has changed"
        )
    for broker_id, broker_epoch in change.isr:
        _check_eligible(name, broker_id, broker_epoch, broker_epochs, shutting_down)
    return replace(state, isr=members, is_recovering=change.is_recovering)


def _check_epochs(name: str, state: PartitionState, change: IsrChange) -> None:
    # Another controller has written a state that this one, which it has deposed, does not know.
    if change.leader_epoch > state.leader_epoch or change.partition_epoch > state.partition_epoch:
        raise NotController(f"{name}: this broker has an outdated state; ask the new controller")
    if change.leader_epoch < state.leader_epoch:
        raise FencedLeaderEpoch(
            f"{name}: the leader epoch is {state.leader_epoch}, not {change.leader_epoch}"
        )


def _check_members(name: str, state: PartitionState, leader: int, members: Sequence[int]) -> None:
    if leader != state.leader:
        raise InvalidRequest(f"{name} is led by broker {state.leader}, not {leader}")
    if leader not in members:
        raise InvalidRequest(f"{name}: the new ISR {list(members)} lacks the leader {leader}")
    if len(set(members)) != len(members) or not set(members) <= set(state.replicas):
        raise InvalidRequest(
            f"{name}: the new ISR {list(members)} must contain different replicas of"
            f" {list(state.replicas)}"
        )


def _check_eligible(
    name: str,
    broker_id: int,
    broker_epoch: int,
    broker_epochs: Mapping[int, int],
    shutting_down: Collection[int],
) -> None:
    live_epoch = broker_epochs.get(broker_id)
    if live_epoch is None:
        problem = "is not registered"
    elif broker_id in shutting_down:
        problem = "is shutting down"
    elif broker_epoch not in (UNKNOWN_BROKER_EPOCH, live_epoch):
        problem = f"has the broker epoch {live_epoch}, not {broker_epoch}"
    else:
        return
    raise IneligibleReplica(f"{name}: broker {broker_id} cannot be in sync, because it {problem}")
