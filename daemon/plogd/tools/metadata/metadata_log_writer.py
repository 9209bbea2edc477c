"""Write a metadata log for a broker that is not running.

The records are the same as those that the broker itself would write (plogd/metadata). The caller
renames the directory to its final name only after the log is complete.
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
from plogd.metadata.embedded_store import METADATA_TOPIC_ID
from plogd.ports import Files
from plogd.topic_config import TopicConfig

STAGING_DIR: Final = "__cluster_metadata-1"
"""The temporary directory of a new metadata log; a broker uses only `__cluster_metadata-0`."""

# The batches need not be atomic: the caller makes the whole log visible with one rename.
_RECORDS_PER_BATCH = 500


def level_record() -> FeatureLevelRecord:
    """Return the first record of a metadata log: the level of its records."""
    return FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_VERSION_LEVEL)


def write_metadata_log(
    files: Files, directory: str, records: Sequence[MetadataRecord], *, now_ms: int
) -> None:
    """Write a metadata log to `directory` and sync it; syncing the parent is left to the caller."""
    # Without a `Log`, because that would start jobs and recovery for a directory in progress.
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
        # This adds the last time index entry, as when a broker rolls a segment.
        segment.on_become_inactive()
        for file in segment.sync_files():
            file.sync()
    finally:
        segment.close()
    # The first startup of the broker begins the next epoch (docs/decisions/0002).
    checkpoint_files.write_leader_epochs(files, directory, [EpochEntry(0, 0)])
    checkpoint_files.write_topic_id(files, directory, METADATA_TOPIC_ID)
    files.sync_dir(directory)
