"""Random clusters for the tests of plans, and what is true of every plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from plog.balance.placement import Assignments, Placement
from plog.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class SomeCluster:
    """Brokers with racks, and partitions with replicas and sizes."""

    racks: Mapping[int, str | None]
    assignments: Assignments
    sizes: Mapping[TopicPartition, int]

    def placement(self, *without: int) -> Placement:
        """Return a placement on all brokers, or all but some."""
        brokers = {broker: rack for broker, rack in self.racks.items() if broker not in without}
        return Placement(brokers, self.assignments, self.sizes)


@st.composite
def clusters(draw: st.DrawFn, *, racks: bool = True) -> SomeCluster:
    """Draw a cluster of up to seven brokers, whose assignments can be arbitrarily bad."""
    count = draw(st.integers(1, 7))
    names: Sequence[str | None] = "abc"[: draw(st.integers(1, 3))] if racks else (None,)
    if draw(st.booleans()):
        names = (None,)
    brokers = {broker: draw(st.sampled_from(names)) for broker in range(1, count + 1)}
    assignments: dict[TopicPartition, tuple[int, ...]] = {}
    for topic in "tuv"[: draw(st.integers(0, 3))]:
        factor = draw(st.integers(1, min(count, 4)))
        for number in range(draw(st.integers(1, 6))):
            order = draw(st.permutations(sorted(brokers)))
            assignments[TopicPartition(topic, number)] = tuple(order[:factor])
    sizes = {partition: draw(st.integers(0, 1000)) for partition in assignments}
    return SomeCluster(racks=brokers, assignments=assignments, sizes=sizes)


def check_replicas(cluster: SomeCluster, after: Assignments, brokers: Iterable[int]) -> None:
    """Check that each partition keeps its number of replicas, on different brokers."""
    assert after.keys() == cluster.assignments.keys()
    for partition, replicas in after.items():
        assert len(replicas) == len(cluster.assignments[partition])
        assert len(set(replicas)) == len(replicas)
        assert set(replicas) <= set(brokers)


def crowded(cluster: SomeCluster, replicas: Iterable[int]) -> int:
    """Return the sum of the squares of the replicas in each rack: less is better."""
    return sum(x * x for x in Counter(cluster.racks[one] for one in replicas).values())


def spread(counts: Iterable[int]) -> int:
    """Return the difference between the largest and the smallest count."""
    listed = list(counts)
    return max(listed) - min(listed)
