"""The port through which a group member accesses its consumer's positions."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from plog.client.values import OffsetAndMetadata
from plog.types import TopicPartition


class PositionsPort(Protocol):
    """A consumer's positions, as a group member sees them; `SubscriptionState` implements this."""

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions assigned to the consumer."""
        ...

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Set the assignment; partitions that were already assigned keep their positions."""
        ...

    def withhold(self, partitions: Collection[TopicPartition]) -> None:
        """Stop returning records from partitions that will be revoked; pass `()` to undo."""
        ...

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions after all returned records, for a commit. Thread-safe."""
        ...
