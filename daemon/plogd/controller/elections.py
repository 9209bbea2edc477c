"""The results of leader elections on demand (ElectLeaders), without I/O.

On a single broker, each partition has a single replica. While its log directory works, this replica
is the leader, so no election is needed; if the directory has failed, there is no other replica to
elect. In a cluster, the controller has elected all leaders that can lead before
(controller/cluster). Source: Kafka 4.0 ReplicationControlManager.electLeader; KIP-460.
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
    """Return the error for an election that has not changed the partition's leader."""
    number, preferred = state.partition, state.replicas[0]
    if not is_offline and state.leader == preferred:
        return ElectionNotNeeded(
            f"partition {number} is already led by its preferred leader, broker {state.leader}"
        )
    if not is_offline and kind != ElectionType.PREFERRED:
        return ElectionNotNeeded(f"partition {number} is led by broker {state.leader}")
    if kind == ElectionType.PREFERRED:
        problem = (
            f"the log directory of partition {number} on broker {preferred} is offline"
            if is_offline
            else f"partition {number} is not in sync on its preferred leader, broker {preferred}"
        )
        return PreferredLeaderNotAvailable(problem)
    return EligibleLeadersNotAvailable(f"partition {number} has no available replica")
