"""Producers of a compacted topic: one that is busy, and one that is idle for a long time.

Each batch of an idle producer has a single record, whose key other producers use often. Compaction
removes the record, and must keep the batch, because it is the last one of its producer. The
producer then often sends this batch again, as if it had not received the response. The broker may
have been killed in the meantime, and have lost the snapshots of its producers. Even if it has to
read the producer's last sequence number from the log, it must not append the batch a second time.

These producers continue after the work, together with the faults in compaction_faults.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plog.types import TopicPartition
from tests.sim.batches import Batch
from tests.sim.producers import IdempotentProducer

if TYPE_CHECKING:
    from tests.sim.world import World

_MAX_REST_MS = 5_000.0
"""Longer than it takes to roll a segment and to compact it."""
_SLEEP_MS = 10.0
_SENT_AGAIN = 0.7
"""How often the last batch is sent again."""


class BusyProducer(IdempotentProducer):
    """Writes to one partition of a compacted topic as long as compactions meet faults."""

    def is_working(self) -> bool:
        return self.world.compaction_faults.is_active


class IdleProducer(BusyProducer):
    """Like a busy producer, but rests before each new batch, which has a single record."""

    def __init__(self, world: World, name: str, topic: str, partition: int) -> None:
        super().__init__(world, name, topic, partition, is_single=True)
        self._topic_partition = TopicPartition(topic, partition)
        self._last: Batch | None = None
        self._last_offset = -1
        """The last batch, unless it has been sent again, and its offset."""

    async def _rest(self) -> None:
        """Wait until the last batch is compacted, but not forever; then perhaps send it again."""
        if self._last is None:
            return
        world = self.world
        end_ms = world.clock.monotonic_ms() + self.chance.uniform(0, _MAX_REST_MS)
        while self.is_working() and world.clock.monotonic_ms() < end_ms:
            if self._last_offset < world.compaction_faults.end_offset(self._topic_partition):
                world.compaction_faults.kill_and_lose_snapshots()
                break
            await world.sleep(_SLEEP_MS)
        if self.chance.random() < _SENT_AGAIN:
            self._again = self._last
        self._last = None

    def _note_acknowledged(self, batch: Batch, base_offset: int) -> None:
        self._last, self._last_offset = batch, base_offset
