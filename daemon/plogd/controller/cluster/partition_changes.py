"""Change the leaders and in-sync replicas of partitions, in one term of the controller.

Every change is a decision, a pure function from a partition's state to its next state
(leader_election.py, isr_change.py), which is written if the state is still the one that the
decision has seen. Otherwise, the decision is made again for the newer state. The context changes
only after a write, and the brokers are informed after that. If the controller stops in between, the
next one finds the new states in the store and sends them to all brokers.

Source: Kafka 3.9 PartitionStateMachine, ReplicaStateMachine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, TypeAlias

from plog.errors import KafkaError, NotController
from plog.types import TopicPartition
from plogd.controller.controller_context import ControllerContext
from plogd.controller.term import Term
from plogd.controller.topic_writes import partition_value, with_value
from plogd.fair_queue import FairQueue, Slices
from plogd.metadata.cache import PartitionState
from plogd.metadata.store import Change, MetadataStore, Written

Decision: TypeAlias = Callable[[TopicPartition, PartitionState], PartitionState | None]
"""Returns the next state of a partition, or None if it must not change."""
Inform: TypeAlias = Callable[[Collection[TopicPartition]], object]
"""Called with the changed partitions of a topic."""

_MAX_TRIES: Final = 10
"""Number of attempts to change a partition that another program changes again and again."""


class PartitionChanges:
    """Writes the decisions about partitions.

    Args:
        term: the term in which they are written.
        context: the topics, which it updates.
        store: the metadata store.
        fair_queue: limits how long the partitions are looked at without a pause.
    """

    def __init__(
        self,
        term: Term,
        *,
        context: ControllerContext,
        store: MetadataStore,
        fair_queue: FairQueue,
    ) -> None:
        self._term = term
        self._context = context
        self._store = store
        self._queue = fair_queue
        self.on_changed: Callable[[Collection[TopicPartition]], None] = _ignore
        """Called with the changed partitions of a topic, before the caller knows them."""

    async def change_all(self, decide: Decision, inform: Inform) -> None:
        """Decide about every partition, and call `inform` with the changed ones of each topic.

        A topic that cannot be written does not affect the others: its error is raised at the end.
        Raises NotController if the term ends, KafkaStorageError, or ValueError.
        """
        failure: Exception | None = None
        for name in [topic.name for topic in self._context.served_topics()]:
            topic = self._context.existing(name)
            if topic is None:
                continue
            changed: list[TopicPartition] = []
            try:
                await self._change(name, range(len(topic.partitions)), decide, changed)
            except NotController:
                raise
            except (KafkaError, ValueError) as error:
                failure = failure or error
            if changed:
                inform(changed)
        if failure is not None:
            raise failure

    async def change(
        self, partitions: Iterable[TopicPartition], decide: Decision, inform: Inform | None = None
    ) -> list[TopicPartition]:
        """Decide about these partitions, like `change_all`; ignore those that do not exist.

        Returns the changed ones. After an error, the topics that follow are not changed.
        """
        numbers: dict[str, list[int]] = {}
        for name, number in partitions:
            numbers.setdefault(name, []).append(number)
        all_changed: list[TopicPartition] = []
        for name, some in numbers.items():
            changed: list[TopicPartition] = []
            try:
                await self._change(name, some, decide, changed)
            finally:
                # Also after an error, because otherwise the brokers would not learn of the changes
                # that have been made.
                if changed and inform is not None and not self._term.is_over:
                    inform(changed)
            all_changed += changed
        return all_changed

    async def _change(
        self,
        name: str,
        numbers: Collection[int],
        decide: Decision,
        changed: list[TopicPartition],
    ) -> None:
        """Decide about partitions of a topic; add those that have changed to `changed`."""
        slices = Slices(self._queue)
        before = len(changed)
        try:
            await self._try_to_change(name, numbers, decide, changed, slices)
        finally:
            if len(changed) > before:
                self.on_changed(changed[before:])

    async def _try_to_change(
        self,
        name: str,
        numbers: Collection[int],
        decide: Decision,
        changed: list[TopicPartition],
        slices: Slices,
    ) -> None:
        for _ in range(_MAX_TRIES):
            changes = [
                change
                async for number in slices.over(list(numbers))
                if (change := self._decided(name, number, decide)) is not None
            ]
            if not changes:
                break
            written = [int(change.key[2]) for change in changes]
            try:
                outcomes = await self._term.write_each(changes)
            except NotController:
                raise
            except Exception:
                # Some of the changes may have been made.
                changed += await self._take_over(name, written, slices)
                raise
            changed += await self._take_over(name, written, slices)
            numbers = [
                number
                for number, outcome in zip(written, outcomes, strict=True)
                if not isinstance(outcome, Written)
            ]

    def _decided(self, name: str, number: int, decide: Decision) -> Change | None:
        self._term.check()
        known = self._context.get(name)
        if self._context.existing(name) is None or known is None:
            return None  # It has been deleted in the meantime.
        if not 0 <= number < len(known.state.partitions):
            return None
        state = known.state.partitions[number]
        new = decide(TopicPartition(name, number), state)
        if new is None or new == state:
            return None
        return Change(
            key=("partition", name, number),
            value=partition_value(new),
            expected=known.partition_versions[number],
        )

    async def take_over(self, name: str, numbers: Sequence[int]) -> list[TopicPartition]:
        """Take over the states in the store, which a write or a conflict has just updated.

        Returns the partitions that have changed.
        """
        return await self._take_over(name, numbers, Slices(self._queue))

    async def _take_over(
        self, name: str, numbers: Sequence[int], slices: Slices
    ) -> list[TopicPartition]:
        found: dict[int, tuple[PartitionState, int]] = {}
        async for number in slices.over(numbers):
            self._term.check()
            known = self._context.get(name)
            if known is None or number >= len(known.state.partitions):
                continue
            value, version = self._store.get(("partition", name, number))
            if value is not None:
                old = known.state.partitions[number]
                # With the offline replicas, which are not in the store: brokers report them.
                state = with_value(old, value)
                if state != old or version != known.partition_versions[number]:
                    found[number] = state, version
        self._context.put_partitions(name, found)
        return [TopicPartition(name, number) for number in found]


def _ignore(_: object) -> None:
    """Do nothing."""
