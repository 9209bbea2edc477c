"""plogd/tools/dump/remote_log_records.py: remote log metadata as Java prints it."""

from __future__ import annotations

import pytest

from plog.errors import PlogError
from plog.wire.internal.metadata_records import MetadataRecord, encode_metadata_record
from plog.wire.internal.remote_log_records import (
    REMOTE_LOG_RECORDS,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataSnapshotRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
    RemoteSegmentId,
    RemoteTopicPartition,
    SegmentLeaderEpoch,
)
from plogd.tools.dump.remote_log_records import remote_log_text
from tests.unit.wire.filled import every_version, filled

PARTITION = RemoteTopicPartition(name="foo", id=bytes(15) + b"\x01", partition=0)
SEGMENT = RemoteSegmentId(topic_id_partition=PARTITION, id=bytes(15) + b"\x02")
SEGMENT_TEXT = (
    "RemoteLogSegmentId{topicIdPartition=AAAAAAAAAAAAAAAAAAAAAQ:foo-0, id=AAAAAAAAAAAAAAAAAAAAAg}"
)
EPOCHS = [SegmentLeaderEpoch(leader_epoch=2, offset=80), SegmentLeaderEpoch(leader_epoch=0)]
RECORDS: list[tuple[MetadataRecord, str]] = [
    (
        RemoteLogSegmentMetadataRecord(
            remote_log_segment_id=SEGMENT,
            end_offset=100,
            broker_id=1,
            max_timestamp_ms=-1,
            event_timestamp_ms=123,
            segment_leader_epochs=EPOCHS,
            segment_size_in_bytes=1024,
            custom_metadata=bytes(10),
            txn_index_empty=True,
        ),
        f"RemoteLogSegmentMetadata{{remoteLogSegmentId={SEGMENT_TEXT}, startOffset=0,"
        " endOffset=100, brokerId=1, maxTimestampMs=-1, eventTimestampMs=123,"
        " segmentLeaderEpochs={0=0, 2=80}, segmentSizeInBytes=1024,"
        " customMetadata=Optional[CustomMetadata{10 bytes}], state=COPY_SEGMENT_STARTED,"
        " txnIdxEmpty=true}",
    ),
    (
        RemoteLogSegmentMetadataUpdateRecord(
            remote_log_segment_id=SEGMENT, broker_id=1, remote_log_segment_state=1
        ),
        f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={SEGMENT_TEXT},"
        " customMetadata=Optional.empty, state=COPY_SEGMENT_FINISHED, eventTimestampMs=0,"
        " brokerId=1}",
    ),
    (
        RemotePartitionDeleteMetadataRecord(
            topic_id_partition=PARTITION, broker_id=7, remote_partition_delete_state=2
        ),
        "RemotePartitionDeleteMetadata{topicPartition=AAAAAAAAAAAAAAAAAAAAAQ:foo-0,"
        " state=DELETE_PARTITION_FINISHED, eventTimestampMs=0, brokerId=7}",
    ),
    (
        RemoteLogSegmentMetadataSnapshotRecord(
            segment_id=bytes(16),
            segment_leader_epochs=EPOCHS,
            remote_log_segment_state=3,
        ),
        "RemoteLogSegmentMetadataSnapshot{segmentId=AAAAAAAAAAAAAAAAAAAAAA, startOffset=0,"
        " endOffset=0, maxTimestampMs=0, segmentLeaderEpochs={0=0, 2=80}, segmentSizeInBytes=0,"
        " customMetadata=Optional.empty, state=DELETE_SEGMENT_FINISHED, txnIdxEmpty=false}",
    ),
]


@pytest.mark.parametrize(("record", "text"), RECORDS)
def test_record_is_printed_as_java_does(record: MetadataRecord, text: str) -> None:
    assert remote_log_text(encode_metadata_record(record, 0)) == text


@every_version(REMOTE_LOG_RECORDS)
@pytest.mark.parametrize("nulls", [False, True])
def test_record_survives_round_trip(
    message_type: type[MetadataRecord], version: int, nulls: bool
) -> None:
    record = filled(message_type, version, 4, nulls=nulls)
    assert message_type.decode(record.encode(version), version) == record


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "truncated"),
        (bytes([1, 9, 0]), "unknown metadata record: key 9"),
        (
            encode_metadata_record(RemoteLogSegmentMetadataRecord(), 0),
            "the segment has no leader epochs",
        ),
        (
            encode_metadata_record(
                RemotePartitionDeleteMetadataRecord(remote_partition_delete_state=3), 0
            ),
            "unknown state 3",
        ),
    ],
)
def test_invalid_record_is_rejected(data: bytes, problem: str) -> None:
    with pytest.raises(PlogError, match=problem):
        remote_log_text(data)
