"""OffsetFetch (key 9): the committed offsets of one or more groups.

Serves versions 1-10.

  2 null means all topics; top-level error      5 leader epoch     6 flexible
  7 require stable     8 several groups, each with its own error       10 topic ids

The offset for a partition without a committed offset is -1; this includes all partitions for an
unknown group. The response is sent only after the group's offsets have been loaded, because a
client that receives -1 resets its position. A partition or group that is listed more than once
appears in the response once, because committed metadata can be much larger than the request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final, Protocol, TypeVar

from plog.errors import KafkaError, UnknownTopicId
from plog.types import ZERO_UUID, Uuid
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from plogd.apis.request_context import RequestContext
from plogd.apis.sliced_requests import ask_in_slices, numbers_by_topic
from plogd.broker import Broker
from plogd.coordinator.group.offset_metadata_manager import Fetched, FetchedOffset
from plogd.fair_queue import Slices
from plogd.ports import Later, spawn

_FIRST_TOP_LEVEL_ERROR_VERSION = 2  # KIP-88.
_FIRST_GROUPS_VERSION = 8  # KIP-709.
_FIRST_TOPIC_ID_VERSION = 10  # KIP-848.
_PARTITIONS_AT_ONCE: Final = 256
"""Maximum number of partitions that one coordinator operation looks up in one turn."""

_Numbers = list[tuple[str, list[int]]]
"""Partition numbers by topic name."""


class _Topic(Protocol):
    """A topic in a request."""

    name: str
    partition_indexes: list[int]


T = TypeVar("T", bound=_Topic)


def handle_offset_fetch(
    request: OffsetFetchRequest, context: RequestContext, broker: Broker
) -> Later[OffsetFetchResponse]:
    """Look up the committed offsets, group by group."""
    if context.version >= _FIRST_GROUPS_VERSION:
        return spawn(_several_groups(request, context, broker))
    return spawn(_one_group(request, broker))


async def _one_group(request: OffsetFetchRequest, broker: Broker) -> OffsetFetchResponse:
    slices = Slices(broker.fair_queue)
    asked = None if request.topics is None else await _by_name(request.topics, slices)
    fetched = await _fetch(request.group_id, asked, broker, require_stable=request.require_stable)
    return OffsetFetchResponse(topics=lazy_array(fetched, _topic_response))


def _topic_response(fetched: tuple[str, Sequence[FetchedOffset]]) -> OffsetFetchResponseTopic:
    name, partitions = fetched
    return OffsetFetchResponseTopic(
        name=name, partitions=lazy_array(partitions, _partition_response)
    )


def _partition_response(one: FetchedOffset) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=one.partition,
        committed_offset=one.offset,
        committed_leader_epoch=one.leader_epoch,
        metadata=one.metadata,
        error_code=0 if one.error is None else one.error.code,
    )


async def _by_name(topics: Iterable[T], slices: Slices) -> _Numbers:
    asked = await numbers_by_topic(
        topics, lambda topic: topic.name, lambda topic: topic.partition_indexes, slices
    )
    return list(asked.items())


# -- committed offsets ---------------------------------------------------------------------------


async def _fetch(
    group_id: str, asked: _Numbers | None, broker: Broker, *, require_stable: bool
) -> Fetched:
    """Fetch the offsets for `asked`, a few per operation; None means all partitions."""
    coordinator = broker.group_coordinator
    if asked is None:
        asked = await coordinator.committed_partitions(group_id)
    fetched: Fetched = []
    async for some in _parts(asked, Slices(broker.fair_queue)):
        # The first part runs in the current turn, and most requests have only one part.
        if fetched:
            await broker.fair_queue.turn()
        found = await coordinator.fetch_offsets(group_id, some, require_stable=require_stable)
        # A topic can continue in the next part, but appears only once in the response.
        if fetched and found and fetched[-1][0] == found[0][0]:
            fetched[-1][1].extend(found.pop(0)[1])
        fetched += found
    return fetched


async def _parts(asked: _Numbers, slices: Slices) -> AsyncIterator[_Numbers]:
    """Yield `asked` in parts of about `_PARTITIONS_AT_ONCE` partitions; at least one part."""
    part: _Numbers = []
    count = 0
    async for name, numbers in slices.over(asked):
        for start in range(0, max(1, len(numbers)), _PARTITIONS_AT_ONCE):
            part.append((name, numbers[start : start + _PARTITIONS_AT_ONCE]))
            # A topic without partitions also counts: a request can contain thousands of them.
            count += max(1, len(part[-1][1]))
            if count >= _PARTITIONS_AT_ONCE:
                yield part
                part, count = [], 0
    # A request without partitions also needs a part, because only the coordinator detects errors
    # that affect the whole group.
    if part or not asked:
        yield part


# -- several groups ------------------------------------------------------------------------------


async def _several_groups(
    request: OffsetFetchRequest, context: RequestContext, broker: Broker
) -> OffsetFetchResponse:
    slices = Slices(broker.fair_queue)
    groups: dict[str, list[OffsetFetchRequestTopics] | None] = {}
    async for group in slices.over(request.groups):
        before = groups.setdefault(group.group_id, [])
        # Null means all topics, including the topics in the group's other elements.
        if group.topics is None:
            groups[group.group_id] = None
        elif before is not None:
            before += group.topics
            # Extending a list is so fast that 16 topics are counted as one element.
            slices.spend(len(group.topics) // 16)

    def ask(
        group: tuple[str, list[OffsetFetchRequestTopics] | None],
    ) -> Later[OffsetFetchResponseGroup]:
        return spawn(_group(*group, request.require_stable, context, broker))

    answers = await ask_in_slices(groups.items(), ask, broker)

    def response(
        answered: tuple[str, OffsetFetchResponseGroup | KafkaError],
    ) -> OffsetFetchResponseGroup:
        group_id, answer = answered
        return _refused(group_id, answer) if isinstance(answer, KafkaError) else answer

    return OffsetFetchResponse(groups=lazy_array(list(zip(groups, answers, strict=True)), response))


async def _group(
    group_id: str,
    topics: list[OffsetFetchRequestTopics] | None,
    require_stable: bool,
    context: RequestContext,
    broker: Broker,
) -> OffsetFetchResponseGroup:
    slices = Slices(broker.fair_queue)
    by_id = context.version >= _FIRST_TOPIC_ID_VERSION
    unknown: dict[Uuid, list[int]] = {}
    asked: _Numbers | None = None
    if topics is not None and by_id:
        asked, unknown = await _by_id(topics, broker, slices)
    elif topics is not None:
        asked = await _by_name(topics, slices)
    fetched = await _fetch(group_id, asked, broker, require_stable=require_stable)
    found: list[tuple[str, Uuid, Sequence[FetchedOffset]]] = []
    async for name, offsets in slices.over(fetched):
        # Looked up after the fetch, during which the topic can have been deleted.
        topic_id = _id_of(name, broker)
        # Committed offsets for a deleted topic do not have a topic id.
        if not by_id or topic_id != ZERO_UUID:
            found.append((name, topic_id, offsets))
    error = UnknownTopicId()
    async for topic_id, numbers in slices.over(unknown.items()):
        slices.spend(len(numbers))
        found.append(("", topic_id, [FetchedOffset(one, error=error) for one in numbers]))
    return OffsetFetchResponseGroup(group_id=group_id, topics=lazy_array(found, _group_topic))


async def _by_id(
    topics: Iterable[OffsetFetchRequestTopics], broker: Broker, slices: Slices
) -> tuple[_Numbers, dict[Uuid, list[int]]]:
    """Return the partitions by topic name, and those of unknown topics by topic id."""
    asked = await numbers_by_topic(
        topics, lambda topic: topic.topic_id, lambda topic: topic.partition_indexes, slices
    )
    known: _Numbers = []
    unknown: dict[Uuid, list[int]] = {}
    async for topic_id, numbers in slices.over(asked.items()):
        name = broker.cache.topic_name(topic_id)
        if name is None:
            unknown[topic_id] = numbers
        else:
            known.append((name, numbers))
    return known, unknown


def _id_of(name: str, broker: Broker) -> Uuid:
    topic = broker.cache.topic(name)
    return ZERO_UUID if topic is None else topic.topic_id


def _group_topic(
    topic: tuple[str, Uuid, Sequence[FetchedOffset]],
) -> OffsetFetchResponseTopics:
    name, topic_id, offsets = topic
    return OffsetFetchResponseTopics(
        name=name, topic_id=topic_id, partitions=lazy_array(offsets, _group_partition)
    )


def _group_partition(one: FetchedOffset) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=one.partition,
        committed_offset=one.offset,
        committed_leader_epoch=one.leader_epoch,
        metadata=one.metadata,
        error_code=0 if one.error is None else one.error.code,
    )


# -- failures ------------------------------------------------------------------------------------


def _refused(group_id: str, error: KafkaError) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group_id, error_code=error.code)


def refuse_offset_fetch(
    request: OffsetFetchRequest, context: RequestContext, error: KafkaError
) -> OffsetFetchResponse:
    """Reject all groups with `error`; in version 1, reject all partitions."""
    if context.version >= _FIRST_GROUPS_VERSION:

        def refused(group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
            return _refused(group.group_id, error)

        return OffsetFetchResponse(groups=lazy_array(request.groups, refused))
    if context.version >= _FIRST_TOP_LEVEL_ERROR_VERSION:
        return OffsetFetchResponse(error_code=error.code)

    def of_topic(topic: OffsetFetchRequestTopic) -> OffsetFetchResponseTopic:
        partitions = lazy_array(
            topic.partition_indexes,
            lambda number: _partition_response(FetchedOffset(number, error=error)),
        )
        return OffsetFetchResponseTopic(name=topic.name, partitions=partitions)

    return OffsetFetchResponse(topics=lazy_array(request.topics or (), of_topic))
