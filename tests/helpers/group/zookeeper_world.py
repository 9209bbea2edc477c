"""Members of a group that ZooKeeper coordinates, in a simulated world.

    world = ZooKeeperWorld(seed=1)
    world.create("t", 4)
    a, b = world.member("a", "t"), world.member("b", "t")
    world.run_until_calm(t=4)

The applications are those of group_world.py. After every assignment, the world asserts that no two
members with a live session own the same partition. The broker is a single one, so the world writes
the znodes of its topics.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any

from plog.client.group.member_state import MemberState
from plog.client.zookeeper.ports import ZooKeeperConnection
from plog.client.zookeeper.zookeeper_coordination import ZooKeeperCoordination
from plog.types import TopicPartition
from plog.zookeeper.operations import Create, SetData
from plogd.testing.mock_zookeeper import MockZooKeeper, MockZooKeeperClient
from tests.helpers.client.deferred_zookeeper import DeferredZooKeeper
from tests.helpers.group.group_world import Member, World

SESSION_TIMEOUT_MS = 6000

MakeWorld = Callable[..., "ZooKeeperWorld"]


class ZooKeeperMember(Member):
    """An application whose consumer uses ZooKeeper."""

    def coordination(self, world: World) -> dict[str, Any]:
        return {
            "coordination": "zookeeper",
            "zookeeper.connect": "mock:2181",
            "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
        }

    def zookeeper(self, world: World) -> ZooKeeperConnection:
        assert isinstance(world, ZooKeeperWorld)
        self.connection = DeferredZooKeeper(
            world.zookeeper, self.settings.zookeeper_session_timeout_ms
        )
        return self.connection

    @property
    def client(self) -> MockZooKeeperClient:
        """Its client of ZooKeeper's double, for faults."""
        return self.connection.started

    @property
    def zookeeper_coordination(self) -> ZooKeeperCoordination:
        """Its part in the group."""
        coordination = self.member._coordination
        assert isinstance(coordination, ZooKeeperCoordination)
        return coordination

    @property
    def consumer_id(self) -> str:
        """The name of its registration."""
        return self.zookeeper_coordination._registration.consumer_id

    @property
    def has_session(self) -> bool:
        """Whether the ensemble still knows its session."""
        client = self.connection.client
        return client is not None and client._ensemble.sessions.get(client.session_id) is not None

    def die(self) -> None:
        self.is_running = False
        self.zookeeper_coordination.stop()
        if self.member._join_task is not None:
            self.member._join_task.cancel()
        self.client.kill()
        self.world.record_end(self)


class ZooKeeperWorld(World):
    """A group in a simulated world, with ZooKeeper's double."""

    def __init__(self, seed: int = 0, **settings: Any) -> None:
        super().__init__(seed, **settings)
        self.zookeeper = MockZooKeeper(self.sim.timers.clock, self.sim.timers)
        for path in ("/brokers", "/brokers/topics"):
            self.zookeeper.write(Create(path=path))

    def new_member(self, name: str, settings: dict[str, Any]) -> ZooKeeperMember:
        return ZooKeeperMember(self, name, settings)

    def member(self, name: str, *topics: str, **settings: Any) -> ZooKeeperMember:
        member = super().member(name, *topics, **settings)
        assert isinstance(member, ZooKeeperMember)
        return member

    @property
    def all(self) -> list[ZooKeeperMember]:
        """The members that have neither died nor left."""
        return [one for one in self.members if isinstance(one, ZooKeeperMember)]

    def create(self, topic: str, partitions: int = 1) -> None:
        super().create(topic, partitions)
        self.write_topic(topic, partitions)

    def write_topic(self, topic: str, partitions: int) -> None:
        """Write the topic's znode, as a controller does."""
        path = f"/brokers/topics/{topic}"
        fields = {
            "version": 3,
            "topic_id": "AAAAAAAAAAAAAAAAAAAAAA",
            "partitions": {str(number): [1] for number in range(partitions)},
            "adding_replicas": {},
            "removing_replicas": {},
        }
        data = json.dumps(fields, separators=(",", ":")).encode()
        exists = self.zookeeper.data(path) is not None
        self.zookeeper.write(
            SetData(path=path, data=data) if exists else Create(path=path, data=data)
        )

    def owners(self, topic: str) -> dict[int, str]:
        """Return the owner of each partition of `topic` in ZooKeeper."""
        base = f"/consumers/g/owners/{topic}"
        return {
            int(name): (self.zookeeper.data(f"{base}/{name}") or b"").decode()
            for name in self.zookeeper.names(base)
        }

    def offset(self, partition: TopicPartition) -> int | None:
        """Return a committed offset in ZooKeeper."""
        data = self.zookeeper.data(f"/consumers/g/offsets/{partition.topic}/{partition.partition}")
        return None if data is None else int(data)

    def check_owners(self, member: Member, partitions: Collection[TopicPartition]) -> None:
        """Assert that no two members own a partition, unless the session of one has ended."""
        if isinstance(member, ZooKeeperMember) and not member.has_session:
            return  # It will learn this with its next connection.
        for other in self.all:
            is_owner = other.member.state is MemberState.STABLE and other.has_session
            if other is not member and is_owner:
                both = other.owned & frozenset(partitions)
                assert not both, f"{both} are {other.name}'s and {member.name}'s"

    def is_calm(self, topics: dict[str, int]) -> bool:
        """Whether all members have their partitions, which ZooKeeper confirms."""
        running = [one for one in self.all if one.is_running]
        everything = {TopicPartition(t, i) for t, count in topics.items() for i in range(count)}
        owned = {one: member for member in running for one in member.owned}
        return (
            all(one.is_active and one.has_session for one in running)
            and sum(len(one.owned) for one in running) == len(everything)
            and owned.keys() == everything
            and all(
                self.owners(one.topic).get(one.partition) == f"{member.consumer_id}-0"
                for one, member in owned.items()
            )
        )


def pair(
    make_zookeeper_world: MakeWorld, partitions: int = 4, **settings: Any
) -> tuple[ZooKeeperWorld, ZooKeeperMember, ZooKeeperMember]:
    """Return a world with two members of a stable group, and the members."""
    world = make_zookeeper_world()
    world.create("t", partitions)
    a, b = world.member("a", "t", **settings), world.member("b", "t", **settings)
    world.run_until_calm(t=partitions)
    return world, a, b


def numbers(member: ZooKeeperMember) -> list[int]:
    """Return the partitions that a member owns."""
    return sorted(one.partition for one in member.owned)


def calls(member: ZooKeeperMember) -> list[str]:
    """Return the names of the calls of a member's listener."""
    return [what for what, _ in member.listener.calls]
