"""DescribeLogDirs (key 35): the logs in each log directory, and its disk space.

Changes by version:

  2  flexible
  3  an error code for the request
  4  total and usable bytes (KIP-827)
  5  cordoned directories (KIP-1066)

Version 0 was removed in Kafka 4.0, but kafka-python 2.3 only supports version 0, which is identical
to version 1.
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32, int64


class DescribableLogDirTopic(Struct):
    """Partitions to describe."""

    topic: str = field()
    partitions: list[int32] = field()


class DescribeLogDirsRequest(
    ApiMessage, api_key=ApiKey.DESCRIBE_LOG_DIRS, versions="0-5", flexible="2+"
):
    """Partitions to describe; null means all."""

    topics: list[DescribableLogDirTopic] | None = field()


class DescribeLogDirsPartition(Struct):
    """A log; a future log will replace the partition's current one."""

    partition_index: int32 = field()
    partition_size: int64 = field()
    offset_lag: int64 = field()
    is_future_key: bool = field()


class DescribeLogDirsTopic(Struct):
    """The logs of a topic in one directory."""

    name: str = field()
    partitions: list[DescribeLogDirsPartition] = field()


class DescribeLogDirsResult(Struct):
    """A log directory; sizes are those of its file system in bytes, or -1 if unknown."""

    error_code: int16 = field()
    log_dir: str = field()
    topics: list[DescribeLogDirsTopic] = field()
    total_bytes: int64 = field("4+", default=-1, ignorable=True)
    usable_bytes: int64 = field("4+", default=-1, ignorable=True)
    is_cordoned: bool = field("5+", ignorable=True)


class DescribeLogDirsResponse(
    ApiMessage, api_key=ApiKey.DESCRIBE_LOG_DIRS, versions="0-5", flexible="2+"
):
    """All log directories of the broker."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field("3+", ignorable=True)
    results: list[DescribeLogDirsResult] = field()
