"""Build the requests with which the controller informs the brokers of a cluster.

LeaderAndIsr makes a broker the leader or a follower of partitions, StopReplica makes it stop them,
and UpdateMetadata contains what brokers show to clients. Every request has the controller's epoch
and the epoch of the receiving broker, so that a deposed controller, and a request for an earlier
run of the broker, are rejected (rule C10). A request is built when the version is known.

Source: Kafka 3.9 ControllerBrokerRequestBatch; KIP-380 for broker epochs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from plog.types import TopicPartition
from plog.wire.messages.leader_and_isr import (
    FULL,
    INCREMENTAL,
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from plog.wire.messages.stop_replica import (
    EPOCH_DURING_DELETE,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from plog.wire.messages.update_metadata import (
    LEADER_DURING_DELETE,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from plogd.config.listener import SECURITY_PROTOCOLS
from plogd.metadata.cache import PartitionState, TopicState
from plogd.metadata.store import BrokerRegistration
from plogd.peers import VersionedRequest

_LEADER_AND_ISR_WITH_RECOVERY = 6
_UPDATE_METADATA_WITH_TYPE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRequests:
    """Builds the requests of one controller."""

    controller_id: int
    controller_epoch: int
    inter_broker_listener: str

    def leader_and_isr(
        self,
        receiver: BrokerRegistration,
        topics: Sequence[TopicState],
        *,
        brokers: Mapping[int, BrokerRegistration],
        new: Collection[TopicPartition] = (),
        is_full: bool = False,
    ) -> VersionedRequest:
        """Tell a broker the leaders of its partitions.

        `topics` contains only these partitions; with `is_full`, all of them, so that the broker
        moves away the logs of others. The logs of `new` partitions may be created.
        """

        def build(version: int) -> LeaderAndIsrRequest:
            return LeaderAndIsrRequest(
                controller_id=self.controller_id,
                controller_epoch=self.controller_epoch,
                broker_epoch=receiver.broker_epoch,
                type=FULL if is_full else INCREMENTAL,
                live_leaders=self._live_leaders(topics, brokers),
                topic_states=[
                    LeaderAndIsrTopicState(
                        topic_name=topic.name,
                        topic_id=topic.topic_id,
                        partition_states=[
                            self._leader_and_isr_of(
                                state,
                                is_new=_is_new(topic, state, receiver.broker_id, new),
                                may_recover=version >= _LEADER_AND_ISR_WITH_RECOVERY,
                            )
                            for state in topic.partitions
                        ],
                    )
                    for topic in topics
                ],
            )

        return VersionedRequest(LeaderAndIsrRequest, build)

    def _leader_and_isr_of(
        self, state: PartitionState, *, is_new: bool, may_recover: bool
    ) -> LeaderAndIsrPartitionState:
        return LeaderAndIsrPartitionState(
            partition_index=state.partition,
            controller_epoch=self.controller_epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            partition_epoch=state.partition_epoch,
            replicas=list(state.replicas),
            adding_replicas=list(state.adding_replicas),
            removing_replicas=list(state.removing_replicas),
            is_new=is_new,
            leader_recovery_state=int(state.is_recovering and may_recover),
        )

    def _live_leaders(
        self, topics: Iterable[TopicState], brokers: Mapping[int, BrokerRegistration]
    ) -> list[LeaderAndIsrLiveLeader]:
        leaders = {state.leader for topic in topics for state in topic.partitions}
        return [
            LeaderAndIsrLiveLeader(broker_id=leader, host_name=endpoint.host, port=endpoint.port)
            for leader in sorted(leaders & brokers.keys())
            for endpoint in brokers[leader].endpoints
            if endpoint.name == self.inter_broker_listener
        ]

    def update_metadata(
        self,
        receiver: BrokerRegistration,
        topics: Sequence[TopicState],
        *,
        brokers: Iterable[BrokerRegistration],
        deleted: Sequence[TopicState] = (),
        is_full: bool = False,
    ) -> VersionedRequest:
        """Tell a broker all live brokers, the changed `topics` and the `deleted` ones."""

        def build(version: int) -> UpdateMetadataRequest:
            request = UpdateMetadataRequest(
                controller_id=self.controller_id,
                controller_epoch=self.controller_epoch,
                broker_epoch=receiver.broker_epoch,
                live_brokers=[self._live_broker(broker) for broker in brokers],
            )
            if version >= _UPDATE_METADATA_WITH_TYPE:
                request.type = FULL if is_full else INCREMENTAL
            for topic, is_deleted in [
                *((topic, False) for topic in topics),
                *((topic, True) for topic in deleted),
            ]:
                states = [self._metadata_of(topic, one, is_deleted) for one in topic.partitions]
                request.topic_states.append(
                    UpdateMetadataTopicState(
                        topic_name=topic.name, topic_id=topic.topic_id, partition_states=states
                    )
                )
            return request

        return VersionedRequest(UpdateMetadataRequest, build)

    def _metadata_of(
        self, topic: TopicState, state: PartitionState, is_deleted: bool
    ) -> UpdateMetadataPartitionState:
        return UpdateMetadataPartitionState(
            partition_index=state.partition,
            controller_epoch=self.controller_epoch,
            leader=LEADER_DURING_DELETE if is_deleted else state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            zk_version=state.partition_epoch,
            replicas=list(state.replicas),
            offline_replicas=list(state.offline_replicas),
        )

    def _live_broker(self, broker: BrokerRegistration) -> UpdateMetadataBroker:
        return UpdateMetadataBroker(
            id=broker.broker_id,
            endpoints=[
                UpdateMetadataEndpoint(
                    host=endpoint.host,
                    port=endpoint.port,
                    listener=endpoint.name,
                    security_protocol=SECURITY_PROTOCOLS.index(endpoint.security_protocol),
                )
                for endpoint in broker.endpoints
            ],
            rack=broker.rack,
        )

    def stop_replicas(
        self,
        receiver: BrokerRegistration,
        topics: Sequence[TopicState],
        *,
        is_deletion: bool,
        keeps_topics: bool = False,
    ) -> VersionedRequest:
        """Make a broker stop its replicas of these partitions, and delete them if `is_deletion`.

        With `keeps_topics`, only these replicas are deleted, not the topics.
        """

        def build(_: int) -> StopReplicaRequest:
            return StopReplicaRequest(
                controller_id=self.controller_id,
                controller_epoch=self.controller_epoch,
                broker_epoch=receiver.broker_epoch,
                topic_states=[
                    _stopped(topic, is_deletion=is_deletion, keeps_topics=keeps_topics)
                    for topic in topics
                ],
            )

        return VersionedRequest(StopReplicaRequest, build)


def _is_new(
    topic: TopicState, state: PartitionState, receiver: int, new: Collection[TopicPartition]
) -> bool:
    """Return whether the receiver cannot have lost records of the partition.

    A replica that a reassignment adds has none until it is in sync.
    """
    if receiver in state.adding_replicas and receiver not in state.isr:
        return True
    return TopicPartition(topic.name, state.partition) in new


def _stopped(topic: TopicState, *, is_deletion: bool, keeps_topics: bool) -> StopReplicaTopicState:
    is_topic_deleted = is_deletion and not keeps_topics
    return StopReplicaTopicState(
        topic_name=topic.name,
        partition_states=[
            StopReplicaPartitionState(
                partition_index=state.partition,
                leader_epoch=EPOCH_DURING_DELETE if is_topic_deleted else state.leader_epoch,
                delete_partition=is_deletion,
            )
            for state in topic.partitions
        ],
    )
