"""An actor that replicates a partition: it appends as a follower, and truncates.

The actor is both the leader of the partition and the follower's fetcher. It appends batches that
only it knows, and it sometimes truncates the log, as a follower does whose new leader has other
records. What the follower has reported as durable must survive each crash, unless a truncation
below it has begun. Clients do not use the topic: a high watermark would not fall in a real cluster.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from plog.records.batch import iter_batches, set_base_offset_and_epoch
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.reader import read_records
from plogd.log.log import Log
from tests.sim.admins import TopicPlan
from tests.sim.checker import Anomaly
from tests.sim.inside import CallFailed, Inside, LifeEnded, inside

if TYPE_CHECKING:
    from tests.sim.world import World

_READ_BYTES = 1 << 20
_PATIENCE = 60


Action: TypeAlias = Callable[[Inside], Awaitable[None]]


class Replicated(NamedTuple):
    """A record of the leader, and the batch that contains it."""

    base_offset: int
    leader_epoch: int
    value: bytes


class Follower:
    """Writes to partition 0 of `plan`'s topic, and checks that it keeps what it has."""

    def __init__(self, world: World, plan: TopicPlan, chance: random.Random) -> None:
        self.name = "follower"
        self._world = world
        self._plan = plan
        self._chance = chance
        self._records: list[Replicated] = []
        """All records that may be in the log, by offset."""
        self._durable_end_offset = 0
        self._life_number = 0
        self._must_truncate_to: int | None = None
        """The offset of a truncation that has begun and is not known to be complete."""
        self._number = 0

    async def run(self) -> None:
        """Append and truncate until the world reports that the work is finished."""
        while self._world.working:
            await self._visit(self._act)
        self._world.count("replicated records", self._number)

    async def check(self) -> None:
        """Check the log at the end of the run, if it was ever created. Raises Anomaly."""
        if not self._records:
            return
        for _ in range(_PATIENCE):
            if await self._visit(self._compare):
                return
        raise Anomaly("stuck", f"the log of {self._plan.name} could not be read")

    async def _visit(self, action: Action) -> bool:
        """Call `action` if the broker is serving; return whether it has succeeded."""
        site = await inside(self._world, self._plan.name, self._chance)
        if site is None:
            return False
        try:
            if site.life_number != self._life_number:
                await self._begin_life(site)
            await action(site)
        except (LifeEnded, CallFailed):
            return False
        return True

    # -- actions ------------------------------------------------------------------------------

    async def _act(self, site: Inside) -> None:
        chance, log = self._chance, site.log
        if self._must_truncate_to is not None or chance.random() < 0.2:
            await self._truncate(site)
        else:
            await self._append(site)
        if chance.random() < 0.5:  # Otherwise, the next action happens during the sync.
            await site.wait_until(lambda: log.durable_end_offset >= log.log_end_offset)
        self._durable_end_offset = log.durable_end_offset

    async def _append(self, site: Inside) -> None:
        chance, log = self._chance, site.log
        data = bytearray()
        for _ in range(chance.choice((1, 1, 3))):
            values = []
            for _ in range(chance.choice((1, 2, 5))):
                self._number += 1
                values.append(b"%d%s" % (self._number, b"." * chance.choice((0, 50, 150))))
            records = [Record(timestamp=self._world.clock.now_ms(), value=one) for one in values]
            batch = bytearray(build_batch(records))
            base_offset = len(self._records)
            set_base_offset_and_epoch(batch, 0, base_offset, site.leader_epoch)
            self._records += [Replicated(base_offset, site.leader_epoch, one) for one in values]
            data += batch
        now_ms = self._world.clock.now_ms()
        try:
            await site.call(
                lambda: log.append_as_follower(
                    memoryview(data), leader_epoch=site.leader_epoch, now_ms=now_ms
                )
            )
        finally:
            if site.is_usable:
                await site.wait_until(lambda: not log.is_being_written)
            # A failed append leaves the batches before the one that failed. If the process has
            # ended or the directory is offline, what is on disk is unknown.
            if site.is_usable:
                del self._records[log.log_end_offset :]

    async def _truncate(self, site: Inside) -> None:
        """Truncate the log; a truncation that fails is repeated, because it must be completed."""
        chance, log = self._chance, site.log
        offset = self._must_truncate_to
        if offset is None:
            offset = max(log.log_start_offset, len(self._records) - chance.choice((1, 3, 10, 40)))
        self._must_truncate_to = offset
        if offset < len(self._records):  # The batch that contains it is removed.
            base_offset = self._records[offset].base_offset
            self._durable_end_offset = min(self._durable_end_offset, base_offset)
        with self._world.truncating(log):
            await site.call(lambda: log.truncate_to(offset))
        if log.log_end_offset > offset:
            raise Anomaly("lost-truncation", f"truncated to {offset}: ends at {log.log_end_offset}")
        self._must_truncate_to = None
        del self._records[log.log_end_offset :]
        self._world.count("truncations")
        await self._compare(site)

    # -- checks -------------------------------------------------------------------------------

    async def _begin_life(self, site: Inside) -> None:
        await self._compare(site)
        self._life_number = site.life_number
        self._must_truncate_to = None

    async def _compare(self, site: Inside) -> None:
        """Check the log's content, and forget the records that a crash has removed."""
        log = site.log
        await site.wait_until(lambda: not log.is_being_written)
        found = await site.call(lambda: _read(log))
        end_offset = log.log_start_offset + len(found)
        if end_offset < self._durable_end_offset or end_offset != log.log_end_offset:
            raise Anomaly(
                "lost-write",
                f"{log.topic_partition} ends at {log.log_end_offset} and contains records up to"
                f" {end_offset}, had been durable up to {self._durable_end_offset}",
            )
        expected = self._records[log.log_start_offset : end_offset]
        for offset, (one, other) in enumerate(zip(found, expected, strict=False)):
            if one != other:
                what = f"{log.topic_partition} offset {offset}: {one}, not {other}"
                raise Anomaly("inconsistent-offsets", what)
        if len(found) > len(expected):
            raise Anomaly("phantom-read", f"{log.topic_partition}: {found[len(expected) :]}")
        del self._records[end_offset:]


def _read(log: Log) -> list[Replicated]:
    """Return all records, from the log start offset to the log end offset."""
    offset, found = log.log_start_offset, list[Replicated]()
    while offset < log.log_end_offset:
        data = log.read(offset, _READ_BYTES, end_offset=log.log_end_offset)
        if data.region is None:
            break
        payload = data.region.read()
        data.region.close()
        for position, header in iter_batches(payload):
            found += [
                Replicated(header.base_offset, header.partition_leader_epoch, record.value or b"")
                for record in read_records(payload, position, header)
                if record.offset >= offset
            ]
            offset = header.next_offset
    return found
