"""Consumers that ZooKeeper coordinates, with records: positions, seeks and automatic commits."""

from __future__ import annotations

from typing import Any

from plog.client.faces.polling_consumer import PollingConsumer
from plog.client.network.cluster import Cluster
from plog.client.settings import ConsumerSettings
from plog.types import TopicPartition
from plog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tests.helpers.client.deferred_zookeeper import DeferredZooKeeper
from tests.helpers.group.zookeeper_world import MakeWorld, ZooKeeperWorld

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Application:
    """A consumer with records; `values` are those that it has received, by partition."""

    def __init__(self, world: ZooKeeperWorld, **settings: Any) -> None:
        self.world = world
        made = ConsumerSettings.from_options(
            bootstrap_servers=world.sim.bootstrap_servers,
            group_id="g",
            coordination="zookeeper",
            zookeeper_connect="mock:2181",
            auto_offset_reset="earliest",
            **settings,
        )
        self.cluster = Cluster(world.sim, made)
        self.core = PollingConsumer(
            self.cluster, world.sim, made, zookeeper=DeferredZooKeeper(world.zookeeper)
        )
        self.core.subscribe(["t"])
        self.values: dict[int, list[bytes]] = {}

    def poll(self, timeout_s: float = 0.5) -> int:
        """Poll once; return the number of records."""
        records = self.world.sim.run(self.core.consume(100, timeout_s))
        for record in records:
            self.values.setdefault(record.partition, []).append(record.value)
        return len(records)

    def take(self, count: int) -> None:
        """Poll until `count` records have arrived."""
        for _ in range(200):
            count -= self.poll()
            if count <= 0:
                break
        assert count == 0

    def close(self) -> None:
        """Close it in an orderly way."""
        self.world.sim.run(self.core.close())
        self.world.sim.run(self.cluster.close())


def produce(world: ZooKeeperWorld, partition: int, *values: bytes) -> None:
    assert world.sim.broker.produce("t", *values, partition=partition).error_code == 0


def test_next_consumer_continues_at_the_committed_offsets(
    make_zookeeper_world: MakeWorld,
) -> None:
    world = make_zookeeper_world()
    world.create("t", 2)
    produce(world, 0, b"a", b"b")
    produce(world, 1, b"c")
    first = Application(world)
    first.take(3)
    assert first.values == {0: [b"a", b"b"], 1: [b"c"]}
    first.close()
    assert (world.offset(T0), world.offset(T1)) == (2, 1)
    assert world.zookeeper.names("/consumers/g/ids") == []
    produce(world, 0, b"d")
    second = Application(world)
    second.take(1)
    assert second.values == {0: [b"d"]}
    second.close()


def test_members_share_records_and_positions_can_be_set(make_zookeeper_world: MakeWorld) -> None:
    world = make_zookeeper_world()
    world.create("t", 2)
    a, b = Application(world), Application(world)
    for _ in range(20):
        a.poll(0.1)
        b.poll(0.1)
    assert a.core.assignment | b.core.assignment == {T0, T1}
    assert not a.core.assignment & b.core.assignment
    produce(world, 0, b"a", b"b")
    produce(world, 1, b"c")
    for _ in range(20):
        a.poll(0.1)
        b.poll(0.1)
    assert a.values | b.values == {0: [b"a", b"b"], 1: [b"c"]}
    owner = a if T0 in a.core.assignment else b
    owner.core.seek(T0, 1)
    owner.take(1)
    assert owner.values[0] == [b"a", b"b", b"b"]
    assert world.sim.run(owner.core.position(T0)) == 2
    owner.core.pause([T0])
    produce(world, 0, b"d")
    assert owner.poll() == 0
    owner.core.resume([T0])
    owner.take(1)
    world.sim.run(owner.core.commit())
    assert world.offset(T0) == 3
    owner.core.seek(T0, 0)
    world.sim.run(owner.core.seek_to_committed())
    assert world.sim.run(owner.core.position(T0)) == 3
    for each in (a, b):
        each.close()


def test_partition_that_the_metadata_does_not_contain_yet_is_read(
    make_zookeeper_world: MakeWorld,
) -> None:
    world = make_zookeeper_world()
    world.create("t", 1)
    a = Application(world, metadata_max_age_ms=3_600_000)
    a.poll()
    a.poll()
    grown = CreatePartitionsTopic(name="t", count=2, assignments=None)
    request = CreatePartitionsRequest(topics=[grown], timeout_ms=1000)
    assert world.sim.broker.ask(request, 3).results[0].error_code == 0
    world.write_topic("t", 2)
    produce(world, 1, b"new")
    a.take(1)
    assert a.values == {1: [b"new"]}
    a.close()
