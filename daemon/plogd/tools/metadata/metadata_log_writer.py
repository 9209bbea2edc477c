"""A metadata log, written by a tool for a broker that does not run.

The records are those the broker itself would write (plogd/metadata). Who calls this sees to it that
the directory appears under its name only once it is whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from plog.records.batch import parse_header
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.wire.internal.metadata_records import (
    FeatureLevelRecord,
    MetadataRecord,
    encode_metadata_record,
)
from plogd.features import METADATA_VERSION, METADATA_VERSION_LEVEL
from plogd.log.disk import checkpoint_files
from plogd.log.disk.checkpoint_files import EpochEntry
from plogd.log.segment.log_segment import LogSegment
from plogd.metadata.embedded import METADATA_TOPIC_ID
from plogd.ports import Files
from plogd.topic_config import TopicConfig

STAGING_DIR: Final = "__cluster_metadata-1"
"""Where a metadata log is written before it gets its name: of no interest to brokers."""

_RECORDS_PER_BATCH = 500


def level_record() -> FeatureLevelRecord:
    """What a metadata log begins with: the level of the records in it."""
    return FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_VERSION_LEVEL)


def write_metadata_log(
    files: Files, directory: str, records: Sequence[MetadataRecord], *, now_ms: int
) -> None:
    """A metadata log in `directory`, durable but for the directory's own name."""
    segment = LogSegment.create(files, directory, 0, TopicConfig())
    try:
        for start in range(0, len(records), _RECORDS_PER_BATCH):
            batch = build_batch(
                [
                    Record(timestamp=now_ms, value=encode_metadata_record(record, 0))
                    for record in records[start : start + _RECORDS_PER_BATCH]
                ],
                base_offset=start,
                partition_leader_epoch=0,
            )
            last_offset = parse_header(batch).last_offset
            segment.append(
                batch,
                last_offset=last_offset,
                max_timestamp=now_ms,
                offset_of_max_timestamp=last_offset,
            )
        segment.on_become_inactive()
        for file in segment.sync_files():
            file.sync()
    finally:
        segment.close()
    checkpoint_files.write_leader_epochs(files, directory, [EpochEntry(0, 0)])
    checkpoint_files.write_topic_id(files, directory, METADATA_TOPIC_ID)
    files.sync_dir(directory)
