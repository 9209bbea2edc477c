"""`GroupShard`: the groups of one partition of `__consumer_offsets`, and their committed offsets.

Groups and offsets are managed separately but share a log. This module combines them: it routes each
record to its manager, deletes a group together with its offsets, and removes expired offsets
(offset_expiration.py) in the slices that offset_removal.py requests.

Source: Kafka 4.3 GroupCoordinatorShard.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

from plog.errors import KafkaError
from plog.wire.internal.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from plogd.coordinator.group.group_port import GroupsPort
from plogd.coordinator.group.offset_metadata_manager import OffsetMetadataManager
from plogd.coordinator.runtime.coordinator_result import CoordinatorRecord, Result


class ShardGroups(GroupsPort, Protocol):
    """The group manager of a shard, as GroupShard calls it."""

    def group_ids(self) -> Iterable[str]:
        """Return the ids of all groups."""
        ...

    def delete(self, group_id: str) -> Result[None]:
        """Delete a group without members."""
        ...

    def tombstones_if_unused(self, group_id: str) -> list[CoordinatorRecord]:
        """Return a tombstone for a group without offsets unless it has members or pending ids."""
        ...

    def replay_group(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        """Apply a group's record: `value` replaces the group, None removes it."""
        ...

    def on_loaded(self) -> None:
        """Start timers, now that the log has been replayed."""
        ...

    def on_unloaded(self, error: KafkaError) -> None:
        """Fail pending requests with `error`."""
        ...


G = TypeVar("G", bound=ShardGroups)

SLICE_RECORDS: Final = 250
"""Maximum number of records written by one background operation, which takes a few milliseconds."""
SLICE_SCANNED: Final = 5000
"""Approximate number of groups and offsets scanned by one background operation."""


class GroupShard(Generic[G]):
    """The groups and committed offsets of one partition of `__consumer_offsets`."""

    def __init__(self, groups: G, offsets: OffsetMetadataManager) -> None:
        self.groups = groups
        self.offsets = offsets

    def replay(self, record: CoordinatorRecord, *, offset: int, producer_id: int) -> None:
        """Apply the record at `offset`."""
        match record.key, record.value:
            case OffsetCommitKey() as key, (OffsetCommitValue() | None) as value:
                self.offsets.replay(key, value, offset=offset, producer_id=producer_id)
            case GroupMetadataKey() as key, (GroupMetadataValue() | None) as value:
                self.groups.replay_group(key, value)
            case _:
                raise AssertionError(f"record of another coordinator: {record}")

    def replay_end_marker(self, producer_id: int, *, committed: bool) -> None:
        """End the transaction of `producer_id`."""
        self.offsets.replay_end_marker(producer_id, committed=committed)

    def on_loaded(self) -> None:
        """Start timers, now that the log has been replayed."""
        self.groups.on_loaded()

    def on_unloaded(self, error: KafkaError) -> None:
        """Fail pending requests with `error`."""
        self.groups.on_unloaded(error)

    # -- operations on groups and offsets -----------------------------------------------------

    def delete_group(self, group_id: str) -> Result[tuple[int, bool]]:
        """Delete a slice of a group's offsets; the last slice also deletes the group.

        The group must not have any members. The response is the number of deleted offsets, and
        whether the group is deleted.
        """
        # Validate before the first slice: a group with members must keep all of its offsets.
        deleted = self.groups.delete(group_id)
        # One more tombstone than fits in a slice shows whether this slice is the last.
        tombstones = list(islice(self.offsets.tombstones_of(group_id), SLICE_RECORDS + 1))
        if len(tombstones) > SLICE_RECORDS:
            del tombstones[SLICE_RECORDS:]
            return Result(records=tombstones, response=(SLICE_RECORDS, False))
        records = [*tombstones, *deleted.records]
        return Result(records=records, response=(len(tombstones), True))

    def delete_topic_offsets(
        self, topic: str, group_ids: list[str], end_offset: int
    ) -> Result[int]:
        """Delete a slice of the committed offsets for a deleted topic; respond with their number.

        Removes finished groups from `group_ids`, which must not be empty. Offsets recorded at or
        after `end_offset` belong to a recreated topic and are kept.
        """
        records: list[CoordinatorRecord] = []
        while group_ids and len(records) < SLICE_RECORDS:
            room = SLICE_RECORDS - len(records)
            found = self.offsets.tombstones_of_topic(topic, group_ids[-1], end_offset)
            tombstones = list(islice(found, room))
            records += tombstones
            if len(tombstones) < room:  # Otherwise, the group may have more of these offsets.
                group_ids.pop()
        return Result(records=records, response=len(records))

    def expire_offsets(self, group_ids: list[str]) -> Result[int]:
        """Remove a slice of expired offsets, and empty groups without offsets.

        Responds with the number of removed offsets. Removes finished groups from `group_ids`.
        """
        records: list[CoordinatorRecord] = []
        count = scanned = 0
        while group_ids and len(records) < SLICE_RECORDS and scanned < SLICE_SCANNED:
            group_id = group_ids[-1]
            group = self.groups.group(group_id)
            if group is None:  # It was deleted after the list was made.
                group_ids.pop()
                continue
            # Offsets that have not expired also take time to check.
            scanned += 1 + self.offsets.count_of(group_id)
            room = SLICE_RECORDS - len(records)
            expired, is_all = self.offsets.expired(group_id, group, room)
            records += expired
            count += len(expired)
            if is_all:
                records += self.groups.tombstones_if_unused(group_id)
            # Otherwise, the slice is full, and the group may have more expired offsets.
            if is_all or len(expired) < room:
                group_ids.pop()
        return Result(records=records, response=count)
