"""React to brokers that register, restart or are gone, and to replicas that have failed.

One loop per term handles all of these events: it compares the registered brokers with those that it
knows, elects leaders for the partitions that need one, and informs the brokers. Events that arrive
meanwhile are handled in the next round. Nothing waits for a single broker: the responses of brokers
are events of their own.

A broker that has registered again between two looks, or that rejects a leader epoch because it has
restarted (rule C1), is treated as if it had been gone: it may have lost records or its disk. A
replica that reports an error of its log is offline until a later response reports success. If other
members of the ISR are online, such replicas leave the ISR. REPLICA_NOT_AVAILABLE means that the log
lacks records, and could be served if all others do so, too.

Source: Kafka 3.9 KafkaController.onBrokerStartup, onBrokerFailure, onReplicasBecomeOffline.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from plog.errors import ErrorCode, KafkaError, NotController
from plog.types import TopicPartition
from plogd.controller.cluster.broker_channels import BrokerChannels
from plogd.controller.cluster.broker_updates import BrokerUpdates, ReplicaStatus
from plogd.controller.cluster.leader_election import (
    Brokers,
    in_next_epoch,
    led_by_damaged_replica,
    without_restarted,
)
from plogd.controller.cluster.partition_changes import PartitionChanges
from plogd.controller.controller_context import ControllerContext
from plogd.metadata.cache import NO_LEADER, PartitionState, TopicState
from plogd.metadata.store import BrokerRegistration, MetadataStore
from plogd.ports import Later, Report, Timers, spawn

_OFFLINE: Final = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REPLICA_NOT_AVAILABLE})
"""The errors of replicas that cannot do anything."""
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
        channels.on_dropped = self._send_all
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
        self.offline: dict[TopicPartition, set[int]] = {}
        """The brokers of the replicas whose log cannot be used."""
        self.damaged: dict[TopicPartition, set[int]] = {}
        """Those of them whose log only lacks records."""
        self._marked: set[TopicPartition] = set()
        """Partitions whose offline replicas have changed, which clients do not know yet."""
        self._unshown: dict[str, set[int]] = {}
        """Those of them whose offline replicas are not in the context yet, by topic."""
        self._failed: list[ReplicaStatus] = []
        """Failures that were reported since the last round."""
        self._fenced: dict[TopicPartition, int] = {}
        """Leaders that have rejected their leader epoch."""
        self._unconfirmed: set[int] = set()
        """Live brokers that have not responded to `BrokerUpdates.send_all` yet."""
        self._restarted: dict[int, set[TopicPartition]] = {}
        """Brokers that have registered again between two looks, with the partitions in which that
        has been considered already, because others could not be written."""
        self._is_due = False
        self._is_running = False
        self._is_over = False

    def end(self) -> None:
        """React to nothing more."""
        self._is_over = True

    @property
    def liveness(self) -> Brokers:
        """The brokers that can lead partitions."""
        return Brokers(
            live=self.brokers.keys(),
            shutting_down=frozenset(self.shutting_down),
            unconfirmed=frozenset(self._unconfirmed),
        )

    def begin(self) -> None:
        """Inform all brokers, after the controller has loaded all topics."""
        self.changed()

    def changed(self) -> None:
        """Note that the registered brokers may have changed."""
        self._is_due = True
        if not self._is_running and not self._is_over:
            self._is_running = True
            spawn(self._run()).then(_ignore, self._ended)

    def replicas_responded(self, statuses: Sequence[ReplicaStatus]) -> None:
        """Note which replicas have failed, and which ones work again."""
        if not statuses:
            return
        known = sum(map(len, self.offline.values()))
        for status in statuses:
            self._note(status)
        self._show_offline()
        newly_offline = sum(map(len, self.offline.values())) - known
        if newly_offline > 0:
            self._report(
                "the replicas of {count} partitions on broker {broker_id} are offline, such as"
                " {topic_partition}",
                broker_id=statuses[0].broker_id,
                count=newly_offline,
                topic_partition=statuses[0].topic_partition,
                level="warn",
            )
        self.changed()

    def log_dir_failed(self, broker_id: int) -> None:
        """Find out which replicas of a broker are offline."""
        if broker_id in self.brokers:
            self.watch(self.updates.send_hosted(broker_id))

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
            self._send_all(broker_id)
        fenced, restarted = dict(self._fenced), self._restarted
        marked, failed = set(self._marked), list(self._failed)
        handled: set[TopicPartition] = set()
        informed: set[TopicPartition] = set()

        def decide(key: TopicPartition, state: PartitionState) -> PartitionState | None:
            doubtful = {one for one, done in restarted.items() if key not in done}
            new = self._decided(key, state, doubtful, is_fenced=fenced.get(key) == state.leader)
            if new is None and (doubtful or key in fenced):
                handled.add(key)
            return new

        def inform(keys: Collection[TopicPartition]) -> None:
            informed.update(keys)
            self.inform_of_elections(keys)

        failure: Exception | None = None
        try:
            await self._changes.change_all(decide, inform)
        except NotController:
            raise
        except (KafkaError, ValueError) as error:
            failure = error
        # Also after an error: a topic that cannot be written does not affect the others. Otherwise,
        # each attempt would elect leaders for all partitions of a broker that has restarted.
        self.on_handled()
        handled |= informed
        self._fenced = {
            key: one
            for key, one in self._fenced.items()
            if fenced.get(key) != one or (failure is not None and key not in handled)
        }
        for done in self._restarted.values():
            done |= handled
        if failure is None:
            self._restarted = {}
        self._marked -= marked
        del self._failed[: len(failed)]
        # A replica joins the ISR again only after it has learned that it has left it, but brokers
        # are not informed about changes of the ISR that a leader has requested.
        self.inform({one.topic_partition for one in failed if self._is_outdated(one)} - informed)
        if marked - informed:
            self.updates.send(marked - informed, to_replicas=False)
        if failure is not None:
            raise failure

    def _decided(
        self, key: TopicPartition, state: PartitionState, restarted: set[int], *, is_fenced: bool
    ) -> PartitionState | None:
        """Return the next state of a partition after changes of brokers, or None.

        With `is_fenced`, its leader has found records of the leader epoch in its log, from before
        a restart (rule C1).
        """
        is_fenced = is_fenced and state.leader != NO_LEADER
        doubtful = restarted | {state.leader} if is_fenced else restarted
        new = without_restarted(state, self.liveness, doubtful)
        # If no other member can be elected yet, its leader leads in another epoch.
        if is_fenced and (new is None or new.leader_epoch == state.leader_epoch):
            return in_next_epoch(new or state)
        if key in self.damaged and (new or state).leader == NO_LEADER:
            return led_by_damaged_replica(state, self.liveness, self.damaged[key]) or new
        return new

    def _send_all(self, broker_id: int) -> None:
        """Send a live broker everything, because it has registered, or requests were dropped."""
        confirmed = partial(self._confirmed, broker_id, self.epochs[broker_id])
        self.updates.send_all(broker_id).then(confirmed, _unanswered)

    def _confirmed(
        self, broker_id: int, broker_epoch: int, statuses: Sequence[ReplicaStatus]
    ) -> None:
        """Note that a broker has responded to the states of all its partitions."""
        if self.epochs.get(broker_id) == broker_epoch:
            self._unconfirmed.discard(broker_id)
            self.replicas_responded(statuses)
            self.changed()

    def _is_outdated(self, failed: ReplicaStatus) -> bool:
        """Return whether a replica has left the ISR since the request to which it responded."""
        name, number = failed.topic_partition
        topic = self._context.existing(name)
        if topic is None or number >= len(topic.partitions):
            return False
        state = topic.partitions[number]
        is_newer = state.partition_epoch > failed.partition_epoch
        return is_newer and failed.broker_id not in state.isr

    def inform(self, partitions: Collection[TopicPartition]) -> None:
        """Send the present state of partitions to the brokers."""
        if partitions:
            for sent in self.updates.send(partitions).values():
                self.watch(sent)

    def inform_of_elections(self, partitions: Collection[TopicPartition]) -> None:
        """Send the present state of partitions, some of which have new leaders, to the brokers."""
        self._forget_failures_of_leaders(partitions)
        self.inform(partitions)

    def watch(self, sent: Later[list[ReplicaStatus]]) -> None:
        """Handle what the response of a broker reports, when it arrives."""
        sent.then(self.replicas_responded, _unanswered)

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
        self._restarted.update({one: set() for one in started if one in old})
        self._unconfirmed = self._unconfirmed - set(gone) | set(started)
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
            self.offline.pop(key, None)
            self.damaged.pop(key, None)
            self._fenced.pop(key, None)

    # -- failed replicas ----------------------------------------------------------------------

    def _note(self, status: ReplicaStatus) -> None:
        key = status.topic_partition
        if not status.error_code:
            self._works_again(key, {status.broker_id})
        elif status.error_code in _OFFLINE:
            self._failed.append(status)
            self.offline.setdefault(key, set()).add(status.broker_id)
            if status.error_code == ErrorCode.REPLICA_NOT_AVAILABLE:
                self.damaged.setdefault(key, set()).add(status.broker_id)
            self._mark(key)
        elif status.error_code == ErrorCode.FENCED_LEADER_EPOCH:
            self._fenced[key] = status.broker_id
        else:
            self._report(
                "broker {broker_id} cannot host {topic_partition}: error {error_code}",
                broker_id=status.broker_id,
                topic_partition=key,
                error_code=status.error_code,
                level="warn",
            )

    def _forget_failures(self, started: Sequence[int]) -> None:
        """Assume that the replicas of brokers that have restarted work again."""
        for key, broker_ids in list(self.offline.items()):
            if not broker_ids.isdisjoint(started):
                self._works_again(key, started)
        self._show_offline()

    def _works_again(self, key: TopicPartition, broker_ids: Iterable[int]) -> None:
        for failures in (self.offline, self.damaged):
            failed = failures.get(key, set())
            failed.difference_update(broker_ids)
            if not failed:
                failures.pop(key, None)
        self._mark(key)

    def _forget_failures_of_leaders(self, keys: Collection[TopicPartition]) -> None:
        """Assume that damaged replicas that have just been elected work."""
        for key in keys:
            topic = self._context.existing(key.topic) if key in self.damaged else None
            if topic is not None and key.partition < len(topic.partitions):
                self._works_again(key, {topic.partitions[key.partition].leader})
        self._show_offline()

    def _mark(self, key: TopicPartition) -> None:
        """Note that the offline replicas of a partition have changed; `_show_offline` follows."""
        self._marked.add(key)
        self._unshown.setdefault(key.topic, set()).add(key.partition)

    def _show_offline(self) -> None:
        """Set the offline replicas of the partitions in the context, once for each topic."""
        unshown, self._unshown = self._unshown, {}
        for name, numbers in unshown.items():
            known = self._context.get(name)
            if known is None:
                continue
            changed: dict[int, tuple[PartitionState, int]] = {}
            for number in numbers:
                if number < len(known.state.partitions):
                    offline = self.offline.get(TopicPartition(name, number), ())
                    state = replace(
                        known.state.partitions[number], offline_replicas=tuple(sorted(offline))
                    )
                    changed[number] = state, known.partition_versions[number]
            self._context.put_partitions(name, changed)


def _ids(brokers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(brokers))) or "none"


def _unanswered(error: Exception) -> None:
    """Ignore that a broker has not responded: if it is gone, that causes elections of its own."""
    if not isinstance(error, KafkaError):
        raise error


def _ignore(_: object) -> None:
    """Do nothing."""


def _do_nothing() -> None:
    """Do nothing."""
