"""A partition that a fetcher follows: what it knows about the leader, and when it fetches next.

Called on the reactor's thread, by follower_fetcher.py. Source: Kafka 3.9 PartitionFetchState.
"""

from __future__ import annotations

from collections.abc import Iterable

from plogd.replica.cluster.replication_quota import ReplicationQuota
from plogd.replica.follower.fetch_session import Position
from plogd.replica.partition import Partition


class FollowedPartition:
    """A partition that is followed in a leader epoch, and the time of its next fetch."""

    __slots__ = (
        "is_unsynced",
        "leader_epoch",
        "leader_high_watermark",
        "leader_start_offset",
        "partition",
        "retry_at_ms",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.leader_start_offset = 0
        self.leader_high_watermark = 0
        self.retry_at_ms = 0.0
        self.is_unsynced = False

    @property
    def is_behind(self) -> bool:
        """Whether this replica lacks records that its leader has committed, as far as known."""
        return self.partition.log.log_end_offset < self.leader_high_watermark

    def must_sync(self) -> bool:
        """Return whether this replica has records that it cannot acknowledge yet.

        A fetch would acknowledge them (rule R5). They are from an earlier leader epoch, or from a
        response of which only a part could be written. `is_unsynced` keeps the result.

        If a truncation has failed, the records are not synced before it is complete.
        """
        log = self.partition.log
        is_unsynced = log.acknowledged_end_offset < log.log_end_offset
        self.is_unsynced = is_unsynced and not log.is_truncating
        return self.is_unsynced

    def position(self) -> Position:
        """Return what the next fetch requests."""
        log = self.partition.log
        return Position(
            offset=log.log_end_offset,
            leader_epoch=self.leader_epoch,
            last_fetched_epoch=log.leader_epochs.latest_epoch,
            log_start_offset=log.log_start_offset,
        )

    def raise_log_start(self) -> None:
        """Follow DeleteRecords and retention on the leader, up to this replica's high watermark."""
        log = self.partition.log
        start_offset = min(self.leader_start_offset, log.high_watermark)
        if start_offset > log.log_start_offset and log.is_writable:
            log.delete_records_before(start_offset)


def split_by_quota(
    ready: Iterable[FollowedPartition], quota: ReplicationQuota
) -> tuple[list[FollowedPartition], list[FollowedPartition]]:
    """Return the partitions that may be fetched although `quota` is exceeded, and the others."""
    allowed: list[FollowedPartition] = []
    withheld: list[FollowedPartition] = []
    for one in ready:
        is_withheld = one.is_behind and quota.covers(one.partition)
        (withheld if is_withheld else allowed).append(one)
    return allowed, withheld
