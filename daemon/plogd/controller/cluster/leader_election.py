"""Choose the leaders of partitions: pure functions from a partition's state to its next state.

The controller calls them when brokers come, go or shut down, when an operator requests an election
and when a reassignment ends. It then writes the result. A new leader, and the loss of a leader,
raise the leader epoch. The partition epoch of a result is still that of the old state, because the
metadata store assigns it.

A replica is *online* if its broker is live and its log directory has not failed. Brokers that are
shutting down are not elected, but keep what they have until they have handed it over.

Source: Kafka 3.9 Election, PartitionLeaderElectionAlgorithms; docs/architecture.md, rule C9.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from plogd.controller.replica_assignment import ReplicaAssignment
from plogd.metadata.cache import NO_LEADER, PartitionState


@dataclass(frozen=True, slots=True, kw_only=True)
class Brokers:
    """The brokers that can lead partitions."""

    live: Collection[int]
    """Brokers that are registered."""
    shutting_down: Collection[int] = ()
    """Live brokers that have requested a controlled shutdown."""

    def is_online(self, replica: int, state: PartitionState) -> bool:
        """Return whether a replica of the partition is online."""
        return replica in self.live and replica not in state.offline_replicas

    def can_lead(self, replica: int, state: PartitionState) -> bool:
        """Return whether a replica of the partition is online, and its broker goes on running."""
        return self.is_online(replica, state) and replica not in self.shutting_down


def without_offline_replicas(state: PartitionState, brokers: Brokers) -> PartitionState | None:
    """Return the state after replicas have gone offline or come back; None if nothing changes.

    Offline replicas leave the ISR, but its last members stay: they are the only ones that have all
    committed records. Without an online member, the partition has no leader.
    """
    isr = _online(state.isr, state, brokers)
    # Another program may have written a leader that is not in sync.
    if state.leader in isr:
        # The leader keeps its epoch, as after an ISR change that it has requested itself.
        return None if len(isr) == len(state.isr) else replace(state, isr=isr)
    leader = _first_leader(state.replicas, isr, state, brokers)
    if leader != NO_LEADER:
        return _led_by(leader, isr, state)
    return None if state.leader == NO_LEADER else _led_by(NO_LEADER, state.isr, state)


def preferred(state: PartitionState, brokers: Brokers) -> PartitionState | None:
    """Return the state with the preferred leader, the first replica; None if it cannot lead."""
    first = state.replicas[0]
    if first not in state.isr or not brokers.can_lead(first, state):
        return None
    return _led_by(first, state.isr, state)


def for_shutdown(state: PartitionState, brokers: Brokers) -> PartitionState | None:
    """Return the state in which the partition does not depend on brokers that are shutting down.

    None if it does not depend on one, or if no other member of the ISR can lead.
    """
    if not any(replica in brokers.shutting_down for replica in state.isr):
        return None
    isr = tuple(replica for replica in state.isr if replica not in brokers.shutting_down)
    if state.leader != NO_LEADER and state.leader not in brokers.shutting_down:
        return replace(state, isr=isr)
    leader = _first_leader(state.replicas, isr, state, brokers)
    return None if leader == NO_LEADER else _led_by(leader, isr, state)


def with_assignment(
    state: PartitionState, assignment: ReplicaAssignment, brokers: Brokers
) -> PartitionState | None:
    """Return the state with the replicas of `assignment`, in a new leader epoch.

    The leader changes only if it is not among them. None if no member of the ISR would remain, or
    if the partition would lose its leader.
    """
    isr = tuple(replica for replica in state.isr if replica in assignment.replicas)
    leader = state.leader
    if leader not in isr:
        leader = _first_leader(assignment.replicas, isr, state, brokers)
    if not isr or (leader == NO_LEADER and state.leader != NO_LEADER):
        return None
    assigned = replace(
        state,
        replicas=assignment.replicas,
        adding_replicas=assignment.adding,
        removing_replicas=assignment.removing,
    )
    return _led_by(leader, isr, assigned)


def reassigned(state: PartitionState, brokers: Brokers) -> PartitionState | None:
    """Return the state after the partition's reassignment; None while it has to wait.

    All target replicas must be in sync, and one of them must be able to lead.
    """
    assignment = ReplicaAssignment.of(state)
    if not assignment.is_reassigning or state.leader == NO_LEADER:
        return None
    if not set(assignment.target) <= set(state.isr):
        return None
    return with_assignment(state, assignment.completed(), brokers)


def uncleanly_led_by(leader: int, state: PartitionState) -> PartitionState:
    """Return the state led by a replica that may lack committed records.

    It is alone in the ISR: all others have to truncate their logs to its log. A leader that is not
    in sync marks the partition as recovering, until it changes the ISR (KIP-704).
    """
    is_unclean = leader not in state.isr
    return _led_by(
        leader, (leader,), replace(state, is_recovering=is_unclean or state.is_recovering)
    )


def in_next_epoch(state: PartitionState) -> PartitionState:
    """Return the state with the same leader in a new leader epoch."""
    return _led_by(state.leader, state.isr, state)


def _first_leader(
    replicas: Sequence[int], isr: Collection[int], state: PartitionState, brokers: Brokers
) -> int:
    """Return the first replica that is in sync and can lead, or `NO_LEADER`."""
    able = (one for one in replicas if one in isr and brokers.can_lead(one, state))
    return next(able, NO_LEADER)


def _online(replicas: Sequence[int], state: PartitionState, brokers: Brokers) -> tuple[int, ...]:
    return tuple(replica for replica in replicas if brokers.is_online(replica, state))


def _led_by(leader: int, isr: Sequence[int], state: PartitionState) -> PartitionState:
    return replace(state, leader=leader, isr=tuple(isr), leader_epoch=state.leader_epoch + 1)
