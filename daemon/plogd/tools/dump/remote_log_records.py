"""Convert records of `__remote_log_metadata` to text, in the ``toString`` format of Kafka.

Source: Kafka 4.3 RemoteLogMetadataSerde, and toString of RemoteLogSegmentMetadata,
RemoteLogSegmentMetadataUpdate, RemotePartitionDeleteMetadata, RemoteLogSegmentMetadataSnapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from plog.errors import PlogError
from plog.types import uuid_to_text
from plog.wire.internal.metadata_records import decode_known_record
from plog.wire.internal.remote_log_records import (
    REMOTE_LOG_RECORD_BY_KEY,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataSnapshotRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
    RemoteSegmentId,
    RemoteTopicPartition,
    SegmentLeaderEpoch,
)
from plog.wire.primitives import WireError

# The position of a name is the state's id in Kafka's enums.
_SEGMENT_STATES: Final = (
    "COPY_SEGMENT_STARTED",
    "COPY_SEGMENT_FINISHED",
    "DELETE_SEGMENT_STARTED",
    "DELETE_SEGMENT_FINISHED",
)
_DELETE_STATES: Final = (
    "DELETE_PARTITION_MARKED",
    "DELETE_PARTITION_STARTED",
    "DELETE_PARTITION_FINISHED",
)


def remote_log_text(data: bytes) -> str:
    """Return a record as text. Raises PlogError if it cannot be decoded."""
    record, _ = decode_known_record(data, REMOTE_LOG_RECORD_BY_KEY)
    match record:
        case RemoteLogSegmentMetadataRecord():
            return _segment(record)
        case RemoteLogSegmentMetadataUpdateRecord():
            return _update(record)
        case RemotePartitionDeleteMetadataRecord():
            return _delete(record)
        case RemoteLogSegmentMetadataSnapshotRecord():
            return _snapshot(record)
    raise PlogError(f"cannot print a {type(record).__name__}: not a remote log record")


def _segment(record: RemoteLogSegmentMetadataRecord) -> str:
    # The fields are in the order of Kafka's toString methods, which differs between the classes.
    return _text(
        "RemoteLogSegmentMetadata",
        remoteLogSegmentId=_segment_id(record.remote_log_segment_id),
        startOffset=record.start_offset,
        endOffset=record.end_offset,
        brokerId=record.broker_id,
        maxTimestampMs=record.max_timestamp_ms,
        eventTimestampMs=record.event_timestamp_ms,
        segmentLeaderEpochs=_epochs(record.segment_leader_epochs),
        segmentSizeInBytes=record.segment_size_in_bytes,
        customMetadata=_custom(record.custom_metadata),
        state=_state(_SEGMENT_STATES, record.remote_log_segment_state),
        txnIdxEmpty="true" if record.txn_index_empty else "false",
    )


def _update(record: RemoteLogSegmentMetadataUpdateRecord) -> str:
    return _text(
        "RemoteLogSegmentMetadataUpdate",
        remoteLogSegmentId=_segment_id(record.remote_log_segment_id),
        customMetadata=_custom(record.custom_metadata),
        state=_state(_SEGMENT_STATES, record.remote_log_segment_state),
        eventTimestampMs=record.event_timestamp_ms,
        brokerId=record.broker_id,
    )


def _delete(record: RemotePartitionDeleteMetadataRecord) -> str:
    return _text(
        "RemotePartitionDeleteMetadata",
        topicPartition=_partition(record.topic_id_partition),
        state=_state(_DELETE_STATES, record.remote_partition_delete_state),
        eventTimestampMs=record.event_timestamp_ms,
        brokerId=record.broker_id,
    )


def _snapshot(record: RemoteLogSegmentMetadataSnapshotRecord) -> str:
    return _text(
        "RemoteLogSegmentMetadataSnapshot",
        segmentId=uuid_to_text(record.segment_id),
        startOffset=record.start_offset,
        endOffset=record.end_offset,
        maxTimestampMs=record.max_timestamp_ms,
        segmentLeaderEpochs=_epochs(record.segment_leader_epochs),
        segmentSizeInBytes=record.segment_size_in_bytes,
        customMetadata=_custom(record.custom_metadata),
        state=_state(_SEGMENT_STATES, record.remote_log_segment_state),
        txnIdxEmpty="true" if record.txn_index_empty else "false",
    )


def _text(kind: str, **fields: object) -> str:
    return f"{kind}{{{', '.join(f'{name}={value}' for name, value in fields.items())}}}"


def _segment_id(segment: RemoteSegmentId) -> str:
    return _text(
        "RemoteLogSegmentId",
        topicIdPartition=_partition(segment.topic_id_partition),
        id=uuid_to_text(segment.id),
    )


def _partition(partition: RemoteTopicPartition) -> str:
    return f"{uuid_to_text(partition.id)}:{partition.name}-{partition.partition}"


def _epochs(epochs: Sequence[SegmentLeaderEpoch]) -> str:
    offsets = {each.leader_epoch: each.offset for each in epochs}
    # Kafka's RemoteLogSegmentMetadata also rejects a segment without leader epochs.
    if not offsets:
        raise WireError("the segment has no leader epochs")
    return f"{{{', '.join(f'{epoch}={offsets[epoch]}' for epoch in sorted(offsets))}}}"


def _custom(data: bytes | None) -> str:
    # Only the size, as in Kafka: a storage plug-in defines the meaning of the bytes.
    return "Optional.empty" if data is None else f"Optional[CustomMetadata{{{len(data)} bytes}}]"


def _state(names: Sequence[str], number: int) -> str:
    if not 0 <= number < len(names):
        raise WireError(f"unknown state {number}")
    return names[number]
