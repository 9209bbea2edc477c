"""OffsetFetch (key 9): how far a group, or several, have come.

Versions served 1-10.

  2 all topics by null; an error for the request     5 leader epoch     6 flexible
  7 require stable     8 several groups, each with its own error       10 topic ids

A partition nothing was committed for has offset -1, and so has all of a group nobody knows. That is
only ever said when the group's offsets are loaded: a client that hears it begins anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plog.errors import InvalidRequest, KafkaError, UnknownTopicId
from plog.types import ZERO_UUID, Uuid
from plog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from plogd.apis.context import RequestContext
from plogd.apis.in_slices import ask_in_slices
from plogd.coordinator.offsets import Fetched, FetchedOffset
from plogd.ports import Later, failed, spawn

if TYPE_CHECKING:
    from plogd.broker import Broker

_FIRST_TOP_LEVEL_ERROR_VERSION = 2
_FIRST_GROUPS_VERSION = 8
_FIRST_TOPIC_ID_VERSION = 10


@dataclass(frozen=True, slots=True)
class _Topic:
    """What is told of a topic, or asked of it."""

    name: str
    topic_id: Uuid
    partitions: Sequence[FetchedOffset]


def handle_offset_fetch(
    request: OffsetFetchRequest, context: RequestContext, broker: Broker
) -> Later[OffsetFetchResponse]:
    """What is committed, group by group."""
    if context.version >= _FIRST_GROUPS_VERSION:
        return spawn(_several_groups(request, context, broker))
    asked = None
    if request.topics is not None:
        asked = [(topic.name, topic.partition_indexes) for topic in request.topics]
    fetched = broker.group_coordinator.fetch_offsets(
        request.group_id, asked, require_stable=request.require_stable
    )
    return fetched.map(_one_group)


def _one_group(fetched: Fetched) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=one.partition,
                        committed_offset=one.offset,
                        committed_leader_epoch=one.leader_epoch,
                        metadata=one.metadata,
                        error_code=0 if one.error is None else one.error.code,
                    )
                    for one in partitions
                ],
            )
            for name, partitions in fetched
        ]
    )


async def _several_groups(
    request: OffsetFetchRequest, context: RequestContext, broker: Broker
) -> OffsetFetchResponse:
    asked_for_all: set[str] = set()

    def ask(group: OffsetFetchRequestGroup) -> Later[OffsetFetchResponseGroup]:
        if group.topics is None:
            if group.group_id in asked_for_all:  # A small request would ask for gigabytes.
                return failed(InvalidRequest(f"group {group.group_id} is named more than once"))
            asked_for_all.add(group.group_id)
        return spawn(_group(group, request.require_stable, context, broker))

    answers = await ask_in_slices(request.groups, ask, broker)
    return OffsetFetchResponse(
        groups=[
            _refused(group, answer) if isinstance(answer, KafkaError) else answer
            for group, answer in zip(request.groups, answers, strict=True)
        ]
    )


async def _group(
    group: OffsetFetchRequestGroup, require_stable: bool, context: RequestContext, broker: Broker
) -> OffsetFetchResponseGroup:
    by_id = context.version >= _FIRST_TOPIC_ID_VERSION
    unknown: list[_Topic] = []
    ids: dict[str, Uuid] = {}
    asked: list[tuple[str, Sequence[int]]] | None = None
    if group.topics is not None:
        asked = []
        for topic in group.topics:
            name = broker.cache.topic_name(topic.topic_id) if by_id else topic.name
            if name is None:
                unknown.append(_unknown_topic(topic.topic_id, topic.partition_indexes))
            else:
                ids[name] = topic.topic_id
                asked.append((name, topic.partition_indexes))
    fetched = await broker.group_coordinator.fetch_offsets(
        group.group_id, asked, require_stable=require_stable
    )
    found = [_Topic(name, ids.get(name) or _id_of(name, broker), rest) for name, rest in fetched]
    if by_id:  # Of all that is committed, what belongs to a topic that is gone cannot be named.
        found = [topic for topic in found if topic.topic_id != ZERO_UUID]
    return OffsetFetchResponseGroup(
        group_id=group.group_id, topics=[_told(topic) for topic in (*found, *unknown)]
    )


def _id_of(name: str, broker: Broker) -> Uuid:
    topic = broker.cache.topic(name)
    return ZERO_UUID if topic is None else topic.topic_id


def _unknown_topic(topic_id: Uuid, partitions: Sequence[int]) -> _Topic:
    error = UnknownTopicId()
    return _Topic("", topic_id, [FetchedOffset(number, error=error) for number in partitions])


def _told(topic: _Topic) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=one.partition,
                committed_offset=one.offset,
                committed_leader_epoch=one.leader_epoch,
                metadata=one.metadata,
                error_code=0 if one.error is None else one.error.code,
            )
            for one in topic.partitions
        ],
    )


def _refused(group: OffsetFetchRequestGroup, error: KafkaError) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)


def refuse_offset_fetch(
    request: OffsetFetchRequest, context: RequestContext, error: KafkaError
) -> OffsetFetchResponse:
    """The answer in which every group gets `error`; in version 1 every partition does."""
    if context.version >= _FIRST_GROUPS_VERSION:
        return OffsetFetchResponse(groups=[_refused(group, error) for group in request.groups])
    if context.version >= _FIRST_TOP_LEVEL_ERROR_VERSION:
        return OffsetFetchResponse(error_code=error.code)
    return _one_group(
        [
            (topic.name, [FetchedOffset(one, error=error) for one in topic.partition_indexes])
            for topic in request.topics or ()
        ]
    )
