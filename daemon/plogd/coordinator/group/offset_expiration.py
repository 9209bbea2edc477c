"""Forgetting offsets nobody needs: those of deleted topics, and those that have expired.

There may be millions in a shard, so each is gone through in slices: an operation of a few
milliseconds, the wait until its records are safe, and then a turn of the others. One such work at a
time in all shards. What is not forgotten when the broker stops expires one day.
"""

from __future__ import annotations

from collections import deque
from typing import Generic

from plog.errors import CoordinatorLoadInProgress, KafkaError, NotCoordinator
from plogd.coordinator.group.group_shard import G, GroupShard
from plogd.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from plogd.coordinator.runtime.shard_runtime import RuntimeContext, ShardRuntime
from plogd.metrics import Counter
from plogd.ports import Later, spawn


class OffsetExpiration(Generic[G]):
    """See the module's text. The counters hear how many offsets were forgotten."""

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
        """Shard, topic, the end of its log when the topic was deleted, and the groups in it."""
        self._is_at_it = False

    # -- deleted topics -----------------------------------------------------------------------

    def topic_deleted(self, topic: str) -> None:
        """What was committed in the topic is of no use any more."""
        for shard in self._runtime.shards.values():
            self._note_when_loaded(shard, topic)

    def _note_when_loaded(self, shard: ShardRuntime[GroupShard[G]], topic: str) -> None:
        shard.when_loaded(lambda: self._note(shard, topic))

    def _note(self, shard: ShardRuntime[GroupShard[G]], topic: str) -> None:
        try:
            offsets = shard.shard.offsets
        except KafkaError as error:
            self._report_left(shard, topic, error)
            return
        end_offset = shard.partition.log.log_end_offset
        groups = offsets.topic_deleted(topic, end_offset)
        self._deleted.append((shard, topic, end_offset, groups))
        if not self._is_at_it:
            self._is_at_it = True
            spawn(self._forget_deleted()).then(lambda _: None, self._failed)

    def _failed(self, error: Exception) -> None:
        self._is_at_it = False
        self._context.on_bug("forgetting offsets of a deleted topic", error)

    async def _forget_deleted(self) -> None:
        while self._deleted:
            shard, topic, end_offset, groups = self._deleted.popleft()
            try:
                await self._forget_topic(shard, topic, end_offset, groups)
            except KafkaError as error:
                self._report_left(shard, topic, error)
        self._is_at_it = False

    async def _forget_topic(
        self, shard: ShardRuntime[GroupShard[G]], topic: str, end_offset: int, groups: list[str]
    ) -> None:
        while groups:
            await self._turn()
            count = await shard.write(
                lambda state: state.forget_topic(topic, groups, end_offset), atomic=False
            )
            self._deletions.inc(count)
        shard.shard.offsets.topic_forgotten(topic, end_offset)

    def _report_left(
        self, shard: ShardRuntime[GroupShard[G]], topic: str, error: KafkaError
    ) -> None:
        self._context.report(
            "offsets committed in the deleted topic {topic} stay in {shard}: {error}",
            topic=topic,
            shard=str(shard),
            error=str(error),
            level="warn",
        )

    # -- expired offsets ----------------------------------------------------------------------

    async def forget_expired(self) -> None:
        """Of every shard that is loaded, one after the other."""
        for number in sorted(self._runtime.shards):
            try:
                await self._forget_expired(number)
            except (CoordinatorLoadInProgress, NotCoordinator):
                pass  # Who looks after it does so in its time.
            except KafkaError as error:
                self._context.report(
                    "expired offsets in {topic}-{number} stay for now: {error}",
                    topic=self._runtime.topic,
                    number=number,
                    error=error.message,
                    level="warn",
                )

    async def _forget_expired(self, number: int) -> None:
        groups = await self._runtime.read(number, lambda shard: list(shard.groups.group_ids()))
        while groups:
            await self._turn()
            count = await self._runtime.write(
                number, lambda shard: shard.forget_expired(groups), atomic=False
            )
            self._expirations.inc(count)

    def _turn(self) -> Later[None]:
        turn: Later[None] = Later()
        self._context.timers.call_later(0, lambda: turn.succeed(None))
        return turn
