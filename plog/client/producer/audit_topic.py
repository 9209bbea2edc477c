"""Write audit reports to the topic ``_plog_audit``, and create the topic if it is missing.

A broker answers the requests on a connection in order, so a slow answer to a report would delay the
answers to the producer's own records. Reports therefore have their own connection, and their errors
do not affect the connections of the producer. The topic is also not part of the producer's
metadata.

Source: Kafka 4.3 KafkaAdminClient.createTopics; KIP-464 (default counts).
"""

from __future__ import annotations

from typing import TypeVar

from plog.audit import AUDIT_TOPIC, AUDIT_TOPIC_CONFIGS, AuditReport, encode_report
from plog.client.errors import BrokenAnswer, BrokerNotAvailable, error_about
from plog.client.network.cluster import Cluster
from plog.client.network.deadline import Deadline
from plog.client.network.metadata import Broker, ClusterMetadata, TopicMetadata
from plog.client.network.node import Node
from plog.client.task_completion import TaskCompletion
from plog.errors import ErrorCode, KafkaError, error_from_code
from plog.hashing import partition_for_key
from plog.records.builder import build_batch
from plog.records.codec import NO_OFFSET
from plog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from plog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from plog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from plog.wire.schema import ApiMessage

R = TypeVar("R", bound=ApiMessage)

_BROKER_DEFAULT = -1
_ALL_IN_SYNC = -1
_MISSING = TopicMetadata(name=AUDIT_TOPIC, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class AuditTopic:
    """The topic of the audit reports, as one producer writes to it.

    Use only in the engine's thread, one call at a time.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._node: Node | None = None
        """The leader of the partition to which reports are written; None if it is not known."""
        self._partition = 0

    async def write(self, report: AuditReport, deadline: Deadline) -> None:
        """Write a report, and return when all in-sync replicas have it.

        After an error, the report may be in the topic. Raises KafkaError and WireError.
        """
        if self._node is None:
            await self._find_leader(report.key, deadline)
        assert self._node is not None
        record = (NO_OFFSET, report.until_ms, report.key, encode_report(report), ())
        data = PartitionProduceData(index=self._partition, records=build_batch([record]))
        request = ProduceRequest(
            acks=_ALL_IN_SYNC,
            timeout_ms=self._timeout_ms(deadline),
            topic_data=[TopicProduceData(name=AUDIT_TOPIC, partition_data=[data])],
        )
        try:
            response = await self._ask(self._node, request, ProduceResponse, deadline)
            self._check(response)
        except Exception:
            # The leader may have moved. Also, a late response must not be taken for the next one.
            self._forget_leader()
            raise

    def _check(self, response: ProduceResponse) -> None:
        for topic in response.responses:
            for partition in topic.partition_responses:
                if partition.error_code:
                    text = partition.error_message
                    error = error_from_code(partition.error_code)
                    raise error_from_code(
                        partition.error_code, f"topic {AUDIT_TOPIC}: {text or error.message}"
                    )
                return
        raise BrokenAnswer("malformed produce response: it does not contain any partition")

    # -- the leader -----------------------------------------------------------------------------

    async def _find_leader(self, key: bytes, deadline: Deadline) -> None:
        """Find the leader of the partition for `key`; create the topic if it is missing."""
        backoff = self._cluster.backoff(deadline)
        has_created = False
        while True:
            metadata = await self._metadata(deadline)
            topic = metadata.topics.get(AUDIT_TOPIC, _MISSING)
            if topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not has_created:
                await self._create(metadata, deadline)
                has_created = True
                continue
            if topic.partitions:
                partition = topic.partitions[partition_for_key(key, len(topic.partitions))]
                leader = metadata.brokers.get(partition.leader)
                if leader is not None:
                    self._partition = partition.index
                    self._node = self._cluster.node_apart(leader)
                    return
            # For a while, brokers may not know a new topic or its leaders.
            error = error_about(
                topic.error or ErrorCode.LEADER_NOT_AVAILABLE, f"topic {AUDIT_TOPIC}"
            )
            if not error.retriable:
                raise error
            await backoff.wait_or_raise(error)

    async def _metadata(self, deadline: Deadline) -> ClusterMetadata:
        # Without this flag, a broker that creates topics automatically would ignore the configs.
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=AUDIT_TOPIC)], allow_auto_topic_creation=False
        )
        response = await self._ask_any(request, MetadataResponse, deadline)
        if response.error_code:
            raise error_about(response.error_code, "metadata")
        return ClusterMetadata().updated(response, replace_topics=True)

    async def _create(self, metadata: ClusterMetadata, deadline: Deadline) -> None:
        # All reports fit into one partition: a producer sends one of them every 10 s.
        topic = CreatableTopic(
            name=AUDIT_TOPIC,
            num_partitions=1,
            replication_factor=_BROKER_DEFAULT,
            configs=[
                CreatableTopicConfig(name=name, value=value)
                for name, value in AUDIT_TOPIC_CONFIGS.items()
            ],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=self._timeout_ms(deadline))
        # In a KRaft cluster, any broker forwards the request to the controller.
        controller = metadata.brokers.get(metadata.controller_id)
        if controller is None:
            response = await self._ask_any(request, CreateTopicsResponse, deadline)
        else:
            response = await self._ask_once(controller, request, CreateTopicsResponse, deadline)
        for result in response.topics:
            # Another producer may have created the topic in the meantime.
            if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                text = result.error_message or error_from_code(result.error_code).message
                raise error_from_code(
                    result.error_code, f"cannot create topic {AUDIT_TOPIC}: {text}"
                )

    # -- requests -------------------------------------------------------------------------------

    async def _ask_any(self, request: ApiMessage, response: type[R], deadline: Deadline) -> R:
        """Send a request to the brokers in turn, until one of them responds."""
        error: KafkaError = BrokerNotAvailable("no broker is known")
        brokers = list(self._cluster.metadata.brokers.values())
        # Start with a random broker, so that not all producers ask the same one.
        first = int(self._cluster.network.random() * len(brokers))
        for broker in brokers[first:] + brokers[:first]:
            if deadline.is_over:
                break
            try:
                return await self._ask_once(broker, request, response, deadline)
            except KafkaError as failure:
                if not failure.retriable:
                    raise
                error = failure
        raise error

    async def _ask_once(
        self, broker: Broker, request: ApiMessage, response: type[R], deadline: Deadline
    ) -> R:
        node = self._cluster.node_apart(broker)
        with TaskCompletion(node.close):
            return await self._ask(node, request, response, deadline)

    async def _ask(
        self, node: Node, request: ApiMessage, response: type[R], deadline: Deadline
    ) -> R:
        connection = await node.connected(deadline)
        return await connection.ask(request, response, deadline=deadline)

    def _timeout_ms(self, deadline: Deadline) -> int:
        """Return how long a broker may take for a request."""
        # With a timeout of 0, a broker would not wait at all.
        left_ms = max(1, int(deadline.left_s * 1000))
        return min(self._cluster.settings.request_timeout_ms, left_ms)

    # -- close ----------------------------------------------------------------------------------

    def _forget_leader(self) -> None:
        if self._node is not None:
            self._node.close()
            self._node = None

    def close(self) -> None:
        """Close the connection; a report that is being written fails."""
        self._forget_leader()
