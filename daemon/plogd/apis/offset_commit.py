"""OffsetCommit (key 8): store a group's committed offsets.

Serves versions 2-10.

  5 retention time removed               6 leader epoch     7 static members     8 flexible
  9 responses may have GROUP_ID_NOT_FOUND                  10 topic ids

A missing topic or partition gets its own error, and the other offsets are committed.
group/offset_metadata_manager.py validates the member and the metadata's size. A coordinator
operation commits at most `_OFFSETS_AT_ONCE` offsets, so a larger request is not atomic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from plog.errors import KafkaError, UnknownTopicId, UnknownTopicOrPartition
from plog.types import Uuid
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from plogd.apis.request_context import RequestContext
from plogd.apis.sliced_requests import by_topic
from plogd.broker import Broker
from plogd.coordinator.group.offset_metadata_manager import OffsetCommit, OffsetToCommit
from plogd.fair_queue import Slices
from plogd.ports import Later, spawn

_FIRST_TOPIC_ID_VERSION = 10  # KIP-848.
# An operation and the replay of its records run in a single turn of the reactor.
_OFFSETS_AT_ONCE: Final = 256

_Topic = tuple[str, Uuid]
"""The name and id of a requested topic; depending on the version, one of them is empty."""


def handle_offset_commit(
    request: OffsetCommitRequest, context: RequestContext, broker: Broker
) -> Later[OffsetCommitResponse]:
    """Commit offsets for existing partitions."""
    return spawn(_commit(request, context, broker))


async def _commit(
    request: OffsetCommitRequest, context: RequestContext, broker: Broker
) -> OffsetCommitResponse:
    slices = Slices(broker.fair_queue)
    by_id = context.version >= _FIRST_TOPIC_ID_VERSION
    asked = await by_topic(
        request.topics,
        lambda topic: (topic.name, topic.topic_id),
        lambda topic: topic.partitions,
        lambda partition: partition.partition_index,
        slices,
    )
    offsets: list[OffsetToCommit] = []
    outcomes: dict[_Topic, dict[int, KafkaError | None]] = {}
    places: list[tuple[dict[int, KafkaError | None], int]] = []
    """The entry in `outcomes` for each of `offsets`."""
    async for topic, partitions in slices.over(asked.items()):
        name = broker.cache.topic_name(topic[1]) if by_id else topic[0]
        state = None if name is None else broker.cache.topic(name)
        count = 0 if state is None else len(state.partitions)
        of_topic = outcomes[topic] = {}
        async for number, named in slices.over(partitions.items()):
            of_topic[number] = None  # Reserves its place: the response keeps the request's order.
            if name is None:
                of_topic[number] = UnknownTopicId()
            elif not 0 <= number < count:
                of_topic[number] = UnknownTopicOrPartition()
            else:
                # If the request repeats a partition, its last offset counts.
                offsets.append(_offset_to_commit(name, named[-1]))
                places.append((of_topic, number))
    errors = await _commit_some(request, context, offsets, broker)
    async for (of_topic, number), error in slices.over(zip(places, errors, strict=True)):
        of_topic[number] = error
    return _response(outcomes)


def _offset_to_commit(topic: str, partition: OffsetCommitRequestPartition) -> OffsetToCommit:
    return OffsetToCommit(
        topic=topic,
        partition=partition.partition_index,
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata,
    )


async def _commit_some(
    request: OffsetCommitRequest,
    context: RequestContext,
    offsets: Sequence[OffsetToCommit],
    broker: Broker,
) -> list[KafkaError | None]:
    """Commit the offsets, a few per operation; return an error or None for each."""
    errors: list[KafkaError | None] = []
    for start in range(0, len(offsets), _OFFSETS_AT_ONCE):
        some = offsets[start : start + _OFFSETS_AT_ONCE]
        commit = OffsetCommit(
            group_id=request.group_id,
            offsets=some,
            version=context.version,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            generation_id=request.generation_id_or_member_epoch,
            # Only versions 2 to 4 contain it (KIP-211). Its default, -1, means the broker's
            # retention.
            retention_time_ms=request.retention_time_ms,
        )
        try:
            errors += await broker.group_coordinator.commit_offsets(commit)
        except KafkaError as error:
            # The response has no error code for the group, so each partition gets the error.
            errors += [error.bare()] * len(some)
        if start + _OFFSETS_AT_ONCE < len(offsets):
            # A commit can complete without waiting, so the loop itself has to let other requests
            # run.
            await broker.fair_queue.turn()
    return errors


def _response(outcomes: Mapping[_Topic, Mapping[int, KafkaError | None]]) -> OffsetCommitResponse:
    def of_topic(
        answered: tuple[_Topic, Mapping[int, KafkaError | None]],
    ) -> OffsetCommitResponseTopic:
        (name, topic_id), of_partitions = answered
        partitions = lazy_array(list(of_partitions.items()), lambda one: _partition(*one))
        return OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=partitions)

    return OffsetCommitResponse(topics=lazy_array(list(outcomes.items()), of_topic))


def _partition(number: int, error: KafkaError | None) -> OffsetCommitResponsePartition:
    return OffsetCommitResponsePartition(
        partition_index=number, error_code=0 if error is None else error.code
    )


def refuse_offset_commit(
    request: OffsetCommitRequest, context: RequestContext, error: KafkaError
) -> OffsetCommitResponse:
    """Reject all partitions with `error`."""

    def of_topic(topic: OffsetCommitRequestTopic) -> OffsetCommitResponseTopic:
        partitions = lazy_array(
            topic.partitions, lambda partition: _partition(partition.partition_index, error)
        )
        return OffsetCommitResponseTopic(
            name=topic.name, topic_id=topic.topic_id, partitions=partitions
        )

    return OffsetCommitResponse(topics=lazy_array(request.topics, of_topic))
