"""Choose the leaders of partitions: pure functions from a partition's state to its next state.

The controller calls them when brokers come, go or shut down, when an operator requests an election
and when a reassignment ends. It then writes the result. A new leader, and the loss of a leader,
raise the leader epoch. The partition epoch of a result is still that of the old state, because the
metadata store assigns it.

A replica is *online* if its broker is live and its log directory has not failed. Brokers that are
shutting down are not elected, but keep what they have until they have handed it over. A broker that
has just registered is *unconfirmed* until it has responded to the states of its partitions, because
its disk may be new (rule C2): it is not elected, and the last members of an ISR cannot be only such
brokers.

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
    unconfirmed: Collection[int] = ()
    """Live brokers that have not responded yet."""

    def is_online(self, replica: int, state: PartitionState) -> bool:
        """Return whether a replica of the partition is online."""
        return replica in self.live and replica not in state.offline_replicas

    def can_lead(self, replica: int, state: PartitionState) -> bool:
        """Return whether a replica of the partition is online, and its broker can be elected."""
        return (
            self.is_online(replica, state)
            and replica not in self.shutting_down
            and replica not in self.unconfirmed
        )

    def can_keep(self, isr: Collection[int], state: PartitionState) -> bool:
        """Return whether the other members may leave the ISR.

        A member that remains must be online, and have confirmed that it has its log.
        """
        return any(
            self.is_online(replica, state) and replica not in self.unconfirmed for replica in isr
        )


def without_offline_replicas(state: PartitionState, brokers: Brokers) -> PartitionState | None:
    """Return the state after replicas have gone offline or come back; None if nothing changes.

    Offline replicas leave the ISR, but its last members stay: they are the only ones that have all
    committed records. Without an online member, the partition has no leader.
    """
    isr = _online(state.isr, state, brokers)
    # Another program may have written a leader that is not in sync.
    if state.leader in isr:
        if len(isr) == len(state.isr) or not brokers.can_keep(isr, state):
            return None
        # The leader keeps its epoch, as after an ISR change that it has requested itself.
        return replace(state, isr=isr)
    leader = _first_leader(state.replicas, isr, state, brokers)
    if leader != NO_LEADER:
        return _led_by(leader, isr, state)
    if state.leader == NO_LEADER or any(replica in brokers.unconfirmed for replica in isr):
        return None  # With an unconfirmed member, it is decided when that broker responds.
    return _led_by(NO_LEADER, state.isr, state)


def without_restarted(
    state: PartitionState, brokers: Brokers, restarted: Collection[int]
) -> PartitionState | None:
    """Return the state after brokers were offline for a moment; None if nothing changes.

    A broker that has restarted may have lost records, or its disk. It leaves the ISR, and joins it
    again when it has fetched what it lacks, unless no other member is online.
    """
    if not any(replica in restarted for replica in state.isr):
        return without_offline_replicas(state, brokers)
    others = Brokers(
        live=[one for one in brokers.live if one not in restarted],
        shutting_down=brokers.shutting_down,
        unconfirmed=brokers.unconfirmed,
    )
    without = without_offline_replicas(state, others)
    new = without_offline_replicas(without or state, brokers) or without
    if new is None or new.leader_epoch == state.leader_epoch:
        return new
    return replace(new, leader_epoch=state.leader_epoch + 1)


def led_by_damaged_replica(
    state: PartitionState, brokers: Brokers, damaged: Collection[int]
) -> PartitionState | None:
    """Return the state of a partition without a leader if all members of its ISR are damaged.

    Their logs lack records, but they can lead (rule C2). The first one leads alone. None if a
    member is not live: it may have all records.
    """
    if not all(replica in damaged and replica in brokers.live for replica in state.isr):
        return None
    able = (one for one in state.replicas if one in state.isr and one not in brokers.shutting_down)
    leader = next(able, NO_LEADER)
    return None if leader == NO_LEADER else _led_by(leader, (leader,), state)


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
    if not brokers.can_keep(isr, state):
        return None
    if state.leader != NO_LEADER and state.leader not in brokers.shutting_down:
        return replace(state, isr=isr)
    leader = _first_leader(state.replicas, isr, state, brokers)
    return None if leader == NO_LEADER else _led_by(leader, isr, state)


def with_assignment(
    state: PartitionState, assignment: ReplicaAssignment, brokers: Brokers
) -> PartitionState | None:
    """Return the state with the replicas of `assignment`, in a new leader epoch.

    The leader changes only if it is not among them. None if members would leave the ISR and none of
    those that remain is online and has confirmed that it has its log, or if the partition would
    lose its leader.
    """
    isr = tuple(replica for replica in state.isr if replica in assignment.replicas)
    if len(isr) < len(state.isr) and not brokers.can_keep(isr, state):
        return None
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
