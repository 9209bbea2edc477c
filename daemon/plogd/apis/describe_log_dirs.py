"""DescribeLogDirs (key 35): log directories, their partitions' sizes, and their disk space.

Serves versions 0-5.

  3 top-level error      4 total and usable bytes (KIP-827)      5 cordoned directories

In plog, a partition has only one log, so there is no future log and no lag. A failed directory is
listed with an error.
"""

from __future__ import annotations

from plog.wire.lazy_array import lazy_array
from plog.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from plogd.apis.error_responses import refuse_at_top_level
from plogd.apis.request_context import RequestContext
from plogd.apis.sliced_requests import numbers_by_topic
from plogd.broker import Broker
from plogd.fair_queue import Slices
from plogd.log.disk.log_dir_usage import LogDirUsage, usage_of
from plogd.log.log import Log
from plogd.metadata.embedded_store import METADATA_PARTITION
from plogd.ports import Later, spawn


def handle_describe_log_dirs(
    request: DescribeLogDirsRequest, context: RequestContext, broker: Broker
) -> Later[DescribeLogDirsResponse]:
    """Query the file systems, then describe the directories."""
    return spawn(_respond(request, broker))


async def _respond(request: DescribeLogDirsRequest, broker: Broker) -> DescribeLogDirsResponse:
    slices = Slices(broker.fair_queue)
    wanted: dict[str, list[int]] | None = None
    if request.topics is not None:
        wanted = await numbers_by_topic(
            request.topics, lambda topic: topic.topic, lambda topic: topic.partitions, slices
        )
    usages = await usage_of(broker.log_manager, broker.jobs)
    found = {usage.path: await _logs_by_topic(usage, wanted, slices) for usage in usages}
    return DescribeLogDirsResponse(results=[_result(usage, found[usage.path]) for usage in usages])


async def _logs_by_topic(
    usage: LogDirUsage, wanted: dict[str, list[int]] | None, slices: Slices
) -> list[tuple[str, list[Log]]]:
    """Return the requested logs in a directory, sorted; `wanted` is None for all."""
    # Sets, because every log in the directory is looked up in them.
    names = None if wanted is None else {name: set(numbers) for name, numbers in wanted.items()}
    topics: dict[str, list[Log]] = {}
    async for log in slices.over(usage.logs):
        topic, number = log.topic_partition
        # The metadata log does not belong to a topic.
        if log.topic_partition == METADATA_PARTITION:
            continue
        if names is None or number in names.get(topic, ()):
            topics.setdefault(topic, []).append(log)
    # Logs are in the order in which they were loaded, which differs between startups.
    for logs in topics.values():
        logs.sort(key=lambda log: log.topic_partition)
    return sorted(topics.items(), key=lambda of_topic: of_topic[0])


def _result(usage: LogDirUsage, topics: list[tuple[str, list[Log]]]) -> DescribeLogDirsResult:
    if usage.error is not None:
        return DescribeLogDirsResult(log_dir=usage.path, error_code=usage.error.code)
    result = DescribeLogDirsResult(log_dir=usage.path, topics=lazy_array(topics, _topic))
    # Otherwise, the fields keep their default, -1, which means "unknown" (KIP-827).
    if usage.space is not None:
        result.total_bytes, result.usable_bytes = usage.space
    return result


def _topic(of_topic: tuple[str, list[Log]]) -> DescribeLogDirsTopic:
    name, logs = of_topic
    return DescribeLogDirsTopic(name=name, partitions=lazy_array(logs, _partition))


def _partition(log: Log) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=log.topic_partition.partition, partition_size=log.size_bytes
    )


refuse_describe_log_dirs = refuse_at_top_level(DescribeLogDirsResponse)
