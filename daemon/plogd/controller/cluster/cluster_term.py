"""The controller's parts for a cluster in one term, and its port `Brokers` for several brokers.

A new topic is usable when the brokers of its leaders have responded. Brokers create missing logs
when they learn about a partition, so the controller does not ask them to create or remove logs in
advance. If a broker is gone, its requests are not waited for: when it returns, it gets all of its
partitions, and it moves away logs of partitions that are no longer assigned to it.

Source: Kafka 3.9 KafkaController.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from plog.errors import KafkaError
from plog.types import TopicPartition, Uuid
from plogd.config import BrokerConfig
from plogd.controller.cluster.broker_changes import BrokerChanges
from plogd.controller.cluster.broker_channels import BrokerChannels
from plogd.controller.cluster.broker_updates import BrokerUpdates, ReplicaStatus
from plogd.controller.cluster.control_requests import ControlRequests
from plogd.controller.cluster.leader_balance import LeaderBalance
from plogd.controller.cluster.leader_election import without_offline_replicas
from plogd.controller.cluster.leader_requests import LeaderRequests
from plogd.controller.cluster.log_dir_failures import LogDirFailures
from plogd.controller.cluster.partition_changes import PartitionChanges
from plogd.controller.cluster.partition_reassignments import PartitionReassignments, TopicAccess
from plogd.controller.cluster.reassignment_znode import ReassignmentZnode
from plogd.controller.cluster.unclean_elections import UncleanElections
from plogd.controller.controller_context import ControllerContext
from plogd.controller.term import Term
from plogd.fair_queue import FairQueue
from plogd.metadata.cache import TopicState
from plogd.metadata.store import MetadataStore
from plogd.metrics import Counter
from plogd.peers import Peers
from plogd.ports import Later, Report, Timers, ready, spawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What the controller of a cluster needs in every term."""

    broker_id: int
    inter_broker_listener: str
    peers: Peers
    store: MetadataStore
    is_leased: Callable[[], bool]
    """Returns whether no other broker can have become the controller in place of this one."""
    timers: Timers
    fair_queue: FairQueue
    config: Callable[[], BrokerConfig]
    unclean_elections: Counter
    """Counts the unclean elections of all terms."""
    report: Report


class ClusterTerm:
    """Leads the brokers of a cluster, from `begin` to `end`."""

    def __init__(self, cluster: Cluster, term: Term, context: ControllerContext) -> None:
        self._cluster, self._term, self._context = cluster, term, context
        self._channels = BrokerChannels(cluster.peers, cluster.timers, cluster.report)
        self.changes = PartitionChanges(
            term, context=context, store=cluster.store, fair_queue=cluster.fair_queue
        )
        self.brokers = BrokerChanges(
            store=cluster.store,
            context=context,
            channels=self._channels,
            changes=self.changes,
            timers=cluster.timers,
            report=cluster.report,
        )
        self._updates = BrokerUpdates(
            self._channels,
            ControlRequests(
                controller_id=cluster.broker_id,
                controller_epoch=term.epoch,
                inter_broker_listener=cluster.inter_broker_listener,
            ),
            context,
            lambda: self.brokers.brokers,
            self.brokers.offline,
            cluster.fair_queue,
        )
        self.brokers.updates = self._updates
        self.requests = LeaderRequests(context=context, brokers=self.brokers, changes=self.changes)
        self._log_dir_failures = LogDirFailures(
            term, store=cluster.store, failed=self.brokers.log_dir_failed, report=cluster.report
        )
        self.unclean_elections = UncleanElections(
            context=context,
            brokers=self.brokers,
            changes=self.changes,
            peers=cluster.peers,
            config=cluster.config,
            timers=cluster.timers,
            fair_queue=cluster.fair_queue,
            elections=cluster.unclean_elections,
            report=cluster.report,
        )
        self._balance = LeaderBalance(
            context=context,
            liveness=lambda: self.brokers.liveness,
            elect=self.requests.elect_preferred,
            config=cluster.config,
            timers=cluster.timers,
            fair_queue=cluster.fair_queue,
            report=cluster.report,
        )
        self._announced: dict[Uuid, int] = {}
        """How many partitions of each topic may already have records in their logs: the first ones,
        because new partitions get the next numbers."""
        self._has_begun = False
        self.reassignments: PartitionReassignments
        """Set before the topics are loaded."""

    def serve_reassignments(self, topics: TopicAccess) -> None:
        """Set `reassignments`."""
        self.reassignments = PartitionReassignments(
            self._term,
            topics,
            context=self._context,
            store=self._cluster.store,
            brokers=self.brokers,
            changes=self.changes,
            fair_queue=self._cluster.fair_queue,
            timers=self._cluster.timers,
            report=self._cluster.report,
        )
        self.changes.on_changed = self.reassignments.changed
        self.brokers.on_handled = self._check_partitions
        self._znode = ReassignmentZnode(
            self._term, self._cluster.store, self.reassignments, self._cluster.report
        )

    def _check_partitions(self) -> None:
        """Do what may be possible now that the live brokers have changed."""
        self.unclean_elections.check()
        self.reassignments.check()

    def begin(self) -> None:
        """Inform all brokers, when all topics have been loaded."""
        for topic in self._context.served_topics():
            self._announced[topic.topic_id] = len(topic.partitions)
        self._has_begun = True
        self.brokers.begin()
        self._znode.check()
        self._balance.begin()
        self._log_dir_failures.handle()

    def brokers_changed(self) -> None:
        """Note that the registered brokers may have changed."""
        if self._has_begun:
            self.brokers.changed()

    def reassignment_requested(self) -> None:
        """Note that another program may have written ``/admin/reassign_partitions``."""
        if self._has_begun:
            self._znode.check()

    def settings_changed(self) -> None:
        """Note that settings of topics or brokers may allow unclean elections now."""
        if self._has_begun:
            self.unclean_elections.check()

    def log_dir_failed(self) -> None:
        """Note that a broker may have lost a log directory."""
        if self._has_begun:
            self._log_dir_failures.handle()

    def end(self) -> None:
        """Send nothing more."""
        self._has_begun = False
        self._balance.end()
        self.unclean_elections.end()
        self.brokers.end()
        self._channels.close()

    # -- the port `Brokers` -------------------------------------------------------------------

    def start_topic(self, topic: TopicState) -> Later[None]:
        """Inform the brokers about all partitions of a topic; see `Brokers.start_topic`."""
        return spawn(self._start(topic))

    async def _start(self, topic: TopicState) -> None:
        keys = [TopicPartition(topic.name, one.partition) for one in topic.partitions]
        # A broker may have gone since the replicas were placed.
        await self.changes.change(
            keys, lambda _, state: without_offline_replicas(state, self.brokers.liveness)
        )
        present = self._context.existing(topic.name)
        if present is None:
            return
        sent = self._updates.send(keys, new=self._announce(topic))
        leaders = {state.leader for state in present.partitions}
        statuses: list[ReplicaStatus] = []
        for broker_id, later in sent.items():
            if broker_id in leaders:
                # A broker that does not respond is gone, which causes elections of its own.
                with contextlib.suppress(KafkaError):
                    statuses += await later
            else:
                self.brokers.watch(later)
        self.brokers.replicas_responded(statuses)

    def _announce(self, topic: TopicState) -> list[TopicPartition]:
        """Return the partitions of a topic that no broker can know yet."""
        known = self._announced.get(topic.topic_id, 0)
        self._announced[topic.topic_id] = max(known, len(topic.partitions))
        return [TopicPartition(topic.name, one.partition) for one in topic.partitions[known:]]

    def stop_topic(self, topic: TopicState) -> Later[None]:
        """Hide a topic, and delete its replicas on live brokers; see `Brokers.stop_topic`."""
        self._announced.pop(topic.topic_id, None)
        self.brokers.topic_deleted(topic)
        return spawn(self._updates.delete(topic))

    def create_logs(self, topic: TopicState) -> Later[None]:
        """Do nothing: brokers create logs when they learn about partitions."""
        return ready(None)

    def remove_unserved_logs(self, topic: TopicState) -> Later[None]:
        """Do nothing: `create_logs` has created none."""
        return ready(None)
