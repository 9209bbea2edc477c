"""Electing a partition's leader on demand: what there is to elect with one broker.

Pure. Each partition has one replica, which leads it as long as its log directory works: an election
is never needed, and where the directory has failed there is nobody else to elect. Source: Kafka 4.0
ReplicationControlManager.electLeader; KIP-460.
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
    """The kind of election with this code. Raises InvalidRequest."""
    kind = ElectionType(code)
    if not kind.is_known:
        raise InvalidRequest(f"there is no election type {code}")
    return kind


def election_outcome(kind: ElectionType, state: PartitionState, *, is_offline: bool) -> KafkaError:
    """Why electing a leader for a partition changes nothing."""
    number = state.partition
    if not is_offline:
        return ElectionNotNeeded(f"partition {number} is led by broker {state.leader} as it should")
    if kind == ElectionType.PREFERRED:
        return PreferredLeaderNotAvailable(
            f"the log directory of broker {state.replicas[0]} with partition {number} is offline"
        )
    return EligibleLeadersNotAvailable(f"partition {number} has no replica that works")
