"""The group coordinator as request handlers see it: which partition a group lives in, and the way
to its shard.

A group lives in the partition of `__consumer_offsets` that the hash of its id gives. The topic is
made when it is first needed. Its number of partitions is fixed while the broker runs: with another
number groups would be looked for where they are not, and a client would hear that nothing was ever
committed.

Called on the reactor's thread. Source: Kafka 4.3 GroupCoordinatorService, AutoTopicCreationManager.
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
from plogd.coordinator.group.offset_expiration import OffsetExpiration
from plogd.coordinator.group.offset_metadata_manager import (
    Asked,
    Fetched,
    OffsetCommit,
    OffsetMetadataManager,
)
from plogd.coordinator.runtime.coordinator_result import Result
from plogd.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from plogd.coordinator.runtime.shard import ShardKind
from plogd.coordinator.runtime.shard_runtime import RecordsTooLarge, RuntimeContext
from plogd.coordinator.runtime.shard_timers import ShardTimers
from plogd.metadata.cache import MetadataCache, TopicState
from plogd.metrics import Registry
from plogd.ports import Later, failed, spawn

OFFSETS_TOPIC: Final = "__consumer_offsets"
T = TypeVar("T")


class TopicMaker(Protocol):
    """Creates the coordinator's topic; done when it can be used, or failed after a while."""

    def __call__(
        self, name: str, *, partitions: int, replication_factor: int, config: Mapping[str, str]
    ) -> Later[Any]:
        """Fails with the KafkaError creation gives."""
        ...


def partition_for(group_id: str, partition_count: int) -> int:
    """The partition a group lives in.

    >>> partition_for("g", 50), partition_for("polygenelubricants", 50)
    (3, 0)
    """
    value = java_hash(group_id)
    # The smallest int has no absolute value in Java: Kafka takes 0 for it.
    return 0 if value == -(1 << 31) else abs(value) % partition_count


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """How the topic was when it was first seen."""

    topic_id: Uuid
    partition_count: int


class GroupCoordinator(Generic[G]):
    """See the module's text. `write` and `read` are the way to a shard's operations."""

    def __init__(
        self,
        make_groups: Callable[[ShardTimers], G],
        context: RuntimeContext,
        *,
        cache: MetadataCache,
        make_topic: TopicMaker,
        brokers: Callable[[], int],
        metrics: Registry,
        memory: GroupMemory,
    ) -> None:
        self._make_groups = make_groups
        self._context = context
        self._cache = cache
        self._make_topic = make_topic
        self._brokers = brokers
        self._memory = memory
        self._layout: _Layout | None = None
        self._stopped = False
        self.runtime: CoordinatorRuntime[GroupShard[G]] = CoordinatorRuntime(
            ShardKind(topic=OFFSETS_TOPIC, codec=group_records, make_shard=self._make_shard),
            context,
        )
        prefix = "kafka_server_group_coordinator_metrics_"
        self._commits = metrics.counter(f"{prefix}offset_commit_count", "Offsets committed.")
        self._deletions = metrics.counter(f"{prefix}offset_deletion_count", "Offsets deleted.")
        self._forgetting = OffsetExpiration(
            self.runtime,
            context,
            deletions=self._deletions,
            expirations=metrics.counter(f"{prefix}offset_expiration_count", "Offsets expired."),
        )

    def _make_shard(self, timers: ShardTimers) -> GroupShard[G]:
        groups = self._make_groups(timers)
        offsets = OffsetMetadataManager(
            groups, config=self._context.config, clock=self._context.clock
        )
        return GroupShard(groups, offsets)

    @property
    def config(self) -> BrokerConfig:
        """The settings as they are now."""
        return self._context.config()

    # -- topics come and go -------------------------------------------------------------------

    def topic_started(self, topic: TopicState) -> None:
        """This broker leads partitions of `topic` from now on."""
        if topic.name == OFFSETS_TOPIC:
            self._note_layout(topic)
            self.runtime.topic_started(topic)

    def topic_stopped(self, topic: TopicState) -> None:
        """A topic was deleted: what was committed in it is of no use any more."""
        if topic.name == OFFSETS_TOPIC:
            self.runtime.topic_stopped()
            return
        self._forgetting.topic_deleted(topic.name)

    def shutdown(self) -> Later[None]:
        """The broker stops: whoever waits for a group is told to look for another coordinator.

        Done when no group is being loaded any more.
        """
        self._stopped = True
        return self.runtime.shutdown()

    def _note_layout(self, topic: TopicState) -> None:
        if self._layout is None or self._layout.topic_id != topic.topic_id:
            self._layout = _Layout(topic_id=topic.topic_id, partition_count=len(topic.partitions))

    # -- where a group lives ------------------------------------------------------------------

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` a group lives in, or will live in."""
        topic = self._cache.topic(OFFSETS_TOPIC)
        if topic is None or self._layout is None:
            return partition_for(group_id, self.config.offsets_topic_num_partitions)
        return partition_for(group_id, self._layout.partition_count)

    def ensure_topic(self) -> Later[None]:
        """Make the topic if it is not there. Fails with CoordinatorNotAvailable."""
        return spawn(self._ensure_topic())

    async def _ensure_topic(self) -> None:
        if self._stopped:
            raise CoordinatorNotAvailable("the broker is stopping")
        if self._cache.topic(OFFSETS_TOPIC) is not None:
            return
        config = self.config
        try:
            await self._make_topic(
                OFFSETS_TOPIC,
                partitions=config.offsets_topic_num_partitions,
                replication_factor=min(config.offsets_topic_replication_factor, self._brokers()),
                config={
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(config.offsets_topic_segment_bytes),
                },
            )
        except TopicAlreadyExists:
            pass  # Somebody else was faster.
        except KafkaError as error:
            raise CoordinatorNotAvailable(
                f"{OFFSETS_TOPIC} cannot be created: {error.message}"
            ) from error

    def find(self, group_id: str) -> Later[int]:
        """The partition of a group, once there is one that can be used.

        Fails with CoordinatorNotAvailable.
        """
        return spawn(self._find(group_id))

    async def _find(self, group_id: str) -> int:
        await self._ensure_topic()
        number = self.partition_for(group_id)
        if self._context.replica_manager.is_offline(OFFSETS_TOPIC, number):
            raise CoordinatorNotAvailable(
                f"the log directory of {OFFSETS_TOPIC}-{number} is offline"
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
        """Run `operation` on the group's shard; its answer, once its records are safe."""
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
        """As `write`, for a JoinGroup: its bytes count until it runs, then those of the member.

        Raises InvalidRequest, CoordinatorNotAvailable; see `GroupMemory`.
        """
        size_bytes = self._memory.check_join(request)
        release = self._memory.hold(request.group_id, size_bytes)

        def run(shard: GroupShard[G]) -> Result[T]:
            release()
            return operation(shard)

        return _finally(self.write(request.group_id, run), release)

    def write_sync(
        self, request: SyncGroupRequest, operation: Callable[[GroupShard[G]], Result[T]]
    ) -> Later[T]:
        """As `write`, for a SyncGroup: its bytes count until it is answered.

        Raises InvalidRequest, CoordinatorNotAvailable; see `GroupMemory`.
        """
        size_bytes = self._memory.check_sync(request)
        release = self._memory.hold(request.group_id, size_bytes)
        return _finally(self.write(request.group_id, operation), release)

    def read(self, group_id: str, operation: Callable[[GroupShard[G]], T]) -> Later[T]:
        """What `operation` returns of the group's shard, once all it could see is safe."""
        return self.write(group_id, lambda shard: Result(response=operation(shard)))

    def read_all(self, operation: Callable[[GroupShard[G]], T]) -> list[Later[T]]:
        """The same of every shard here, in the order of their partitions."""
        shards = sorted(self.runtime.shards.items())
        return [shard.read(operation) for _, shard in shards]

    def commit_offsets(self, commit: OffsetCommit) -> Later[list[KafkaError | None]]:
        """Keep offsets; an error or None for each. Fails with what refuses all of them."""

        def count(errors: list[KafkaError | None]) -> list[KafkaError | None]:
            self._commits.inc(errors.count(None))
            return errors

        written = self.write(commit.group_id, lambda shard: shard.offsets.commit(commit))
        return _mapped_error(written, RecordsTooLarge, InvalidCommitOffsetSize).map(count)

    def committed_partitions(self, group_id: str) -> Later[list[tuple[str, list[int]]]]:
        """The partitions that a group has offsets of, by topic."""
        found = self.read(group_id, lambda shard: shard.offsets.committed_partitions(group_id))
        return _mapped_error(found, CoordinatorNotAvailable, NotCoordinator)

    def fetch_offsets(self, group_id: str, asked: Asked, *, require_stable: bool) -> Later[Fetched]:
        """What is committed in the partitions asked for."""
        fetched = self.read(
            group_id,
            lambda shard: shard.offsets.fetch(group_id, asked, require_stable=require_stable),
        )
        # Clients before 3.9 do not try again after COORDINATOR_NOT_AVAILABLE.
        return _mapped_error(fetched, CoordinatorNotAvailable, NotCoordinator)

    def delete_offsets(
        self, group_id: str, partitions: Sequence[tuple[str, int]]
    ) -> Later[list[KafkaError | None]]:
        """Forget offsets; an error or None for each. Fails with what refuses all of them."""
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
        """Delete a group without members, and its offsets. Fails with what keeps it."""
        return spawn(self._delete_group(group_id))

    async def _delete_group(self, group_id: str) -> None:
        is_deleted = False
        while not is_deleted:
            count, is_deleted = await self.write(
                group_id, lambda shard: shard.delete_group(group_id), atomic=False
            )
            self._deletions.inc(count)

    # -- what happens by itself ---------------------------------------------------------------

    def clean_up(self) -> Later[None]:
        """Forget expired offsets, and groups that have nothing left, in every shard."""
        return spawn(self._forgetting.forget_expired())


def _finally(later: Later[T], function: Callable[[], None]) -> Later[T]:
    """The same outcome; `function` is called before it is delivered, or when it is canceled."""
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
    later: Later[T], raised: type[KafkaError], told: Callable[[str], KafkaError]
) -> Later[T]:
    """The same, but where it fails with `raised` the client is told another code."""
    mapped: Later[T] = Later(later.cancel)

    def on_error(error: Exception) -> None:
        mapped.fail(told(error.message) if isinstance(error, raised) else error)

    later.then(mapped.succeed, on_error)
    return mapped
