"""The committed offsets of one shard.

Operations return records; only `replay` changes committed offsets, both during loading and later.
A log written by Kafka can contain offsets that were committed in a transaction. These offsets are
kept separately until the transaction's end marker commits or aborts them.

group.py decides whether a client may commit, and offset_expiration.py decides which offsets have
expired. Callers have checked that the topics exist. Source: Kafka 4.3 OffsetMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from plog.errors import (
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    KafkaError,
    OffsetMetadataTooLarge,
    UnstableOffsetCommit,
)
from plog.settings import LONG_MAX, MINUTE_MS
from plog.wire.internal.group_records import NO_TIMESTAMP, OffsetCommitKey, OffsetCommitValue
from plogd.config import BrokerConfig
from plogd.coordinator.group.group_port import GroupPort, GroupsPort
from plogd.coordinator.group.offset_expiration import expired_partitions
from plogd.coordinator.group.offset_table import CommittedOffset, OffsetsByTopic, OffsetTable
from plogd.coordinator.runtime.coordinator_result import CoordinatorRecord, Result
from plogd.ports import Clock

NO_OFFSET: Final = -1
DEFAULT_RETENTION: Final = -1
_FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND = 9  # KIP-848; older clients do not expect that error.


class OffsetToCommit(NamedTuple):
    """An offset to commit; the leader epoch is -1 if the client does not know it."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    """A request to commit offsets. Clients outside any group send generation -1."""

    group_id: str
    offsets: Sequence[OffsetToCommit]
    version: int
    member_id: str = ""
    group_instance_id: str | None = None
    generation_id: int = -1
    retention_time_ms: int = DEFAULT_RETENTION


class FetchedOffset(NamedTuple):
    """A partition's committed offset in a response; -1 if it is missing or there is an error."""

    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = -1
    metadata: str = ""
    error: KafkaError | None = None


RequestedPartitions = Sequence[tuple[str, Sequence[int]]]
"""Partition numbers by topic."""
Fetched = list[tuple[str, list[FetchedOffset]]]
"""Committed offsets by topic."""


class OffsetMetadataManager:
    """The committed offsets in one shard. Called inside runtime operations."""

    def __init__(
        self, groups: GroupsPort, *, config: Callable[[], BrokerConfig], clock: Clock
    ) -> None:
        self._groups = groups
        self._config = config
        self._clock = clock
        self._table = OffsetTable()
        self._pending: dict[int, OffsetTable] = {}
        """Offsets committed in open transactions, by producer id."""
        self._deleted_topics: dict[str, int] = {}
        """For each topic whose offsets are being deleted, the log offset below which they are
        deleted."""

    def __len__(self) -> int:
        return self._table.count

    # -- commit -------------------------------------------------------------------------------

    def commit(self, commit: OffsetCommit) -> Result[list[KafkaError | None]]:
        """Commit offsets; the response has an error, or None, for each of them in order.

        Raises GroupIdNotFound, IllegalGeneration, and the errors from
        `Group.validate_offset_commit`.
        """
        self._validate_commit(commit)
        now_ms = self._clock.now_ms()
        expire_timestamp = NO_TIMESTAMP
        if commit.retention_time_ms != DEFAULT_RETENTION:
            # A client can send any int64, but the sum must fit in the record.
            expire_timestamp = min(now_ms + commit.retention_time_ms, LONG_MAX)
        records: list[CoordinatorRecord] = []
        errors: list[KafkaError | None] = []
        for one in commit.offsets:
            error = self._metadata_error(one.metadata)
            errors.append(error)
            if error is None:
                key = OffsetCommitKey(
                    group=commit.group_id, topic=one.topic, partition=one.partition
                )
                value = OffsetCommitValue(
                    offset=one.offset,
                    # Any negative epoch means that the client does not know it.
                    leader_epoch=max(one.leader_epoch, -1),
                    # As in Kafka, null is stored as the empty text.
                    metadata=one.metadata or "",
                    commit_timestamp=now_ms,
                    expire_timestamp=expire_timestamp,
                )
                records.append(CoordinatorRecord(key, value))
        return Result(records=records, response=errors)

    def _validate_commit(self, commit: OffsetCommit) -> None:
        if self._groups.group(commit.group_id) is not None:
            self._groups.validate_offset_commit(
                commit.group_id,
                commit.member_id,
                commit.group_instance_id,
                commit.generation_id,
            )
        elif commit.generation_id >= 0:
            # Commits without a generation create the group; a member's group must exist.
            problem = f"group {commit.group_id} does not exist; join it again"
            if commit.version >= _FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND:
                raise GroupIdNotFound(problem)
            raise IllegalGeneration(problem)

    def _metadata_error(self, metadata: str | None) -> KafkaError | None:
        if metadata is None:
            return None
        limit = self._config().offset_metadata_max_bytes
        # Kafka counts UTF-16 code units, as Java's String.length() does. A character has at most
        # two of them, so most texts need not be encoded.
        if len(metadata) * 2 > limit and len(metadata.encode("utf-16-le")) // 2 > limit:
            return OffsetMetadataTooLarge(
                f"metadata of {len(metadata)} characters exceeds offset.metadata.max.bytes"
                f" ({limit})"
            )
        return None

    # -- fetch --------------------------------------------------------------------------------

    def committed_partitions(self, group_id: str) -> list[tuple[str, list[int]]]:
        """Return the partitions for which the group has committed offsets, by topic."""
        return [(topic, list(numbers)) for topic, numbers in self._of_group(group_id).items()]

    def _of_group(self, group_id: str) -> OffsetsByTopic:
        if self._groups.group(group_id) is None:
            return {}
        return self._without_deleted(self._table.by_group.get(group_id, {}))

    def fetch(
        self, group_id: str, requested: RequestedPartitions, *, require_stable: bool
    ) -> Fetched:
        """Return the committed offsets for the requested partitions."""
        topics = self._of_group(group_id)
        unstable = self._unstable(group_id) if require_stable else frozenset()
        return [
            (
                topic,
                [
                    self._fetched(
                        partition,
                        topics.get(topic, {}).get(partition),
                        (topic, partition) in unstable,
                    )
                    for partition in partitions
                ],
            )
            for topic, partitions in requested
        ]

    def _without_deleted(self, topics: OffsetsByTopic) -> OffsetsByTopic:
        if self._deleted_topics.keys().isdisjoint(topics):  # The usual case, without a copy.
            return topics
        kept: OffsetsByTopic = {}
        for topic, partitions in topics.items():
            end_offset = self._deleted_topics.get(topic, 0)
            left = {number: x for number, x in partitions.items() if x.record_offset >= end_offset}
            if left:
                kept[topic] = left
        return kept

    def _fetched(
        self, partition: int, committed: CommittedOffset | None, is_unstable: bool
    ) -> FetchedOffset:
        if is_unstable:
            return FetchedOffset(partition, error=UnstableOffsetCommit())
        if committed is None:
            return FetchedOffset(partition)
        return FetchedOffset(
            partition, committed.offset, committed.leader_epoch, committed.metadata
        )

    def _unstable(self, group_id: str) -> frozenset[tuple[str, int]]:
        """Return the partitions with offsets committed in open transactions."""
        return frozenset(
            (key.topic, key.partition)
            for table in self._pending.values()
            for key in table.keys(group_id)
        )

    # -- delete -------------------------------------------------------------------------------

    def delete(
        self, group_id: str, partitions: Sequence[tuple[str, int]]
    ) -> Result[list[KafkaError | None]]:
        """Delete offsets; the response has an error, or None, for each partition in order.

        Raises GroupIdNotFound, NonEmptyGroup.
        """
        group = self._groups.group(group_id)
        if group is None:
            raise GroupIdNotFound(f"Group {group_id} not found.")
        group.validate_offset_delete()
        unstable = self._unstable(group_id)
        errors: list[KafkaError | None] = []
        records: list[CoordinatorRecord] = []
        for topic, partition in partitions:
            if group.is_subscribed_to(topic):
                errors.append(
                    GroupSubscribedToTopic(f"members of group {group_id} are subscribed to {topic}")
                )
                continue
            errors.append(None)
            key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
            # The tombstone also removes offsets committed in open transactions; see `replay`.
            if self._table.get(key) is not None or (topic, partition) in unstable:
                records.append(CoordinatorRecord(key, None))
        return Result(records=records, response=errors)

    def tombstones_of(self, group_id: str) -> Iterator[CoordinatorRecord]:
        """Yield tombstones for all offsets of a group."""
        # Several open transactions may contain an offset for the same partition.
        seen: set[tuple[str, int]] = set()
        for table in (self._table, *self._pending.values()):
            for key in table.keys(group_id):
                if (key.topic, key.partition) not in seen:
                    seen.add((key.topic, key.partition))
                    yield CoordinatorRecord(key, None)

    def topic_deleted(self, topic: str, end_offset: int) -> list[str]:
        """Hide offsets for `topic` recorded before `end_offset`; return the groups that have any.

        Offsets recorded later belong to a new topic of the same name. The caller deletes the hidden
        offsets group by group with `tombstones_of_topic`, then calls `topic_offsets_deleted`.
        """
        # Hidden at once, because the tombstones can take seconds to be written.
        self._deleted_topics[topic] = end_offset
        tables = (self._table, *self._pending.values())
        groups = (group for table in tables for group, x in table.by_group.items() if topic in x)
        return list(dict.fromkeys(groups))

    def tombstones_of_topic(
        self, topic: str, group_id: str, end_offset: int
    ) -> Iterator[CoordinatorRecord]:
        """Yield tombstones for a group's offsets in a topic, if recorded before `end_offset`."""
        newest: dict[int, int] = {}
        for table in (self._table, *self._pending.values()):
            for number, committed in table.by_group.get(group_id, {}).get(topic, {}).items():
                newest[number] = max(newest.get(number, -1), committed.record_offset)
        for number, record_offset in newest.items():
            if record_offset < end_offset:
                key = OffsetCommitKey(group=group_id, topic=topic, partition=number)
                yield CoordinatorRecord(key, None)

    def topic_offsets_deleted(self, topic: str, end_offset: int) -> None:
        """Complete the deletion of a topic's offsets, unless the topic was deleted again."""
        if self._deleted_topics.get(topic) == end_offset:
            del self._deleted_topics[topic]

    # -- expiration ---------------------------------------------------------------------------

    def expired(
        self, group_id: str, group: GroupPort, at_most: int
    ) -> tuple[list[CoordinatorRecord], bool]:
        """Return tombstones for expired offsets, and whether the group has no other offsets."""
        expired, is_all = expired_partitions(
            self._table.by_group.get(group_id, {}),
            group,
            self._unstable(group_id),
            now_ms=self._clock.now_ms(),
            retention_ms=self._config().offsets_retention_minutes * MINUTE_MS,
            at_most=at_most,
        )
        keys = (
            OffsetCommitKey(group=group_id, topic=topic, partition=partition)
            for topic, partition in expired
        )
        return [CoordinatorRecord(key, None) for key in keys], is_all

    def count_of(self, group_id: str) -> int:
        """Return the number of offsets that a group has committed."""
        return sum(map(len, self._table.by_group.get(group_id, {}).values()))

    # -- replay -------------------------------------------------------------------------------

    def replay(
        self,
        key: OffsetCommitKey,
        value: OffsetCommitValue | None,
        *,
        offset: int,
        producer_id: int,
    ) -> None:
        """Apply the record at `offset`."""
        if value is None:
            self._table.remove(key)
            for table in self._pending.values():
                table.remove(key)
            return
        # Offsets are the only records of a group that never had members.
        self._groups.get_or_create_simple(key.group)
        committed = CommittedOffset(
            offset=value.offset,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            commit_timestamp=value.commit_timestamp,
            expire_timestamp=value.expire_timestamp,
            record_offset=offset,
        )
        if producer_id < 0:
            self._table.put(key, committed)
        else:
            self._pending.setdefault(producer_id, OffsetTable()).put(key, committed)

    def replay_end_marker(self, producer_id: int, *, committed: bool) -> None:
        """Commit or discard the offsets of a transaction."""
        pending = self._pending.pop(producer_id, None)
        if pending is None or not committed:
            return
        for key, offset in pending.items():
            present = self._table.get(key)
            # A later commit outside of the transaction takes precedence.
            if present is None or present.record_offset < offset.record_offset:
                self._table.put(key, offset)

    def group_ids(self) -> Iterable[str]:
        """Return the ids of all groups with offsets."""
        return self._table.by_group.keys()
