"""The operations of the controller during one term: create, expand and delete topics.

A topic exists once its records are durable in the metadata store.

  create a topic    plan it, write it, create its logs, publish it to clients
  add partitions    plan them, create their logs, write them, publish them (partition_creation.py)
  delete a topic    write the removal, hide the topic from clients, delete its logs

A store with a limit on the changes of one write gets several writes (topic_writes.py). If it also
removes topics in several steps, a deletion first writes a mark, and the removal comes last. Every
operation can stop between any two writes: `load` of the next term completes it, or takes its marks
as requests to delete topics.

If a crash interrupts an operation, the next startup repairs the logs: it creates empty logs for a
topic without logs, and moves away logs that do not belong to a topic. Operations on the same topic
name run sequentially. A topic can have thousands of partitions, so they are handled in slices
(fair_queue.py). Source: Kafka 4.0 ReplicationControlManager; Kafka 3.9 TopicDeletionManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from plog.errors import (
    KafkaError,
    KafkaStorageError,
    NotController,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from plog.types import ZERO_UUID, Uuid
from plogd.controller.brokers import Brokers
from plogd.controller.controller_context import ControllerContext, KnownTopic
from plogd.controller.exclusive_names import ExclusiveNames
from plogd.controller.partition_creation import (
    NewPartitions,
    first_state,
    partition_count_text,
    plan_partitions,
    with_partitions,
)
from plogd.controller.partition_index import PartitionCounts
from plogd.controller.replica_placement import Assignments
from plogd.controller.term import Term
from plogd.controller.topic_creation import Defaults, NewTopic, TopicPlan, plan_topic
from plogd.controller.topic_deletion import TopicDeletion
from plogd.controller.topic_ids import new_topic_id
from plogd.controller.topic_writes import (
    all_written,
    changed_by_other,
    creation_changes,
    in_groups,
    known_topic,
    partition_change,
    partition_state,
)
from plogd.fair_queue import FairQueue, Slices
from plogd.metadata.cache import PartitionState, TopicState
from plogd.metadata.store import (
    ABSENT,
    Change,
    Conflict,
    Key,
    MetadataStore,
    TopicValue,
)
from plogd.ports import Later, Random, Report

T = TypeVar("T")

_MAX_TRIES: Final = 10
"""Number of attempts to write a key that another program changes again and again."""


class ActiveController:
    """The cluster's topics and the operations on them in one term. Call `load` first."""

    def __init__(
        self,
        term: Term,
        *,
        context: ControllerContext,
        store: MetadataStore,
        brokers: Brokers,
        defaults: Callable[[], Defaults],
        random: Random,
        fair_queue: FairQueue,
        report: Report,
    ) -> None:
        self.term = term
        self.names = ExclusiveNames(term)
        self._store = store
        self._brokers = brokers
        self._defaults = defaults
        self._random = random
        self._queue = fair_queue
        self._report = report
        self._context = context
        self.deletion = TopicDeletion(
            term,
            context=self._context,
            names=self.names,
            store=store,
            brokers=brokers,
            defaults=defaults,
            report=report,
        )
        self.is_loaded = False
        """Whether all topics have been loaded, so that operations can begin."""

    @property
    def partition_counts(self) -> PartitionCounts:
        """The numbers of partitions that need attention."""
        return self._context.partitions.counts(self._context.deleting)

    # -- loading ------------------------------------------------------------------------------

    async def load(self) -> list[TopicState]:
        """Load all topics, and complete those that an earlier term has not written completely.

        Returns the topics that can be served. Raises NotController if the term ends.
        """
        slices = Slices(self._queue)
        for key in self._store.load(("topic",)):
            await self._load_topic(str(key[1]), slices)
        self.term.check()
        self.is_loaded = True
        return self._context.served_topics()

    async def _load_topic(self, name: str, slices: Slices) -> None:
        known = await self._read(name, slices)
        if known is None:
            return
        self._context.put(known)
        if self.deletion.is_due(name):
            # Not completed, because it is deleted as soon as all topics are loaded.
            self._context.deleting.add(name)
            return
        try:
            if known.state.topic_id == ZERO_UUID:
                await self._assign_id(name, slices)
            await self._complete(name, slices)
        except NotController:
            raise
        except KafkaError as error:
            self._context.incomplete.add(name)
            self._report(
                "topic {topic} is offline: {error}",
                topic=name,
                error=error.message,
                level="error",
            )

    async def _assign_id(self, name: str, slices: Slices) -> None:
        """Give an id to a topic that Kafka has created before version 2.8."""
        key: Key = ("topic", name)
        value, version = self._store.get(key)
        value = replace(value, topic_id=new_topic_id(self._random))
        if not all_written(await self.term.write([Change(key=key, value=value, expected=version)])):
            raise changed_by_other(name)
        await self._read_written(name, slices)

    async def _read(self, name: str, slices: Slices) -> KnownTopic | None:
        """Return the topic in the store, or None."""
        self.term.check()
        value, version = self._store.get(("topic", name))
        if version == ABSENT:
            return None
        partitions: list[tuple[PartitionState, int]] = []
        async for number in slices.over(sorted(value.assignments)):
            # The store forgets all topics when the term ends, which may be between two slices.
            self.term.check()
            found, state_version = self._store.get(("partition", name, number))
            state = partition_state(number, value, found)
            offline = self._context.offline_replicas(name, value.topic_id, number)
            if offline:
                state = replace(state, offline_replicas=offline)
            partitions.append((state, state_version))
        config: Mapping[str, str] = self._store.get(("config", "topic", name))[0] or {}
        return known_topic(name, value, version, partitions, config)

    def _live(self) -> frozenset[int]:
        """Return the registered brokers."""
        return frozenset(value.broker_id for value, _ in self._store.load(("broker",)).values())

    async def _complete(self, name: str, slices: Slices) -> TopicState:
        """Write the first states of partitions that have none; return the complete topic.

        Raises KafkaStorageError, also if the settings or a partition cannot be read.
        """
        # A topic whose settings cannot be read must not be served with other settings.
        problem = self._store.problem(("config", "topic", name))
        if problem is not None:
            raise KafkaStorageError(problem)
        known = self._known(name)
        if not known.is_complete:
            partitions = zip(known.state.partitions, known.partition_versions, strict=True)
            live = self._live()
            missing = [
                first_state(state.partition, state.replicas, live)
                async for state, version in slices.over(partitions)
                if version == ABSENT
            ]
            for group in in_groups(missing, self._store.max_atomic_changes):
                changes = [partition_change(name, state) async for state in slices.over(group)]
                if not all_written(await self.term.write(changes)):
                    raise changed_by_other(name)
            known = await self._read_written(name, slices)
        return known.state

    def _known(self, name: str) -> KnownTopic:
        """Return a topic that exists while this operation uses its name."""
        known = self._context.get(name)
        assert known is not None, f"topic {name} is unknown"
        return known

    async def _read_written(self, name: str, slices: Slices) -> KnownTopic:
        """Take over a topic that was just written from the store."""
        known = await self._read(name, slices)
        if known is None:
            raise changed_by_other(name)
        self._context.put(known)
        return known

    def config_changed(self, name: str, config: Mapping[str, str]) -> None:
        """Note the new settings of a topic, which any broker may write."""
        # Watchers run before the write completes, so a topic that is being created is not known
        # yet. Its settings are read when it is added.
        self._context.put_config(name, config)

    async def run_exclusively(self, name: str, operation: Callable[[], Later[T]]) -> T:
        """Run `operation` while no other operation on the topic with this name is in progress."""

        async def run() -> T:
            return await self.term.wait(operation())

        return await self.names.run(name, run)

    # -- creation -----------------------------------------------------------------------------

    def plan(self, new: NewTopic) -> TopicPlan:
        """Return the plan for a new topic. Raises the KafkaError that the client receives."""
        # A creation first completes the deletion of the former topic, whose name is still in use.
        is_deleting = new.name in self._context.deleting
        existing = {} if is_deleting else self._context.names_by_collision_key
        return plan_topic(new, existing, self._defaults())

    async def create_topic(self, new: NewTopic) -> TopicState:
        """Create a topic; completes when it is usable. Raises the KafkaError for the client."""
        topic = await self.names.run(new.name, lambda: self._create_topic(new))
        self._report(
            "created topic {topic} with {partitions}",
            topic=topic.name,
            partitions=partition_count_text(len(topic.partitions)),
        )
        return topic

    async def _create_topic(self, new: NewTopic) -> TopicState:
        name = new.name
        known = self._context.get(name)
        if known is not None and name in self._context.deleting:
            # Its deletion or rollback is not complete; the name is still in use.
            await self.deletion.delete(known.state)
        # Planned only after the wait, because another operation may have taken the name.
        plan = self.plan(new)
        slices = Slices(self._queue)
        await self._write_new_topic(plan, slices)
        created = await self._read_written(name, slices)
        try:
            return await self._start(await self._complete(name, slices))
        except NotController:
            # The next controller completes the topic.
            raise
        except Exception:
            # Any exception requires a rollback: otherwise, clients could neither use nor delete the
            # topic.
            await self._roll_back(created.state)
            raise

    async def _write_new_topic(self, plan: TopicPlan, slices: Slices) -> None:
        """Write the topic as a whole, or with its first partitions if it has too many."""
        name = plan.name
        value = TopicValue(topic_id=new_topic_id(self._random), assignments=plan.assignments)
        for _ in range(_MAX_TRIES):
            # Settings may remain of a deleted topic: any broker could change them until the end.
            _, config_version = self._store.get(("config", "topic", name))
            changes = creation_changes(name, value, plan.config, config_version)
            await self._add_states(changes, name, plan.assignments, slices)
            outcomes = await self.term.write(changes)
            if all_written(outcomes):
                return
            first = outcomes[0]
            if isinstance(first, Conflict) and first.version != ABSENT:
                raise TopicAlreadyExists(f"Topic '{name}' already exists.")
        raise changed_by_other(name)

    async def _add_states(
        self, changes: list[Change], name: str, assignments: Assignments, slices: Slices
    ) -> None:
        """Add the first states of as many partitions as fit in one write."""
        room, live = self._store.max_atomic_changes - len(changes), self._live()
        async for number, replicas in slices.over(sorted(assignments.items())[:room]):
            changes.append(partition_change(name, first_state(number, replicas, live)))

    async def _start(self, topic: TopicState) -> TopicState:
        """Let the brokers of a topic serve all its partitions."""
        await self.term.run(lambda: self._brokers.start_topic(topic))
        return topic

    async def _roll_back(self, topic: TopicState) -> None:
        """Remove a topic whose logs cannot be created."""
        self._report(
            "rolled back the creation of topic {topic}: cannot create its logs",
            topic=topic.name,
            level="warn",
        )
        # Added first: if a step fails, the next creation of the topic removes it.
        self._context.deleting.add(topic.name)
        await self.deletion.delete(topic)

    # -- more partitions ----------------------------------------------------------------------

    def plan_partitions(self, requested: NewPartitions) -> Assignments:
        """Return the partitions to add. Raises the KafkaError that the client receives."""
        topic = self._context.existing(requested.topic)
        defaults = self._defaults()
        return plan_partitions(requested, topic, defaults.brokers, defaults.racks)

    async def create_partitions(self, requested: NewPartitions) -> TopicState:
        """Add partitions to a topic; completes when they are usable.

        If this raises the KafkaError for the client, the topic is unchanged, unless only some of
        the new partitions could be written. The next expansion or term then writes the others.
        """
        topic = await self.names.run(requested.topic, lambda: self._create_partitions(requested))
        self._report(
            "expanded topic {topic} to {partitions}",
            topic=topic.name,
            partitions=partition_count_text(len(topic.partitions)),
        )
        return topic

    async def _create_partitions(self, requested: NewPartitions) -> TopicState:
        name = requested.topic
        slices = Slices(self._queue)
        if name in self._context.incomplete and name not in self._context.deleting:
            await self._start(await self._complete(name, slices))
        assignments = self.plan_partitions(requested)
        topic = await self._expanded(name, assignments, slices)
        try:
            # Create the logs first: if that failed after the write, no record could remove the
            # partitions.
            await self.term.run(lambda: self._brokers.create_logs(topic))
            await self._write_assignments(name, assignments, slices)
        except NotController:
            raise
        except Exception:
            await self.term.run(lambda: self._brokers.remove_unserved_logs(topic))
            raise
        await self._read_written(name, slices)
        return await self._start(await self._complete(name, slices))

    async def _expanded(self, name: str, assignments: Assignments, slices: Slices) -> TopicState:
        placed = sorted(assignments.items())
        new = tuple([first_state(*each) async for each in slices.over(placed)])
        return with_partitions(self._known(name).state, new)

    async def _write_assignments(self, name: str, assignments: Assignments, slices: Slices) -> None:
        """Write the replicas of new partitions, and as many first states as fit.

        Raises a KafkaError for the client if another program has changed the topic.
        """
        key: Key = ("topic", name)
        value, version = self._store.get(key)
        if version == self._known(name).version:
            # Only the new partitions: a reassignment may be in progress.
            value = replace(value, assignments={**value.assignments, **assignments})
            changes = [Change(key=key, value=value, expected=version)]
            await self._add_states(changes, name, assignments, slices)
            if all_written(await self.term.write(changes)):
                return
        await self.take_over(name, slices)
        raise changed_by_other(name)

    async def take_over(self, name: str, slices: Slices) -> None:
        """Serve a topic as another program has written it.

        Raises UnknownTopicOrPartition if the program has deleted it.
        """
        old = self._known(name)
        new = await self._read(name, slices)
        if new is None or new.state.topic_id != old.state.topic_id:
            self._context.drop(name)
            await self.term.run(lambda: self._brokers.stop_topic(old.state))
        if new is None:
            raise UnknownTopicOrPartition(f"topic '{name}' was deleted by another program")
        self._context.put(new)
        await self._start(await self._complete(name, slices))

    # -- deletion -----------------------------------------------------------------------------

    async def delete_topic(self, name: str, topic_id: Uuid) -> None:
        """Delete the topic if it still has this id; completes when its logs are deleted.

        Raises UnknownTopicOrPartition, or KafkaStorageError if the write fails.
        """
        await self.names.run(name, lambda: self._delete_topic(name, topic_id))
        self._report("deleted topic {topic}", topic=name)

    async def _delete_topic(self, name: str, topic_id: Uuid) -> None:
        known = self._context.get(name)
        # With another id, the topic was deleted and recreated while this operation waited.
        if known is None or known.state.topic_id != topic_id:
            raise UnknownTopicOrPartition(f"topic '{name}' no longer exists")
        if self._store.keeps_deletion_marks:
            await self.deletion.delete(known.state)
            return
        # Write the removal first: if the broker crashes before the logs are deleted, the next
        # startup moves them away. If the order were reversed, the startup would recreate the
        # topic's logs.
        await self.deletion.remove(name)
        await self.term.run(lambda: self._brokers.stop_topic(known.state))
