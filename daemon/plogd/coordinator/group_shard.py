"""`GroupShard`: the groups of one partition of `__consumer_offsets`, and their committed offsets.

The two know different things and share a log. What concerns both is done here: routing a record to
the one it is for, deleting a group together with its offsets, forgetting what has expired.

Source: Kafka 4.3 GroupCoordinatorShard.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from plog.errors import KafkaError
from plog.wire.internal.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from plogd.coordinator.offsets import Offsets
from plogd.coordinator.offsets_owner import OffsetsOwners
from plogd.coordinator.result import CoordinatorRecord, Result


class ShardGroups(OffsetsOwners, Protocol):
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


class GroupShard(Generic[G]):
    """See the module's text."""

    def __init__(self, groups: G, offsets: Offsets) -> None:
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

    def delete_group(self, group_id: str) -> Result[int]:
        """Forget a group without members, and before it its offsets; how many of those."""
        deleted = self.groups.delete(group_id)
        tombstones = self.offsets.tombstones_of(group_id)
        return Result(records=[*tombstones, *deleted.records], response=len(tombstones))

    def forget_topic(self, topic: str) -> Result[int]:
        """A topic was deleted: forget the offsets in it; how many."""
        records = self.offsets.tombstones_of_topic(topic)
        return Result(records=records, response=len(records))

    def forget_expired(self) -> Result[int]:
        """Forget offsets that have expired, and empty groups that have none; how many offsets."""
        records: list[CoordinatorRecord] = []
        count = 0
        for group_id in list(self.groups.group_ids()):
            group = self.groups.group(group_id)
            assert group is not None
            expired, is_all = self.offsets.expired(group_id, group)
            records += expired
            count += len(expired)
            if is_all:
                records += self.groups.tombstones_if_unused(group_id)
        return Result(records=records, response=count)
