"""Committed offsets by group, topic and partition: the data of offset_metadata_manager.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from plog.wire.internal.group_records import OffsetCommitKey


class CommittedOffset(NamedTuple):
    """A partition's committed offset; timestamps are wall-clock times in milliseconds."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    record_offset: int
    """Offset of the record that contains the commit."""


OffsetsByTopic: TypeAlias = dict[str, dict[int, CommittedOffset]]
"""Offsets of one group, by topic and partition."""


class OffsetTable:
    """Committed offsets for several groups; `count` is the number of offsets."""

    __slots__ = ("by_group", "count")

    def __init__(self) -> None:
        self.by_group: dict[str, OffsetsByTopic] = {}
        self.count = 0

    def get(self, key: OffsetCommitKey) -> CommittedOffset | None:
        """Return the committed offset, or None."""
        return self.by_group.get(key.group, {}).get(key.topic, {}).get(key.partition)

    def put(self, key: OffsetCommitKey, committed: CommittedOffset) -> None:
        """Set the committed offset for `key`."""
        partitions = self.by_group.setdefault(key.group, {}).setdefault(key.topic, {})
        # Maintained here, because a gauge must not scan millions of offsets.
        self.count += key.partition not in partitions
        partitions[key.partition] = committed

    def remove(self, key: OffsetCommitKey) -> None:
        """Remove the committed offset for `key`, if there is one."""
        topics = self.by_group.get(key.group, {})
        partitions = topics.get(key.topic, {})
        if partitions.pop(key.partition, None) is None:
            return
        self.count -= 1
        # Delete empty dicts: otherwise, groups and topics that no longer exist would use memory.
        if not partitions:
            del topics[key.topic]
        if not topics:
            del self.by_group[key.group]

    def keys(self, group_id: str) -> Iterator[OffsetCommitKey]:
        """Yield the key of every offset of the group."""
        for topic, partitions in self.by_group.get(group_id, {}).items():
            for partition in partitions:
                yield OffsetCommitKey(group=group_id, topic=topic, partition=partition)

    def items(self) -> Iterator[tuple[OffsetCommitKey, CommittedOffset]]:
        """Yield all keys and offsets."""
        for group_id, topics in self.by_group.items():
            for topic, partitions in topics.items():
                for partition, committed in partitions.items():
                    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
                    yield key, committed
