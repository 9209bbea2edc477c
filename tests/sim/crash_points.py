"""A power loss at every single file operation of one history, and what is left after each.

A `Recorder` keeps, before each operation of the brokers it starts, a copy of the disk and of what
had been acknowledged by then. A new broker is started on what a power loss leaves of each copy, and
`check_survivor` says whether anything acknowledged is missing, a deleted topic is back, or new
records are not taken and served. The start's own operations can be recorded in turn: a crash while
recovering from a crash. The history itself is in test_crash_points.py.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Container
from dataclasses import dataclass

from plog.records.batch import Compression
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.types import Uuid
from tests.helpers.sim_files import Operation, SimFiles
from tests.helpers.sim_ports import START_MS
from tests.sim.batches import Batch
from tests.sim.site import Site, Told


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """The moment before `operation`."""

    operation: Operation
    disk: SimFiles
    told: Told
    now_ms: int

    def power_loss(self, seed: int) -> SimFiles:
        """The disk after the power was lost here; each seed tears it differently."""
        return clone(self.disk).crash(random.Random(seed))

    def kill(self) -> SimFiles:
        """The disk after the process was killed here."""
        return clone(self.disk).kill()


def clone(files: SimFiles) -> SimFiles:
    """A file system of its own with the same content, durable and not."""
    twin = SimFiles()
    twin._disk = copy.deepcopy(files._disk)
    twin._last_append = None
    return twin


class Recorder:
    """Runs brokers one after the other and keeps every crash point of all of them."""

    def __init__(self) -> None:
        self.points: list[CrashPoint] = []
        self.told = Told()

    def start(self, files: SimFiles, now_ms: int = START_MS) -> Site:
        """A broker, started on `files`, each of whose operations becomes a crash point."""
        site = Site(files, now_ms)

        def before(operation: Operation) -> None:
            if not operation.is_read:
                now_ms = site.ports.clock.now_ms()
                self.points.append(CrashPoint(operation, clone(files), self.told.copy(), now_ms))

        files.on_operation = before
        site.start()
        return site


def values_batch(
    topic_id: Uuid,
    partition: int,
    prefix: str,
    count: int,
    *,
    compression: Compression = Compression.NONE,
    producer_id: int = -1,
    base_sequence: int = -1,
) -> Batch:
    """A batch of `count` unique values."""
    values = [f"{prefix}/{number}/{'.' * 40}".encode() for number in range(count)]
    records = [Record(timestamp=START_MS + number, value=v) for number, v in enumerate(values)]
    data = build_batch(
        records,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=base_sequence,
    )
    return Batch(topic_id.hex(), topic_id, partition, values, data, producer_id=producer_id)


def check_survivor(point: CrashPoint, site: Site) -> None:
    """Raise AssertionError unless the restarted broker keeps all that `point` knew."""
    told = point.told
    topics = site.topic_ids()
    for topic_id in told.created:
        assert topic_id in topics or topic_id in told.delete_asked, "a topic has vanished"
    for topic_id in told.deleted:
        assert topic_id not in topics, "a deleted topic is back"
    logs = {
        (topic_id, number): site.read(topic_id, number)
        for topic_id, partitions in topics.items()
        for number in range(partitions)
    }
    for known in told.records:
        if known.topic_id in topics:
            start, values = logs[known.topic_id, known.partition]
            if known.offset >= start:
                assert values.get(known.offset) == known.value, f"{known} is lost"
    _send_again(told, site, topics)
    for topic_id, number in logs:
        fresh = Told()
        site.produce(fresh, values_batch(topic_id, number, f"again {topic_id.hex()}", 1))
        [acknowledged] = fresh.records
        _, values = site.read(topic_id, number)
        assert values[acknowledged.offset] == acknowledged.value
        assert acknowledged.offset == max(values)


def _send_again(told: Told, site: Site, topics: Container[Uuid]) -> None:
    """An idempotent producer that heard no answer sends again, and its records are there once."""
    for batch in told.in_doubt:
        if batch.producer_id < 0 or batch.topic_id not in topics:
            continue
        site.produce(Told(), batch)
        _, values = site.read(batch.topic_id, batch.partition)
        counts = [list(values.values()).count(value) for value in batch.values]
        assert counts == [1] * len(counts), f"{batch.values[0]!r} is there {counts} times"
