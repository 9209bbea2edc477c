"""The identity with which a transaction commits a group's offsets (KIP-447)."""

from __future__ import annotations

from typing import NamedTuple

from plog.client.group.member_state import NO_GENERATION, Generation


class GroupMetadata(NamedTuple):
    """A group, with the member id and generation under which records were read.

    The coordinator rejects offsets from an outdated generation. Without a generation, it rejects
    offsets while the group has members.
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
