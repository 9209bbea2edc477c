"""What a group needs to know of, and to do with, its consumer's positions."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from plog.client.values import OffsetAndMetadata
from plog.types import TopicPartition


class PositionsPort(Protocol):
    """See `Positions`, which is one."""

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions the consumer has."""
        ...

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Exactly these from now on; those that stay keep their position."""
        ...

    def withhold(self, partitions: Collection[TopicPartition]) -> None:
        """Hand out nothing of these any more, for they go; `()` undoes it."""
        ...

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a commit of everything handed out would commit. Any thread."""
        ...
