"""One application uses every function of a consumer in random order, under random faults.

It seeks, pauses, subscribes, wakes up, cancels waits, commits and restarts. Logs contain
compacted offsets, empty batches, control batches and all codecs, and lose their oldest records. The
broker restarts and connections break. Every record must be the next existing one in its partition,
and after the faults every log must be read to its end.
"""

from __future__ import annotations

import bisect
import random
from collections.abc import Callable, Collection
from struct import pack_into
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from plog.client.errors import (
    ClosedError,
    CommitFailed,
    CorruptRecords,
    NoOffsetForPartition,
    WokenUp,
)
from plog.client.faces.polling_consumer import PollingConsumer
from plog.client.network.cluster import Cluster
from plog.client.network.connection import Connection
from plog.client.network.ports import Cancelled
from plog.client.settings import ConsumerSettings
from plog.client.values import ConsumerRecord
from plog.errors import KafkaError, OffsetOutOfRange, PlogError
from plog.records.batch import HEADER_SIZE, Compression, iter_batches
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.control import ControlType, encode_control_key, encode_end_txn_value
from plog.records.crc32c import crc32c
from plog.types import TopicPartition
from plog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from plog.wire.messages.fetch import FetchResponse
from plog.wire.schema import ApiMessage
from tests.helpers.client.client_on_sim_network import SimNetwork
from tests.helpers.sim.sim_broker import create_topic

TOPICS = {"t": 2, "u": 1}
PARTITIONS = [TopicPartition(topic, x) for topic, count in TOPICS.items() for x in range(count)]
KINDS = ("whole", "whole", "whole", "first gone", "last gone", "empty", "control")


class Log:
    """The contents of a partition, and the part of them that can be read."""

    def __init__(self) -> None:
        self.visible: list[int] = []
        self.values: dict[int, bytes] = {}
        self.start = self.end = 0
        self.batches: dict[int, tuple[str, Compression, list[bytes]]] = {}

    def add(self, base: int, kind: str, compression: Compression, values: list[bytes]) -> None:
        self.batches[base] = (kind, compression, values)
        self.end = base + len(values)
        for offset in self.left(base):
            self.visible.append(offset)
            self.values[offset] = values[offset - base]

    def left(self, base: int) -> range:
        """Return the offsets of a batch that compaction has kept."""
        kind, _, values = self.batches[base]
        first, end = base + (kind == "first gone"), base + len(values) - (kind == "last gone")
        return range(first, base if kind in ("empty", "control") else end)

    def next(self, offset: int) -> int:
        """Return the first readable offset at or after `offset`, or the end offset."""
        at = bisect.bisect_left(self.visible, offset)
        return self.visible[at] if at < len(self.visible) else self.end

    def as_compacted(self, data: bytes) -> bytes:
        """Return the batches of a fetch as a compacted log would contain them."""
        received = []
        for position, header in iter_batches(data):
            kind, compression, values = self.batches[header.base_offset]
            if kind == "whole":
                received.append(data[position : position + header.size_bytes])
                continue
            base = header.base_offset
            records = [
                Record(offset=x, timestamp=1, value=values[x - base]) for x in self.left(base)
            ]
            is_control = not records
            if is_control:
                key, value = encode_control_key(ControlType.COMMIT), encode_end_txn_value(0)
                records = [Record(offset=base, timestamp=1, key=key, value=value)]
            batch = bytearray(
                build_batch(
                    records,
                    base_offset=base,
                    compression=compression,
                    is_control=is_control,
                    partition_leader_epoch=header.partition_leader_epoch,
                )
            )
            if kind == "empty":
                del batch[HEADER_SIZE:]
                pack_into(">i", batch, 8, HEADER_SIZE - 12)
                pack_into(">i", batch, 57, 0)
            pack_into(">i", batch, 23, header.last_offset_delta)
            pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
            received.append(bytes(batch))
        return b"".join(received)


class Storm:
    """The application, its broker and its faults, all determined by `seed`."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.sim = SimNetwork(seed)
        for topic, count in TOPICS.items():
            create_topic(self.sim.broker, topic, count)
        self.logs = {partition: Log() for partition in PARTITIONS}
        self.next: dict[TopicPartition, int | None] = {}
        self.paused: set[TopicPartition] = set()
        self.trace: list[str] = []
        self.fault_rate = 0.0
        self.sim.on_request = self.fault
        self.begin()

    def begin(self) -> None:
        chance = self.chance
        self.by_hand = chance.random() < 0.5
        has_group = self.by_hand or chance.random() < 0.8
        self.settings = ConsumerSettings.from_options(
            bootstrap_servers=self.sim.bootstrap_servers,
            group_id="g" if has_group else None,
            auto_offset_reset="earliest",
            enable_auto_commit=has_group and chance.random() < 0.5,
            auto_commit_interval_ms=500,
            fetch_max_wait_ms=100,
            max_partition_fetch_bytes=chance.choice([1, 300, 1 << 20]),
            fetch_max_bytes=chance.choice([1, 500, 1 << 20]),
            request_timeout_ms=2_000,
            default_api_timeout_ms=6_000,
            session_timeout_ms=6_000,
            partition_assignment_strategy=chance.choice(["range", "cooperative-sticky"]),
            client_id=f"c{len(self.trace)}",
        )
        self.cluster = Cluster(self.sim, self.settings)
        self.core = PollingConsumer(self.cluster, self.sim, self.settings)
        self.change()

    def fault(self, _: ApiMessage) -> str | None:
        if self.chance.random() >= self.fault_rate:
            return None
        return self.chance.choice(["drop", "lose"])

    # -- the listener -----------------------------------------------------------------------------

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        await self.take_time()
        for partition in self.core.assignment.intersection(partitions):  # Empty if closed.
            self.next[partition] = None
            if self.chance.random() < 0.3:
                self.seek_to(partition)

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await self.take_time()
        for partition in partitions:
            self.next.pop(partition, None)  # Absent if its poll was cancelled.
            self.paused.discard(partition)

    async def take_time(self) -> None:
        """Wait as a slow listener does; a poll that is cancelled meanwhile does not count.

        The listener is called again then.
        """
        if self.chance.random() < 0.3:
            await self.sim.sleep(self.chance.choice([0.0, 0.01, 1.0]))
        if self.chance.random() < 0.3 and self.settings.group_id is not None:
            try:
                await self.core.commit(timeout_s=1.0)
            except (KafkaError, CommitFailed, WokenUp) as error:
                self.trace.append(f"  in a listener: {error}")

    # -- the application --------------------------------------------------------------------------

    def do(self, what: Any) -> Any:
        """Return the result of a coroutine; None for an error that absent brokers may cause."""
        try:
            return self.sim.run(what)
        except (CorruptRecords, OffsetOutOfRange, NoOffsetForPartition):
            raise
        except (KafkaError, WokenUp, CommitFailed) as error:
            self.trace.append(f"  {type(error).__name__}: {error}")
            return error

    def consume(self) -> None:
        count, timeout_s = self.chance.choice([1, 3, 500]), self.chance.choice([0.0, 0.2, 2.0])
        self.got(self.do(self.core.consume(count, timeout_s)))

    def got(self, records: list[ConsumerRecord] | Exception) -> None:
        for record in records if isinstance(records, list) else ():
            partition = TopicPartition(record.topic, record.partition)
            log = self.logs[partition]
            where = f"{partition}@{record.offset}"
            assert partition in self.next, f"{where} is not assigned"
            assert partition not in self.paused, f"{where} is paused"
            assert log.values.get(record.offset) == record.value, f"{where} is {record.value!r}"
            expected = self.next[partition]
            if expected is not None:
                allowed = {log.next(expected), log.next(max(expected, log.start))}
                assert record.offset in allowed, f"{where}, not {allowed}"
            self.next[partition] = record.offset + 1

    def give_up(self) -> None:
        outcomes, waiting = self.begin_to_wait(self.core.consume(10, 5.0))
        waiting.cancel()
        self.ended(outcomes)

    def begin_to_wait(self, what: Any) -> tuple[list[Any], Deferred[Any]]:
        outcomes: list[Any] = []
        waiting = Deferred.fromCoroutine(what)
        waiting.addBoth(outcomes.append)
        self.sim.advance(self.chance.choice([0, 20, 200]))
        return outcomes, waiting

    def ended(self, outcomes: list[Any]) -> None:
        """Accept the records of a wait, however it ended: the application owns them."""
        self.sim.run_until(lambda: bool(outcomes), 30_000)
        [outcome] = outcomes
        if isinstance(outcome, Failure):
            outcome.trap(Cancelled, KafkaError, WokenUp, ClosedError)
        else:
            self.got(outcome)

    def give_up_another(self) -> None:
        """Cancel another call during a wait, which must continue."""
        partition = self.some()
        if partition is None:
            return
        outcomes, _ = self.begin_to_wait(self.core.consume(10, 2.0))
        calls = [self.core.position(partition), self.core.end_offsets([partition])]
        if self.settings.group_id is not None:
            calls += [self.core.commit(), self.core.committed([partition])]
        for call in calls:
            others, waiting = self.begin_to_wait(call)
            waiting.cancel()
            assert others, call
        self.ended(outcomes)

    def close_in_a_wait(self) -> None:
        outcomes, _ = self.begin_to_wait(self.core.consume(10, 5.0))
        if outcomes:
            self.ended(outcomes)
        self.do(self.core.close(2.0))
        self.sim.run_until(lambda: bool(outcomes), 2_000)  # A listener may have to finish first.
        if isinstance(outcomes[0], Failure):
            outcomes[0].trap(KafkaError, WokenUp, ClosedError)
        self.close()

    def wake(self) -> None:
        self.core.wake_up()
        outcome = self.do(self.core.consume(10, 1.0))
        assert isinstance(outcome, PlogError)

    def some(self) -> TopicPartition | None:
        return self.chance.choice(sorted(self.next)) if self.next else None

    def seek_to(self, partition: TopicPartition) -> None:
        log = self.logs[partition]
        offset = self.chance.randint(log.start, log.end)
        self.core.seek(partition, offset)
        self.next[partition] = offset

    def seek(self) -> None:
        partition = self.some()
        if partition is not None:
            self.seek_to(partition)
            if self.chance.random() < 0.5:
                self.consume()

    def seek_elsewhere(self) -> None:
        partition = self.some()
        if partition is not None:
            self.chance.choice([self.core.seek_to_beginning, self.core.seek_to_end])([partition])
            self.next[partition] = None

    def pause(self) -> None:
        partition = self.some()
        if partition in self.paused:
            self.core.resume([partition])
            self.paused.discard(partition)
        elif partition is not None:
            self.core.pause([partition])
            self.paused.add(partition)

    def change(self) -> None:
        if self.by_hand:
            chosen = self.chance.sample(PARTITIONS, self.chance.randint(1, len(PARTITIONS)))
            self.core.assign(chosen)
            self.next = {partition: self.next.get(partition) for partition in chosen}
            self.paused &= set(chosen)
        else:
            self.core.subscribe(self.chance.choice([["t"], ["u"], ["t", "u"]]), listener=self)

    def ask(self) -> None:
        partition = self.some()
        if partition is None:
            return
        log, expected = self.logs[partition], self.next[partition]
        position = self.do(self.core.position(partition))
        if isinstance(position, int) and expected is not None:
            furthest = max(log.next(expected), log.start)
            assert expected <= position <= furthest, f"{partition}: {position}, not {expected}"
        ends = self.do(self.core.end_offsets([partition]))
        assert isinstance(ends, Exception) or ends == {partition: log.end}

    def commit(self) -> None:
        if self.settings.group_id is None:
            return
        if self.chance.random() < 0.5:
            self.core.commit_async(callback=lambda *_: None)
            return
        consumed = self.core.positions.consumed()
        if self.do(self.core.commit()) is None and consumed:
            found = self.do(self.core.committed(list(consumed)))
            assert isinstance(found, Exception) or found == consumed, (found, consumed)

    def unsubscribe(self) -> None:
        self.do(self.core.unsubscribe())
        self.next.clear()
        self.paused.clear()
        self.by_hand = self.chance.random() < 0.5
        self.change()

    def close(self) -> None:
        self.do(self.core.close(self.chance.choice([0.5, 10.0])))
        self.do(self.cluster.close())
        self.next.clear()
        self.paused.clear()
        self.begin()

    # -- faults -----------------------------------------------------------------------------------

    def produce(self) -> None:
        for _ in range(self.chance.randint(1, 4)):
            partition = self.chance.choice(PARTITIONS)
            log, kind = self.logs[partition], self.chance.choice(KINDS)
            compression = self.chance.choice(list(Compression))
            size = self.chance.choice([1, 10, 1_000])
            values = [
                b"%d-%d" % (log.end, x) + b"." * size for x in range(self.chance.randint(1, 5))
            ]
            # Its offset is known before the record can be read.
            log.add(log.end, kind, compression, values)
            self.sim.broker.produce(
                partition.topic,
                *values,
                partition=partition.partition,
                compression=compression,
            )

    def delete_records(self) -> None:
        partition = self.chance.choice(PARTITIONS)
        log = self.logs[partition]
        log.start = self.chance.randint(log.start, log.end)
        asked = DeleteRecordsPartition(partition_index=partition.partition, offset=log.start)
        topic = DeleteRecordsTopic(name=partition.topic, partitions=[asked])
        self.sim.broker.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=1_000), 2)

    def break_some(self) -> None:
        self.fault_rate = self.chance.choice([0.0, 0.0, 0.1, 0.3])

    def step(self) -> None:
        often = [self.consume] * 8 + [self.produce] * 4 + [self.seek, self.pause, self.ask] * 2
        rare = [self.wake, self.seek_elsewhere, self.change, self.commit]
        rare += [self.give_up, self.give_up_another]
        seldom = [self.unsubscribe, self.close, self.close_in_a_wait]
        seldom += [self.delete_records, self.break_some]
        what = self.chance.choice([*often, *rare, *seldom, self.sim.drop_all, self.sim.restart])
        self.trace.append(what.__name__)
        what()
        self.sim.advance(self.chance.choice([0, 5, 100, 2_000]))

    def calm(self) -> None:
        """End all faults, and check that every log is read to its end."""
        self.trace.append("calm")
        self.fault_rate = 0.0
        self.core.resume(list(self.paused))
        self.paused.clear()
        until_s = self.sim.now_s() + 120
        while not (self.next and all(map(self.is_read, self.next))):
            assert self.sim.now_s() < until_s, f"{self.next} of {self.ends()}"
            self.got(self.do(self.core.consume(500, 1.0)))

    def is_read(self, partition: TopicPartition) -> bool:
        assigned = partition in self.core.assignment
        return assigned and self.core.positions.position(partition) == self.logs[partition].end

    def ends(self) -> dict[TopicPartition, int]:
        return {partition: log.end for partition, log in self.logs.items()}

    def end(self) -> None:
        self.fault_rate = 0.0
        self.do(self.core.close(5))
        self.do(self.cluster.close())


def run(seed: int, steps: int, patch: Callable[..., None]) -> Storm:
    storm = Storm(seed)
    ask = Connection.ask

    async def asked(self: Connection, request: ApiMessage, response: Any, **how: Any) -> Any:
        received = await ask(self, request, response, **how)
        for topic in received.responses if isinstance(received, FetchResponse) else ():
            for one in topic.partitions:
                log = storm.logs[TopicPartition(topic.topic, one.partition_index)]
                one.records = log.as_compacted(bytes(one.records or b""))
        return received

    patch(Connection, "ask", asked)
    for _ in range(steps):
        storm.step()
    storm.calm()
    storm.end()
    return storm


@pytest.mark.parametrize("seed", range(12))
def test_every_record_is_the_next_existing_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run(seed, 60, monkeypatch.setattr)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 400))
def test_every_record_is_the_next_existing_one_in_long_runs(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(seed, 150, monkeypatch.setattr)
