"""OffsetDelete (key 47): forget offsets of a group (KIP-496).

Version served 0. Offsets of topics that members of the group consume stay, each with its own error,
and so do those of partitions that do not exist. What refuses all of them is told at the top, and
nothing else is then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plog.errors import KafkaError, UnknownTopicOrPartition
from plog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from plogd.apis.context import RequestContext
from plogd.ports import Later

if TYPE_CHECKING:
    from plogd.broker import Broker


def handle_offset_delete(
    request: OffsetDeleteRequest, context: RequestContext, broker: Broker
) -> Later[OffsetDeleteResponse]:
    """Forget the offsets of partitions that exist."""
    present: list[tuple[str, int]] = []
    for topic in request.topics:
        state = broker.cache.topic(topic.name)
        count = 0 if state is None else len(state.partitions)
        for partition in topic.partitions:
            if 0 <= partition.partition_index < count:
                present.append((topic.name, partition.partition_index))
    deleted = broker.group_coordinator.delete_offsets(request.group_id, present)
    return deleted.map(lambda errors: _response(request, dict(zip(present, errors, strict=True))))


def _response(
    request: OffsetDeleteRequest, outcomes: dict[tuple[str, int], KafkaError | None]
) -> OffsetDeleteResponse:
    unknown = UnknownTopicOrPartition()

    def code(topic: str, partition: int) -> int:
        error = outcomes.get((topic, partition), unknown)
        return 0 if error is None else error.code

    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=code(topic.name, partition.partition_index),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
