"""The controller: creates and deletes topics, one step at a time, with the store as the truth.

A topic exists once its records are durable in the metadata store. Creating one is: plan it, write
it, have its logs made, tell everybody. Deleting: write the removal, hide it, have its logs removed.
More partitions: plan them, have their logs made, write them, tell everybody; see
partition_creation.py. A crash after the write is made good at the next start: a topic without logs
gets fresh ones, a log without a topic is put aside. The controller's state moves only on the
store's outcomes, and operations on one name run one after the other.

A topic may have thousands of partitions, so they are handled in slices (fair_queue.py). The work
continues when the client that asked for it leaves. Called on the reactor's thread.
Source: Kafka 4.0 ReplicationControlManager.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from plog.errors import KafkaError, TopicAlreadyExists, UnknownTopicOrPartition
from plog.types import ZERO_UUID, Uuid, uuid_to_text
from plogd.concurrency import Turns, shielded
from plogd.controller.partition_creation import (
    MorePartitions,
    counted,
    extended,
    first_state,
    plan_partitions,
)
from plogd.controller.replica_placement import Assignments
from plogd.controller.topic_creation import (
    Defaults,
    NewTopic,
    TopicPlan,
    check_total,
    collision_key,
    plan_topic,
)
from plogd.fair_queue import FairQueue, Slices
from plogd.metadata.cache import PartitionState, TopicState
from plogd.metadata.store import (
    ABSENT,
    Change,
    Key,
    MetadataStore,
    Outcome,
    PartitionValue,
    TopicValue,
    Written,
)
from plogd.ports import Later, Random, Report, silence, spawn

T = TypeVar("T")

_RESERVED_IDS = (ZERO_UUID, bytes(15) + b"\x01")
"""No topic has these: "none", and the metadata log."""


class Brokers(Protocol):
    """What the controller tells the brokers that hold a topic; so far there is one."""

    def start_topic(self, topic: TopicState) -> Later[None]:
        """Make the logs of `topic` and serve it. Fails with KafkaStorageError."""
        ...

    def stop_topic(self, topic: TopicState) -> Later[None]:
        """Serve `topic` no longer and remove its logs."""
        ...

    def make_logs(self, topic: TopicState) -> Later[None]:
        """Make those logs of `topic` that are missing, served by nobody yet.

        Fails with KafkaStorageError, and then there are none.
        """
        ...

    def remove_unserved_logs(self, topic: TopicState) -> Later[None]:
        """Remove the logs of `topic` that nobody serves."""
        ...


class Controller:
    """See the module's text. `load` before anything else."""

    def __init__(
        self,
        *,
        store: MetadataStore,
        brokers: Brokers,
        defaults: Callable[[], Defaults],
        random: Random,
        fair_queue: FairQueue,
        report: Report = silence,
    ) -> None:
        self._store = store
        self._brokers = brokers
        self._defaults = defaults
        self._random = random
        self._queue = fair_queue
        self._report = report
        self._term = -1
        self._topics: dict[str, TopicState] = {}
        self._versions: dict[str, int] = {}
        """Of the topics' keys in the store."""
        self._names: dict[str, str] = {}
        """Topic names by `collision_key`."""
        self._busy: dict[str, deque[Later[None]]] = {}
        self._turns = Turns()
        """Names an operation is at work on, and who waits to be the next."""
        self._half_made: set[str] = set()
        """Topics that nobody serves, as they could neither be made nor be taken back."""

    # -- state --------------------------------------------------------------------------------

    def load(self) -> Later[list[TopicState]]:
        """Become the controller and learn what there is."""
        return spawn(self._load())

    async def _load(self) -> list[TopicState]:
        self._term = await self._store.campaign()
        self._store.watch(("config", "topic"), self._config_changed)
        partitions = self._store.load(("partition",))
        configs = self._store.load(("config", "topic"))
        for key, (value, version) in self._store.load(("topic",)).items():
            name = str(key[1])
            states = [
                _partition_state(number, replicas, partitions[("partition", name, number)][0])
                for number, replicas in sorted(value.assignments.items())
            ]
            config, _ = configs.get(("config", "topic", name), ({}, ABSENT))
            self._remember(
                TopicState(
                    name=name, topic_id=value.topic_id, partitions=tuple(states), config=config
                ),
                version,
            )
        return list(self._topics.values())

    def _remember(self, topic: TopicState, version: int) -> None:
        self._topics[topic.name] = topic
        self._versions[topic.name] = version
        self._names[collision_key(topic.name)] = topic.name

    def _config_changed(self, key: Key, value: Mapping[str, str] | None, _version: int) -> None:
        topic = self._topics.get(str(key[2]))
        if topic is not None:
            self._topics[topic.name] = replace(topic, config=value or {})

    def _forget(self, name: str) -> None:
        del self._topics[name], self._versions[name], self._names[collision_key(name)]

    # -- one after the other ------------------------------------------------------------------

    async def _enter(self, key: str) -> None:
        """Wait until no other operation is at work on names with this collision key."""
        if key in self._busy:
            turn: Later[None] = Later()
            self._busy[key].append(turn)
            await turn
        else:
            self._busy[key] = deque()

    def _leave(self, key: str) -> None:
        if self._busy[key]:
            self._turns.give(self._busy[key].popleft())
        else:
            del self._busy[key]

    def alone_with(self, name: str, operation: Callable[[], Later[T]]) -> Later[T]:
        """The outcome of `operation`, run while no other is at work on the topic of this name."""
        return shielded(spawn(self._alone_with(collision_key(name), operation)))

    async def _alone_with(self, key: str, operation: Callable[[], Later[T]]) -> T:
        await self._enter(key)
        try:
            return await operation()
        finally:
            self._leave(key)

    # -- creating -----------------------------------------------------------------------------

    def plan(self, new: NewTopic) -> TopicPlan:
        """What creating `new` would make. Raises the KafkaError creating it would raise."""
        return plan_topic(new, self._names, self._defaults())

    def check_total(self, asked: Sequence[NewTopic]) -> None:
        """Raise PolicyViolation if these are too many partitions to be created by one request."""
        check_total(asked, self._defaults())

    def create_topic(self, new: NewTopic) -> Later[TopicState]:
        """Create a topic; done when it can be used. Fails with the KafkaError the client sees."""
        return shielded(spawn(self._create_topic(new)))

    async def _create_topic(self, new: NewTopic) -> TopicState:
        key = collision_key(new.name)
        await self._enter(key)
        try:
            if new.name in self._half_made:
                await self._remove(new.name)
            plan = self.plan(new)
            slices = Slices(self._queue)
            topic = await self._first_state(plan, slices)
            version = await self._write_topic(topic, plan.assignments, slices)
            self._remember(topic, version)
            try:
                await self._brokers.start_topic(topic)
            except KafkaError:
                await self._undo(topic)
                raise
        finally:
            self._leave(key)
        self._report(
            "created topic {topic} with {partitions}",
            topic=topic.name,
            partitions=counted(len(topic.partitions)),
        )
        return topic

    async def _first_state(self, plan: TopicPlan, slices: Slices) -> TopicState:
        return TopicState(
            name=plan.name,
            topic_id=self._new_topic_id(),
            partitions=await _first_states(plan.assignments, slices),
            config=plan.config,
        )

    def _new_topic_id(self) -> Uuid:
        while True:
            raw = bytearray(self._random.random_bytes(16))
            raw[6] = raw[6] & 0x0F | 0x40  # RFC 4122, version 4
            raw[8] = raw[8] & 0x3F | 0x80
            topic_id = bytes(raw)
            # Kafka takes no id whose text would look like an option on a command line.
            if topic_id not in _RESERVED_IDS and not uuid_to_text(topic_id).startswith("-"):
                return topic_id

    async def _write_topic(
        self, topic: TopicState, assignments: Assignments, slices: Slices
    ) -> int:
        """Write the topic as a whole; the version of its key."""
        key: Key = ("topic", topic.name)
        value = TopicValue(topic_id=topic.topic_id, assignments=assignments)
        changes = [Change(key=key, value=value, expected=ABSENT)]
        if topic.config:
            config_key: Key = ("config", "topic", topic.name)
            changes.append(Change(key=config_key, value=topic.config, expected=ABSENT))
        async for state in slices.over(topic.partitions):
            changes.append(_partition_change(topic.name, state))
        outcome = _first(await self._store.write_atomic(changes, self._term))
        if not isinstance(outcome, Written):
            raise TopicAlreadyExists(f"Topic '{topic.name}' already exists.")
        return outcome.version

    async def _undo(self, topic: TopicState) -> None:
        """Its logs cannot be made: take the topic back, so that nobody finds half of it."""
        self._report(
            "topic {topic} could not be created: taken back", topic=topic.name, level="warn"
        )
        self._half_made.add(topic.name)
        await self._brokers.stop_topic(topic)
        await self._remove(topic.name)

    # -- more partitions ----------------------------------------------------------------------

    def plan_partitions(self, asked: MorePartitions) -> Assignments:
        """The partitions `asked` would add. Raises the KafkaError adding them would raise."""
        return plan_partitions(asked, self._usable(asked.topic), self._defaults().brokers)

    def _usable(self, name: str) -> TopicState | None:
        return None if name in self._half_made else self._topics.get(name)

    def create_partitions(self, asked: MorePartitions) -> Later[TopicState]:
        """Give a topic more partitions; done when they can be used.

        Fails with the KafkaError the client sees; then the topic is as it was.
        """
        return shielded(spawn(self._create_partitions(asked)))

    async def _create_partitions(self, asked: MorePartitions) -> TopicState:
        key = collision_key(asked.topic)
        await self._enter(key)
        try:
            assignments = self.plan_partitions(asked)
            slices = Slices(self._queue)
            new = await _first_states(assignments, slices)
            topic = extended(self._topics[asked.topic], new)
            try:
                await self._brokers.make_logs(topic)
                version = await self._write_partitions(topic, new, slices)
            except KafkaError:
                await self._brokers.remove_unserved_logs(topic)
                raise
            topic = extended(self._topics[asked.topic], new)  # It may have new settings.
            self._remember(topic, version)
            await self._brokers.start_topic(topic)
        finally:
            self._leave(key)
        self._report(
            "topic {topic} has {partitions} now",
            topic=topic.name,
            partitions=counted(len(topic.partitions)),
        )
        return topic

    async def _write_partitions(
        self, topic: TopicState, new: tuple[PartitionState, ...], slices: Slices
    ) -> int:
        """Write the new partitions of `topic` as a whole; the version of its key."""
        value = TopicValue(
            topic_id=topic.topic_id,
            assignments={state.partition: state.replicas for state in topic.partitions},
        )
        key: Key = ("topic", topic.name)
        changes = [Change(key=key, value=value, expected=self._versions[topic.name])]
        async for state in slices.over(new):
            changes.append(_partition_change(topic.name, state))
        outcome = _first(await self._store.write_atomic(changes, self._term))
        assert isinstance(outcome, Written), "only this controller writes topics"
        return outcome.version

    # -- deleting -----------------------------------------------------------------------------

    def delete_topic(self, name: str, topic_id: Uuid) -> Later[None]:
        """Delete the topic of this name, if it still has this id; done when its logs are gone.

        Fails with UnknownTopicOrPartition, or with KafkaStorageError when the metadata log does.
        """
        return shielded(spawn(self._delete_topic(name, topic_id)))

    async def _delete_topic(self, name: str, topic_id: Uuid) -> None:
        key = collision_key(name)
        await self._enter(key)
        try:
            topic = self._topics.get(name)
            if topic is None or topic.topic_id != topic_id:
                raise UnknownTopicOrPartition(f"there is no topic '{name}' any more")
            await self._remove(name)
            await self._brokers.stop_topic(topic)
        finally:
            self._leave(key)
        self._report("deleted topic {topic}", topic=name)

    async def _remove(self, name: str) -> None:
        """Take the topic out of the store, and out of our state."""
        change = Change(key=("topic", name), value=None, expected=self._versions[name])
        outcome = _first(await self._store.write([change], self._term))
        assert isinstance(outcome, Written), "only this controller writes topics"
        self._forget(name)
        self._half_made.discard(name)


async def _first_states(assignments: Assignments, slices: Slices) -> tuple[PartitionState, ...]:
    placed = sorted(assignments.items())
    return tuple([first_state(number, replicas) async for number, replicas in slices.over(placed)])


def _first(outcomes: Sequence[Outcome]) -> Outcome:
    return outcomes[0]


def _partition_change(name: str, state: PartitionState) -> Change:
    return Change(
        key=("partition", name, state.partition),
        value=PartitionValue(
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            partition_epoch=state.partition_epoch,
        ),
        expected=ABSENT,
    )


def _partition_state(
    number: int, replicas: tuple[int, ...], value: PartitionValue
) -> PartitionState:
    return PartitionState(
        partition=number,
        leader=value.leader,
        leader_epoch=value.leader_epoch,
        replicas=replicas,
        isr=value.isr,
        partition_epoch=value.partition_epoch,
    )
