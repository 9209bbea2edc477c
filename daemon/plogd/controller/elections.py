"""Leader elections on demand (ElectLeaders), for a single broker.

This module does not perform I/O. Each partition has a single replica. While its log directory
works, this replica is the leader, so no election is needed; if the directory has failed, there is
no other replica to elect. Source: Kafka 4.0 ReplicationControlManager.electLeader; KIP-460.
"""

from __future__ import annotations

from plog.enums import ElectionType
from plog.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidRequest,
    KafkaError,
    PreferredLeaderNotAvailable,
)
from plogd.metadata.cache import PartitionState


def election_type(code: int) -> ElectionType:
    """Return the election type with this code. Raises InvalidRequest."""
    kind = ElectionType(code)
    if not kind.is_known:
        raise InvalidRequest(f"unknown election type {code}")
    return kind


def election_outcome(kind: ElectionType, state: PartitionState, *, is_offline: bool) -> KafkaError:
    """Return the error for an election, which never changes a partition's leader."""
    number = state.partition
    if not is_offline:
        return ElectionNotNeeded(
            f"partition {number} is already led by its preferred leader, broker {state.leader}"
        )
    if kind == ElectionType.PREFERRED:
        return PreferredLeaderNotAvailable(
            f"the log directory of partition {number} on broker {state.replicas[0]} is offline"
        )
    return EligibleLeadersNotAvailable(f"partition {number} has no available replica")
