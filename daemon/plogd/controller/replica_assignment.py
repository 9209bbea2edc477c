"""The replicas of a partition, and those that a reassignment adds and removes, without I/O.

While a reassignment is in progress, the partition has the replicas of both assignments, those of
the target first. Source: Kafka 3.9 ReplicaAssignment; KIP-455.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plogd.metadata.cache import PartitionState


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaAssignment:
    """The replicas of a partition."""

    replicas: tuple[int, ...]
    """All replicas, the preferred leader first."""
    adding: tuple[int, ...] = ()
    """The replicas that a reassignment adds."""
    removing: tuple[int, ...] = ()
    """The replicas that it removes once the others are in sync."""

    @classmethod
    def of(cls, state: PartitionState) -> ReplicaAssignment:
        """Return the assignment of a partition."""
        return cls(
            replicas=state.replicas, adding=state.adding_replicas, removing=state.removing_replicas
        )

    @property
    def is_reassigning(self) -> bool:
        """Whether a reassignment is in progress."""
        return bool(self.adding or self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas to which a cancellation returns."""
        return _without(self.replicas, self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment."""
        return _without(self.replicas, self.removing)

    def reassigned_to(self, target: Sequence[int]) -> ReplicaAssignment:
        """Return the assignment while the partition moves from its origin to `target`.

        >>> ReplicaAssignment(replicas=(1, 2)).reassigned_to([2, 3])
        ReplicaAssignment(replicas=(2, 3, 1), adding=(3,), removing=(1,))
        """
        origin = self.origin
        return ReplicaAssignment(
            replicas=(*target, *_without(origin, target)),
            adding=_without(target, origin),
            removing=_without(origin, target),
        )

    def completed(self) -> ReplicaAssignment:
        """Return the assignment after the reassignment."""
        return ReplicaAssignment(replicas=self.target)


def _without(replicas: Sequence[int], others: Sequence[int]) -> tuple[int, ...]:
    return tuple(replica for replica in replicas if replica not in others)
