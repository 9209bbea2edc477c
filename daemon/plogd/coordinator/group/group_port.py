"""The interface to groups on which committed offsets depend.

This module contains only Protocols, so that committed offsets can be tested without rebalances.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Protocol


class GroupPort(Protocol):
    """The attributes of a group that affect its committed offsets; see group.py."""

    @property
    def state(self) -> Enum:
        """The state; its value is the name in responses."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        ...

    @property
    def empty_since(self) -> int | None:
        """Wall-clock time in ms when the last member left; None if unknown."""
        ...

    @property
    def protocol_type(self) -> str | None:
        """The protocol type; None for a group that never had members."""
        ...

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether the group's members use the consumer protocol."""
        ...

    @property
    def subscribed_topics(self) -> Collection[str] | None:
        """Topics to which the group's members subscribe; None if unknown."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member subscribes, or may subscribe, to the topic."""
        ...

    def validate_offset_delete(self) -> None:
        """Raise NonEmptyGroup if the group's offsets must not be deleted."""
        ...


class GroupsPort(Protocol):
    """The operations on a shard's groups that committed offsets need."""

    def group(self, group_id: str) -> GroupPort | None:
        """Return the group, or None."""
        ...

    def get_or_create_simple(self, group_id: str) -> GroupPort:
        """Return the group; create it without members if it does not exist."""
        ...

    def validate_offset_commit(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
    ) -> None:
        """Raise an error unless the member may commit; otherwise, restart its session."""
        ...
