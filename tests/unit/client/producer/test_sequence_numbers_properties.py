"""Sequence numbers against a model of a broker, with lost responses and broker restarts.

In every run, no batch is written twice, and acknowledged batches are written, in order.
"""

from __future__ import annotations

import random
from collections import deque
from typing import NamedTuple

import pytest

from plog.client.producer.sequence_numbers import (
    MAX_EPOCH,
    PartitionSequences,
    ProducerIdentity,
    SequencedBatch,
)

REMEMBERED = 5


class Batch(SequencedBatch):
    """A batch, its index, and whether its outcome is still awaited."""

    def __init__(self, number: int, count: int) -> None:
        super().__init__()
        self.number = number
        self._count = count
        self.is_done = False

    @property
    def count(self) -> int:
        return self._count


class Request(NamedTuple):
    """A batch with the numbers with which it was sent."""

    batch: Batch
    producer_id: int
    epoch: int
    sequence: int


class ModelBroker:
    """The rules of a partition's leader in Kafka."""

    def __init__(self) -> None:
        self.log: list[Batch] = []
        self._epoch_by_id: dict[int, int] = {}
        self._remembered: dict[int, deque[tuple[int, int]]] = {}

    def write(self, request: Request) -> str:
        """Return the response."""
        batch, producer_id, epoch, sequence = request
        known = self._epoch_by_id.get(producer_id)
        batches = self._remembered.setdefault(producer_id, deque(maxlen=REMEMBERED))
        if known is not None:
            if epoch < known:
                return "fenced"
            if epoch == known:
                if (sequence, batch.count) in batches:
                    return "written"
                if batches and sequence != sum(batches[-1]):
                    return "out of order"
            elif sequence != 0:
                return "out of order"
        if known != epoch:
            batches.clear()
        self._epoch_by_id[producer_id] = epoch
        batches.append((sequence, batch.count))
        self.log.append(batch)
        return "written"

    def restart(self) -> None:
        """Keep only the last batch, as a snapshot does."""
        for batches in self._remembered.values():
            while len(batches) > 1:
                batches.popleft()


class World:
    """A producer, a broker and the network between them, with random events."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.broker = ModelBroker()
        self.sequences: PartitionSequences[Batch] = PartitionSequences()
        self.identity = ProducerIdentity(1, MAX_EPOCH - 2)
        self.batches: list[Batch] = []
        self.queue: list[Batch] = []
        self.asked: deque[Request] = deque()
        self.answers: deque[tuple[Batch, str]] = deque()
        self.stray: list[Request] = []
        self.acknowledged: list[Batch] = []

    # -- the producer ---------------------------------------------------------------------------

    def add_records(self) -> None:
        for _ in range(self.chance.randint(1, 3)):
            batch = Batch(len(self.batches), self.chance.randint(1, 3))
            self.batches.append(batch)
            self.queue.append(batch)
        self.send_all()

    def send_all(self) -> None:
        while self.queue and self.sequences.may_send(self.queue[0]):
            self.send(self.queue.pop(0))

    def send(self, batch: Batch) -> None:
        if self.identity.producer_id == self.sequences.past_producer_id:
            self.identity = ProducerIdentity(self.identity.producer_id + 1, MAX_EPOCH - 2)
        self.sequences.sent(batch, self.sequences.identity or self.identity)
        assert batch.identity is not None
        self.asked.append(Request(batch, *batch.identity, batch.base_sequence))

    def receive_all(self) -> None:
        while self.answers:
            self.receive(*self.answers.popleft())
        self.send_all()

    def receive(self, batch: Batch, answer: str) -> None:
        if answer == "written":
            for written in (*self.sequences.written(batch), batch):
                if not written.is_done:
                    written.is_done = True
                    self.acknowledged.append(written)
        elif batch.is_done:
            batch.refused()
            self.sequences.give_up(batch)
        elif answer == "refused":
            batch.refused()
            self.requeue(batch)
        elif answer == "out of order":
            if self.sequences.out_of_order(batch):
                self.requeue(batch)
        elif self.sequences.unknown_producer(batch, is_fenced=True):
            self.requeue(batch)
        else:
            self.give_up(batch)
        self.recover()

    def expire_oldest(self) -> None:
        """Abandon the oldest batch; a batch may also have no retries left earlier."""
        waiting = [x for x in self.batches if not x.is_done][:3]
        if waiting:
            self.give_up(self.chance.choice(waiting))
            self.recover()

    def requeue(self, batch: Batch) -> None:
        self.queue.append(batch)
        self.queue.sort(key=lambda x: x.number)

    def give_up(self, batch: Batch) -> None:
        batch.is_done = True
        if batch in self.queue:
            self.queue.remove(batch)
        self.sequences.give_up(batch)

    def recover(self) -> None:
        lost, _ = self.sequences.recover()
        for batch in lost:
            batch.is_done = True

    # -- events ---------------------------------------------------------------------------------

    def respond(self, refusals: float = 0.2) -> None:
        """Respond to some or all of the requests in flight."""
        for _ in range(self.chance.randint(1, 5)):
            if self.asked:
                request = self.asked.popleft()
                is_refused = self.chance.random() < refusals
                answer = "refused" if is_refused else self.broker.write(request)
                self.answers.append((request.batch, answer))

    def break_connection(self) -> None:
        """Fail all requests in flight, which may still reach the broker."""
        if self.chance.random() < 0.5:
            self.stray += self.asked
        for batch in [*(x for x, _ in self.answers), *(x.batch for x in self.asked)]:
            batch.unanswered()
            if batch.is_done:
                self.sequences.give_up(batch)
            else:
                self.requeue(batch)
        self.asked.clear()
        self.answers.clear()
        self.recover()

    def deliver_stray_request(self) -> None:
        if self.stray:
            self.broker.write(self.stray.pop(0))

    def restart_broker(self) -> None:
        self.broker.restart()

    # -- checks ---------------------------------------------------------------------------------

    def check(self) -> None:
        numbers = [batch.number for batch in self.broker.log]
        assert len(numbers) == len(set(numbers)), "written twice"
        assert set(self.acknowledged) <= set(self.broker.log), "acknowledged, but not written"
        numbers = [batch.number for batch in self.broker.log if batch in self.acknowledged]
        assert numbers == sorted(numbers), "out of order"

    def finish(self) -> None:
        """Complete all batches without further faults."""
        self.stray.clear()
        for _ in range(10 * len(self.batches)):
            self.send_all()
            self.respond(refusals=0)
            self.receive_all()


EVENTS = {
    World.add_records: 6,
    World.send_all: 4,
    World.respond: 8,
    World.receive_all: 8,
    World.break_connection: 3,
    World.deliver_stray_request: 2,
    World.expire_oldest: 2,
    World.restart_broker: 2,
}


@pytest.mark.parametrize("seed", range(300))
def test_batches_are_written_once_and_in_order_under_faults(seed: int) -> None:
    world = World(seed)
    for event in world.chance.choices(list(EVENTS), list(EVENTS.values()), k=120):
        event(world)
        world.check()
    world.finish()
    world.check()
    assert [batch.number for batch in world.batches if not batch.is_done] == []
