"""Records of `__remote_log_metadata`, which describe Kafka's tiered storage (KIP-405).

plog does not write these records, but its tools print them if a Kafka log contains them. They have
the same frame as the records of `__cluster_metadata`, but their own keys. Source: Kafka 4.3 storage
messages.
"""

from __future__ import annotations

from typing import Final

from plog.wire.internal.metadata_records import MetadataRecord
from plog.wire.schema import Struct, field, int8, int32, int64, uuid


class RemoteTopicPartition(Struct):
    """A partition, with the name and id of its topic."""

    name: str = field()
    id: uuid = field()
    partition: int32 = field()


class RemoteSegmentId(Struct):
    """A segment of a partition."""

    topic_id_partition: RemoteTopicPartition = field()
    id: uuid = field()


class SegmentLeaderEpoch(Struct):
    """A leader epoch and its start offset."""

    leader_epoch: int32 = field()
    offset: int64 = field()


class RemoteLogSegmentMetadataRecord(MetadataRecord, record_key=0, versions="0", flexible="0+"):
    """A segment that was copied or is being copied; the end offset is inclusive."""

    remote_log_segment_id: RemoteSegmentId = field()
    start_offset: int64 = field()
    end_offset: int64 = field()
    broker_id: int32 = field()
    max_timestamp_ms: int64 = field()
    event_timestamp_ms: int64 = field()
    segment_leader_epochs: list[SegmentLeaderEpoch] = field()
    segment_size_in_bytes: int32 = field()
    custom_metadata: bytes | None = field(default=None)
    remote_log_segment_state: int8 = field()
    txn_index_empty: bool = field(tag=0)


class RemoteLogSegmentMetadataUpdateRecord(
    MetadataRecord, record_key=1, versions="0", flexible="0+"
):
    """The state of a segment was changed."""

    remote_log_segment_id: RemoteSegmentId = field()
    broker_id: int32 = field()
    event_timestamp_ms: int64 = field()
    custom_metadata: bytes | None = field(default=None)
    remote_log_segment_state: int8 = field()


class RemotePartitionDeleteMetadataRecord(
    MetadataRecord, record_key=2, versions="0", flexible="0+"
):
    """A partition that was deleted or is being deleted."""

    topic_id_partition: RemoteTopicPartition = field()
    broker_id: int32 = field()
    event_timestamp_ms: int64 = field()
    remote_partition_delete_state: int8 = field()


class RemoteLogSegmentMetadataSnapshotRecord(
    MetadataRecord, record_key=3, versions="0", flexible="0+"
):
    """A segment in a snapshot; the snapshot itself identifies the partition."""

    segment_id: uuid = field()
    start_offset: int64 = field()
    end_offset: int64 = field()
    broker_id: int32 = field()
    max_timestamp_ms: int64 = field()
    event_timestamp_ms: int64 = field()
    segment_leader_epochs: list[SegmentLeaderEpoch] = field()
    segment_size_in_bytes: int32 = field()
    custom_metadata: bytes | None = field(default=None)
    remote_log_segment_state: int8 = field()
    txn_index_empty: bool = field(tag=0)


REMOTE_LOG_RECORDS: Final[tuple[type[MetadataRecord], ...]] = (
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
    RemoteLogSegmentMetadataSnapshotRecord,
)
REMOTE_LOG_RECORD_BY_KEY: Final = {record.record_key: record for record in REMOTE_LOG_RECORDS}
