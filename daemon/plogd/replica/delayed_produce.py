"""Delayed produces: produce requests wait in purgatory until their records satisfy the acks.

A delayed produce completes a `Later` with the results of all its partitions. If the client
disconnects, the `Later` is cancelled and the operation is removed; its appends are not undone.
Requests with a single append usually wait in `PendingAcks` instead (pending_acks.py), for the same
condition. Source: Kafka 3.9 DelayedProduce.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from plog.errors import (
    KafkaError,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RequestTimedOut,
)
from plog.types import TopicPartition
from plogd.log.log_results import AppendInfo
from plogd.ports import Later
from plogd.replica.partition import ACKS_ALL, NO_EPOCH, Partition


class PartitionAppend:
    """The result of an append to one partition: `info`, or `error` if nothing was appended.

    If both are set, the records are in the log but do not satisfy the required acks. `leader_epoch`
    is the epoch in which the append was made.
    """

    __slots__ = (
        "error",
        "info",
        "leader_epoch",
        "log_start_offset",
        "partition",
        "topic_partition",
    )

    def __init__(self, topic_partition: TopicPartition, partition: Partition | None = None) -> None:
        self.topic_partition = topic_partition
        self.partition = partition
        self.info: AppendInfo | None = None
        self.error: KafkaError | None = None
        self.leader_epoch = NO_EPOCH
        self.log_start_offset = -1

    def is_waiting(self, required_acks: int) -> bool:
        """Return whether the records do not satisfy the acks yet; may set `error`."""
        info = self.info
        if info is None or self.error is not None:
            return False
        partition, writing = self.partition, info.writing
        assert partition is not None, "an append with info must have a partition"
        # Rule C5: in a later epoch, other records may have these offsets.
        if partition.leader_epoch != self.leader_epoch:
            self.error = partition.problem() or NotLeaderOrFollower(
                f"{self.topic_partition}: the leader epoch has changed from {self.leader_epoch} to"
                f" {partition.leader_epoch}"
            )
            return False
        # Even acks=0 waits for a slow disk, because the write may still fail (decision 0007).
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
        # As in Kafka's Partition.checkEnoughReplicasReachOffset, the ISR is checked again.
        if required_acks == ACKS_ALL and len(partition.isr) < partition.min_isr:
            self.error = NotEnoughReplicasAfterAppend(
                f"{self.topic_partition}: only {len(partition.isr)} in-sync replicas are left;"
                f" min.insync.replicas requires {partition.min_isr}"
            )
        return False

    def time_out(self) -> None:
        """Fail the append, which is still waiting; its records may become durable later."""
        self.error = RequestTimedOut(
            f"{self.topic_partition}: the records were appended, but the request timed out before"
            " they were acknowledged"
        )


class DelayedProduce:
    """A produce request with appended records that do not satisfy its acks yet (rule R3).

    With acks=1, it waits until the leader can acknowledge the records; with acks=all, until they
    are below the high watermark; with any acks, until a slow disk has written them. A duplicate has
    the offsets of the original batch, so it waits for the original (rule R7).
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
        """Complete the request if none of its partitions is still waiting."""
        # Stop at the first append that waits, because a sync round can cause thousands of checks.
        while self._waiting:
            if self._waiting[-1].is_waiting(self._required_acks):
                return False
            self._waiting.pop()
        self.later.succeed(self._appends)
        return True

    def expire(self) -> None:
        """Fail the appends that are still waiting."""
        for append in self._waiting:
            # Checked once more: the records may have become durable since the last check.
            if append.is_waiting(self._required_acks):
                append.time_out()
        self.later.succeed(self._appends)
