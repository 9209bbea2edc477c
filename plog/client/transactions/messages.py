"""Build transaction requests from plain values, and find the errors in their responses."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import groupby
from operator import attrgetter

from plog.client.errors import error_about
from plog.client.group.group_metadata import GroupMetadata
from plog.client.producer.sequence_numbers import ProducerIdentity
from plog.client.values import OffsetAndMetadata
from plog.errors import ErrorCode, KafkaError
from plog.types import TopicPartition
from plog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from plog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from plog.wire.messages.end_txn import EndTxnRequest
from plog.wire.messages.init_producer_id import InitProducerIdRequest
from plog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

_NO_EPOCH = -1

_BY_TOPIC = attrgetter("topic")


def init_request(
    transactional_id: str, timeout_ms: int, identity: ProducerIdentity | None
) -> InitProducerIdRequest:
    """Build a request for a producer ID; with `identity`, for the next epoch of that ID."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
    )
    if identity is not None:
        request.producer_id, request.producer_epoch = identity
    return request


def add_partitions_request(
    transactional_id: str, identity: ProducerIdentity, partitions: Collection[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """Build a request that adds partitions to the transaction."""
    return AddPartitionsToTxnRequest(
        # KIP-890: later versions, which contain several transactions, are only for brokers.
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=[one.partition for one in group])
            # `groupby` needs sorted input; partitions sort by topic first.
            for topic, group in groupby(sorted(partitions), _BY_TOPIC)
        ],
    )


def add_offsets_request(
    transactional_id: str, identity: ProducerIdentity, group_id: str
) -> AddOffsetsToTxnRequest:
    """Build a request that adds a group's offsets to the transaction."""
    return AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        group_id=group_id,
    )


def commit_offsets_request(
    transactional_id: str,
    identity: ProducerIdentity,
    group: GroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> TxnOffsetCommitRequest:
    """Build a request that commits offsets with the transaction."""
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        generation_id=group.generation_id,
        # KIP-447: the group's coordinator checks the member before it accepts the offsets.
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic, partitions=[_offset(one, offsets[one]) for one in group_of_topic]
            )
            for topic, group_of_topic in groupby(sorted(offsets), _BY_TOPIC)
        ],
    )


def _offset(
    partition: TopicPartition, offset: OffsetAndMetadata
) -> TxnOffsetCommitRequestPartition:
    epoch = offset.leader_epoch
    return TxnOffsetCommitRequestPartition(
        partition_index=partition.partition,
        committed_offset=offset.offset,
        committed_leader_epoch=_NO_EPOCH if epoch is None else epoch,
        committed_metadata=offset.metadata,
    )


def end_request(
    transactional_id: str, identity: ProducerIdentity, *, committed: bool
) -> EndTxnRequest:
    """Build a request that commits or aborts the transaction."""
    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        committed=committed,
    )


def error_of_partitions(
    answer: AddPartitionsToTxnResponse | TxnOffsetCommitResponse, about: str
) -> KafkaError | None:
    """Return the most significant error in a response about many partitions, or None.

    Permanent errors rank before retriable errors; OPERATION_NOT_ATTEMPTED ranks last.
    """
    found = [
        error_about(code, f"{about} {partition}") for partition, code in _codes(answer) if code
    ]
    return min(found, key=_rank, default=None)


def _rank(error: KafkaError) -> int:
    # OPERATION_NOT_ATTEMPTED only means that another partition of the request failed.
    return 2 if error.code == ErrorCode.OPERATION_NOT_ATTEMPTED else error.retriable


def _codes(
    answer: AddPartitionsToTxnResponse | TxnOffsetCommitResponse,
) -> Iterator[tuple[TopicPartition, int]]:
    if isinstance(answer, AddPartitionsToTxnResponse):
        # The client sends at most version 3 of this request, so only these fields are set.
        for result in answer.results_by_topic_v3_and_below:
            for one in result.results_by_partition:
                yield TopicPartition(result.name, one.partition_index), one.partition_error_code
        return
    for topic in answer.topics:
        for partition in topic.partitions:
            yield TopicPartition(topic.name, partition.partition_index), partition.error_code
