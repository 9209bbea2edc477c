"""React to brokers that register, restart or are gone, and to replicas that have failed.

One loop per term handles all of these events: it compares the registered brokers with those that it
knows, elects leaders for the partitions that need one, and informs the brokers. Events that arrive
meanwhile are handled in the next round. Nothing waits for a single broker: the responses of brokers
are events of their own.

Source: Kafka 3.9 KafkaController.onBrokerStartup, onBrokerFailure, onReplicasBecomeOffline.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from plog.errors import ErrorCode, KafkaError, NotController
from plog.types import TopicPartition
from plogd.controller.cluster.broker_channels import BrokerChannels
from plogd.controller.cluster.broker_updates import BrokerUpdates, ReplicaFailure
from plogd.controller.cluster.leader_election import (
    Brokers,
    in_next_epoch,
    without_offline_replicas,
)
from plogd.controller.cluster.partition_changes import PartitionChanges
from plogd.controller.controller_context import ControllerContext
from plogd.metadata.cache import PartitionState, TopicState
from plogd.metadata.store import BrokerRegistration, MetadataStore
from plogd.ports import Later, Report, Timers, spawn

_RETRY_MS: Final = 1_000.0
"""Time until elections that could not be written are tried again."""


class BrokerChanges:
    """The live brokers of a cluster in one term of the controller."""

    def __init__(
        self,
        *,
        store: MetadataStore,
        context: ControllerContext,
        channels: BrokerChannels,
        changes: PartitionChanges,
        timers: Timers,
        report: Report,
    ) -> None:
        self._store = store
        self._context = context
        self._channels = channels
        self._changes = changes
        self._timers = timers
        self._report = report
        self.updates: BrokerUpdates
        """Sends the state of partitions; set before `begin`."""
        self.on_handled: Callable[[], None] = _do_nothing
        """Called after each round, when the leaders that are in sync have been elected."""
        self.brokers: Mapping[int, BrokerRegistration] = {}
        """The live brokers by id."""
        self.epochs: Mapping[int, int] = {}
        """The broker epochs of the live brokers by id."""
        self.shutting_down: set[int] = set()
        """The brokers that have requested a controlled shutdown."""
        self._offline: dict[TopicPartition, set[int]] = {}
        """The brokers of replicas whose log directory has failed."""
        self._fenced: set[TopicPartition] = set()
        """Partitions that need a new leader epoch."""
        self._is_due = False
        self._is_running = False
        self._is_over = False

    def end(self) -> None:
        """React to nothing more."""
        self._is_over = True

    @property
    def liveness(self) -> Brokers:
        """The brokers that can lead partitions."""
        return Brokers(live=self.brokers.keys(), shutting_down=frozenset(self.shutting_down))

    def begin(self) -> None:
        """Inform all brokers, after the controller has loaded all topics."""
        self.changed()

    def changed(self) -> None:
        """Note that the registered brokers may have changed."""
        self._is_due = True
        if not self._is_running and not self._is_over:
            self._is_running = True
            spawn(self._run()).then(_ignore, self._ended)

    def replicas_failed(self, failures: Iterable[ReplicaFailure]) -> None:
        """Note that replicas could not do what the controller has requested."""
        some = list(failures)
        for failure in some:
            self._note(failure)
        if some:
            self.changed()

    async def _run(self) -> None:
        try:
            while self._is_due and not self._is_over:
                self._is_due = False
                await self._handle()
        finally:
            self._is_running = False

    def _ended(self, error: Exception) -> None:
        if isinstance(error, NotController):
            return
        # A ValueError is that of a damaged znode.
        if not isinstance(error, KafkaError | ValueError):
            raise error
        self._report(
            "cannot write the elections of leaders: {error}; retrying",
            error=str(error),
            level="error",
        )
        self._timers.call_later(_RETRY_MS, self.changed)

    async def _handle(self) -> None:
        started = self._compare()
        for broker_id in started:
            self.watch(self.updates.send_all(broker_id))
        fenced = frozenset(self._fenced)
        await self._changes.change_all(
            lambda key, state: self._decide(state, is_fenced=key in fenced), self.inform
        )
        self._fenced -= fenced
        self.on_handled()

    def _decide(self, state: PartitionState, *, is_fenced: bool) -> PartitionState | None:
        new = without_offline_replicas(state, self.liveness)
        # Rule C1: its leader has found records of this epoch in its log, from before its restart.
        if is_fenced and (new is None or new.leader_epoch == state.leader_epoch):
            return in_next_epoch(new or state)
        return new

    def inform(self, partitions: Collection[TopicPartition]) -> None:
        """Send the present state of partitions to the brokers."""
        if partitions:
            for sent in self.updates.send(partitions).values():
                self.watch(sent)

    def watch(self, sent: Later[list[ReplicaFailure]]) -> None:
        """Handle the failures that the response of a broker reports, when it arrives."""
        sent.then(self.replicas_failed, self._ended)

    # -- brokers ------------------------------------------------------------------------------

    def _compare(self) -> list[int]:
        """Take over the registered brokers; return those that have started since the last time."""
        old = self.brokers
        found: dict[int, BrokerRegistration] = {
            value.broker_id: value for value, _ in self._store.load(("broker",)).values()
        }
        self.brokers = found
        self.epochs = {broker_id: one.broker_epoch for broker_id, one in found.items()}
        started = [
            broker_id
            for broker_id, broker in found.items()
            if broker_id not in old or old[broker_id].broker_epoch != broker.broker_epoch
        ]
        gone = [broker_id for broker_id in old if broker_id not in found]
        self.shutting_down -= {*started, *gone}
        if started or gone:
            self._report_brokers(started, gone)
        if found != old:
            self._channels.update(found)
            self._forget_failures(started)
            self.updates.send_brokers()
        return started

    def _report_brokers(self, started: Sequence[int], gone: Sequence[int]) -> None:
        self._report(
            "live brokers are {brokers}; started: {started}; gone: {gone}",
            brokers=_ids(self.brokers),
            started=_ids(started),
            gone=_ids(gone),
        )

    def topic_deleted(self, topic: TopicState) -> None:
        """Forget the failures of a topic's replicas: a new topic may get its name."""
        for state in topic.partitions:
            key = TopicPartition(topic.name, state.partition)
            self._offline.pop(key, None)
            self._fenced.discard(key)

    # -- failed replicas ----------------------------------------------------------------------

    def _note(self, failure: ReplicaFailure) -> None:
        key = failure.topic_partition
        if failure.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
            self._offline.setdefault(key, set()).add(failure.broker_id)
            self._mark(key)
        elif failure.error_code == ErrorCode.FENCED_LEADER_EPOCH:
            self._fenced.add(key)
        else:
            self._report(
                "broker {broker_id} cannot host {topic_partition}: error {error_code}",
                broker_id=failure.broker_id,
                topic_partition=key,
                error_code=failure.error_code,
                level="warn",
            )

    def _forget_failures(self, started: Sequence[int]) -> None:
        """Assume that the replicas of brokers that have restarted work again."""
        for key, broker_ids in list(self._offline.items()):
            if not broker_ids.isdisjoint(started):
                broker_ids.difference_update(started)
                self._mark(key)
                if not broker_ids:
                    del self._offline[key]

    def _mark(self, key: TopicPartition) -> None:
        """Set the offline replicas of a partition in the context."""
        name, number = key
        known = self._context.get(name)
        if known is not None and number < len(known.state.partitions):
            offline = tuple(sorted(self._offline[key]))
            state = replace(known.state.partitions[number], offline_replicas=offline)
            version = known.partition_versions[number]
            self._context.put_partitions(name, {number: (state, version)})


def _ids(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(brokers))) or "none"


def _ignore(_: object) -> None:
    """Do nothing."""


def _do_nothing() -> None:
    """Do nothing."""
