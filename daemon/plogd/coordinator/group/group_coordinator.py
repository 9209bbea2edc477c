"""The group coordinator for request handlers: it routes each operation to the group's shard.

The hash of a group's id determines its partition of `__consumer_offsets`. The topic is created on
first use. While the broker runs, the coordinator ignores later changes to the topic's partition
count: with a different count, it would look for groups in the wrong partitions and fail to find
their committed offsets.

Called on the reactor thread. Source: Kafka 4.3 GroupCoordinatorService, AutoTopicCreationManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from plog.errors import (
    CoordinatorNotAvailable,
    InvalidCommitOffsetSize,
    InvalidGroupId,
    KafkaError,
    NotCoordinator,
    TopicAlreadyExists,
)
from plog.hashing import java_hash
from plog.types import Uuid
from plog.wire.internal import group_records
from plog.wire.messages.join_group import JoinGroupRequest
from plog.wire.messages.sync_group import SyncGroupRequest
from plogd.config import BrokerConfig
from plogd.coordinator.group.group_memory import GroupMemory
from plogd.coordinator.group.group_shard import G, GroupShard
from plogd.coordinator.group.offset_metadata_manager import (
    Fetched,
    OffsetCommit,
    OffsetMetadataManager,
    RequestedPartitions,
)
from plogd.coordinator.group.offset_removal import OffsetRemoval
from plogd.coordinator.runtime.coordinator_result import Result
from plogd.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from plogd.coordinator.runtime.shard import ShardKind
from plogd.coordinator.runtime.shard_runtime import RecordsTooLarge, RuntimeContext
from plogd.coordinator.runtime.shard_timers import ShardTimers
from plogd.metadata.cache import MetadataCache, TopicState
from plogd.metrics import Registry
from plogd.ports import Later, failed, spawn
from plogd.replica.partition import Partition

OFFSETS_TOPIC: Final = "__consumer_offsets"
T = TypeVar("T")

_REPORT_INTERVAL_MS: Final = 60_000.0


class TopicCreator(Protocol):
    """Creates the coordinator's topic; completes when it is usable, or fails on timeout."""

    def __call__(
        self, name: str, *, partitions: int, replication_factor: int, config: Mapping[str, str]
    ) -> Later[Any]:
        """Create the topic. Fails with the KafkaError that prevented it."""
        ...


def partition_for(group_id: str, partition_count: int) -> int:
    """Return the partition of a group.

    >>> partition_for("g", 50), partition_for("polygenelubricants", 50)
    (3, 0)
    """
    value = java_hash(group_id)
    # Integer.MIN_VALUE has no absolute value in Java: Kafka uses 0 instead.
    return 0 if value == -(1 << 31) else abs(value) % partition_count


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """The topic's id, and its partition count when this broker first loaded the topic."""

    topic_id: Uuid
    partition_count: int


class GroupCoordinator(Generic[G]):
    """Routes group operations to shards; `write` and `read` run operations on a shard."""

    def __init__(
        self,
        make_groups: Callable[[ShardTimers], G],
        context: RuntimeContext,
        *,
        cache: MetadataCache,
        create_topic: TopicCreator,
        brokers: Callable[[], int],
        metrics: Registry,
        memory: GroupMemory,
    ) -> None:
        self._make_groups = make_groups
        self._context = context
        self._cache = cache
        self._create_topic = create_topic
        self._brokers = brokers
        self._memory = memory
        self._layout: _Layout | None = None
        self._stopped = False
        self._may_report_ms = 0.0
        self.may_lower_replication = True
        """Whether the topic gets fewer replicas if there are fewer brokers. Kafka does not do this,
        but a single broker must be able to serve groups."""
        self.runtime: CoordinatorRuntime[GroupShard[G]] = CoordinatorRuntime(
            ShardKind(topic=OFFSETS_TOPIC, codec=group_records, make_shard=self._make_shard),
            context,
        )
        prefix = "kafka_server_group_coordinator_metrics_"
        self._commits = metrics.counter(f"{prefix}offset_commit_count", "Offsets committed.")
        self._deletions = metrics.counter(f"{prefix}offset_deletion_count", "Offsets deleted.")
        self._removal = OffsetRemoval(
            self.runtime,
            context,
            deletions=self._deletions,
            expirations=metrics.counter(f"{prefix}offset_expiration_count", "Offsets expired."),
        )

    def _make_shard(self, timers: ShardTimers) -> GroupShard[G]:
        groups = self._make_groups(timers)
        offsets = OffsetMetadataManager(
            groups, config=self._context.config, clock=self._context.ports.clock
        )
        return GroupShard(groups, offsets)

    @property
    def config(self) -> BrokerConfig:
        """The current settings."""
        return self._context.config()

    # -- life cycle of topics -----------------------------------------------------------------

    def topic_started(self, topic: TopicState) -> None:
        """Load the groups of `topic` if it is the offsets topic, which this broker now leads."""
        if topic.name == OFFSETS_TOPIC:
            self._note_layout(topic)
            self.runtime.topic_started(topic)

    def topic_stopped(self, topic: TopicState) -> None:
        """Delete the committed offsets for a deleted topic; unload a deleted offsets topic."""
        if topic.name == OFFSETS_TOPIC:
            self.runtime.topic_stopped()
            return
        self._removal.topic_deleted(topic.name)

    def partition_elected(self, partition: Partition) -> None:
        """Load the groups of a partition that this broker leads in a new leader epoch."""
        if partition.topic_partition.topic == OFFSETS_TOPIC:
            self.runtime.elected(partition)

    def partition_resigned(self, partition: Partition) -> None:
        """Unload the groups of a partition that this broker does not lead any more."""
        if partition.topic_partition.topic == OFFSETS_TOPIC:
            self.runtime.resigned(partition)

    def shutdown(self) -> Later[None]:
        """Unload all groups, because the broker is stopping; clients then find a new coordinator.

        Completes when all loads have ended.
        """
        self._stopped = True
        return self.runtime.shutdown()

    def _note_layout(self, topic: TopicState) -> None:
        # A recreated topic can have a different number of partitions.
        if self._layout is None or self._layout.topic_id != topic.topic_id:
            self._layout = _Layout(topic_id=topic.topic_id, partition_count=len(topic.partitions))

    # -- routing ------------------------------------------------------------------------------

    def partition_for(self, group_id: str) -> int:
        """Return the group's partition of `__consumer_offsets`; the topic may not exist yet."""
        topic = self._cache.topic(OFFSETS_TOPIC)
        if topic is not None:
            # In a cluster, this broker may not host any of its partitions.
            self._note_layout(topic)
        if topic is None or self._layout is None:
            return partition_for(group_id, self.config.offsets_topic_num_partitions)
        return partition_for(group_id, self._layout.partition_count)

    def ensure_topic(self) -> Later[None]:
        """Create the topic if it does not exist. Fails with CoordinatorNotAvailable."""
        return spawn(self._ensure_topic())

    async def _ensure_topic(self) -> None:
        if self._stopped:
            raise CoordinatorNotAvailable("the broker is stopping")
        if self._cache.topic(OFFSETS_TOPIC) is not None:
            return
        config = self.config
        factor, brokers = config.offsets_topic_replication_factor, self._brokers()
        if self.may_lower_replication:
            factor = min(factor, brokers)
        elif brokers < factor:
            raise self._too_few_brokers(factor, brokers)
        try:
            await self._create_topic(
                OFFSETS_TOPIC,
                partitions=config.offsets_topic_num_partitions,
                replication_factor=factor,
                # The settings with which Kafka creates this topic.
                config={
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(config.offsets_topic_segment_bytes),
                },
            )
        except TopicAlreadyExists:
            pass  # A concurrent request has created it.
        except KafkaError as error:
            raise CoordinatorNotAvailable(
                f"cannot create topic {OFFSETS_TOPIC}: {error.message}"
            ) from error

    def _too_few_brokers(self, factor: int, brokers: int) -> CoordinatorNotAvailable:
        """Return the error for groups that wait for more brokers, and log it once a minute."""
        text = (
            f"cannot create topic {OFFSETS_TOPIC}: offsets.topic.replication.factor is {factor},"
            f" but {brokers} brokers are registered; start {factor - brokers} more, or lower the"
            " setting"
        )
        ports = self._context.ports
        now_ms = ports.clock.monotonic_ms()
        if now_ms >= self._may_report_ms:
            self._may_report_ms = now_ms + _REPORT_INTERVAL_MS
            ports.report("{text}", text=text, level="warn")
        return CoordinatorNotAvailable(text)

    def find(self, group_id: str) -> Later[int]:
        """Return a group's partition; create the topic if necessary.

        Fails with CoordinatorNotAvailable.
        """
        return spawn(self._find(group_id))

    async def _find(self, group_id: str) -> int:
        await self._ensure_topic()
        number = self.partition_for(group_id)
        if self._context.replica_manager.is_offline(OFFSETS_TOPIC, number):
            raise CoordinatorNotAvailable(
                f"cannot use {OFFSETS_TOPIC}-{number}: its log directory is offline"
            )
        return number

    # -- operations ---------------------------------------------------------------------------

    def write(
        self,
        group_id: str,
        operation: Callable[[GroupShard[G]], Result[T]],
        *,
        atomic: bool = True,
    ) -> Later[T]:
        """Run `operation` on the group's shard and respond once its records are durable."""
        # Avoid a coroutine in the usual case: the topic is missing only before its first use.
        if self._cache.topic(OFFSETS_TOPIC) is not None:
            return self.runtime.write(self.partition_for(group_id), operation, atomic=atomic)
        return spawn(self._write_later(group_id, operation, atomic))

    async def _write_later(
        self, group_id: str, operation: Callable[[GroupShard[G]], Result[T]], atomic: bool
    ) -> T:
        await self._ensure_topic()
        number = self.partition_for(group_id)
        return await self.runtime.write(number, operation, atomic=atomic)

    def write_join(
        self, request: JoinGroupRequest, operation: Callable[[GroupShard[G]], Result[T]]
    ) -> Later[T]:
        """Run a JoinGroup; count its bytes until it runs, and its member's bytes from then on.

        Raises InvalidRequest, CoordinatorNotAvailable; see `GroupMemory`.
        """
        size_bytes = self._memory.check_join(request)
        release = self._memory.hold(request.group_id, size_bytes)

        # Release the bytes before the operation, which counts the member against the same bound.
        def run(shard: GroupShard[G]) -> Result[T]:
            release()
            return operation(shard)

        return _finally(self.write(request.group_id, run), release)

    def write_sync(
        self, request: SyncGroupRequest, operation: Callable[[GroupShard[G]], Result[T]]
    ) -> Later[T]:
        """Run a SyncGroup and count its bytes until it is answered.

        Raises InvalidRequest, CoordinatorNotAvailable; see `GroupMemory`.
        """
        size_bytes = self._memory.check_sync(request)
        release = self._memory.hold(request.group_id, size_bytes)
        return _finally(self.write(request.group_id, operation), release)

    def read(self, group_id: str, operation: Callable[[GroupShard[G]], T]) -> Later[T]:
        """Run a read on the group's shard and respond once the state it read is durable."""
        return self.write(group_id, lambda shard: Result(response=operation(shard)))

    def read_all(self, operation: Callable[[GroupShard[G]], T]) -> list[Later[T]]:
        """Run a read on every shard of this broker, in partition order."""
        shards = sorted(self.runtime.shards.items())
        return [shard.read(operation) for _, shard in shards]

    def commit_offsets(self, commit: OffsetCommit) -> Later[list[KafkaError | None]]:
        """Commit offsets; return an error or None for each. Fails if all of them are rejected."""

        def count(errors: list[KafkaError | None]) -> list[KafkaError | None]:
            self._commits.inc(errors.count(None))
            return errors

        # As in Kafka, a commit whose records do not fit in one batch fails with a specific error.
        written = self.write(commit.group_id, lambda shard: shard.offsets.commit(commit))
        return _mapped_error(written, RecordsTooLarge, InvalidCommitOffsetSize).map(count)

    def committed_partitions(self, group_id: str) -> Later[list[tuple[str, list[int]]]]:
        """Return the partitions for which a group has committed offsets, by topic."""
        found = self.read(group_id, lambda shard: shard.offsets.committed_partitions(group_id))
        # As in `fetch_offsets`, because this is the first half of an OffsetFetch of all partitions.
        return _mapped_error(found, CoordinatorNotAvailable, NotCoordinator)

    def fetch_offsets(
        self, group_id: str, requested: RequestedPartitions, *, require_stable: bool
    ) -> Later[Fetched]:
        """Return the committed offsets for the requested partitions."""
        fetched = self.read(
            group_id,
            lambda shard: shard.offsets.fetch(group_id, requested, require_stable=require_stable),
        )
        # Clients before 3.9 do not retry after COORDINATOR_NOT_AVAILABLE.
        return _mapped_error(fetched, CoordinatorNotAvailable, NotCoordinator)

    def delete_offsets(
        self, group_id: str, partitions: Sequence[tuple[str, int]]
    ) -> Later[list[KafkaError | None]]:
        """Delete offsets; return an error or None for each. Fails if all of them are rejected."""
        # As in Kafka, old clients can commit offsets under the empty group id, but not delete them.
        if not group_id:
            return failed(InvalidGroupId("the group id is empty"))

        def delete(shard: GroupShard[G]) -> Result[tuple[list[KafkaError | None], int]]:
            result = shard.offsets.delete(group_id, partitions)
            assert not isinstance(result.response, Later)
            return Result(records=result.records, response=(result.response, len(result.records)))

        def count(outcome: tuple[list[KafkaError | None], int]) -> list[KafkaError | None]:
            errors, deleted = outcome
            self._deletions.inc(deleted)
            return errors

        return self.write(group_id, delete).map(count)

    def delete_group(self, group_id: str) -> Later[None]:
        """Delete a group and its offsets. Fails if it has members or does not exist."""
        return spawn(self._delete_group(group_id))

    async def _delete_group(self, group_id: str) -> None:
        is_deleted = False
        while not is_deleted:
            # Each slice checks for members again, because a client can join between two slices. The
            # write need not be atomic, because each tombstone is valid by itself.
            count, is_deleted = await self.write(
                group_id, lambda shard: shard.delete_group(group_id), atomic=False
            )
            self._deletions.inc(count)

    # -- periodic tasks -----------------------------------------------------------------------

    def clean_up(self) -> Later[None]:
        """Remove expired offsets, and groups without members or offsets, from every shard."""
        return spawn(self._removal.expire_offsets())


def _finally(later: Later[T], function: Callable[[], None]) -> Later[T]:
    """Return a Later with the outcome of `later`; call `function` before it is delivered."""
    result: Later[T] = Later(later.cancel)

    def on_value(value: T) -> None:
        function()
        result.succeed(value)

    def on_error(error: Exception) -> None:
        function()
        result.fail(error)

    later.then(on_value, on_error)
    return result


def _mapped_error(
    later: Later[T], raised: type[KafkaError], reported: Callable[[str], KafkaError]
) -> Later[T]:
    """Return a Later with the outcome of `later`, replacing the error `raised` with `reported`."""
    mapped: Later[T] = Later(later.cancel)

    def on_error(error: Exception) -> None:
        mapped.fail(reported(error.message) if isinstance(error, raised) else error)

    later.then(mapped.succeed, on_error)
    return mapped
