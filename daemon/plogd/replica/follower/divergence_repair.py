"""Make a follower's log a prefix of the leader's log again.

A fetch response names the epoch and offset at which the logs diverge (KIP-595), or the error
OFFSET_OUT_OF_RANGE. Followers never truncate to their high watermark (KIP-101).

Source: Kafka 3.9 AbstractFetcherThread.getOffsetTruncationState, fetchOffsetAndTruncate.
"""

from __future__ import annotations

from plogd.log.leader_epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET
from plogd.log.log import Log
from plogd.ports import Report


def truncation_offset(log: Log, epoch: int, end_offset: int) -> int:
    """Return the offset to which a follower truncates its log.

    The leader's largest epoch up to the follower's last epoch is `epoch`, and ends at `end_offset`.
    If the follower does not have this epoch, the result is the end of its largest epoch below it,
    and the next fetch finds out whether the logs then agree (KIP-279).
    """
    end = log.log_end_offset
    if epoch == UNDEFINED_EPOCH:
        return min(end_offset, end)
    own_epoch, own_end_offset = log.leader_epochs.end_offset_for(epoch, end)
    if own_end_offset == UNDEFINED_OFFSET:
        return min(end_offset, end)
    if own_epoch != epoch:
        return min(own_end_offset, end)
    return min(own_end_offset, end_offset, end)


async def truncate(log: Log, offset: int, report: Report) -> None:
    """Remove the records at and above `offset`, durably. Raises KafkaStorageError."""
    lost = log.high_watermark - offset
    if lost > 0:
        # Only an unclean election or a lost disk causes this; see rule C4.
        report(
            "truncating {topic_partition} to offset {offset}, below its high watermark"
            " {high_watermark}: its leader lacks {count} committed offsets",
            topic_partition=log.topic_partition,
            offset=offset,
            high_watermark=log.high_watermark,
            count=lost,
            level="error",
        )
    else:
        report(
            "truncating {topic_partition} to offset {offset}: the leader's log differs after it",
            topic_partition=log.topic_partition,
            offset=offset,
        )
    await log.truncate_to(offset)


async def return_to_range(log: Log, start_offset: int, end_offset: int, report: Report) -> bool:
    """Move the end of the log into the leader's range of offsets; return whether it was outside.

    Raises KafkaStorageError.
    """
    end = log.log_end_offset
    if end > end_offset:
        await truncate(log, end_offset, report)
        return True
    if end < start_offset:
        report(
            "removing all records of {topic_partition}: they end at offset {end}, and the leader's"
            " log begins at offset {start}",
            topic_partition=log.topic_partition,
            end=end,
            start=start_offset,
            level="warn",
        )
        await log.truncate_fully(start_offset)
        return True
    return False
