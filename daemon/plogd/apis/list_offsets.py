"""ListOffsets (key 2): offsets by time, or by a word for one (earliest, latest, …).

Versions served 1-11.

  1 one offset        4 leader epoch           5 OFFSET_NOT_AVAILABLE (KIP-207)      6 flexible
  7 max timestamp (KIP-734)        8 earliest local        9 latest tiered        11 pending upload

"Latest" is the high watermark: what consumers may not see yet is not there for them. What each word
means is replica/offset_lookup.py's knowledge. The answer waits for look-ups that read the disk.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from plog.errors import (
    ErrorCode,
    InvalidRequest,
    KafkaError,
    UnsupportedVersion,
)
from plog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from plogd.apis.context import RequestContext
from plogd.ports import Cancelled, Later, MaybeLater, settle, spawn
from plogd.replica.offset_lookup import FoundOffset, look_up_offset

if TYPE_CHECKING:
    from plogd.broker import Broker

_FIRST_VERSION_OF_WORD = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
_FIRST_VERSION_WITH_EPOCH = 4
_FIRST_VERSION_WITH_NOT_AVAILABLE = 5

_Answers = list[tuple[str, list[MaybeLater[ListOffsetsPartitionResponse]]]]


def handle_list_offsets(
    request: ListOffsetsRequest, context: RequestContext, broker: Broker
) -> MaybeLater[ListOffsetsResponse]:
    """Look up every partition; all look-ups start at once."""
    named = Counter(
        (topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    )
    answers: _Answers = [
        (
            topic.name,
            [
                _answer(topic.name, partition, context, broker)
                if named[topic.name, partition.partition_index] == 1
                else _error(partition, InvalidRequest("a partition is named twice"), context)
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    waits = any(isinstance(one, Later) for _, partitions in answers for one in partitions)
    return spawn(_respond_later(answers)) if waits else _respond(answers)


def _respond(answers: _Answers) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=name, partitions=[one for one in partitions if not isinstance(one, Later)]
            )
            for name, partitions in answers
        ]
    )


async def _respond_later(answers: _Answers) -> ListOffsetsResponse:
    try:
        return _respond(
            [(name, [await settle(one) for one in partitions]) for name, partitions in answers]
        )
    except Cancelled:  # That was about one partition; the client wants none of the others either.
        for _, partitions in answers:
            for one in partitions:
                if isinstance(one, Later):
                    one.cancel()
        raise


def _answer(
    topic: str, asked: ListOffsetsPartition, context: RequestContext, broker: Broker
) -> MaybeLater[ListOffsetsPartitionResponse]:
    """One partition's answer; an error is an answer, too."""
    try:
        _check_word(asked.timestamp, context.version)
        found = look_up_offset(
            broker.replica_manager.partition(topic, asked.partition_index),
            asked.timestamp,
            leader_epoch=asked.current_leader_epoch,
            queue=broker.time_lookups,
        )
    except KafkaError as error:
        return _error(asked, error, context)
    if isinstance(found, Later):
        return spawn(_answer_later(asked, found, context))
    return _found(asked, found, context)


async def _answer_later(
    asked: ListOffsetsPartition, found: Later[FoundOffset], context: RequestContext
) -> ListOffsetsPartitionResponse:
    try:
        return _found(asked, await found, context)
    except KafkaError as error:
        return _error(asked, error, context)


def _check_word(timestamp: int, version: int) -> None:
    if timestamp >= 0:
        return
    first_version = _FIRST_VERSION_OF_WORD.get(timestamp)
    if first_version is None or version < first_version:
        raise UnsupportedVersion(f"timestamp {timestamp} means nothing in version {version}")


def _found(
    asked: ListOffsetsPartition, found: FoundOffset, context: RequestContext
) -> ListOffsetsPartitionResponse:
    with_epoch = context.version >= _FIRST_VERSION_WITH_EPOCH
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch if with_epoch else -1,
    )


def _error(
    asked: ListOffsetsPartition, error: KafkaError, context: RequestContext
) -> ListOffsetsPartitionResponse:
    code = error.code
    if (
        code == ErrorCode.OFFSET_NOT_AVAILABLE
        and context.version < _FIRST_VERSION_WITH_NOT_AVAILABLE
    ):
        code = ErrorCode.LEADER_NOT_AVAILABLE
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)


def refuse_list_offsets(
    request: ListOffsetsRequest, context: RequestContext, error: KafkaError
) -> ListOffsetsResponse:
    """The answer in which every partition gets `error`."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[_error(partition, error, context) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )
