"""The identity under which a transaction commits offsets of a group (KIP-447)."""

from __future__ import annotations

from typing import NamedTuple

from plog.client.group.member_state import NO_GENERATION, Generation


class GroupMetadata(NamedTuple):
    """A group, and the member id and generation under which records were read.

    The coordinator rejects offsets from an outdated generation. Without a generation, it rejects
    offsets only while the group has members.
    """

    group_id: str
    generation_id: int = NO_GENERATION
    member_id: str = ""
    group_instance_id: str | None = None

    @classmethod
    def of(cls, group_id: str, generation: Generation) -> GroupMetadata:
        """Return the metadata of a member in `generation`."""
        return cls(
            group_id, generation.generation_id, generation.member_id, generation.group_instance_id
        )
