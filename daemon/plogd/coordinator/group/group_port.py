"""What committed offsets have to know of the groups they belong to.

Protocols only, so that offsets can be understood, and tested, without a rebalance in sight.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Protocol


class GroupPort(Protocol):
    """What offsets have to know of their group; see group.py."""

    @property
    def state(self) -> Enum:
        """Where the group is; the value is what clients are told."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        ...

    @property
    def empty_since(self) -> int | None:
        """Wall-clock ms at which the last member left; None if that is not known."""
        ...

    @property
    def protocol_type(self) -> str | None:
        """None for a group that has only ever committed offsets."""
        ...

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether its members consume topics."""
        ...

    @property
    def subscribed_topics(self) -> Collection[str] | None:
        """What its members consume; None if that is not known."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member consumes the topic, or might."""
        ...

    def validate_offset_delete(self) -> None:
        """Raise NonEmptyGroup if no offset of the group may be deleted."""
        ...


class GroupsPort(Protocol):
    """The groups of the shard, as offsets see them."""

    def group(self, group_id: str) -> GroupPort | None:
        """The group of this id."""
        ...

    def get_or_create_simple(self, group_id: str) -> GroupPort:
        """The group of this id; one without members if there is none."""
        ...

    def validate_offset_commit(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
    ) -> None:
        """Raise unless this member of an existing group may commit; it has been heard of now."""
        ...
