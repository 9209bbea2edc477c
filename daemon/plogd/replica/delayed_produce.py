"""A produce that waits in purgatory until its records are safe.

It completes a `Later` with the results of all its partitions. When its client leaves, the Later is
cancelled and the operation removed; nothing it appended is undone.
Source: Kafka 3.9 DelayedProduce.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from plog.errors import (
    KafkaError,
    NotEnoughReplicasAfterAppend,
    RequestTimedOut,
)
from plog.types import TopicPartition
from plogd.log.log_results import AppendInfo
from plogd.ports import Later
from plogd.replica.partition import ACKS_ALL, Partition


class PartitionAppend:
    """What became of the append to one partition; `error` is set instead of `info` if nothing did.

    An error can also come later: the records are in the log then, but not as safe as was asked.
    """

    __slots__ = ("error", "info", "log_start_offset", "partition", "topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.partition: Partition | None = None
        self.info: AppendInfo | None = None
        self.error: KafkaError | None = None
        self.log_start_offset = -1

    def is_waiting(self, required_acks: int) -> bool:
        """Whether the records are not yet as safe as asked for; may set `error`."""
        info = self.info
        if info is None or self.error is not None:
            return False
        partition, writing = self.partition, info.writing
        assert partition is not None, "it was appended to"
        if writing is not None and not writing.is_written:
            self.error = partition.problem() or writing.error
            return self.error is None
        if not required_acks:
            return False
        if required_acks != ACKS_ALL:
            is_safe = partition.log.acknowledged_end_offset > info.last_offset
        else:
            is_safe = partition.log.high_watermark > info.last_offset
        if not is_safe:
            self.error = partition.problem()
            return self.error is None
        if required_acks == ACKS_ALL and len(partition.isr) < partition.min_isr:
            self.error = NotEnoughReplicasAfterAppend(
                f"{self.topic_partition}: {len(partition.isr)} in-sync replicas are left"
            )
        return False


class DelayedProduce:
    """A produce request whose records are appended, but not yet as safe as it wants (rule R3).

    acks=1 waits for the leader's log, acks=all for the high watermark, and both, as acks=0, for a
    slow disk to take the records at all. A duplicate waits for the
    original (rule R7): its offsets are the original's, so this is the same condition.
    """

    __slots__ = ("_appends", "_required_acks", "_waiting", "later")

    def __init__(
        self,
        appends: list[PartitionAppend],
        waiting: list[PartitionAppend],
        required_acks: int,
        on_cancel: Callable[[DelayedProduce], None],
    ) -> None:
        self._appends = appends
        self._required_acks = required_acks
        self._waiting = waiting
        self.later: Later[list[PartitionAppend]] = Later(lambda: on_cancel(self))

    def try_complete(self, key: Hashable) -> bool:
        """Answer if all partitions are done."""
        # Not all of them: where thousands wait, thousands of checks follow a sync round.
        while self._waiting:
            if self._waiting[-1].is_waiting(self._required_acks):
                return False
            self._waiting.pop()
        self.later.succeed(self._appends)
        return True

    def expire(self) -> None:
        """Answer that what is still waited for took too long; the records may yet become safe."""
        for append in self._waiting:
            if not append.is_waiting(self._required_acks):
                continue
            append.error = RequestTimedOut(
                f"{append.topic_partition}: the records were appended, but did not become safe in "
                "the time the request gave"
            )
        self.later.succeed(self._appends)
