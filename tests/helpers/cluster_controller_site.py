"""The controller's part for a cluster: over ZooKeeper's double, with brokers that record requests.

Brokers register with `register` and leave with `leave`; broker 1 is the controller. `leaders`,
`isr` and `offline` are what a broker was last told about a partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plog.errors import ErrorCode, RequestTimedOut
from plog.types import TopicPartition
from plog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    BrokerState,
)
from plog.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from plog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from plog.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from plog.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from plogd.concurrency import within
from plogd.config import BrokerConfig
from plogd.controller.cluster.cluster_term import Cluster, ClusterTerm
from plogd.controller.cluster.partition_reassignments import TopicAccess
from plogd.controller.controller_context import ControllerContext, KnownTopic
from plogd.controller.exclusive_names import ExclusiveNames
from plogd.controller.term import Term
from plogd.controller.topic_writes import known_topic, partition_change, partition_state
from plogd.fair_queue import FairQueue, Slices
from plogd.metadata.cache import PartitionState
from plogd.metadata.store import ABSENT, Change, TopicValue
from plogd.metrics import Counter
from plogd.peers import REQUEST_TIMEOUT_MS, PeerRequest, VersionedRequest
from plogd.ports import Later, Timers, ready, spawn
from tests.helpers.metadata_sites import ZooKeeperSite, registration

TOPIC_ID = b"t" * 16
_RESPONSES = {
    UpdateMetadataRequest: UpdateMetadataResponse(),
    StopReplicaRequest: StopReplicaResponse(),
}


class RecordingPeers:
    """The port `Peers`, whose brokers respond at once unless they are `silent`."""

    def __init__(self, timers: Timers) -> None:
        self.timers = timers
        self.sent: list[tuple[int, Any]] = []
        self.errors: dict[tuple[int, int], int] = {}
        """Error codes of LeaderAndIsr responses by broker and partition; each is used once."""
        self.broken: set[tuple[int, int]] = set()
        """Brokers and partitions whose LeaderAndIsr responses have KAFKA_STORAGE_ERROR."""
        self.damaged: set[tuple[int, int]] = set()
        """Brokers and partitions whose logs lack records: they lead only alone in the ISR."""
        self.silent: set[int] = set()
        self.log_ends: dict[tuple[int, int], tuple[int, int]] = {}
        """The last leader epoch and the end offset of replicas' logs, by broker and partition."""

    def ask(
        self,
        broker_id: int,
        request: PeerRequest,
        lane: str,
        *,
        timeout_ms: float = REQUEST_TIMEOUT_MS,
    ) -> Later[Any]:
        if isinstance(request, VersionedRequest):
            message = request.build(request.request_type.max_version)
        else:
            message = request
        self.sent.append((broker_id, message))
        if broker_id in self.silent:
            silent: Later[Any] = Later()
            return within(silent, timeout_ms, self.timers, RequestTimedOut)
        if isinstance(message, ListOffsetsRequest):
            return ready(self._log_ends(broker_id, message))
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
                        error_code=self._error(broker_id, state),
                    )
                    for state in topic.partition_states
                ],
            )
            for topic in message.topic_states
        ]
        return LeaderAndIsrResponse(topics=topics)

    def _error(self, broker_id: int, state: LeaderAndIsrPartitionState) -> int:
        replica = broker_id, state.partition_index
        if replica in self.broken:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if replica in self.damaged and broker_id in state.isr and len(state.isr) > 1:
            return ErrorCode.REPLICA_NOT_AVAILABLE
        return self.errors.pop(replica, 0)

    def _log_ends(self, broker_id: int, message: ListOffsetsRequest) -> ListOffsetsResponse:
        assert message.replica_id == -2
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        self._log_end(broker_id, one.partition_index) for one in topic.partitions
                    ],
                )
                for topic in message.topics
            ]
        )

    def _log_end(self, broker_id: int, number: int) -> ListOffsetsPartitionResponse:
        if (broker_id, number) not in self.log_ends:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return ListOffsetsPartitionResponse(partition_index=number, error_code=code)
        epoch, offset = self.log_ends[broker_id, number]
        return ListOffsetsPartitionResponse(
            partition_index=number, offset=offset, leader_epoch=epoch
        )

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
        ports = self.site.ports.bundle()
        self.peers = RecordingPeers(ports.timers)
        store = self.site.store
        self.store = store
        fair_queue = FairQueue(ports.timers)
        self.term = Term(store, self.site.settle(store.campaign()), fair_queue)
        self.context = ControllerContext()
        self.config = BrokerConfig()
        self.unclean_elections = Counter()
        self.cluster = ClusterTerm(
            Cluster(
                broker_id=1,
                inter_broker_listener="INTERNAL",
                peers=self.peers,
                store=store,
                is_leased=lambda: True,
                timers=ports.timers,
                fair_queue=fair_queue,
                config=lambda: self.config,
                unclean_elections=self.unclean_elections,
                report=ports.report,
            ),
            self.term,
            self.context,
        )
        self.names = ExclusiveNames(self.term)
        self.cluster.serve_reassignments(
            TopicAccess(names=self.names, take_over=self._not_taken_over)
        )
        self.changes, self.brokers = self.cluster.changes, self.cluster.brokers
        self.updates, self.requests = self.brokers.updates, self.cluster.requests
        store.watch(("broker",), lambda *_: self.cluster.brokers_changed())
        store.watch(("log_dir_failure",), lambda *_: self.cluster.log_dir_failed())
        if is_created:
            self.create()

    async def _not_taken_over(self, name: str, slices: Slices) -> None:
        raise AssertionError(f"another program has changed {name}")

    def create(self) -> None:
        """Write the topic, and add it to the context."""
        assignments = self._assignments
        value = TopicValue(topic_id=TOPIC_ID, assignments=assignments)
        states = [partition_state(one, value, None) for one in assignments]
        changes = [Change(key=("topic", "t"), value=value, expected=ABSENT)]
        changes += [partition_change("t", state) for state in states]
        for start in range(0, len(changes), 64):
            self.settle(self.store.write_atomic(changes[start : start + 64], self.term.epoch))
        partitions = [(state, 0) for state in states]
        _, version = self.store.get(("topic", "t"))
        self.context.put(known_topic("t", value, version, partitions, {}))

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

    @property
    def topic_value(self) -> TopicValue:
        """The topic's key in the store."""
        value = self.store.get(("topic", "t"))[0]
        assert isinstance(value, TopicValue)
        return value

    def change_isr(self, *broker_ids: int, number: int = 0) -> int:
        """Let the leader of a partition request an ISR; return the error code."""
        state, epochs = self.known.state.partitions[number], self.brokers.epochs
        partition = AlterPartitionRequestPartition(
            partition_index=number,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=one, broker_epoch=epochs[one]) for one in broker_ids
            ],
        )
        request = AlterPartitionRequest(
            broker_id=state.leader,
            broker_epoch=epochs[state.leader],
            topics=[AlterPartitionRequestTopic(topic_id=TOPIC_ID, partitions=[partition])],
        )
        response = self.settle(spawn(self.requests.alter_partitions(request)))
        self.run()
        code: int = response.topics[0].partitions[0].error_code
        return code


def key(number: int = 0) -> TopicPartition:
    """Return a partition of the topic."""
    return TopicPartition("t", number)
