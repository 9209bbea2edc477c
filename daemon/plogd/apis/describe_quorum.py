"""DescribeQuorum (key 55): the metadata log's quorum, which consists of this broker alone.

Serves versions 0-2.

  1 timestamps (KIP-836)      2 messages, addresses and directory ids (KIP-853)

The metadata log is ``__cluster_metadata-0``; a request for any other partition gets
UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from plog.errors import KafkaError, UnknownTopicOrPartition
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumListener,
    QuorumNode,
    QuorumPartition,
    QuorumPartitionState,
    QuorumTopic,
    QuorumTopicState,
    ReplicaState,
)
from plogd.apis.error_responses import refuse_at_top_level
from plogd.apis.request_context import RequestContext
from plogd.broker import Broker
from plogd.metadata.embedded_store import METADATA_PARTITION

_FIRST_VERSION_WITH_NODES = 2  # KIP-853.


def handle_describe_quorum(
    request: DescribeQuorumRequest, context: RequestContext, broker: Broker
) -> DescribeQuorumResponse:
    """Describe the metadata log's quorum."""
    if not _asks_for_metadata_log(request):
        return _error_everywhere(
            request, UnknownTopicOrPartition(f"only {METADATA_PARTITION} has a quorum")
        )
    try:
        state = _state(context, broker)
    except KafkaError as error:
        return _error_everywhere(request, error)
    response = DescribeQuorumResponse(
        topics=[QuorumTopicState(topic_name=METADATA_PARTITION.topic, partitions=[state])],
    )
    if context.version >= _FIRST_VERSION_WITH_NODES:
        response.nodes = [_node(context, broker)]
    return response


def _asks_for_metadata_log(request: DescribeQuorumRequest) -> bool:
    """Return whether the request is for the metadata log and nothing else."""
    # As in Kafka, a request that also lists another partition is rejected as a whole.
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return False
    [topic] = request.topics
    return (topic.topic_name, topic.partitions[0].partition_index) == METADATA_PARTITION


def _state(context: RequestContext, broker: Broker) -> QuorumPartitionState:
    quorum, now_ms = broker.embedded_store.quorum, broker.clock.now_ms()
    voter = ReplicaState(
        replica_id=broker.config.node_id,
        log_end_offset=quorum.log_end_offset,
        # As in Kafka, the leader has always caught up with itself at the current time.
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    # The field is not ignorable: earlier versions cannot encode a value other than the default.
    if context.version >= _FIRST_VERSION_WITH_NODES:
        voter.replica_directory_id = broker.log_manager.dirs.directory_id(quorum.log_dir)
    return QuorumPartitionState(
        partition_index=METADATA_PARTITION.partition,
        leader_id=broker.config.node_id,
        leader_epoch=quorum.leader_epoch,
        high_watermark=quorum.high_watermark,
        current_voters=[voter],
    )


def _node(context: RequestContext, broker: Broker) -> QuorumNode:
    # The same address as in a Metadata response, with the name of the client's own listener.
    host, port = broker.address_for(context.connection)
    listener = QuorumListener(name=context.connection.listener_name, host=host, port=port)
    return QuorumNode(node_id=broker.config.node_id, listeners=[listener])


def _error_everywhere(request: DescribeQuorumRequest, error: KafkaError) -> DescribeQuorumResponse:

    def of_partition(partition: QuorumPartition) -> QuorumPartitionState:
        return QuorumPartitionState(
            partition_index=partition.partition_index,
            error_code=error.code,
            error_message=error.message,
        )

    def of_topic(topic: QuorumTopic) -> QuorumTopicState:
        # Like Kafka's DescribeQuorumRequest.getPartitionLevelErrorResponse.
        partitions = lazy_array(topic.partitions, of_partition)
        return QuorumTopicState(topic_name=topic.topic_name, partitions=partitions)

    return DescribeQuorumResponse(topics=lazy_array(request.topics, of_topic))


refuse_describe_quorum = refuse_at_top_level(DescribeQuorumResponse)
