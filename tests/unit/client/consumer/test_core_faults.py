"""A consumer under random faults, determined by a seed, reads every record exactly once.

Offset o of partition p holds the value "p-o". After a seek to o, the consumer must return o, o+1
and so on, without gaps, while connections break, requests and responses are lost, the broker is
killed, and partitions are paused, revoked and assigned again.
"""

from __future__ import annotations

import random

import pytest

from plog.client.values import ConsumerRecord
from plog.records.batch import Compression
from plog.types import TopicPartition
from plog.wire.schema import ApiMessage
from tests.helpers.client.consumer_site import ConsumerSite

PARTITIONS = 3


class Scenario:
    """A consumer, its faults, and the records that it must return."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.site = ConsumerSite(
            seed,
            fetch_max_bytes=self.chance.choice([1_000, 8_000, 1 << 20]),
            max_partition_fetch_bytes=self.chance.choice([300, 2_000, 1 << 20]),
            fetch_max_wait_ms=self.chance.choice([10, 500]),
            request_timeout_ms=2_000,
            metadata_max_age_ms=5_000,
        )
        self.partitions = self.site.create("t", PARTITIONS)
        self.assigned = set(self.partitions)
        self.ends = dict.fromkeys(self.partitions, 0)
        self.next = dict.fromkeys(self.partitions, 0)
        """The offset of the next record that each partition must return."""
        self.taken = 0
        self.fault_rate = self.chance.choice([0.0, 0.05, 0.3])
        self.site.sim.on_request = self.fault
        self.site.core.assign(self.partitions)

    def fault(self, request: ApiMessage) -> str | None:
        if self.chance.random() >= self.fault_rate:
            return None
        return self.chance.choice(["drop", "lose"])

    # -- events -------------------------------------------------------------------------------

    def produce(self) -> None:
        partition = self.chance.choice(self.partitions)
        end = self.ends[partition]
        count = self.chance.randint(1, 12)
        values = [b"%d-%d" % (partition.partition, x) for x in range(end, end + count)]
        self.site.produce(
            "t",
            *values,
            partition=partition.partition,
            compression=self.chance.choice(list(Compression)),
        )
        self.ends[partition] = end + count

    def take(self) -> None:
        for record in self.site.core.take(self.chance.choice([1, 3, 500])):
            self.check(record)

    def check(self, record: ConsumerRecord) -> None:
        partition = TopicPartition(record.topic, record.partition)
        assert partition in self.assigned
        assert partition not in self.site.core.paused
        assert record.offset == self.next[partition]
        assert record.value == b"%d-%d" % (record.partition, record.offset)
        self.next[partition] = record.offset + 1
        self.taken += 1

    def some(self) -> list[TopicPartition]:
        count = self.chance.randint(0, len(self.assigned))
        return self.chance.sample(sorted(self.assigned), count)

    def seek(self) -> None:
        for partition in self.some():
            self.next[partition] = self.chance.randint(0, self.ends[partition])
            self.site.core.seek(partition, self.next[partition])

    def seek_to_beginning(self) -> None:
        for partition in self.some():
            self.next[partition] = 0
            self.site.core.seek_to_beginning([partition])

    def pause(self) -> None:
        self.site.core.pause(self.some())

    def resume(self) -> None:
        self.site.core.resume(self.some())

    def reassign(self) -> None:
        kept = set(self.chance.sample(self.partitions, self.chance.randint(0, PARTITIONS)))
        for partition in kept - self.assigned:
            self.next[partition] = 0
        self.assigned = kept
        self.site.core.assign(sorted(kept))

    def wait(self) -> None:
        self.site.sim.advance(self.chance.choice([1, 20, 300, 3_000]))

    def drop(self) -> None:
        self.site.sim.drop_all()

    def restart(self) -> None:
        self.site.sim.restart()

    def deafen(self) -> None:
        self.site.sim.deaf = not self.site.sim.deaf

    # -- the run ------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        often = [self.produce] * 6 + [self.take] * 12 + [self.wait] * 8
        rare = [self.seek, self.seek_to_beginning, self.pause, self.resume, self.reassign]
        for _ in range(steps):
            self.chance.choice([*often, *rare, self.drop, self.restart, self.deafen])()
            states = self.site.core.positions.states.values()
            assert all(x.buffered_bytes >= 0 for x in states)
        self.heal()

    def heal(self) -> None:
        """End all faults, and check that all remaining records are returned."""
        self.fault_rate = 0.0
        self.site.sim.deaf = False
        self.assigned |= set(self.partitions)
        lost = set(self.partitions) - self.site.core.assignment
        self.next.update(dict.fromkeys(lost, 0))
        self.site.core.assign(self.partitions)
        self.site.core.resume(self.partitions)
        self.site.sim.run_until(self.is_complete, 120_000)
        self.site.nothing_for(2_000)
        for partition in self.partitions:
            assert self.site.core.positions.position(partition) == self.ends[partition]

    def is_complete(self) -> bool:
        while more := self.site.core.take(100):
            for record in more:
                self.check(record)
        return self.next == self.ends


@pytest.mark.parametrize("seed", range(40))
def test_each_record_is_returned_once_in_order_despite_faults(seed: int) -> None:
    story = Scenario(seed)
    story.run(150)
    story.site.close()


def test_scenarios_cover_records_and_faults() -> None:
    stories = [Scenario(seed) for seed in range(5)]
    for story in stories:
        story.run(100)
    assert sum(story.taken for story in stories) > 300
