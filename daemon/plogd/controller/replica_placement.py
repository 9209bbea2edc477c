"""Place the replicas of new partitions on brokers.

This module does not perform I/O. `assign_replicas` distributes leaders round-robin and places the
followers of each leader on all other brokers in turn, so that leaders and followers are spread
evenly. If brokers have racks, the replicas of a partition are in as many racks as possible.
`check_assignments` validates a manual assignment. Source: Kafka 3.9 AdminUtils; KIP-36 for racks;
Kafka 4.0 ReplicationControlManager for the rules for manual assignments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count, zip_longest
from types import MappingProxyType

from plog.errors import InvalidReplicaAssignment, InvalidReplicationFactor

Assignments = dict[int, tuple[int, ...]]

NO_RACKS: Mapping[int, str] = MappingProxyType({})


def assign_replicas(
    brokers: Sequence[int],
    partition_count: int,
    replication_factor: int,
    *,
    racks: Mapping[int, str] = NO_RACKS,
    start: int = 0,
    shift: int = 0,
    first_partition: int = 0,
) -> Assignments:
    """Distribute partitions, numbered from `first_partition` on, over `brokers`.

    `racks` contains the racks of all brokers, or of none. The broker at index `start` leads
    partition 0, and `shift` is the number of brokers between its leader and its second replica.
    Raises InvalidReplicationFactor, or InvalidReplicaAssignment if only some brokers have racks.

    >>> assign_replicas([1, 2, 3], 4, 2)
    {0: (1, 2), 1: (2, 3), 2: (3, 1), 3: (1, 3)}
    >>> assign_replicas([1, 2, 3, 4], 2, 2, racks={1: "a", 2: "a", 3: "b", 4: "b"})
    {0: (1, 3), 1: (3, 2)}
    """
    if replication_factor > len(brokers):
        raise InvalidReplicationFactor(
            f"Unable to replicate the partition {replication_factor} time(s): only "
            f"{len(brokers)} broker(s) are registered."
        )
    _check_racks(brokers, racks)
    arranged = _alternating_racks(brokers, racks)
    broker_count = len(arranged)
    # Partitions with the same replicas share a tuple, because there can be thousands of partitions.
    known: dict[tuple[int, int], tuple[int, ...]] = {}
    placed: Assignments = {}
    for number in range(first_partition, first_partition + partition_count):
        # In the next round, each leader has other followers.
        if number > 0 and number % broker_count == 0:
            shift += 1
        key = (number + start) % broker_count, shift % max(1, broker_count - 1)
        if key not in known:
            known[key] = _replicas(arranged, racks, *key, replication_factor)
        placed[number] = known[key]
    return placed


def _check_racks(brokers: Sequence[int], racks: Mapping[int, str]) -> None:
    without = [broker for broker in brokers if broker not in racks]
    if without and len(without) < len(brokers):
        # With replicas in only some of the racks, the loss of one rack could lose all replicas.
        raise InvalidReplicaAssignment(
            f"cannot place replicas in racks: brokers {without} have no rack, but others do; set"
            " broker.rack on all brokers or on none, or assign the replicas in the request"
        )


def _alternating_racks(brokers: Sequence[int], racks: Mapping[int, str]) -> list[int]:
    """Return the brokers in the order in which a broker of every rack is followed by the next rack.

    >>> _alternating_racks([1, 2, 3, 4, 5], {1: "a", 2: "a", 3: "a", 4: "b", 5: "b"})
    [1, 4, 2, 5, 3]
    """
    by_rack: dict[str, list[int]] = {}
    for broker in brokers:
        by_rack.setdefault(racks.get(broker, ""), []).append(broker)
    return [
        broker
        for row in zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
        for broker in row
        if broker is not None
    ]


def _replicas(
    arranged: Sequence[int], racks: Mapping[int, str], first: int, shift: int, factor: int
) -> tuple[int, ...]:
    """Return the replicas that follow the leader `arranged[first]`, starting with the leader."""
    rack_count = len(set(racks.get(broker) for broker in arranged))
    replicas = [arranged[first]]
    used_racks = {racks.get(arranged[first])}
    steps = count(shift * rack_count)
    while len(replicas) < factor:
        # Kafka's AdminUtils.replicaIndex: the steps visit all brokers except the leader.
        step = 1 + next(steps) % (len(arranged) - 1)
        broker = arranged[(first + step) % len(arranged)]
        rack = racks.get(broker)
        # No rack gets a second replica before every rack has one.
        is_rack_full = rack in used_racks and len(used_racks) < rack_count
        if broker not in replicas and not is_rack_full:
            replicas.append(broker)
            used_racks.add(rack)
    return tuple(replicas)


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
