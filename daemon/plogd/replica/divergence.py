"""Where leader epochs end, and where a reader's log diverges from the log of this replica.

A reader, which is a follower or a consumer, continues at an offset and reports the leader epoch of
the last record that it has. If that epoch ends earlier in this replica's log, the reader's last
records are not in this log: a follower truncates them.

Source: Kafka 3.9 Partition.readRecords; KIP-595, KIP-320.
"""

from __future__ import annotations

from typing import Protocol

from plog.errors import OffsetOutOfRange
from plog.types import TopicPartition
from plogd.log.leader_epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET
from plogd.log.log import Log
from plogd.replica.fetch.partition_read import PartitionRead


class EpochHistory(Protocol):
    """The parts of a `Partition` that a check for divergence uses."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        ...

    @property
    def log(self) -> Log:
        """The log of this replica."""
        ...

    @property
    def broker_id(self) -> int:
        """The id of this broker."""
        ...

    @property
    def leader(self) -> int:
        """The broker id of the leader, or -1."""
        ...

    @property
    def leader_epoch(self) -> int:
        """The current leader epoch."""
        ...

    @property
    def epoch_start_offset(self) -> int:
        """The log end offset when this broker became the leader."""
        ...


def end_offset_for_epoch(partition: EpochHistory, epoch: int) -> tuple[int, int]:
    """Return the largest leader epoch up to `epoch` and its end offset; (-1, -1) if unknown."""
    log = partition.log
    if epoch == partition.leader_epoch:
        return epoch, log.log_end_offset
    latest = log.leader_epochs.latest_epoch
    # The log stores only epochs with records, but a client may have received an epoch without
    # records from ListOffsets. Such an epoch ends where the current leader's epoch starts. A
    # follower does not know where that is.
    if partition.leader == partition.broker_id and latest < epoch < partition.leader_epoch:
        return (epoch if latest == UNDEFINED_EPOCH else latest), partition.epoch_start_offset
    return log.leader_epochs.end_offset_for(epoch, log.log_end_offset)


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
    epoch, end_offset = end_offset_for_epoch(partition, last_fetched_epoch)
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
