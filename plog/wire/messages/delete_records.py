"""DeleteRecords (key 21): delete the records below an offset.

Changes by version:

  2  flexible
"""

from __future__ import annotations

from plog.wire.api_keys import ApiKey
from plog.wire.schema import ApiMessage, Struct, field, int16, int32, int64


class DeleteRecordsPartition(Struct):
    """The offset below which records are deleted; -1 means the high watermark."""

    partition_index: int32 = field()
    offset: int64 = field()


class DeleteRecordsTopic(Struct):
    """A topic's partitions."""

    name: str = field()
    partitions: list[DeleteRecordsPartition] = field()


class DeleteRecordsRequest(
    ApiMessage, api_key=ApiKey.DELETE_RECORDS, versions="0-2", flexible="2+"
):
    """The new log start offset of each partition."""

    topics: list[DeleteRecordsTopic] = field()
    timeout_ms: int32 = field()


class DeleteRecordsPartitionResult(Struct):
    """The new low watermark of a partition, or an error."""

    partition_index: int32 = field()
    low_watermark: int64 = field()
    error_code: int16 = field()


class DeleteRecordsTopicResult(Struct):
    """A topic's partitions."""

    name: str = field()
    partitions: list[DeleteRecordsPartitionResult] = field()


class DeleteRecordsResponse(
    ApiMessage, api_key=ApiKey.DELETE_RECORDS, versions="0-2", flexible="2+"
):
    """The result for each partition."""

    throttle_time_ms: int32 = field()
    topics: list[DeleteRecordsTopicResult] = field()
