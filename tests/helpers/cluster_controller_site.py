"""The controller's part for a cluster: over ZooKeeper's double, with brokers that record requests.

Brokers register with `register` and leave with `leave`; broker 1 is the controller. `leaders`,
`isr` and `offline` are what a broker was last told about a partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plog.types import TopicPartition
from plog.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from plog.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from plog.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from plogd.controller.cluster.cluster_term import Cluster, ClusterTerm
from plogd.controller.controller_context import ControllerContext, KnownTopic
from plogd.controller.term import Term
from plogd.controller.topic_writes import known_topic, partition_change, partition_state
from plogd.fair_queue import FairQueue
from plogd.metadata.cache import PartitionState
from plogd.metadata.store import ABSENT, Change, TopicValue
from plogd.peers import REQUEST_TIMEOUT_MS, PeerRequest, VersionedRequest
from plogd.ports import Later, ready
from tests.helpers.metadata_sites import ZooKeeperSite, registration

TOPIC_ID = b"t" * 16
_RESPONSES = {
    UpdateMetadataRequest: UpdateMetadataResponse(),
    StopReplicaRequest: StopReplicaResponse(),
}


class RecordingPeers:
    """The port `Peers`, whose brokers respond at once unless they are `silent`."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Any]] = []
        self.errors: dict[tuple[int, int], int] = {}
        """Error codes of LeaderAndIsr responses by broker and partition; each is used once."""
        self.silent: set[int] = set()

    def ask(
        self,
        broker_id: int,
        request: PeerRequest,
        lane: str,
        *,
        timeout_ms: float = REQUEST_TIMEOUT_MS,
    ) -> Later[Any]:
        assert isinstance(request, VersionedRequest)
        message = request.build(request.request_type.max_version)
        self.sent.append((broker_id, message))
        if broker_id in self.silent:
            return Later()
        if isinstance(message, LeaderAndIsrRequest):
            return ready(self._response(broker_id, message))
        return ready(_RESPONSES[type(message)])  # type: ignore[index]

    def _response(self, broker_id: int, message: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        topics = [
            LeaderAndIsrTopicError(
                topic_id=topic.topic_id,
                partition_errors=[
                    LeaderAndIsrPartitionError(
                        partition_index=state.partition_index,
                        error_code=self.errors.pop((broker_id, state.partition_index), 0),
                    )
                    for state in topic.partition_states
                ],
            )
            for topic in message.topic_states
        ]
        return LeaderAndIsrResponse(topics=topics)

    def close(self) -> None:
        """Do nothing."""

    def told(self, broker_id: int, request_type: type[Any]) -> list[Any]:
        """Return the requests of this type that a broker has got."""
        return [
            message
            for asked, message in self.sent
            if asked == broker_id and isinstance(message, request_type)
        ]

    def last_states(self, broker_id: int, request_type: type[Any]) -> dict[int, Any]:
        """Return the last state of each partition that a broker has got in such requests."""
        return {
            state.partition_index: state
            for message in self.told(broker_id, request_type)
            for topic in message.topic_states
            for state in topic.partition_states
        }


class ClusterControllerSite:
    """Broker 1 as the controller of a cluster with the topic ``t``."""

    def __init__(
        self, assignments: Mapping[int, tuple[int, ...]], *, is_created: bool = True
    ) -> None:
        self._assignments = assignments
        self.site = ZooKeeperSite(1)
        self.others: dict[int, ZooKeeperSite] = {}
        self.peers = RecordingPeers()
        ports = self.site.ports.bundle()
        store = self.site.store
        self.store = store
        fair_queue = FairQueue(ports.timers)
        self.term = Term(store, self.site.settle(store.campaign()), fair_queue)
        self.context = ControllerContext()
        self.cluster = ClusterTerm(
            Cluster(
                broker_id=1,
                inter_broker_listener="INTERNAL",
                peers=self.peers,
                store=store,
                timers=ports.timers,
                fair_queue=fair_queue,
                report=ports.report,
            ),
            self.term,
            self.context,
        )
        self.changes, self.brokers = self.cluster.changes, self.cluster.brokers
        self.updates, self.requests = self.brokers.updates, self.cluster.requests
        store.watch(("broker",), lambda *_: self.cluster.brokers_changed())
        if is_created:
            self.create()

    def create(self) -> None:
        """Write the topic, and add it to the context."""
        assignments = self._assignments
        value = TopicValue(topic_id=TOPIC_ID, assignments=assignments)
        states = [partition_state(one, replicas, None) for one, replicas in assignments.items()]
        changes = [Change(key=("topic", "t"), value=value, expected=ABSENT)]
        changes += [partition_change("t", state) for state in states]
        for start in range(0, len(changes), 64):
            self.settle(self.store.write_atomic(changes[start : start + 64], self.term.epoch))
        partitions = [(state, 0) for state in states]
        self.context.put(known_topic("t", value, 0, partitions, {}))

    def settle(self, later: Later[Any]) -> Any:
        """Return the outcome of `later`."""
        return self.site.settle(later)

    def run(self, duration_ms: float = 500) -> None:
        """Let time pass."""
        self.site.run_for(duration_ms)

    def start(self, *broker_ids: int) -> None:
        """Register brokers, and begin the term."""
        self.register(*broker_ids)
        self.cluster.begin()
        self.run()

    def register(self, *broker_ids: int) -> None:
        """Register brokers, and let the controller notice."""
        for broker_id in broker_ids:
            site = self.site if broker_id == 1 else ZooKeeperSite(broker_id, self.site)
            self.others[broker_id] = site
            site.settle(site.store.register_broker(registration(broker_id)))
        self.run()

    def leave(self, *broker_ids: int) -> None:
        """Close the sessions of brokers, and let the controller notice."""
        for broker_id in broker_ids:
            self.others.pop(broker_id).client.close()
        self.run()

    @property
    def known(self) -> KnownTopic:
        """The topic in the controller's context."""
        known = self.context.get("t")
        assert known is not None
        return known

    def state(self, number: int = 0) -> PartitionState:
        """Return a partition in the context, after checking that the store has the same."""
        state = self.known.state.partitions[number]
        value, version = self.store.get(("partition", "t", number))
        assert (value.leader, value.leader_epoch, value.isr, value.partition_epoch) == (
            state.leader,
            state.leader_epoch,
            state.isr,
            state.partition_epoch,
        )
        assert version == self.known.partition_versions[number]
        return state


def key(number: int = 0) -> TopicPartition:
    """Return a partition of the topic."""
    return TopicPartition("t", number)
