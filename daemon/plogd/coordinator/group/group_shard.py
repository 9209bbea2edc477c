"""`GroupShard`: the groups of one partition of `__consumer_offsets`, and their committed offsets.

The two know different things and share a log. What concerns both is done here: routing a record to
the one it is for, deleting a group together with its offsets, forgetting what has expired, in the
slices that offset_expiration.py asks for.

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
    """All groups of the shard, as the shard sees them."""

    def group_ids(self) -> Iterable[str]:
        """Every group there is."""
        ...

    def delete(self, group_id: str) -> Result[None]:
        """Forget a group without members."""
        ...

    def tombstones_if_unused(self, group_id: str) -> list[CoordinatorRecord]:
        """What makes a group go that has no offsets, unless somebody is in it, or about to join."""
        ...

    def replay_group(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        """The group is as `value` says from now on, or is not there any more."""
        ...

    def on_loaded(self) -> None:
        """All of the log is replayed."""
        ...

    def on_unloaded(self, error: KafkaError) -> None:
        """Whoever waits gets `error`."""
        ...


G = TypeVar("G", bound=ShardGroups)

SLICE_RECORDS: Final = 250
"""How many records one operation writes of work that can wait: a few milliseconds."""
SLICE_LOOKS: Final = 5000
"""How many groups and offsets it looks at, about."""


class GroupShard(Generic[G]):
    """See the module's text."""

    def __init__(self, groups: G, offsets: OffsetMetadataManager) -> None:
        self.groups = groups
        self.offsets = offsets

    def replay(self, record: CoordinatorRecord, *, offset: int, producer_id: int) -> None:
        """The record at `offset` of the log."""
        match record.key, record.value:
            case OffsetCommitKey() as key, (OffsetCommitValue() | None) as value:
                self.offsets.replay(key, value, offset=offset, producer_id=producer_id)
            case GroupMetadataKey() as key, (GroupMetadataValue() | None) as value:
                self.groups.replay_group(key, value)
            case _:
                raise AssertionError(f"a record of another coordinator: {record}")

    def replay_end_marker(self, producer_id: int, *, committed: bool) -> None:
        """The transaction of `producer_id` has ended."""
        self.offsets.replay_end_marker(producer_id, committed=committed)

    def on_loaded(self) -> None:
        """All of the log is replayed."""
        self.groups.on_loaded()

    def on_unloaded(self, error: KafkaError) -> None:
        """Whoever waits for a group gets `error`."""
        self.groups.on_unloaded(error)

    # -- what concerns both -------------------------------------------------------------------

    def delete_group(self, group_id: str) -> Result[tuple[int, bool]]:
        """Delete a slice of the offsets of a group without members, and in the end the group.

        The response is the number of offsets, and whether the group is deleted.
        """
        deleted = self.groups.delete(group_id)
        tombstones = list(islice(self.offsets.tombstones_of(group_id), SLICE_RECORDS + 1))
        if len(tombstones) > SLICE_RECORDS:
            del tombstones[SLICE_RECORDS:]
            return Result(records=tombstones, response=(SLICE_RECORDS, False))
        records = [*tombstones, *deleted.records]
        return Result(records=records, response=(len(tombstones), True))

    def forget_topic(self, topic: str, group_ids: list[str], end_offset: int) -> Result[int]:
        """A topic was deleted: forget a slice of the offsets in it; how many.

        Groups that are done are taken out of `group_ids`, of which there is one at least. Offsets
        recorded from `end_offset` on are in a topic that came later.
        """
        records: list[CoordinatorRecord] = []
        while group_ids and len(records) < SLICE_RECORDS:
            room = SLICE_RECORDS - len(records)
            found = self.offsets.tombstones_of_topic(topic, group_ids[-1], end_offset)
            some = list(islice(found, room))
            records += some
            if len(some) < room:
                group_ids.pop()
        return Result(records=records, response=len(records))

    def forget_expired(self, group_ids: list[str]) -> Result[int]:
        """Forget a slice of what has expired, and empty groups without offsets; how many offsets.

        Groups that are done are taken out of `group_ids`.
        """
        records: list[CoordinatorRecord] = []
        count = looked_at = 0
        while group_ids and len(records) < SLICE_RECORDS and looked_at < SLICE_LOOKS:
            group_id = group_ids[-1]
            group = self.groups.group(group_id)
            if group is None:
                group_ids.pop()
                continue
            looked_at += 1 + self.offsets.count_of(group_id)
            room = SLICE_RECORDS - len(records)
            expired, is_all = self.offsets.expired(group_id, group, room)
            records += expired
            count += len(expired)
            if is_all:
                records += self.groups.tombstones_if_unused(group_id)
            if is_all or len(expired) < room:
                group_ids.pop()
        return Result(records=records, response=count)
