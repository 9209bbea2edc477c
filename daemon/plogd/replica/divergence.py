"""Where a reader's log diverges from the log of the leader.

A reader, which is a follower or a consumer, continues at an offset and reports the leader epoch of
the last record that it has. If that epoch ends earlier in the leader's log, the reader's last
records are not in the leader's log: a follower truncates them.

Source: Kafka 3.9 Partition.readRecords; KIP-595, KIP-320.
"""

from __future__ import annotations

from typing import Protocol

from plog.errors import OffsetOutOfRange
from plog.types import TopicPartition
from plogd.log.leader_epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET
from plogd.log.log import Log
from plogd.replica.partition_read import PartitionRead


class EpochHistory(Protocol):
    """The parts of a `Partition` that a check for divergence uses."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        ...

    @property
    def log(self) -> Log:
        """The leader's log."""
        ...

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest leader epoch up to `epoch` and its end offset; (-1, -1) if unknown."""
        ...


def divergence(
    partition: EpochHistory, offset: int, last_fetched_epoch: int
) -> PartitionRead | None:
    """Return the response to a reader whose log diverges from the leader's; otherwise, None.

    The reader continues at `offset`, and its last record was written in `last_fetched_epoch`.
    """
    log = partition.log
    try:
        diverging = _diverging_epoch(partition, offset, last_fetched_epoch)
    except OffsetOutOfRange as error:
        return PartitionRead(error)
    if diverging is None:
        return None
    return PartitionRead(
        None,
        log.high_watermark,
        log.last_stable_offset,
        log.log_start_offset,
        diverging_epoch=diverging,
    )


def _diverging_epoch(
    partition: EpochHistory, offset: int, last_fetched_epoch: int
) -> tuple[int, int] | None:
    log = partition.log
    epoch, end_offset = partition.end_offset_for_epoch(last_fetched_epoch)
    if epoch == UNDEFINED_EPOCH or end_offset == UNDEFINED_OFFSET:
        raise OffsetOutOfRange(
            f"cannot read {partition.topic_partition}: leader epoch {last_fetched_epoch} is unknown"
        )
    if offset < log.log_start_offset:
        raise OffsetOutOfRange(
            f"cannot read {partition.topic_partition}: offset {offset} is below the log start"
            f" offset {log.log_start_offset}"
        )
    return (epoch, end_offset) if epoch < last_fetched_epoch or end_offset < offset else None
