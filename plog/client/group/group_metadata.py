"""Who commits offsets of a group in a transaction: what a consumer tells of itself (KIP-447)."""

from __future__ import annotations

from typing import NamedTuple

from plog.client.group.member_state import NO_GENERATION, Generation


class GroupMetadata(NamedTuple):
    """A group, and the place in it under which records were read.

    The coordinator refuses offsets from a place the group has given to another one since. Without a
    generation it can only do so while the group has members.
    """

    group_id: str
    generation_id: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None

    @classmethod
    def of(cls, group_id: str, generation: Generation) -> GroupMetadata:
        """That of a member."""
        return cls(
            group_id, generation.generation_id, generation.member_id, generation.group_instance_id
        )
