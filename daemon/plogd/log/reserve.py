"""Room kept on the disk for the metadata log, so that something can be done when the disk is full.

A start writes a record there (the broker's registration), and so does the deletion of a topic, by
which an operator makes room. Both have to work on a full disk. Blocks allocated behind the end of
the files see to that, where the file system has such (ext4, xfs, btrfs, tmpfs).

Called at the start, before the first record, and by the row ``metadata-room`` of the task table.
Source: fallocate(2), FALLOC_FL_KEEP_SIZE. Kafka has none of this.
"""

from __future__ import annotations

from plogd.log.deletion import lane_of
from plogd.log.log import Log
from plogd.ports import Jobs, Later

RECORDS_BYTES = 256 * 1024
"""Room for a thousand starts."""
INDEX_BYTES = 4096


def keep_room(log: Log, jobs: Jobs) -> Later[bool]:
    """Reserve what `log` may need on a full disk; whether there is so much."""
    files = [file.retain() for file in log.segments.active.sync_files()]

    def reserve() -> bool:
        records, *indexes = files
        try:
            reserved = [records.reserve(RECORDS_BYTES)]
            reserved += [index.reserve(INDEX_BYTES) for index in indexes]
        finally:
            for file in files:
                file.close()
        return all(reserved)

    return jobs.submit(lane_of(log.log_dir), reserve)
