"""Disk space reserved for the metadata log, so that the broker keeps working on a full disk.

The broker appends to the metadata log when it starts (its registration), and when the operator
deletes a topic to free space. Both must succeed on a full disk. Blocks are therefore allocated past
the end of the files, on file systems that support this (ext4, xfs, btrfs, tmpfs).

Called at startup, before the first record is written, and by the task ``metadata-room`` in
tasks.py.
Source: fallocate(2), FALLOC_FL_KEEP_SIZE. Kafka has no equivalent.
"""

from __future__ import annotations

from plogd.log.deletion import lane_of
from plogd.log.log import Log
from plogd.ports import Jobs, Later

RECORDS_BYTES = 256 * 1024
"""Enough for the records of a thousand startups."""
INDEX_BYTES = 4096


def keep_room(log: Log, jobs: Jobs) -> Later[bool]:
    """Reserve the space that `log` may need on a full disk; return whether that succeeded."""
    files = log.segments.active.sync_files()
    # Only the job may open files, because that may block.
    held = [file.retain() if file.is_open else None for file in files]

    def reserve() -> bool:
        records, *indexes = (open_file or file for open_file, file in zip(held, files, strict=True))
        try:
            reserved = [records.reserve(RECORDS_BYTES)]
            reserved += [index.reserve(INDEX_BYTES) for index in indexes]
        finally:
            for open_file in held:
                if open_file is not None:
                    open_file.close()
        return all(reserved)

    return jobs.submit(lane_of(log.log_dir), reserve)
