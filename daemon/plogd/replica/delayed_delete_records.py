"""Delayed deletions: DeleteRecords waits until all live replicas have deleted the records.

The leader moves its log start first, and followers move theirs with the next response to a fetch.
Their next fetch tells the leader. Source: Kafka 3.9 DelayedDeleteRecords; KIP-107.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from plog.errors import RequestTimedOut
from plogd.ports import Later
from plogd.replica.partition import Partition


def low_watermark_of(partition: Partition) -> int:
    """Return the smallest log start offset of the live replicas, as far as the leader knows it."""
    start_offset, remote = partition.log.log_start_offset, partition.remote
    return start_offset if remote is None else remote.low_watermark(start_offset)


class DelayedDeleteRecords:
    """The deletion of the records below `offset` in one partition, which this broker leads.

    `later` completes with the smallest log start offset of the live replicas.
    """

    __slots__ = ("_offset", "_partition", "later")

    def __init__(
        self,
        partition: Partition,
        offset: int,
        on_cancel: Callable[[DelayedDeleteRecords], None],
    ) -> None:
        self._partition = partition
        self._offset = offset
        self.later: Later[int] = Later(lambda: on_cancel(self))

    def try_complete(self, key: Hashable) -> bool:
        """Complete if the replicas have deleted the records, or if this broker cannot know it."""
        problem = self._partition.problem()
        if problem is not None:
            self.later.fail(problem)
            return True
        low_watermark = low_watermark_of(self._partition)
        if low_watermark < self._offset:
            return False
        self.later.succeed(low_watermark)
        return True

    def expire(self) -> None:
        """Fail, because a replica has not deleted the records in time."""
        # Checked once more: the set of live brokers may have changed since the last check.
        if not self.try_complete(self._partition.topic_partition):
            self.later.fail(
                RequestTimedOut(
                    f"{self._partition.topic_partition}: the records below offset {self._offset}"
                    " were deleted on the leader, but not on all other live replicas yet"
                )
            )
