"""A partition hosted by this broker: leadership, leader epoch, ISR and high watermark.

`Partition` is the layer between requests and the `Log`. It determines whether an append or a read
is allowed, and which records are committed; the log manages offsets and bytes. Partitions do not
have several replicas yet, so the high watermark is the end offset that the log can acknowledge
(rules R1 and R2 in docs/architecture.md).

Called on the reactor thread. Source: Kafka 3.9 Partition; KIP-101 and KIP-320 for leader epochs.
Invariant: while this broker is the leader, the high watermark never decreases, and never exceeds
the offset that the log can acknowledge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from plog.errors import (
    FencedLeaderEpoch,
    InvalidTxnState,
    KafkaError,
    KafkaStorageError,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from plog.records.batch import ATTRIBUTES_POSITION, TRANSACTIONAL_BIT
from plog.types import TopicPartition, Uuid
from plogd.log.batch_validator import AppendOrigin, RecordCheck, ValidatedBatch
from plogd.log.disk.group_commit import SyncRounds
from plogd.log.leader_epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET
from plogd.log.log import Log
from plogd.log.log_results import AppendInfo
from plogd.log.segment.file_records import FileRegion
from plogd.log.segment.transaction_index import AbortedTransaction
from plogd.metadata.cache import PartitionState
from plogd.topic_config import TopicConfig

ACKS_ALL = -1
NO_EPOCH = -1
READ_COMMITTED = 1
"""The isolation level of requests in which a client does not want undecided records (KIP-98)."""
_ATTRIBUTES_LOW_BYTE = ATTRIBUTES_POSITION + 1  # Big-endian; it holds all attributes in use.


class PartitionRead(NamedTuple):
    """The result of reading one partition; the offsets are -1 if `error` is set."""

    error: KafkaError | None
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    region: FileRegion | None = None
    aborted: Sequence[AbortedTransaction] = ()
    """The aborted transactions in the region; only for a read_committed read."""
    diverging_epoch: tuple[int, int] | None = None
    """The epoch, and its end offset, after which the reader's log differs from this log."""

    @property
    def nbytes(self) -> int:
        """Size of the records in bytes."""
        return 0 if self.region is None else self.region.nbytes

    @property
    def error_code(self) -> int:
        """The error code, or 0 after a success."""
        return 0 if self.error is None else self.error.code

    @property
    def is_diverging(self) -> bool:
        """Whether the reader must truncate its log."""
        return self.diverging_epoch is not None

    def close(self) -> None:
        """Release the region's file, which will not be sent."""
        if self.region is not None:
            self.region.close()


class Partition:
    """A partition that has a replica on this broker.

    Calls `on_progress(partition)` when the partition's delayed requests may be able to complete.
    """

    __slots__ = (
        "_on_progress",
        "broker_id",
        "epoch_start_offset",
        "has_queue",
        "is_deleted",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "record_check",
        "replicas",
        "sync_rounds",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        *,
        log: Log,
        sync_rounds: SyncRounds,
        broker_id: int,
        on_progress: Callable[[Partition], None],
        record_check: RecordCheck | None = None,
    ) -> None:
        self.log = log
        self.sync_rounds = sync_rounds
        """The sync rounds for the log's file system."""
        self.record_check = record_check
        """The check for records from clients; set only for internal topics."""
        self.has_queue = False
        """Whether appends are queued (append_queue.py), so that later ones must also be queued."""
        self.broker_id = broker_id
        self.topic_partition: TopicPartition = log.topic_partition
        self.topic_id: Uuid = log.topic_id
        self.leader = -1
        self.leader_epoch = NO_EPOCH
        self.epoch_start_offset = 0
        """The log end offset when this leader epoch began."""
        self.isr: tuple[int, ...] = ()
        self.replicas: tuple[int, ...] = ()
        self.is_deleted = False
        """Whether the topic was deleted; if so, this object must no longer be used."""
        self._on_progress = on_progress
        # The log reports only its durable end; whether clients may see it depends on the partition.
        log.on_durable = self._log_advanced

    def make_leader(self, state: PartitionState) -> None:
        """Become the leader in the epoch that `state` contains."""
        assert state.leader_epoch >= self.leader_epoch
        # Rule R6: two leaders must never append in the same epoch.
        assert state.leader_epoch >= self.log.leader_epochs.latest_epoch, "deposed leader"
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.isr, self.replicas = state.isr, state.replicas
        # KIP-207: until the high watermark reaches it, records of earlier leaders may be committed
        # although this leader does not know that.
        self.epoch_start_offset = self.log.log_end_offset
        # After a restart, the recovered records are durable, and no append may follow for a long
        # time.
        self._raise_high_watermark()

    @property
    def high_watermark(self) -> int:
        """The first offset that consumers cannot read yet."""
        return self.log.high_watermark

    def end_offset_for_consumers(self, *, read_committed: bool) -> int:
        """Return the first offset that a consumer with this isolation level cannot read yet."""
        return self.log.last_stable_offset if read_committed else self.log.high_watermark

    def problem(self) -> KafkaError | None:
        """Return the error that prevents any use of this partition on this broker, or None."""
        if self.is_deleted:
            return UnknownTopicOrPartition(f"{self.topic_partition} was deleted")
        if self.log.offline:
            return KafkaStorageError(f"{self.topic_partition}: {self.log.log_dir} is offline")
        if self.leader != self.broker_id:
            return NotLeaderOrFollower(f"{self.topic_partition} is led by broker {self.leader}")
        return None

    def check_leader(self, leader_epoch: int = NO_EPOCH) -> None:
        """Raise a KafkaError unless this broker is the leader, in `leader_epoch` if given."""
        problem = self.problem()
        if problem is not None:
            raise problem
        if leader_epoch in (NO_EPOCH, self.leader_epoch):
            return
        # KIP-320: a client with an older epoch must refresh its metadata; with a newer epoch, it
        # must wait until this broker also has the metadata.
        text = (
            f"{self.topic_partition}: the leader epoch is {self.leader_epoch}, not {leader_epoch}"
        )
        raise (FencedLeaderEpoch if leader_epoch < self.leader_epoch else UnknownLeaderEpoch)(text)

    # -- append -------------------------------------------------------------------------------

    @property
    def can_append_now(self) -> bool:
        """Whether an append by a client can be made immediately, regardless of its records."""
        return (
            not self.has_queue
            and self.log.rules.is_plain
            and self.record_check is None
            and self.sync_rounds.has_room
        )

    @property
    def min_isr(self) -> int:
        """Number of in-sync replicas that acks=all requires."""
        # min.insync.replicas may be larger than the number of replicas (KIP-966).
        return min(self.log.config.min_insync_replicas, len(self.replicas))

    def append_records_to_leader(
        self,
        records: memoryview | ValidatedBatch,
        *,
        required_acks: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendInfo:
        """Append one batch. Raises the KafkaError for the client if nothing was appended.

        On a slow disk, the write can fail after this method has returned: see `AppendInfo.writing`.
        """
        view = records.view if isinstance(records, ValidatedBatch) else records
        log = self.log
        # The conditions of `problem`, repeated here to save every append a call.
        if self.is_deleted or log.offline or self.leader != self.broker_id:
            self.check_leader()
        if required_acks == ACKS_ALL and len(self.isr) < self.min_isr:
            raise NotEnoughReplicas(
                f"cannot append to {self.topic_partition}: it has {len(self.isr)} in-sync replicas"
                f" but min.insync.replicas requires {self.min_isr}"
            )
        if len(view) > _ATTRIBUTES_LOW_BYTE and view[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT:
            raise InvalidTxnState(
                f"cannot append a transactional batch to {self.topic_partition}: this broker does"
                " not support transactions yet"
            )
        info = log.append_as_leader(
            records, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=origin
        )
        # If flush.messages is not 1, records can be acknowledged before they are synced.
        if self._raise_high_watermark():
            self._on_progress(self)
        return info

    def update_config(self, config: TopicConfig) -> None:
        """Apply new topic settings, even to records that have already been appended."""
        old, self.log.config = self.log.config, config
        # Under the new setting, older records may have to be synced before they are acknowledged.
        if config.flush_messages < old.flush_messages and self.log.has_unflushed:
            self.log.request_sync()
        if self._raise_high_watermark():
            self._on_progress(self)

    def _log_advanced(self) -> None:
        self._raise_high_watermark()
        # Even if the high watermark is unchanged: with acks=1, only the durable end matters, and a
        # write by a job may have failed.
        self._on_progress(self)

    def _raise_high_watermark(self) -> bool:
        """Advance the high watermark to the acknowledged end; return whether it has changed."""
        log = self.log
        acknowledged = log.acknowledged_end_offset
        if acknowledged <= log.high_watermark:
            return False
        log.high_watermark = acknowledged
        return True

    # -- read ---------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        leader_epoch: int = NO_EPOCH,
        last_fetched_epoch: int = NO_EPOCH,
        at_least_one: bool,
        read_committed: bool = False,
        nowait: bool = False,
    ) -> PartitionRead:
        """Read records below the high watermark from `offset` on, up to `max_bytes`.

        With `read_committed`, only records below the last stable offset.

        Returns errors instead of raising them, because a fetch reads several partitions. With
        `nowait`, raises UncachedLookup if the data is not in the page cache.
        """
        log = self.log
        # The conditions of `check_leader`, repeated here to save most reads a call.
        if (
            self.is_deleted
            or log.offline
            or self.leader != self.broker_id
            or (leader_epoch != self.leader_epoch and leader_epoch != NO_EPOCH)
        ):
            try:
                self.check_leader(leader_epoch)
            except KafkaError as error:
                return PartitionRead(error)
        high_watermark, log_start_offset = log.high_watermark, log.log_start_offset
        stable_offset = log.last_stable_offset
        end_offset = stable_offset if read_committed else high_watermark
        if last_fetched_epoch != NO_EPOCH:
            # Checked before the read, even at the high watermark: the offset may belong to another
            # history.
            diverged = self._read_divergence(offset, last_fetched_epoch)
            if diverged is not None:
                return diverged
        if offset == end_offset:  # The usual case: a consumer has read everything.
            return PartitionRead(None, high_watermark, stable_offset, log_start_offset)
        try:
            data = log.read(
                offset,
                max_bytes,
                end_offset=end_offset,
                at_least_one=at_least_one,
                read_committed=read_committed,
                nowait=nowait,
            )
        except KafkaError as error:
            return PartitionRead(error)
        return PartitionRead(
            None, high_watermark, stable_offset, log_start_offset, data.region, data.aborted
        )

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest leader epoch up to `epoch` and its end offset; (-1, -1) if unknown."""
        log = self.log
        if epoch == self.leader_epoch:
            return epoch, log.log_end_offset
        latest = log.leader_epochs.latest_epoch
        # The log stores only epochs with records, but a client may have received an epoch without
        # records from ListOffsets. Such an epoch ends where the current leader's epoch starts.
        if latest < epoch < self.leader_epoch:
            return (epoch if latest == UNDEFINED_EPOCH else latest), self.epoch_start_offset
        return log.leader_epochs.end_offset_for(epoch, log.log_end_offset)

    def _read_divergence(self, offset: int, last_fetched_epoch: int) -> PartitionRead | None:
        """Return the answer to a reader whose log diverges from this log; None if it does not."""
        log = self.log
        try:
            diverging = self._diverging_epoch(offset, last_fetched_epoch)
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

    def _diverging_epoch(self, offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        """Return the epoch and offset at which a reader's log diverges from this log, or None.

        The reader continues at `offset`, and its last record was written in `last_fetched_epoch`.
        """
        log = self.log
        # The same checks as in Kafka's Partition.readRecords (KIP-595).
        epoch, end_offset = self.end_offset_for_epoch(last_fetched_epoch)
        if epoch == UNDEFINED_EPOCH or end_offset == UNDEFINED_OFFSET:
            raise OffsetOutOfRange(
                f"cannot read {self.topic_partition}: leader epoch {last_fetched_epoch} is unknown"
            )
        if offset < log.log_start_offset:
            raise OffsetOutOfRange(
                f"cannot read {self.topic_partition}: offset {offset} is below the log start offset"
                f" {log.log_start_offset}"
            )
        return (epoch, end_offset) if epoch < last_fetched_epoch or end_offset < offset else None

    def check_offset_is_known(self) -> None:
        """Raise OffsetNotAvailable while a new leader's high watermark is out of date (KIP-207)."""
        if self.epoch_start_offset > self.log.high_watermark:
            raise OffsetNotAvailable(
                f"{self.topic_partition}: the high watermark {self.log.high_watermark} has not "
                f"reached the start of leader epoch {self.leader_epoch}"
            )
