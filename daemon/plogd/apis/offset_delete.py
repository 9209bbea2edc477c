"""OffsetDelete (key 47): remove a group's committed offsets (KIP-496).

Serves version 0. If members of the group consume a topic, its offsets are kept, and its partitions
get an error. A partition that does not exist also gets an error. A response with a top-level error
does not contain any topics. A partition that is listed more than once appears in the response once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from plog.errors import KafkaError, UnknownTopicOrPartition
from plog.wire.lazy_array import lazy_array
from plog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from plogd.apis.request_context import RequestContext
from plogd.apis.sliced_requests import by_topic
from plogd.broker import Broker
from plogd.fair_queue import Slices
from plogd.ports import Later, spawn

_OFFSETS_AT_ONCE: Final = 256
"""Maximum number of offsets removed by one coordinator operation, which takes one turn."""


def handle_offset_delete(
    request: OffsetDeleteRequest, context: RequestContext, broker: Broker
) -> Later[OffsetDeleteResponse]:
    """Remove offsets for existing partitions."""
    return spawn(_delete(request, broker))


async def _delete(request: OffsetDeleteRequest, broker: Broker) -> OffsetDeleteResponse:
    slices = Slices(broker.fair_queue)
    asked = await by_topic(
        request.topics,
        lambda topic: topic.name,
        lambda topic: topic.partitions,
        lambda partition: partition.partition_index,
        slices,
    )
    present: list[tuple[str, int]] = []
    async for topic, partitions in slices.over(asked.items()):
        state = broker.cache.topic(topic)
        count = 0 if state is None else len(state.partitions)
        # The comprehension is so fast that four partitions are counted as one element.
        slices.spend(len(partitions) // 4)
        present += [(topic, number) for number in partitions if 0 <= number < count]
    outcomes: dict[tuple[str, int], KafkaError | None] = {}
    # At least one operation, because an unknown group is an error even if no partition exists.
    for start in range(0, max(1, len(present)), _OFFSETS_AT_ONCE):
        some = present[start : start + _OFFSETS_AT_ONCE]
        errors = await broker.group_coordinator.delete_offsets(request.group_id, some)
        outcomes.update(zip(some, errors, strict=True))
        await broker.fair_queue.turn()
    return _response(asked, outcomes)


def _response(
    asked: Mapping[str, Collection[int]], outcomes: Mapping[tuple[str, int], KafkaError | None]
) -> OffsetDeleteResponse:
    unknown = UnknownTopicOrPartition()

    def of_topic(named: tuple[str, Collection[int]]) -> OffsetDeleteResponseTopic:
        name, numbers = named

        def of_partition(number: int) -> OffsetDeleteResponsePartition:
            # A partition that does not exist was not passed to the coordinator, so it has no
            # outcome.
            error = outcomes.get((name, number), unknown)
            return OffsetDeleteResponsePartition(
                partition_index=number, error_code=0 if error is None else error.code
            )

        partitions = lazy_array(list(numbers), of_partition)
        return OffsetDeleteResponseTopic(name=name, partitions=partitions)

    return OffsetDeleteResponse(topics=lazy_array(list(asked.items()), of_topic))
