"""Scans that remove committed offsets for deleted topics, and expired offsets.

A shard can hold millions of offsets, so it is scanned in slices. Each slice is an operation of a
few milliseconds, followed by a wait until its records are durable, during which other requests can
run. Only one scan of each kind runs at a time, across all shards. Offsets of deleted topics that
remain when the broker stops expire later.

offset_expiration.py decides which offsets have expired; group_shard.py removes a slice of them.
"""

from __future__ import annotations

from collections import deque
from typing import Generic

from plog.errors import CoordinatorLoadInProgress, KafkaError, NotCoordinator
from plog.types import TopicPartition
from plogd.coordinator.group.group_shard import G, GroupShard
from plogd.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from plogd.coordinator.runtime.shard_runtime import RuntimeContext, ShardRuntime
from plogd.metrics import Counter
from plogd.ports import Later, spawn


class OffsetRemoval(Generic[G]):
    """Removes offsets from all shards of a broker and counts them."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard[G]],
        context: RuntimeContext,
        *,
        deletions: Counter,
        expirations: Counter,
    ) -> None:
        self._runtime = runtime
        self._context = context
        self._deletions = deletions
        self._expirations = expirations
        self._deleted: deque[tuple[ShardRuntime[GroupShard[G]], str, int, list[str]]] = deque()
        """Each entry: shard, topic, the shard's log end offset when the topic was deleted, and the
        groups with offsets."""
        self._is_running = False

    # -- deleted topics -----------------------------------------------------------------------

    def topic_deleted(self, topic: str) -> None:
        """Delete all committed offsets for `topic`, in the background."""
        for shard in self._runtime.shards.values():
            self._enqueue_when_loaded(shard, topic)

    def _enqueue_when_loaded(self, shard: ShardRuntime[GroupShard[G]], topic: str) -> None:
        # A shard that is still loading may replay more offsets for the topic.
        shard.when_loaded(lambda: self._enqueue(shard, topic))

    def _enqueue(self, shard: ShardRuntime[GroupShard[G]], topic: str) -> None:
        try:
            offsets = shard.shard.offsets
        except KafkaError as error:
            self._report_left(shard, topic, error)
            return
        # Records appended from now on may belong to a recreated topic with the same name.
        end_offset = shard.partition.log.log_end_offset
        groups = offsets.topic_deleted(topic, end_offset)
        self._deleted.append((shard, topic, end_offset, groups))
        if not self._is_running:
            self._is_running = True
            spawn(self._delete_queued()).then(lambda _: None, self._on_bug)

    def _on_bug(self, error: Exception) -> None:
        self._is_running = False  # Otherwise, no later deletion would start.
        self._context.on_bug("deleting the offsets of a deleted topic", error)

    async def _delete_queued(self) -> None:
        while self._deleted:
            shard, topic, end_offset, groups = self._deleted.popleft()
            try:
                await self._delete_topic_offsets(shard, topic, end_offset, groups)
            except KafkaError as error:
                self._report_left(shard, topic, error)
        self._is_running = False

    async def _delete_topic_offsets(
        self, shard: ShardRuntime[GroupShard[G]], topic: str, end_offset: int, groups: list[str]
    ) -> None:
        while groups:
            await self._turn()
            # A slice can be split into several batches, because each tombstone is valid by itself.
            count = await shard.write(
                lambda state: state.delete_topic_offsets(topic, groups, end_offset), atomic=False
            )
            self._deletions.inc(count)
        shard.shard.offsets.topic_offsets_deleted(topic, end_offset)

    def _report_left(
        self, shard: ShardRuntime[GroupShard[G]], topic: str, error: KafkaError
    ) -> None:
        self._context.ports.report(
            "cannot delete the offsets of deleted topic {topic} from {shard}: {error}",
            topic=topic,
            shard=str(shard),
            error=str(error),
            level="warn",
        )

    # -- expired offsets ----------------------------------------------------------------------

    async def expire_offsets(self) -> None:
        """Remove expired offsets from all loaded shards, one shard at a time."""
        # A sorted copy, because shards can be added and removed during the waits.
        for number in sorted(self._runtime.shards):
            try:
                await self._expire_shard_offsets(number)
            except (CoordinatorLoadInProgress, NotCoordinator):
                pass  # The next run, or the new coordinator, expires them.
            except KafkaError as error:
                self._context.ports.report(
                    "cannot remove expired offsets from {topic_partition}: {error}; will retry",
                    topic_partition=TopicPartition(self._runtime.topic, number),
                    error=error.message,
                    level="warn",
                )

    async def _expire_shard_offsets(self, number: int) -> None:
        groups = await self._runtime.read(number, lambda shard: list(shard.groups.group_ids()))
        while groups:
            await self._turn()
            count = await self._runtime.write(
                number, lambda shard: shard.expire_offsets(groups), atomic=False
            )
            self._expirations.inc(count)

    def _turn(self) -> Later[None]:
        turn: Later[None] = Later()
        self._context.ports.timers.call_later(0, lambda: turn.succeed(None))
        return turn
