"""An actor that writes transactions to a compacted topic, as producers and their coordinator do.

Clients cannot: the broker rejects transactional batches until it has a transaction coordinator. The
actor therefore appends batches and markers to the log itself (inside.py). It keeps a few
transactions open at a time, so that some remain open while the log is compacted.

A transaction is committed only if all of its batches are known to be durable. The decision is final
as soon as its marker is sent, and the marker is sent again until it is durable.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plog.records.batch import Compression
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.control import ControlType
from plogd.log.batch_validator import AppendOrigin
from tests.helpers.log.log_data import marker_batch
from tests.sim.admins import TopicPlan
from tests.sim.batches import random_key, with_tombstones
from tests.sim.checker import PartitionKey
from tests.sim.inside import CallFailed, Inside, LifeEnded, inside

if TYPE_CHECKING:
    from tests.sim.world import World

_FIRST_PRODUCER_ID = 1 << 40
"""Above all ids that the broker assigns."""
_OPEN = 3


@dataclass(slots=True)
class Transaction:
    """A transaction of a producer that has no other one."""

    producer_id: int
    values: list[bytes] = field(default_factory=list)
    next_sequence: int = 0
    outcome: ControlType | None = None
    """Set when the decision has been made."""


class TransactionWriter:
    """Writes transactions to partition 0 of `plan`'s topic."""

    def __init__(self, world: World, plan: TopicPlan, chance: random.Random) -> None:
        self.name = "transaction writer"
        self._world = world
        self._plan = plan
        self._chance = chance
        self._open: list[Transaction] = []
        self._producers = 0
        self._written = 0

    async def run(self) -> None:
        """Write until the world reports that the work is finished; then end all transactions."""
        while self._world.working or self._open:
            site = await inside(self._world, self._plan.name, self._chance)
            if site is None:
                continue
            try:
                await self._act(site)
            except (LifeEnded, CallFailed):
                continue

    async def _act(self, site: Inside) -> None:
        chance, is_ending = self._chance, not self._world.working
        decided = [one for one in self._open if one.outcome is not None]
        if decided:
            await self._send_marker(site, decided[0])
        elif not is_ending and (len(self._open) < _OPEN and chance.random() < 0.3):
            self._open.append(Transaction(_FIRST_PRODUCER_ID + self._producers))
            self._producers += 1
        elif self._open:
            transaction = chance.choice(self._open)
            if is_ending or chance.random() < 0.25:
                await self._end(site, transaction, is_commit=chance.random() < 0.5)
            else:
                await self._send_batch(site, transaction)

    async def _send_batch(self, site: Inside, transaction: Transaction) -> None:
        records = self._new_records(transaction)
        batch = build_batch(
            records,
            compression=self._chance.choice(list(Compression)),
            producer_id=transaction.producer_id,
            producer_epoch=0,
            base_sequence=transaction.next_sequence,
            is_transactional=True,
        )
        values = transaction.values[-len(records) :]
        transaction.next_sequence += len(records)
        try:
            first_offset = await self._append(site, batch, AppendOrigin.CLIENT)
        except (LifeEnded, CallFailed):
            self._decide(transaction, ControlType.ABORT)  # The outcome of the batch is unknown.
            raise
        key = PartitionKey(site.log.topic_id, 0)
        self._world.history.acknowledged(key, first_offset, values, life=site.life_number)

    def _new_records(self, transaction: Transaction) -> Sequence[Record]:
        history, chance = self._world.history, self._chance
        now_ms = self._world.clock.now_ms()
        count = chance.choice((1, 1, 2, 4))
        session = f"t{transaction.producer_id - _FIRST_PRODUCER_ID}"
        padding = b"." * chance.choice((0, 60, 200))
        values = [
            b"%s/%d/%s" % (session.encode(), transaction.next_sequence + number, padding)
            for number in range(count)
        ]
        records = [
            Record(timestamp=now_ms, key=random_key(chance), value=value) for value in values
        ]
        records = with_tombstones(records, history, chance, now_ms=now_ms)
        keys = [record.key for record in records]
        topic = self._plan.name
        history.sending(topic, 0, session, transaction.next_sequence, values, keys)
        # Until its transaction is committed, a record replaces no other one.
        history.aborted.update(values)
        transaction.values += values
        return records

    async def _end(self, site: Inside, transaction: Transaction, *, is_commit: bool) -> None:
        self._decide(transaction, ControlType.COMMIT if is_commit else ControlType.ABORT)
        await self._send_marker(site, transaction)

    def _decide(self, transaction: Transaction, outcome: ControlType) -> None:
        transaction.outcome = outcome
        if outcome is ControlType.COMMIT:
            self._world.history.aborted.difference_update(transaction.values)
            self._world.count("committed transactions")

    async def _send_marker(self, site: Inside, transaction: Transaction) -> None:
        assert transaction.outcome is not None
        marker = marker_batch(
            0, transaction.outcome, producer_id=transaction.producer_id, producer_epoch=0
        )
        await self._append(site, marker, AppendOrigin.COORDINATOR)
        self._open.remove(transaction)

    async def _append(self, site: Inside, batch: bytes, origin: AppendOrigin) -> int:
        """Append a batch as the leader, wait until it is durable, and return its first offset."""
        log, clock = site.log, self._world.clock
        info = await site.call(
            lambda: log.append_as_leader(
                memoryview(bytearray(batch)),
                leader_epoch=site.leader_epoch,
                now_ms=clock.now_ms(),
                origin=origin,
            )
        )
        writing = info.writing
        await site.wait_until(
            lambda: (
                log.durable_end_offset > info.last_offset
                or (writing is not None and writing.error is not None)
            )
        )
        # A job has failed to write the batch. Other batches may get its offsets.
        if writing is not None and writing.error is not None:
            raise CallFailed(str(writing.error))
        return info.first_offset
