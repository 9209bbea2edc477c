"""The committed offsets of one shard: how far each group has come in each partition.

Operations here return records; `replay` alone changes what is committed, at run time as at load.
Offsets committed in a transaction, which a log taken over from Kafka may hold, wait beside the
others until its marker says whether they count.

What expires (KIP-211): nothing of a group with members, but for topics they consume no longer. Else
the clock runs from the moment the last member left, or from the commit itself where the group never
had members or that moment was not written down. Requests of versions 2 to 4 may say themselves how
long to keep their offsets.

What a group allows is group.py's knowledge; which topics exist was checked before.
Source: Kafka 4.3 OffsetMetadataManager, ClassicGroup.offsetExpirationCondition.
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
from plogd.coordinator.group.offset_table import CommittedOffset, OffsetsByTopic, OffsetTable
from plogd.coordinator.runtime.coordinator_result import CoordinatorRecord, Result
from plogd.ports import Clock

NO_OFFSET: Final = -1
DEFAULT_RETENTION: Final = -1
_STABLE = "Stable"
_FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND = 9


class OffsetToCommit(NamedTuple):
    """An offset a client wants to keep; leader epoch -1 if it does not know it."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    """A request to keep offsets. Generation -1 comes from who is in no group."""

    group_id: str
    offsets: Sequence[OffsetToCommit]
    version: int
    member_id: str = ""
    group_instance_id: str | None = None
    generation_id: int = -1
    retention_time_ms: int = DEFAULT_RETENTION


class FetchedOffset(NamedTuple):
    """What a client is told of a partition; the offset is -1 if there is none, or an error."""

    partition: int
    offset: int = NO_OFFSET
    leader_epoch: int = -1
    metadata: str = ""
    error: KafkaError | None = None


Asked = Sequence[tuple[str, Sequence[int]]]
"""Partitions by topic."""
Fetched = list[tuple[str, list[FetchedOffset]]]
"""The same, with what is committed."""


class OffsetMetadataManager:
    """See the module's text."""

    def __init__(
        self, groups: GroupsPort, *, config: Callable[[], BrokerConfig], clock: Clock
    ) -> None:
        self._groups = groups
        self._config = config
        self._clock = clock
        self._table = OffsetTable()
        self._pending: dict[int, OffsetTable] = {}
        """Committed in transactions that have not ended, by producer id."""
        self._deleted_topics: dict[str, int] = {}
        """Topics whose offsets are being forgotten: those recorded before this place in the log."""

    def __len__(self) -> int:
        return self._table.count

    # -- commit -------------------------------------------------------------------------------

    def commit(self, commit: OffsetCommit) -> Result[list[KafkaError | None]]:
        """Keep the offsets; the response has an error, or None, for each of them in order.

        Raises what the group says to this member, GroupIdNotFound, IllegalGeneration.
        """
        self._validate_commit(commit)
        now_ms = self._clock.now_ms()
        expire_timestamp = NO_TIMESTAMP
        if commit.retention_time_ms != DEFAULT_RETENTION:
            expire_timestamp = min(now_ms + commit.retention_time_ms, LONG_MAX)
        records: list[CoordinatorRecord] = []
        errors: list[KafkaError | None] = []
        for one in commit.offsets:
            error = self._problem_of_metadata(one.metadata)
            errors.append(error)
            if error is None:
                key = OffsetCommitKey(
                    group=commit.group_id, topic=one.topic, partition=one.partition
                )
                value = OffsetCommitValue(
                    offset=one.offset,
                    leader_epoch=max(one.leader_epoch, -1),
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
            problem = f"there is no group {commit.group_id}: join it again"
            if commit.version >= _FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND:
                raise GroupIdNotFound(problem)
            raise IllegalGeneration(problem)

    def _problem_of_metadata(self, metadata: str | None) -> KafkaError | None:
        if metadata is None:
            return None
        limit = self._config().offset_metadata_max_bytes
        # Kafka counts as Java does, in units of UTF-16.
        if len(metadata) * 2 > limit and len(metadata.encode("utf-16-le")) // 2 > limit:
            return OffsetMetadataTooLarge(
                f"{len(metadata)} characters of metadata, offset.metadata.max.bytes is {limit}"
            )
        return None

    # -- fetch --------------------------------------------------------------------------------

    def committed_partitions(self, group_id: str) -> list[tuple[str, list[int]]]:
        """The partitions that the group has offsets of, by topic."""
        return [(topic, list(numbers)) for topic, numbers in self._of_group(group_id).items()]

    def _of_group(self, group_id: str) -> OffsetsByTopic:
        if self._groups.group(group_id) is None:
            return {}
        return self._without_deleted(self._table.by_group.get(group_id, {}))

    def fetch(self, group_id: str, asked: Asked, *, require_stable: bool) -> Fetched:
        """What is committed in the partitions `asked` for."""
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
            for topic, partitions in asked
        ]

    def _without_deleted(self, topics: OffsetsByTopic) -> OffsetsByTopic:
        if self._deleted_topics.keys().isdisjoint(topics):
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
        """Partitions a transaction has committed offsets of that has not ended."""
        return frozenset(
            (key.topic, key.partition)
            for table in self._pending.values()
            for key in table.keys(group_id)
        )

    # -- delete -------------------------------------------------------------------------------

    def delete(
        self, group_id: str, partitions: Sequence[tuple[str, int]]
    ) -> Result[list[KafkaError | None]]:
        """Forget offsets; the response has an error, or None, for each partition in order.

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
                    GroupSubscribedToTopic(f"members of group {group_id} consume {topic}")
                )
                continue
            errors.append(None)
            key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
            if self._table.get(key) is not None or (topic, partition) in unstable:
                records.append(CoordinatorRecord(key, None))
        return Result(records=records, response=errors)

    def tombstones_of(self, group_id: str) -> Iterator[CoordinatorRecord]:
        """The records that remove every offset of a group."""
        seen: set[tuple[str, int]] = set()
        for table in (self._table, *self._pending.values()):
            for key in table.keys(group_id):
                if (key.topic, key.partition) not in seen:
                    seen.add((key.topic, key.partition))
                    yield CoordinatorRecord(key, None)

    def topic_deleted(self, topic: str, end_offset: int) -> list[str]:
        """Nobody is told of offsets in `topic` any more that were recorded before `end_offset`.

        A topic of the same name may come at once, and be committed to. The groups that have some:
        `tombstones_of_topic` forgets them group by group, then `topic_forgotten` is called.
        """
        self._deleted_topics[topic] = end_offset
        tables = (self._table, *self._pending.values())
        groups = (group for table in tables for group, x in table.by_group.items() if topic in x)
        return list(dict.fromkeys(groups))

    def tombstones_of_topic(
        self, topic: str, group_id: str, end_offset: int
    ) -> Iterator[CoordinatorRecord]:
        """The records that forget a group's offsets in a topic, of those before `end_offset`."""
        newest: dict[int, int] = {}
        for table in (self._table, *self._pending.values()):
            for number, committed in table.by_group.get(group_id, {}).get(topic, {}).items():
                newest[number] = max(newest.get(number, -1), committed.record_offset)
        for number, record_offset in newest.items():
            if record_offset < end_offset:
                key = OffsetCommitKey(group=group_id, topic=topic, partition=number)
                yield CoordinatorRecord(key, None)

    def topic_forgotten(self, topic: str, end_offset: int) -> None:
        """All are forgotten, unless the topic was deleted again meanwhile."""
        if self._deleted_topics.get(topic) == end_offset:
            del self._deleted_topics[topic]

    # -- expiry -------------------------------------------------------------------------------

    def expired(
        self, group_id: str, group: GroupPort, at_most: int
    ) -> tuple[list[CoordinatorRecord], bool]:
        """Tombstones of what has expired, and whether nothing is left of the group then."""
        clock_of = _expiry_clock(group)
        topics = self._table.by_group.get(group_id, {})
        unstable = self._unstable(group_id)
        records: list[CoordinatorRecord] = []
        is_all = not unstable
        now_ms = self._clock.now_ms()
        retention_ms = self._config().offsets_retention_minutes * MINUTE_MS
        for topic, partitions in topics.items():
            if clock_of is None or group.is_subscribed_to(topic):
                is_all = False
                continue
            for partition, committed in partitions.items():
                due_ms = clock_of(committed) + retention_ms
                if committed.expire_timestamp != NO_TIMESTAMP:
                    due_ms = committed.expire_timestamp
                if now_ms < due_ms or (topic, partition) in unstable:
                    is_all = False
                    continue
                if len(records) == at_most:
                    return records, False
                key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
                records.append(CoordinatorRecord(key, None))
        return records, is_all

    def count_of(self, group_id: str) -> int:
        """How many offsets a group has."""
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
        """What the record at `offset` says is so from now on."""
        if value is None:
            self._table.remove(key)
            for table in self._pending.values():
                table.remove(key)
            return
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
        """The offsets of a transaction count from now on, or never."""
        pending = self._pending.pop(producer_id, None)
        if pending is None or not committed:
            return
        for key, offset in pending.items():
            present = self._table.get(key)
            # A later commit outside of the transaction has the last word.
            if present is None or present.record_offset < offset.record_offset:
                self._table.put(key, offset)

    def group_ids(self) -> Iterable[str]:
        """Every group that has offsets."""
        return self._table.by_group.keys()


def _expiry_clock(group: GroupPort) -> Callable[[CommittedOffset], int] | None:
    """From when on retention counts; None where nothing expires."""
    if group.protocol_type is not None:
        if group.is_empty:
            since = group.empty_since
            return _since_commit if since is None else lambda _: since
        knows_topics = group.uses_consumer_protocol and group.subscribed_topics is not None
        if not knows_topics or group.state.value != _STABLE:
            return None
    return _since_commit


def _since_commit(committed: CommittedOffset) -> int:
    return committed.commit_timestamp
