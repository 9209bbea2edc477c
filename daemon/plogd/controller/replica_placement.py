"""Place the replicas of new partitions on brokers.

This module does not perform I/O. `assign_replicas` distributes leaders round-robin and places
followers on the next brokers, so that leaders and followers are spread evenly. `check_assignments`
validates a manual assignment. Source: Kafka 3.9 AdminUtils and, for the rules for manual
assignments, Kafka 4.0 ReplicationControlManager.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plog.errors import InvalidReplicaAssignment, InvalidReplicationFactor

Assignments = dict[int, tuple[int, ...]]


def assign_replicas(
    brokers: Sequence[int], partition_count: int, replication_factor: int, *, start: int = 0
) -> Assignments:
    """Distribute partitions over `brokers`; the broker at index `start` leads the first one.

    >>> assign_replicas([1, 2, 3], 4, 2)
    {0: (1, 2), 1: (2, 3), 2: (3, 1), 3: (1, 2)}
    """
    if replication_factor > len(brokers):
        raise InvalidReplicationFactor(
            f"Unable to replicate the partition {replication_factor} time(s): only "
            f"{len(brokers)} broker(s) are registered."
        )
    count = len(brokers)
    # Partitions with the same leader share a tuple, because there can be thousands of partitions.
    by_leader = [
        tuple(brokers[(leader + replica) % count] for replica in range(replication_factor))
        for leader in range(count)
    ]
    return {number: by_leader[(start + number) % count] for number in range(partition_count)}


def check_assignments(
    assignments: Sequence[tuple[int, Sequence[int]]], brokers: Sequence[int]
) -> Assignments:
    """Validate an assignment of (partition, brokers) pairs. Raises InvalidReplicaAssignment."""
    checked: Assignments = {}
    for number, replicas in assignments:
        if number in checked:
            raise InvalidReplicaAssignment(f"partition {number} is assigned more than once")
        check_replicas(number, replicas, brokers)
        checked[number] = tuple(replicas)
    if sorted(checked) != list(range(len(checked))):
        raise InvalidReplicaAssignment(
            f"partitions must be numbered from 0 to {len(checked) - 1} without gaps"
        )
    _check_same_factor(checked)
    return {number: checked[number] for number in sorted(checked)}


def check_replicas(number: int, replicas: Sequence[int], brokers: Sequence[int]) -> None:
    """Validate the replicas of a partition. Raises InvalidReplicaAssignment."""
    if not replicas:
        raise InvalidReplicaAssignment(f"partition {number} has no replicas")
    if len(set(replicas)) < len(replicas):
        raise InvalidReplicaAssignment(f"partition {number} lists the same broker twice")
    unknown = sorted(set(replicas) - set(brokers))
    if unknown:
        raise InvalidReplicaAssignment(f"partition {number} lists unknown brokers: {unknown}")


def _check_same_factor(assignments: Mapping[int, Sequence[int]]) -> None:
    factors = {len(replicas) for replicas in assignments.values()}
    if len(factors) > 1:
        raise InvalidReplicaAssignment(
            f"partitions have different numbers of replicas: {sorted(factors)}"
        )
