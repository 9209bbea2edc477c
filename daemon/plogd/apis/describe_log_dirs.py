"""DescribeLogDirs (key 35): every log directory with its partitions, their sizes, and its room.

Versions served 0-5. Kafka dropped version 0; kafka-python 2.3 knows no other.

  3 an error as a whole      4 total and usable bytes (KIP-827)      5 cordoned directories

Each log is the only one of its partition here, so none lags behind and none is a future one. The
metadata log is no topic and not told of. A directory that failed is named with an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plog.types import TopicPartition
from plog.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from plogd.apis.context import RequestContext
from plogd.apis.refusals import refuse_at_top_level
from plogd.log.log_dir_usage import LogDirUsage, usage_of
from plogd.metadata.embedded import METADATA_PARTITION
from plogd.ports import Later, spawn

if TYPE_CHECKING:
    from plogd.broker import Broker


def handle_describe_log_dirs(
    request: DescribeLogDirsRequest, context: RequestContext, broker: Broker
) -> Later[DescribeLogDirsResponse]:
    """Ask the file systems, then tell."""
    return spawn(_respond(request, broker))


async def _respond(request: DescribeLogDirsRequest, broker: Broker) -> DescribeLogDirsResponse:
    wanted = _wanted(request)
    usages = await usage_of(broker.log_manager, broker.jobs)
    return DescribeLogDirsResponse(results=[_result(usage, wanted) for usage in usages])


def _wanted(request: DescribeLogDirsRequest) -> frozenset[TopicPartition] | None:
    """The partitions to tell of; None for all."""
    if request.topics is None:
        return None
    return frozenset(
        TopicPartition(topic.topic, number)
        for topic in request.topics
        for number in topic.partitions
    )


def _result(usage: LogDirUsage, wanted: frozenset[TopicPartition] | None) -> DescribeLogDirsResult:
    if usage.error is not None:
        return DescribeLogDirsResult(log_dir=usage.path, error_code=usage.error.code)
    result = DescribeLogDirsResult(log_dir=usage.path, topics=_topics(usage, wanted))
    if usage.space is not None:
        result.total_bytes, result.usable_bytes = usage.space
    return result


def _topics(
    usage: LogDirUsage, wanted: frozenset[TopicPartition] | None
) -> list[DescribeLogDirsTopic]:
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for log in sorted(usage.logs, key=lambda log: log.topic_partition):
        key = log.topic_partition
        if key != METADATA_PARTITION and (wanted is None or key in wanted):
            topics.setdefault(key.topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=key.partition, partition_size=log.size_bytes
                )
            )
    return [DescribeLogDirsTopic(name=name, partitions=found) for name, found in topics.items()]


refuse_describe_log_dirs = refuse_at_top_level(DescribeLogDirsResponse)
