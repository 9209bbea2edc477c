"""Move partitions to other brokers (KIP-455), in one term of the controller.

  begin      write the replicas of both assignments, in a new leader epoch, and inform the brokers
  wait       the added replicas copy the records, and their leader adds them to the ISR
  complete   write the target replicas, an ISR without the others, and a leader that stays

Each of these writes changes the topic's key and the states of some of its partitions in one
transaction, so a partition is always before or after a step. Removed replicas are deleted after
the write. If the controller stops in between, the next one finds the reassignment in the topic's
key and continues it; brokers that have not deleted a removed replica move its log away, because it
is missing in the list of their partitions. A cancellation, and a second reassignment of the same
partition, are begun like the first one, and remove the replicas that are no longer needed at once.

Operations on the topic's name exclude each other, so a topic is not expanded or deleted during a
step. A deletion does not wait for the reassignment, but ends it.

Source: Kafka 3.9 KafkaController.onPartitionReassignment, which writes the topic and its
partitions separately; KIP-455.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from plog.errors import InvalidReplicaAssignment, KafkaError, NotController
from plog.types import TopicPartition
from plogd.controller.cluster.broker_changes import BrokerChanges
from plogd.controller.cluster.leader_election import reassigned, with_assignment
from plogd.controller.cluster.partition_changes import PartitionChanges
from plogd.controller.controller_context import ControllerContext
from plogd.controller.exclusive_names import ExclusiveNames
from plogd.controller.reassignments import partition_of, plan_reassignment
from plogd.controller.replica_assignment import ReplicaAssignment
from plogd.controller.term import Term
from plogd.controller.topic_writes import all_written, changed_by_other, partition_value, with_value
from plogd.fair_queue import FairQueue, Slices
from plogd.metadata.cache import PartitionState, TopicState
from plogd.metadata.store import Change, MetadataStore, TopicValue
from plogd.ports import Later, Report, Timers, spawn

_MAX_TRIES: Final = 10
"""Number of attempts to write partitions that change at the same time again and again."""
_RETRY_MS: Final = 1_000.0
"""Time until a step that could not be written is tried again."""
_SHOWN_PARTITIONS: Final = 10
"""Maximum number of partitions in a log line."""

_Decision: TypeAlias = Callable[[PartitionState], PartitionState | None]
"""Returns the next state of a partition, or None if it must not change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAccess:
    """What the steps need of the operations on topics."""

    names: ExclusiveNames
    take_over: Callable[[str, Slices], Coroutine[Later[Any], Any, None]]
    """Serves a topic as another program has written it."""


class PartitionReassignments:
    """The reassignments of partitions in one term."""

    def __init__(
        self,
        term: Term,
        topics: TopicAccess,
        *,
        context: ControllerContext,
        store: MetadataStore,
        brokers: BrokerChanges,
        changes: PartitionChanges,
        fair_queue: FairQueue,
        timers: Timers,
        report: Report,
    ) -> None:
        self._term = term
        self._topics = topics
        self._context = context
        self._store = store
        self._brokers = brokers
        self._changes = changes
        self._queue = fair_queue
        self._timers = timers
        self._report = report
        self._due: dict[str, set[int]] = {}
        """The partitions whose reassignment may be complete, by topic."""
        self._completing: set[str] = set()
        """The topics of which partitions are being completed."""
        self._is_checking = False

    # -- requests -----------------------------------------------------------------------------

    async def alter(
        self,
        name: str,
        wanted: Mapping[int, Sequence[int] | None],
        *,
        may_change_factor: bool = True,
    ) -> Mapping[int, KafkaError]:
        """Begin, replace or cancel reassignments of a topic's partitions; return the errors.

        `wanted` has the target replicas by partition; None cancels. Completes when the first step
        is written. Raises NotController or KafkaStorageError.
        """
        errors: dict[int, KafkaError] = {}

        def decide(state: PartitionState) -> PartitionState | None:
            # A second decision, after a conflict, replaces the first one.
            errors.pop(state.partition, None)
            return self._begun(name, state, wanted[state.partition], may_change_factor)

        async def begin() -> None:
            await self._write(name, wanted, decide, errors)

        await self._topics.names.run(name, begin)
        return errors

    def _begun(
        self,
        name: str,
        state: PartitionState,
        target: Sequence[int] | None,
        may_change_factor: bool,
    ) -> PartitionState | None:
        """Return the state in which a reassignment begins. Raises the KafkaError for the client."""
        liveness = self._brokers.liveness
        assignment = plan_reassignment(
            self._context.existing(name),
            state.partition,
            target,
            brokers=liveness.live,
            may_change_factor=may_change_factor,
        )
        if assignment == ReplicaAssignment.of(state):
            return None
        begun = with_assignment(state, assignment, liveness)
        if begun is None:
            raise InvalidReplicaAssignment(
                f"cannot remove replicas of partition {state.partition}: none of the replicas"
                f" {list(assignment.replicas)} is in sync and running"
            )
        # If no replica has to be added, this is the only step.
        done = reassigned(begun, liveness)
        return begun if done is None else replace(done, leader_epoch=begun.leader_epoch)

    async def ongoing(
        self, partitions: Iterable[TopicPartition] | None, slices: Slices
    ) -> Mapping[str, Sequence[PartitionState]]:
        """Return the partitions that are being reassigned, by topic; of all if None."""
        if partitions is None:
            by_topic = self._context.partitions.reassigning.by_topic()
            partitions = [TopicPartition(name, n) for name, some in by_topic.items() for n in some]
        found: dict[str, dict[int, PartitionState]] = {}
        async for key in slices.over(partitions):
            topic = self._context.existing(key.topic)
            if topic is not None and 0 <= key.partition < len(topic.partitions):
                state = topic.partitions[key.partition]
                if state.is_reassigning:
                    found.setdefault(key.topic, {})[key.partition] = state
        return {name: list(states.values()) for name, states in found.items()}

    # -- completion ---------------------------------------------------------------------------

    def check(self) -> None:
        """Complete all reassignments that can be completed, in the background.

        Called after each round of changes of the brokers, the first of which follows the start of
        the term: a target replica may be able to lead now.
        """
        if not self._is_checking and self._context.partitions.reassigning.count:
            self._is_checking = True
            spawn(self._check_topics()).then(_ignore, _raise)

    async def _check_topics(self) -> None:
        try:
            by_topic = self._context.partitions.reassigning.by_topic()
            async for name in Slices(self._queue).over(list(by_topic)):
                if self._term.is_over:
                    break
                self._check_all(name)
        finally:
            self._is_checking = False

    def _check_all(self, name: str) -> None:
        numbers = self._context.partitions.reassigning.of(name)
        self.changed([TopicPartition(name, number) for number in numbers])

    def changed(self, partitions: Collection[TopicPartition]) -> None:
        """Complete the reassignments of these partitions in the background, if they can be."""
        for key in partitions:
            if key.partition in self._context.partitions.reassigning.of(key.topic):
                self._due.setdefault(key.topic, set()).add(key.partition)
        for name in dict.fromkeys(key.topic for key in partitions):
            if name in self._due and name not in self._completing:
                self._completing.add(name)
                spawn(self._complete(name)).then(_ignore, _raise)

    async def _complete(self, name: str) -> None:
        """Complete the due reassignments of a topic, until none is left."""
        try:
            # After the change that made them due has been sent to the brokers.
            await self._queue.turn()
            while name in self._due and not self._term.is_over:
                await self._topics.names.run(name, lambda: self._complete_due(name))
        except NotController:
            pass  # The next controller continues.
        except (KafkaError, ValueError) as error:  # A ValueError is that of a damaged znode.
            self._report(
                "cannot complete reassignments of topic {topic}: {error}; retrying",
                topic=name,
                error=str(error),
                level="error",
            )
            self._timers.call_later(_RETRY_MS, lambda: self._retry(name))
        finally:
            self._completing.discard(name)

    def _retry(self, name: str) -> None:
        if not self._term.is_over:
            self._check_all(name)

    async def _complete_due(self, name: str) -> None:
        numbers = self._due.pop(name, set())
        done = await self._write(
            name, numbers, lambda state: reassigned(state, self._brokers.liveness), {}
        )
        if done:
            shown = ", ".join(
                f"{name}-{one.partition} to brokers {list(one.replicas)}"
                for one in done[:_SHOWN_PARTITIONS]
            )
            self._report(
                "completed the reassignment of {count} partitions: {partitions}",
                count=len(done),
                partitions=shown + (", …" if len(done) > _SHOWN_PARTITIONS else ""),
                topic=name,
            )

    # -- writes -------------------------------------------------------------------------------

    async def _write(
        self,
        name: str,
        numbers: Iterable[int],
        decide: _Decision,
        errors: dict[int, KafkaError],
    ) -> list[PartitionState]:
        """Write decisions about partitions of a topic; return the new states.

        The KafkaErrors of `decide` are added to `errors`.
        """
        slices = Slices(self._queue)
        in_order = sorted(numbers)
        # One change of each transaction is that of the topic's key.
        size = self._store.max_atomic_changes - 1
        new: list[PartitionState] = []
        for start in range(0, len(in_order), size):
            new += await self._write_group(
                name, in_order[start : start + size], decide, errors, slices
            )
        return new

    async def _write_group(
        self,
        name: str,
        numbers: Sequence[int],
        decide: _Decision,
        errors: dict[int, KafkaError],
        slices: Slices,
    ) -> list[PartitionState]:
        for _ in range(_MAX_TRIES):
            new = [
                state
                async for number in slices.over(numbers)
                if (state := self._decided(name, number, decide, errors)) is not None
            ]
            known = self._context.get(name)
            if not new or known is None:
                return []
            value, version = self._store.get(("topic", name))
            if version == known.version:
                changes = [
                    Change(
                        key=("topic", name), value=_with_assignments(value, new), expected=version
                    ),
                    *(
                        Change(
                            key=("partition", name, state.partition),
                            value=partition_value(state),
                            expected=known.partition_versions[state.partition],
                        )
                        for state in new
                    ),
                ]
                outcomes = await self._term.write(changes)
                if all_written(outcomes):
                    return self._take(known.state, new)
                await self._changes.take_over(name, [state.partition for state in new])
            if self._store.get(("topic", name))[1] != known.version:
                # Another program has changed the topic.
                await self._topics.take_over(name, slices)
        raise changed_by_other(name)

    def _decided(
        self, name: str, number: int, decide: _Decision, errors: dict[int, KafkaError]
    ) -> PartitionState | None:
        self._term.check()
        try:
            return decide(partition_of(self._context.existing(name), number))
        except KafkaError as error:
            errors[number] = error.bare()
            return None

    def _take(self, old: TopicState, new: Sequence[PartitionState]) -> list[PartitionState]:
        """Take over the states that have been written, and inform the brokers."""
        name = old.name
        written: dict[int, tuple[PartitionState, int]] = {}
        removed: dict[int, list[PartitionState]] = {}
        for state in new:
            value, version = self._store.get(("partition", name, state.partition))
            present = with_value(state, value)
            written[state.partition] = present, version
            for broker_id in old.partitions[state.partition].replicas:
                if broker_id not in present.replicas:
                    removed.setdefault(broker_id, []).append(present)
        _, topic_version = self._store.get(("topic", name))
        self._context.put_partitions(name, written, topic_version)
        keys = [TopicPartition(name, number) for number in written]
        self._brokers.inform(keys)
        self._brokers.updates.delete_replicas(old, removed)
        # All replicas may be in sync already.
        self.changed(keys)
        return [state for state, _ in written.values()]


def _with_assignments(topic: TopicValue, new: Iterable[PartitionState]) -> TopicValue:
    """Return the topic's key with the replicas of these partitions."""
    states = tuple(new)
    return replace(
        topic,
        assignments={**topic.assignments, **{one.partition: one.replicas for one in states}},
        adding_replicas={
            **topic.adding_replicas,
            **{one.partition: one.adding_replicas for one in states},
        },
        removing_replicas={
            **topic.removing_replicas,
            **{one.partition: one.removing_replicas for one in states},
        },
    )


def _ignore(_: None) -> None:
    """Do nothing: the outcome has been reported."""


def _raise(error: Exception) -> None:
    """Raise a bug, so that the reactor reports it."""
    raise error
