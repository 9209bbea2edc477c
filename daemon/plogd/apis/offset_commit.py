"""OffsetCommit (key 8): keep how far a group has come.

Versions served 2-10.

  5 no retention time any more     6 leader epoch     7 static members     8 flexible
  9 GROUP_ID_NOT_FOUND may be answered               10 topic ids

Topics and partitions have to exist; each that does not has its own error, and the others are kept.
Who may commit, and what fits, is decided in coordinator/offsets.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from plog.errors import KafkaError, UnknownTopicId, UnknownTopicOrPartition
from plog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from plogd.apis.context import RequestContext
from plogd.coordinator.offsets import OffsetCommit, OffsetToCommit
from plogd.ports import Later, MaybeLater

if TYPE_CHECKING:
    from plogd.broker import Broker

_FIRST_TOPIC_ID_VERSION = 10


def handle_offset_commit(
    request: OffsetCommitRequest, context: RequestContext, broker: Broker
) -> MaybeLater[OffsetCommitResponse]:
    """Keep the offsets of partitions that exist."""
    offsets: list[OffsetToCommit] = []
    refusals: list[KafkaError | None] = []
    for topic in request.topics:
        _sort(topic, offsets, refusals, context, broker)
    if not offsets:
        return _response(request, refusals)
    commit = OffsetCommit(
        group_id=request.group_id,
        offsets=offsets,
        version=context.version,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation_id=request.generation_id_or_member_epoch,
        retention_time_ms=request.retention_time_ms,
    )
    committed = broker.group_coordinator.commit_offsets(commit)
    answer: Later[OffsetCommitResponse] = Later(committed.cancel)

    def on_error(error: Exception) -> None:
        if isinstance(error, KafkaError):
            answer.succeed(_response(request, _merged(refusals, [error] * len(offsets))))
        else:
            answer.fail(error)

    committed.then(
        lambda errors: answer.succeed(_response(request, _merged(refusals, errors))), on_error
    )
    return answer


def _sort(
    topic: OffsetCommitRequestTopic,
    offsets: list[OffsetToCommit],
    refusals: list[KafkaError | None],
    context: RequestContext,
    broker: Broker,
) -> None:
    """Each partition of `topic` goes into `offsets`, or is refused."""
    name: str | None = topic.name
    if context.version >= _FIRST_TOPIC_ID_VERSION:
        name = broker.cache.topic_name(topic.topic_id)
    state = None if name is None else broker.cache.topic(name)
    for partition in topic.partitions:
        if name is None:
            refusals.append(UnknownTopicId())
        elif state is None or not 0 <= partition.partition_index < len(state.partitions):
            refusals.append(UnknownTopicOrPartition())
        else:
            refusals.append(None)
            offsets.append(
                OffsetToCommit(
                    topic=name,
                    partition=partition.partition_index,
                    offset=partition.committed_offset,
                    leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.committed_metadata,
                )
            )


def _merged(
    refusals: Sequence[KafkaError | None], errors: Sequence[KafkaError | None]
) -> list[KafkaError | None]:
    """For each partition of the request in order: why it is refused, else what became of it."""
    outcomes = iter(errors)
    return [next(outcomes) if refusal is None else refusal for refusal in refusals]


def _response(
    request: OffsetCommitRequest, errors: Sequence[KafkaError | None]
) -> OffsetCommitResponse:
    codes: Iterator[int] = iter([0 if error is None else error.code for error in errors])
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=next(codes)
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def refuse_offset_commit(
    request: OffsetCommitRequest, context: RequestContext, error: KafkaError
) -> OffsetCommitResponse:
    """The answer in which every partition gets `error`."""
    count = sum(len(topic.partitions) for topic in request.topics)
    return _response(request, [error] * count)
