"""Members of groups in a simulated world: each an application that polls, reads and commits.

    world = World(seed=1)
    world.create("t", 4)
    a, b = world.member("a"), world.member("b")
    world.run_until_calm()

Applications poll at intervals of virtual time. Every action is checked immediately: no two members
own the same partition in one generation, and no member commits an offset lower than the offset that
the partition's current owner has committed.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Any

from plog.client.group.broker_coordination import BrokerCoordination
from plog.client.group.member import GroupMember
from plog.client.group.member_state import MemberState
from plog.client.network.cluster import Cluster
from plog.client.network.ports import Task
from plog.client.settings import ConsumerSettings
from plog.client.values import OffsetAndMetadata
from plog.client.zookeeper.ports import ZooKeeperConnection
from plog.errors import PlogError
from plog.types import TopicPartition
from tests.helpers.client.client_on_sim_network import SimNetwork
from tests.helpers.sim.sim_broker import create_topic

CALM_MS = 600_000.0


class Errors(logging.Handler):
    """Collects the errors that the client logs, especially failed tasks."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


class SimplePositions:
    """The positions that a group reads and writes; the application advances them by `read`."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, int | None] = {}
        self.withheld: frozenset[TopicPartition] = frozenset()
        self.on_assign: Callable[[frozenset[TopicPartition]], None] = lambda _: None

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        return frozenset(self.offsets)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self.offsets = {one: self.offsets.get(one) for one in partitions}
        self.on_assign(self.assigned)

    def withhold(self, partitions: Collection[TopicPartition]) -> None:
        self.withheld = frozenset(partitions)

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            one: OffsetAndMetadata(offset)
            for one, offset in self.offsets.items()
            if offset is not None
        }


class RecordingListener:
    """A rebalance listener that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[str, ...]]] = []

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._note("revoked", partitions)

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._note("assigned", partitions)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._note("lost", partitions)

    def _note(self, what: str, partitions: Collection[TopicPartition]) -> None:
        self.calls.append((what, tuple(map(str, partitions))))


class Member:
    """An application with its consumer's membership."""

    def __init__(self, world: World, name: str, settings: dict[str, Any]) -> None:
        self.name = name
        self.settings = ConsumerSettings.from_options(
            {
                "bootstrap.servers": ",".join(world.sim.bootstrap_servers),
                "client.id": name,
                "group.id": "g",
                **self.coordination(world),
                "max.poll.interval.ms": 30_000,
                "enable.auto.commit": False,
                **{key.replace("_", "."): value for key, value in settings.items()},
            }
        )
        self.world = world
        self.cluster = Cluster(world.sim, self.settings)
        self.positions = SimplePositions()
        self.positions.on_assign = lambda partitions: world.check_owners(self, partitions)
        self.listener = RecordingListener()
        self.member = GroupMember(
            self.cluster,
            world.sim,
            self.settings,
            self.positions,
            zookeeper=self.zookeeper(world),
            call_user=self._call_user,
        )
        self.errors: list[Exception] = []
        self.is_running = False
        self.poll_ms = 200.0
        self._runs = 0
        self._task: Task | None = None

    def coordination(self, world: World) -> dict[str, Any]:
        """Return the settings of its coordination."""
        return {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 1_000}

    def zookeeper(self, world: World) -> ZooKeeperConnection | None:
        """Return its connection to ZooKeeper, or None if a broker coordinates the group."""
        return None

    async def _call_user(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    def start(self, *topics: str, pattern: str | None = None) -> Member:
        """Subscribe, and start to poll."""
        self.member.subscribe(list(topics) if topics else None, pattern, self.listener)
        return self.resume()

    def resume(self) -> Member:
        """Poll again after `stop_polling`."""
        self.is_running = True
        self._runs += 1
        self._task = self.world.sim.spawn(self._run(self._runs), f"application {self.name}")
        return self

    def stop_polling(self) -> None:
        """Stop polling, as an application that hangs; its heartbeats continue."""
        self.is_running = False

    @property
    def broker_coordination(self) -> BrokerCoordination:
        """Its connection to the coordinator, and its heartbeats."""
        coordination = self.member._coordination
        assert isinstance(coordination, BrokerCoordination)
        return coordination

    def answers(self, *scripted: Any) -> None:
        """Queue responses for its coordinator to send from now on, in this order."""
        left = list(scripted)

        async def answer(*_: Any, **__: Any) -> Any:
            return left.pop(0)

        link: Any = self.broker_coordination.link
        link.ask_on = answer

    def die(self) -> None:
        """Stop abruptly, without leaving the group."""
        self.is_running = False
        self.broker_coordination.close()
        self.world.record_end(self)

    def end(self) -> None:
        """Stop all its activity, including pending waits."""
        member = self.member
        tasks = (self._task, member._join_task, member._commits._ticker, member._commits._sender)
        for task in tasks:
            if task is not None:
                task.cancel()
        member._coordination.close()
        self.world.sim.spawn(self.cluster.close(), "closing a cluster")

    def close(self) -> None:
        """Leave the group in an orderly way."""
        self.is_running = False
        self.world.sim.run(self.member.close(10.0))
        self.world.record_end(self)

    @property
    def is_active(self) -> bool:
        """Whether it has the assignment of its generation, and no work is pending."""
        member = self.member
        is_idle = not (member.needs_attention or member.is_revoking)
        return member.state is MemberState.STABLE and is_idle

    async def until_active(self) -> None:
        """Poll until the group has assigned its partitions."""
        attention = self.world.sim.signal()
        self.member.on_attention = attention.set
        await self.member.attend()
        while not self.is_active:
            await attention.wait()
            attention.clear()
            await self.member.attend()

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that it owns."""
        return self.positions.assigned

    async def _run(self, run: int) -> None:
        while self.is_running and run == self._runs:
            self.member.polled(waits=True)
            try:
                await self.member.attend()
                await self._read()
            except PlogError as error:
                self.errors.append(error)
            self.member.polled()
            await self.world.sim.sleep(self.poll_ms / 1000)

    async def _read(self) -> None:
        """Start from the group's offsets, read some records, and commit them."""
        unknown = [one for one, offset in self.positions.offsets.items() if offset is None]
        for one, offset in (await self.member.committed(unknown)).items():
            if one in self.positions.offsets and self.positions.offsets[one] is None:
                self.positions.offsets[one] = 0 if offset is None else offset.offset
        for one, position in self.positions.offsets.items():
            if position is not None and one not in self.positions.withheld:
                self.positions.offsets[one] = position + self.world.sim.chance.randrange(3)
        offsets = self.positions.consumed()
        if offsets and not self.settings.enable_auto_commit:
            await self.member.commit(offsets)
            self.world.check_commit(self, offsets)


class World:
    """A group in a simulated world. `settings` are the broker's."""

    def __init__(self, seed: int = 0, **settings: Any) -> None:
        self.sim = SimNetwork(seed, **settings)
        self.members: list[Member] = []
        self._made: list[Member] = []
        self.committed: dict[TopicPartition, int] = defaultdict(int)
        self._owners: dict[tuple[int, TopicPartition], str] = {}
        self.errors = Errors()
        logging.getLogger("plog.client").addHandler(self.errors)

    def create(self, topic: str, partitions: int = 1) -> None:
        """Create a topic."""
        create_topic(self.sim.broker, topic, partitions)

    def member(self, name: str, *topics: str, **settings: Any) -> Member:
        """Return a new member of group "g", which already polls if `topics` are given."""
        member = self.new_member(name, settings)
        self.members.append(member)
        self._made.append(member)
        return member.start(*topics) if topics else member

    def new_member(self, name: str, settings: dict[str, Any]) -> Member:
        """Return an application that has not subscribed yet."""
        return Member(self, name, settings)

    def record_end(self, member: Member) -> None:
        """Record that a member has died or left."""
        self.members.remove(member)

    def check_owners(self, member: Member, partitions: Collection[TopicPartition]) -> None:
        """Assert that no other member owns one of these partitions in the same generation.

        A static member stays the same member in its next life, and after a replacement.
        """
        generation = member.member.generation.generation_id
        place = member.settings.group_instance_id or member.name
        for partition in partitions:
            owner = self._owners.setdefault((generation, partition), place)
            assert owner == place, (
                f"{partition} is {owner}'s and {place}'s in generation {generation}"
            )

    def check_commit(
        self, member: Member, offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Assert that an accepted commit does not move a committed offset back."""
        for partition, offset in offsets.items():
            assert offset.offset >= self.committed[partition], (
                f"{member.name} has moved {partition} back from {self.committed[partition]}"
            )
            self.committed[partition] = offset.offset

    def is_calm(self, topics: dict[str, int]) -> bool:
        """Whether all members are in one generation and share all partitions of `topics`."""
        everything = {TopicPartition(t, i) for t, count in topics.items() for i in range(count)}
        running = [one for one in self.members if one.is_running]
        owned = [partition for one in running for partition in one.owned]
        return (
            all(one.is_active for one in running)
            and len({one.member.generation.generation_id for one in running}) == 1
            and len(owned) == len(everything)
            and set(owned) == everything
        )

    def run_until_calm(self, **topics: int) -> None:
        """Let time pass until the group has its partitions. Fails if the client logged errors."""
        self.sim.run_until(lambda: self.is_calm(topics), CALM_MS)
        assert self.errors.texts == []

    def end(self) -> None:
        """Stop all activity; otherwise the collector would stop it during another test."""
        logging.getLogger("plog.client").removeHandler(self.errors)
        for member in self._made:
            member.end()

    def advance(self, by_ms: float) -> None:
        """Let time pass."""
        self.sim.advance(by_ms)


def outsider(world: World, **settings: Any) -> Member:
    """Return a client with a group.id and no subscription, and a topic "t" with two partitions."""
    world.create("t", 2)
    return world.member("simple", **settings)
