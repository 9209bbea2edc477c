"""A producer, a broker and a group of consumers under random faults that the seed determines.

Connections are cut, responses are lost, the broker is killed and restarted; consumers join, leave,
die, and hang for longer than max.poll.interval.ms. The test checks what the library promises:

- Each acknowledged record is in the log exactly once, in the order it was sent.
- No record is skipped: a new owner of a partition starts at or before the offset that an earlier
  owner has reached, and reads every record from there on, in order.
- No offset is committed beyond the records that an application has processed.
- Once the faults stop, every record is read.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection
from typing import Any

import pytest

from plog.client.faces.polling_consumer import PollingConsumer
from plog.client.network.cluster import Cluster
from plog.client.network.ports import Task
from plog.client.producer.producer_batch import SendHandle
from plog.client.settings import ConsumerSettings
from plog.client.values import ConsumerRecord
from plog.errors import PlogError
from plog.types import TopicPartition
from plog.wire.messages.join_group import JoinGroupRequest
from plog.wire.messages.offset_commit import OffsetCommitRequest
from plog.wire.schema import ApiMessage
from tests.unit.client.producer.producer_site import TOPIC, ProducerSite

PARTITIONS = 3
STRATEGIES = ("range", "sticky", "cooperative-sticky", "range,cooperative-sticky")
COMMITS = ("automatic", "waiting", "not waiting")


class Reader:
    """An application with a consumer: it reads, processes and commits."""

    def __init__(self, stream: Stream, name: str, commits: str, strategy: str) -> None:
        self.stream = stream
        self.name = name
        self.commits = commits
        self.next: dict[TopicPartition, int] = {}
        """The next offset of each partition that has returned a record since its assignment."""
        self.is_reading = True
        self.hangs_s = 0.0
        self.errors: list[Exception] = []
        self.settings = ConsumerSettings.from_options(
            bootstrap_servers=",".join(stream.sim.bootstrap_servers),
            group_id="g",
            client_id=name,
            auto_offset_reset="earliest",
            enable_auto_commit=commits == "automatic",
            auto_commit_interval_ms=300,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=500,
            max_poll_interval_ms=10_000,
            request_timeout_ms=3_000,
            default_api_timeout_ms=5_000,
            max_partition_fetch_bytes=stream.chance.choice([400, 1 << 20]),
            partition_assignment_strategy=strategy,
            group_instance_id=name if name in stream.static_names else None,
        )
        self.cluster = Cluster(stream.sim, self.settings)
        self.core = PollingConsumer(self.cluster, stream.sim, self.settings)
        self.core.subscribe([TOPIC], listener=self)
        self.task: Task = stream.sim.spawn(self.read(), f"application {name}")

    # -- rebalance listener -------------------------------------------------------------------

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self.next.pop(partition, None)

    on_partitions_revoked = on_partitions_assigned

    # -- application --------------------------------------------------------------------------

    async def read(self) -> None:
        sim, chance = self.stream.sim, self.stream.chance
        while self.is_reading:
            try:
                records = await self.core.consume(chance.choice([1, 7, 500]), 0.5)
                for record in records:
                    self.check(record)
                await sim.sleep(chance.random() * 0.2 + self.hangs_s)
                self.hangs_s = 0.0
                self.stream.done_with(records)
                await self.commit()
            except PlogError as error:  # It had left the group, or the group was rebalancing.
                self.errors.append(error)
                await sim.sleep(0.05)

    async def commit(self) -> None:
        if self.commits == "waiting":
            await self.core.commit(timeout_s=2)
        elif self.commits == "not waiting":
            self.core.commit_async(callback=lambda offsets, error: None)

    def expect(self, holds: bool, what: str) -> None:
        if not holds:
            self.stream.broken.append(f"{self.name}: {what}")

    def check(self, record: ConsumerRecord) -> None:
        """Check that the record follows the last one, or skips none in a new partition."""
        partition = TopicPartition(record.topic, record.partition)
        self.expect(partition in self.core.assignment, f"{partition} is not assigned to it")
        seen = self.stream.seen[partition.partition]
        expected = self.next.get(partition)
        if expected is None:
            expected = min(record.offset, len(seen))
        self.expect(record.offset == expected, f"{partition}: {record.offset}, not {expected}")
        self.next[partition] = record.offset + 1
        if record.offset == len(seen):
            seen.append(record.value)
        self.expect(record.value in seen[record.offset :][:1], f"{partition}: {record.value}")

    # -- exit ---------------------------------------------------------------------------------

    async def leave(self) -> None:
        self.is_reading = False
        while not self.task.done:
            await self.stream.sim.sleep(0.1)
        try:
            await self.core.close(5)
        except PlogError as error:
            self.errors.append(error)
        await self.cluster.close()

    def die(self) -> None:
        """Stop all its tasks without notifying the coordinator."""
        member: Any = self.core._member
        self.is_reading = False
        for task in (
            self.task,
            member._join_task,
            member._commits._ticker,
            member._commits._sender,
        ):
            if task is not None:
                task.cancel()
        member._coordination.close()
        self.core._offset_fetcher.close()
        for loop in self.core._fetcher._loops.values():
            loop.close()
        self.stream.sim.spawn(self.cluster.close(), "closing a cluster")


class Stream:
    """The whole scenario: one producer, one topic, readers and faults."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.site = ProducerSite(
            seed=seed,
            partitions=PARTITIONS,
            batch_size=self.chance.choice([200, 16_384]),
            request_timeout_ms=600,
            delivery_timeout_ms=60_000,
        )
        self.sim = self.site.sim
        self.strategy = self.chance.choice(STRATEGIES)
        self.commits = self.chance.choice(COMMITS)
        self.seen: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        """The values that applications have read from each partition."""
        self.done = [0] * PARTITIONS
        """The offset below which some application has processed all records of a partition."""
        self.sent: list[tuple[int, bytes, SendHandle]] = []
        self.readers: list[Reader] = []
        self.leaving: list[Task] = []
        self.broken: list[str] = []
        """Descriptions of the promises that were broken."""
        self.made = 0
        self.static_names: set[str] = set()
        """The names of static members, which keep their place in the group when they return."""
        self.fault_rate = 0.0
        self.sim.on_request = self.see

    def see(self, request: ApiMessage) -> str | None:
        if isinstance(request, OffsetCommitRequest):
            for partition in (x for topic in request.topics for x in topic.partitions):
                done = self.done[partition.partition_index]
                if partition.committed_offset > done:
                    self.broken.append(f"committed {partition.committed_offset}, done is {done}")
        if isinstance(request, JoinGroupRequest) or self.chance.random() >= self.fault_rate:
            return None
        return self.chance.choice(["drop", "lose"])

    def done_with(self, records: list[ConsumerRecord]) -> None:
        for record in records:
            self.done[record.partition] = max(self.done[record.partition], record.offset + 1)

    # -- events -------------------------------------------------------------------------------

    def send(self) -> None:
        for _ in range(self.chance.randint(1, 15)):
            partition = self.chance.randrange(PARTITIONS)
            value = b"%d/%d" % (partition, len(self.sent))
            handle = self.site.core.send(TOPIC, value, partition=partition)
            if handle is not None:
                self.sent.append((partition, value, handle))

    def come(self) -> None:
        if len(self.readers) < 3:
            gone = sorted(self.static_names - {reader.name for reader in self.readers})
            if gone and self.chance.random() < 0.5:
                name = gone[0]
            else:
                self.made += 1
                name = f"r{self.made}"
                if self.chance.random() < 0.2:
                    self.static_names.add(name)
            self.readers.append(Reader(self, name, self.commits, self.strategy))

    def leave(self) -> None:
        if len(self.readers) > 1:
            reader = self.readers.pop(self.chance.randrange(len(self.readers)))
            self.leaving.append(self.sim.spawn(reader.leave(), "leaving"))

    def die(self) -> None:
        if len(self.readers) > 1:
            self.readers.pop(self.chance.randrange(len(self.readers))).die()

    def hang(self) -> None:
        self.chance.choice(self.readers).hangs_s = self.chance.choice([1.0, 12.0])

    def break_some(self) -> None:
        self.fault_rate = self.chance.choice([0.0, 0.0, 0.1, 0.3])

    def step(self) -> None:
        often = [self.send] * 12 + [self.come] * 2
        rare = [self.leave, self.die, self.hang, self.break_some]
        self.chance.choice([*often, *rare, self.sim.drop_all, self.sim.restart])()
        self.sim.advance(self.chance.choice([5, 100, 400, 2_000]))
        assert not self.broken

    def run(self, steps: int) -> None:
        self.site.know()
        self.come()
        for _ in range(steps):
            self.step()
        self.fault_rate = 0.0
        self.site.flush()
        self.sim.run_until(self.is_complete, 300_000)

    def is_complete(self) -> bool:
        log = [self.site.sim.broker.log(TOPIC, x).log_end_offset for x in range(PARTITIONS)]
        return log == [len(one) for one in self.seen] and all(x.done for x in self.leaving)

    # -- result -------------------------------------------------------------------------------

    def check(self) -> None:
        assert not self.broken
        for partition in range(PARTITIONS):
            written = self.site.values(partition)
            assert written == self.seen[partition]
            assert max(Counter(written).values(), default=1) == 1, "written twice"
            acknowledged = [
                value
                for where, value, handle in self.sent
                if where == partition and handle.error() is None
            ]
            known = set(acknowledged)
            assert [value for value in written if value in known] == acknowledged

    def end(self) -> None:
        for reader in self.readers:
            reader.die()
        self.sim.run(self.site.core.close(1))
        self.sim.run(self.site.cluster.close())


def run(seed: int, steps: int = 60) -> Stream:
    stream = Stream(seed)
    try:
        stream.run(steps)
        stream.check()
    finally:
        stream.end()
    return stream


@pytest.mark.parametrize("seed", range(8))
def test_group_reads_all_records_in_order_under_faults(seed: int) -> None:
    run(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 300))
def test_group_reads_all_records_in_order_in_long_runs(seed: int) -> None:
    run(seed, steps=150)


def test_fault_scenarios_write_and_read_records() -> None:
    streams = [run(seed, steps=30) for seed in (50, 51)]
    assert sum(len(one) for stream in streams for one in stream.seen) > 50
