"""A power loss at every single file operation of one history, and checks of the recovered broker.

Before each file operation of the brokers that it starts, a `Recorder` copies the disk and the list
of acknowledged changes. For each copy, a new broker starts on the files that a power loss would
leave, and `check_survivor` fails if an acknowledged record is missing, if a deleted topic is back,
or if new records cannot be appended and read. The operations of that start can be recorded as well,
to simulate a crash during recovery. The history itself is in test_crash_points.py.
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
from tests.helpers.sim.sim_files import Operation, SimFiles
from tests.helpers.sim.sim_time import START_MS
from tests.sim.batches import Batch
from tests.sim.site import Observed, Site


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """The state immediately before `operation`."""

    operation: Operation
    disk: SimFiles
    observed: Observed
    now_ms: int

    def power_loss(self, seed: int) -> SimFiles:
        """Return the disk after a power loss at this point; each seed tears it differently."""
        return clone(self.disk).crash(random.Random(seed))

    def kill(self) -> SimFiles:
        """Return the disk after the process was killed at this point."""
        return clone(self.disk).kill()


def clone(files: SimFiles) -> SimFiles:
    """Return an independent file system with the same content, durable and not durable."""
    twin = SimFiles()
    twin._disk = copy.deepcopy(files._disk)
    twin._last_append = None
    return twin


class Recorder:
    """Runs brokers sequentially and keeps every crash point of all of them."""

    def __init__(self) -> None:
        self.points: list[CrashPoint] = []
        self.observed = Observed()

    def start(self, files: SimFiles, now_ms: int = START_MS) -> Site:
        """Start a broker on `files`, each of whose operations becomes a crash point."""
        site = Site(files, now_ms)

        def before(operation: Operation) -> None:
            if not operation.is_read:
                now_ms = site.ports.clock.now_ms()
                self.points.append(
                    CrashPoint(operation, clone(files), self.observed.copy(), now_ms)
                )

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
    """Return a batch of `count` unique values."""
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
    """Raise AssertionError unless the broker has everything acknowledged before `point`."""
    observed = point.observed
    topics = site.topic_ids()
    for topic_id in observed.created:
        assert topic_id in topics or topic_id in observed.deleting, "a topic has vanished"
    for topic_id in observed.deleted:
        assert topic_id not in topics, "a deleted topic is back"
    logs = {
        (topic_id, number): site.read(topic_id, number)
        for topic_id, partitions in topics.items()
        for number in range(partitions)
    }
    for known in observed.records:
        if known.topic_id in topics:
            start, values = logs[known.topic_id, known.partition]
            if known.offset >= start:
                assert values.get(known.offset) == known.value, f"{known} is lost"
    _send_again(observed, site, topics)
    for topic_id, number in logs:
        fresh = Observed()
        site.produce(fresh, values_batch(topic_id, number, f"again {topic_id.hex()}", 1))
        [acknowledged] = fresh.records
        _, values = site.read(topic_id, number)
        assert values[acknowledged.offset] == acknowledged.value
        assert acknowledged.offset == max(values)


def _send_again(observed: Observed, site: Site, topics: Container[Uuid]) -> None:
    """Retry unacknowledged idempotent batches; each of their records must exist exactly once."""
    for batch in observed.in_doubt:
        if batch.producer_id < 0 or batch.topic_id not in topics:
            continue
        site.produce(Observed(), batch)
        _, values = site.read(batch.topic_id, batch.partition)
        counts = [list(values.values()).count(value) for value in batch.values]
        assert counts == [1] * len(counts), f"{batch.values[0]!r} is there {counts} times"
