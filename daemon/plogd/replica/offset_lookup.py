"""Look up offsets by timestamp, or by special timestamps like LATEST, for ListOffsets.

Special timestamps are negative. A lookup by time may read uncached data from the disk, so it runs
in jobs (time_lookup_queue.py). Lookups find only records that consumers can read: below the high
watermark or, for read_committed, below the last stable offset.

Source: Kafka 4.3 ListOffsetsRequest, UnifiedLog.fetchOffsetByTimestamp; KIP-734, KIP-405, KIP-1005,
KIP-1023. plog does not support tiered storage; its special timestamps behave as in Kafka without
tiered storage.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from plog.errors import KafkaStorageError
from plogd.log.time_lookup import max_timestamp_offset, offset_for_timestamp
from plogd.ports import MaybeLater, spawn
from plogd.replica.partition import Partition
from plogd.replica.time_lookup_queue import TimeLookupQueue

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6


class FoundOffset(NamedTuple):
    """The result of a lookup; all fields are -1 if no record matches."""

    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


NOT_FOUND: Final = FoundOffset()


def look_up_offset(
    partition: Partition,
    timestamp: int,
    *,
    leader_epoch: int,
    read_committed: bool = False,
    for_follower: bool = False,
    any_replica: bool = False,
    queue: TimeLookupQueue,
) -> MaybeLater[FoundOffset]:
    """Return the offset for a timestamp, special or not. Raises the KafkaError for the client.

    With `any_replica`, LATEST is the end of this replica's log with its last leader epoch, also if
    this broker does not lead the partition.
    """
    log = partition.log
    if timestamp == LATEST and any_replica:
        if log.offline:
            raise KafkaStorageError(f"{partition.topic_partition}: {log.log_dir} is offline")
        return FoundOffset(-1, log.log_end_offset, log.leader_epochs.latest_epoch)
    partition.check_leader(leader_epoch)
    if timestamp == LATEST and for_follower:
        # A follower copies all records, and it does not need to know which ones are committed.
        return FoundOffset(-1, log.log_end_offset, partition.leader_epoch)
    if timestamp == LATEST:
        partition.check_offset_is_known()
        end_offset = partition.end_offset_for_consumers(read_committed=read_committed)
        return FoundOffset(-1, end_offset, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        if start == log.log_end_offset:  # The next record will have this epoch.
            return FoundOffset(-1, start, partition.leader_epoch)
        return FoundOffset(-1, start, log.leader_epochs.epoch_for_offset(start))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        # As in Kafka without remote storage: no offset is in a tier, and none waits for an upload.
        return NOT_FOUND
    largest = max(segment.max_timestamp for segment in log.segments)
    if largest < max(timestamp, 0):  # No record matches, so no job is needed.
        return NOT_FOUND
    return spawn(_look_up_by_time(partition, timestamp, read_committed, queue))


async def _look_up_by_time(
    partition: Partition, timestamp: int, read_committed: bool, queue: TimeLookupQueue
) -> FoundOffset:
    log = partition.log
    if timestamp == MAX_TIMESTAMP:
        found = await queue.submit(log, lambda: max_timestamp_offset(log))
    else:
        found = await queue.submit(log, lambda: offset_for_timestamp(log, timestamp))
    # During the job, the partition may have been deleted, or the high watermark may have changed.
    partition.check_leader()
    if found is None:
        return NOT_FOUND
    if found.offset >= partition.end_offset_for_consumers(read_committed=read_committed):
        # KIP-207: the record may be committed already, although this leader does not know it yet.
        partition.check_offset_is_known()
        return NOT_FOUND
    return FoundOffset(found.timestamp, found.offset, found.leader_epoch)
