"""The controller: it creates topics, adds partitions and deletes topics.

A topic exists once its records are durable in the metadata store.

  create a topic    plan it, write it, create its logs, publish it to clients
  add partitions    plan them, create their logs, write them, publish them (partition_creation.py)
  delete a topic    write the removal, hide the topic from clients, delete its logs

If a crash interrupts an operation, the next startup repairs the result: it creates empty logs for a
topic without logs, and moves away logs that do not belong to a topic. The controller changes its
state only after the store has confirmed a write. Operations on the same topic name run
sequentially.

A topic can have thousands of partitions, so they are handled in slices (fair_queue.py). An
operation continues if its client disconnects. Called on the reactor thread.
Source: Kafka 4.0 ReplicationControlManager.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from plog.errors import TopicAlreadyExists, UnknownTopicOrPartition
from plog.types import ZERO_UUID, Uuid, uuid_to_text
from plogd.concurrency import Turns, shielded
from plogd.controller.partition_creation import (
    NewPartitions,
    first_state,
    partition_count_text,
    plan_partitions,
    with_partitions,
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
"""Ids that no topic may have: the value for "no id", and the metadata log's id."""


class Brokers(Protocol):
    """The controller's requests to a topic's brokers; currently, each topic has one broker."""

    def start_topic(self, topic: TopicState) -> Later[None]:
        """Create the logs for `topic` and start serving it. Fails with KafkaStorageError."""
        ...

    def stop_topic(self, topic: TopicState) -> Later[None]:
        """Stop serving `topic` and delete its logs."""
        ...

    def create_logs(self, topic: TopicState) -> Later[None]:
        """Create the missing logs for `topic`, which are not served yet.

        Fails with KafkaStorageError, in which case no logs were created.
        """
        ...

    def remove_unserved_logs(self, topic: TopicState) -> Later[None]:
        """Remove the logs of `topic` that no partition serves."""
        ...


class Controller:
    """The cluster's topics and the operations on them. Call `load` first."""

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
        """Versions of the topics' keys in the store, by topic name."""
        self._names: dict[str, str] = {}
        """Topic names by `collision_key`."""
        self._busy: dict[str, deque[Later[None]]] = {}
        """Waiting operations, by the collision key of a name that another operation is using."""
        self._turns = Turns()
        self._incomplete: set[str] = set()
        """Topics that are not served, because both their creation and its rollback failed."""

    # -- state --------------------------------------------------------------------------------

    def load(self) -> Later[list[TopicState]]:
        """Become the controller and load all topics."""
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
            self._add_topic(
                TopicState(
                    name=name, topic_id=value.topic_id, partitions=tuple(states), config=config
                ),
                version,
            )
        return list(self._topics.values())

    def _add_topic(self, topic: TopicState, version: int) -> None:
        self._topics[topic.name] = topic
        self._versions[topic.name] = version
        self._names[collision_key(topic.name)] = topic.name

    def _config_changed(self, key: Key, value: Mapping[str, str] | None, _version: int) -> None:
        topic = self._topics.get(str(key[2]))
        # Watchers run before the write completes, so a topic that is being created is not known
        # yet. It is added later, with these settings.
        if topic is not None:
            self._topics[topic.name] = replace(topic, config=value or {})

    def _drop_topic(self, name: str) -> None:
        del self._topics[name], self._versions[name], self._names[collision_key(name)]

    # -- exclusive operations -----------------------------------------------------------------

    async def _enter(self, key: str) -> None:
        """Wait until no other operation on a name with this collision key is in progress."""
        if key in self._busy:
            turn: Later[None] = Later()
            self._busy[key].append(turn)
            await turn
        else:
            self._busy[key] = deque()

    def _leave(self, key: str) -> None:
        if self._busy[key]:
            # The key stays in `_busy`, so no new operation can overtake the waiting ones. `Turns`
            # resumes them in a loop: if each operation resumed the next, a hundred of them would
            # exhaust the stack.
            self._turns.give(self._busy[key].popleft())
        else:
            del self._busy[key]

    def run_exclusively(self, name: str, operation: Callable[[], Later[T]]) -> Later[T]:
        """Run `operation` while no other operation on the topic with this name is in progress."""
        return shielded(spawn(self._run_exclusively(collision_key(name), operation)))

    async def _run_exclusively(self, key: str, operation: Callable[[], Later[T]]) -> T:
        await self._enter(key)
        try:
            return await operation()
        finally:
            self._leave(key)

    # -- creation -----------------------------------------------------------------------------

    def plan(self, new: NewTopic) -> TopicPlan:
        """Return the plan for a new topic. Raises the KafkaError that the client receives."""
        return plan_topic(new, self._names, self._defaults())

    def check_total(self, requested: Sequence[NewTopic]) -> None:
        """Raise PolicyViolation if one request would create too many partitions."""
        check_total(requested, self._defaults())

    def create_topic(self, new: NewTopic) -> Later[TopicState]:
        """Create a topic; completes when it is usable. Fails with the KafkaError for the client."""
        return shielded(spawn(self._create_topic(new)))

    async def _create_topic(self, new: NewTopic) -> TopicState:
        # Names that collide must wait for each other, too: only one of the topics may be created.
        key = collision_key(new.name)
        await self._enter(key)
        try:
            if new.name in self._incomplete:  # Its rollback failed; the name is still in use.
                await self._undo(self._topics[new.name])
            # Planned only after the wait, because another operation may have taken the name.
            plan = self.plan(new)
            slices = Slices(self._queue)
            topic = await self._first_state(plan, slices)
            version = await self._write_topic(topic, plan.assignments, slices)
            self._add_topic(topic, version)
            try:
                await self._brokers.start_topic(topic)
            except Exception:
                # Any exception requires a rollback: otherwise, clients could neither use nor delete
                # the topic.
                await self._roll_back(topic)
                raise
        finally:
            self._leave(key)
        self._report(
            "created topic {topic} with {partitions}",
            topic=topic.name,
            partitions=partition_count_text(len(topic.partitions)),
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
            raw[6] = raw[6] & 0x0F | 0x40  # UUID version 4 (RFC 9562).
            raw[8] = raw[8] & 0x3F | 0x80  # The variant of RFC 9562.
            topic_id = bytes(raw)
            # Like Kafka, avoid ids whose text looks like a command-line option.
            if topic_id not in _RESERVED_IDS and not uuid_to_text(topic_id).startswith("-"):
                return topic_id

    async def _write_topic(
        self, topic: TopicState, assignments: Assignments, slices: Slices
    ) -> int:
        """Write the topic as a whole; return the version of its key."""
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

    async def _roll_back(self, topic: TopicState) -> None:
        """Remove a topic whose logs cannot be created."""
        self._report(
            "rolled back the creation of topic {topic}: cannot create its logs",
            topic=topic.name,
            level="warn",
        )
        # Added first: if a step fails, the next creation of the topic removes it.
        self._incomplete.add(topic.name)
        await self._undo(topic)

    async def _undo(self, topic: TopicState) -> None:
        """Remove a topic and its logs; can be repeated after a failure."""
        # Write the removal last: while the topic is recorded, the next attempt stops it again. A
        # log that remained open would be mistaken for the log of a new topic with this name.
        await self._brokers.stop_topic(topic)
        await self._remove(topic.name)

    # -- more partitions ----------------------------------------------------------------------

    def plan_partitions(self, requested: NewPartitions) -> Assignments:
        """Return the partitions to add. Raises the KafkaError that the client receives."""
        return plan_partitions(
            requested, self._complete_topic(requested.topic), self._defaults().brokers
        )

    def _complete_topic(self, name: str) -> TopicState | None:
        return None if name in self._incomplete else self._topics.get(name)

    def create_partitions(self, requested: NewPartitions) -> Later[TopicState]:
        """Add partitions to a topic; completes when they are usable.

        If this fails with the KafkaError for the client, the topic is unchanged.
        """
        return shielded(spawn(self._create_partitions(requested)))

    async def _create_partitions(self, requested: NewPartitions) -> TopicState:
        key = collision_key(requested.topic)
        await self._enter(key)
        try:
            assignments = self.plan_partitions(requested)
            slices = Slices(self._queue)
            new = await _first_states(assignments, slices)
            topic = with_partitions(self._topics[requested.topic], new)
            try:
                # Create the logs first: if that failed after the write, no record could remove the
                # partitions.
                await self._brokers.create_logs(topic)
                version = await self._write_partitions(topic, new, slices)
            except Exception:
                await self._brokers.remove_unserved_logs(topic)
                raise
            # Read the topic again, because its settings may have changed during the write.
            topic = with_partitions(self._topics[requested.topic], new)
            self._add_topic(topic, version)
            await self._brokers.start_topic(topic)
        finally:
            self._leave(key)
        self._report(
            "expanded topic {topic} to {partitions}",
            topic=topic.name,
            partitions=partition_count_text(len(topic.partitions)),
        )
        return topic

    async def _write_partitions(
        self, topic: TopicState, new: tuple[PartitionState, ...], slices: Slices
    ) -> int:
        """Write the new partitions of `topic` as a whole; return the version of its key."""
        value = TopicValue(
            topic_id=topic.topic_id,
            assignments={state.partition: state.replicas for state in topic.partitions},
        )
        key: Key = ("topic", topic.name)
        changes = [Change(key=key, value=value, expected=self._versions[topic.name])]
        async for state in slices.over(new):
            changes.append(_partition_change(topic.name, state))
        outcome = _first(await self._store.write_atomic(changes, self._term))
        assert isinstance(outcome, Written), "only this controller may write topics"
        return outcome.version

    # -- deletion -----------------------------------------------------------------------------

    def delete_topic(self, name: str, topic_id: Uuid) -> Later[None]:
        """Delete the topic if it still has this id; completes when its logs are deleted.

        Fails with UnknownTopicOrPartition, or with KafkaStorageError if the metadata log fails.
        """
        return shielded(spawn(self._delete_topic(name, topic_id)))

    async def _delete_topic(self, name: str, topic_id: Uuid) -> None:
        key = collision_key(name)
        await self._enter(key)
        try:
            topic = self._topics.get(name)
            # With another id, the topic was deleted and recreated while this operation waited.
            if topic is None or topic.topic_id != topic_id:
                raise UnknownTopicOrPartition(f"topic '{name}' no longer exists")
            # Write the removal first: if the broker crashes before the logs are deleted, the next
            # startup moves them away. If the order were reversed, the startup would recreate the
            # topic's logs.
            await self._remove(name)
            await self._brokers.stop_topic(topic)
        finally:
            self._leave(key)
        self._report("deleted topic {topic}", topic=name)

    async def _remove(self, name: str) -> None:
        """Remove the topic from the store and from the controller's state."""
        change = Change(key=("topic", name), value=None, expected=self._versions[name])
        outcome = _first(await self._store.write([change], self._term))
        assert isinstance(outcome, Written), "only this controller may write topics"
        self._drop_topic(name)
        self._incomplete.discard(name)


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
