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
    files = log.segments.active.sync_files()
    # A file that is not open is opened by the job.
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
