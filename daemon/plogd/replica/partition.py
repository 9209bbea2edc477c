"""One partition as this broker hosts it: who may append and read, and what is committed.

Sits between the requests and the `Log`. It knows its leader epoch, its in-sync replicas and its
high watermark; offsets and bytes are the log's. So far a partition has one replica, so its high
watermark is whatever the log may acknowledge (rules R1 and R2 in docs/architecture.md).

Called on the reactor's thread. Source: Kafka 3.9 Partition; KIP-101, KIP-320, KIP-392 for epochs.
Invariant: the high watermark never falls while this broker leads, and never passes what the log may
acknowledge.
"""

from __future__ import annotations

from collections.abc import Callable
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
from plogd.metadata.cache import PartitionState
from plogd.topic_config import TopicConfig

ACKS_ALL = -1
NO_EPOCH = -1
_ATTRIBUTES_LOW_BYTE = ATTRIBUTES_POSITION + 1


class PartitionRead(NamedTuple):
    """What a read of one partition gave; offsets are -1 where an error says all."""

    error: KafkaError | None
    high_watermark: int = -1
    log_start_offset: int = -1
    region: FileRegion | None = None
    diverging_epoch: tuple[int, int] | None = None
    """Where the reader's log parts from this one: an epoch and where it ended."""

    @property
    def nbytes(self) -> int:
        """Bytes of records."""
        return 0 if self.region is None else self.region.nbytes

    @property
    def error_code(self) -> int:
        """The code of the error, 0 for none."""
        return 0 if self.error is None else self.error.code

    @property
    def is_diverging(self) -> bool:
        """Whether the reader has to cut its log."""
        return self.diverging_epoch is not None

    def close(self) -> None:
        """Let go of the file, when the bytes will not be sent."""
        if self.region is not None:
            self.region.close()


class Partition:
    """See the module's text. `on_progress(partition)` hears that waiting requests may go on."""

    __slots__ = (
        "_on_progress",
        "broker_id",
        "epoch_start_offset",
        "gone",
        "has_queue",
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
        """Those of the file system its log is on."""
        self.record_check = record_check
        """What records from clients must pass; None but for internal topics."""
        self.has_queue = False
        """Whether appends wait in its queue (append_queue.py): the next ones wait after them."""
        self.broker_id = broker_id
        self.topic_partition: TopicPartition = log.topic_partition
        self.topic_id: Uuid = log.topic_id
        self.leader = -1
        self.leader_epoch = NO_EPOCH
        self.epoch_start_offset = 0
        """Where the records of this leader epoch begin."""
        self.isr: tuple[int, ...] = ()
        self.replicas: tuple[int, ...] = ()
        self.gone = False
        """The topic was deleted; whoever still holds this object must not use it."""
        self._on_progress = on_progress
        log.on_durable = self._log_advanced

    def make_leader(self, state: PartitionState) -> None:
        """Lead from now on, in the epoch of `state`."""
        assert state.leader_epoch >= self.leader_epoch
        assert state.leader_epoch >= self.log.leader_epochs.latest_epoch, "a deposed leader"
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.isr, self.replicas = state.isr, state.replicas
        self.epoch_start_offset = self.log.log_end_offset
        self._raise_high_watermark()

    @property
    def high_watermark(self) -> int:
        """The first offset consumers do not see yet."""
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The first offset that is not decided yet; without transactions, the high watermark."""
        return self.log.high_watermark

    def problem(self) -> KafkaError | None:
        """Why nothing can be done with the partition here; None if it can."""
        if self.gone:
            return UnknownTopicOrPartition(f"{self.topic_partition} was deleted")
        if self.log.offline:
            return KafkaStorageError(f"{self.topic_partition}: {self.log.log_dir} is offline")
        if self.leader != self.broker_id:
            return NotLeaderOrFollower(f"{self.topic_partition} is led by broker {self.leader}")
        return None

    def check_leader(self, leader_epoch: int = NO_EPOCH) -> None:
        """Raise unless this broker leads, in the epoch the client knows if it says one."""
        problem = self.problem()
        if problem is not None:
            raise problem
        if leader_epoch in (NO_EPOCH, self.leader_epoch):
            return
        what = (
            f"{self.topic_partition}: the leader epoch is {self.leader_epoch}, not {leader_epoch}"
        )
        raise (FencedLeaderEpoch if leader_epoch < self.leader_epoch else UnknownLeaderEpoch)(what)

    # -- append -------------------------------------------------------------------------------

    @property
    def appends_at_once(self) -> bool:
        """Whether an append from a client can be made immediately, whatever its records are."""
        return (
            not self.has_queue
            and self.log.rules.is_plain
            and self.record_check is None
            and self.sync_rounds.has_room
        )

    @property
    def min_isr(self) -> int:
        """In-sync replicas acks=all needs: never more than there are replicas (KIP-966)."""
        return min(self.log.config.min_insync_replicas, len(self.replicas))

    def append_records_to_leader(
        self,
        records: memoryview | ValidatedBatch,
        *,
        required_acks: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendInfo:
        """Append one batch. Raises the KafkaError for the client; then nothing was appended.

        On a slow disk that may come later: see `AppendInfo.writing`.
        """
        view = records.view if isinstance(records, ValidatedBatch) else records
        log = self.log
        if self.gone or log.offline or self.leader != self.broker_id:
            self.check_leader()
        if required_acks == ACKS_ALL and len(self.isr) < self.min_isr:
            raise NotEnoughReplicas(
                f"{self.topic_partition}: {len(self.isr)} in-sync replicas, min.insync.replicas "
                f"is {self.min_isr}"
            )
        if len(view) > _ATTRIBUTES_LOW_BYTE and view[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT:
            raise InvalidTxnState(
                f"{self.topic_partition}: a transactional batch outside of any transaction: "
                "this broker does not serve transactions yet"
            )
        info = log.append_as_leader(
            records, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=origin
        )
        # With a relaxed flush.messages, what was appended may be acknowledged at once.
        if self._raise_high_watermark():
            self._on_progress(self)
        return info

    def update_config(self, config: TopicConfig) -> None:
        """Use other settings from now on, those for what was appended before included."""
        old, self.log.config = self.log.config, config
        if config.flush_messages < old.flush_messages and self.log.has_unflushed:
            self.log.request_sync()
        if self._raise_high_watermark():
            self._on_progress(self)

    def _log_advanced(self) -> None:
        self._raise_high_watermark()
        self._on_progress(self)

    def _raise_high_watermark(self) -> bool:
        """Move the high watermark to what the log may acknowledge; whether that is more."""
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
        nowait: bool = False,
    ) -> PartitionRead:
        """What a consumer may see from `offset` on; an error is a value, for a fetch reads many.

        Raises ColdRead, with `nowait`.
        """
        log = self.log
        if self.leader_epoch != leader_epoch or self.gone or log.offline:
            try:
                self.check_leader(leader_epoch)
            except KafkaError as error:
                return PartitionRead(error)
        high_watermark, log_start_offset = log.high_watermark, log.log_start_offset
        if last_fetched_epoch != NO_EPOCH:
            try:
                diverging = self._diverging_epoch(offset, last_fetched_epoch)
            except OffsetOutOfRange as error:
                return PartitionRead(error)
            if diverging is not None:
                return PartitionRead(
                    None, high_watermark, log_start_offset, diverging_epoch=diverging
                )
        if offset == high_watermark:
            return PartitionRead(None, high_watermark, log_start_offset)
        try:
            data = log.read(
                offset,
                max_bytes,
                end_offset=high_watermark,
                at_least_one=at_least_one,
                nowait=nowait,
            )
        except KafkaError as error:
            return PartitionRead(error)
        return PartitionRead(None, high_watermark, log_start_offset, data.region)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest leader epoch up to `epoch`, and where it ended; (-1, -1) if that is unknown.

        The log knows epochs by their records. One that has none yet began where this leader did,
        and a client may know it already: ListOffsets tells of it.
        """
        log = self.log
        if epoch == self.leader_epoch:
            return epoch, log.log_end_offset
        latest = log.leader_epochs.latest_epoch
        if latest < epoch < self.leader_epoch:
            return (epoch if latest == UNDEFINED_EPOCH else latest), self.epoch_start_offset
        return log.leader_epochs.end_offset_for(epoch, log.log_end_offset)

    def _diverging_epoch(self, offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        """Where a reader parts from us that has read up to `offset` in `last_fetched_epoch`."""
        log = self.log
        epoch, end_offset = self.end_offset_for_epoch(last_fetched_epoch)
        if epoch == UNDEFINED_EPOCH or end_offset == UNDEFINED_OFFSET:
            raise OffsetOutOfRange(
                f"{self.topic_partition}: nothing is known of leader epoch {last_fetched_epoch}"
            )
        if offset < log.log_start_offset:
            raise OffsetOutOfRange(
                f"{self.topic_partition}: offset {offset} is below {log.log_start_offset}"
            )
        return (epoch, end_offset) if epoch < last_fetched_epoch or end_offset < offset else None

    def check_offset_is_known(self) -> None:
        """Raise OffsetNotAvailable while a new leader knows not what is committed (KIP-207)."""
        if self.epoch_start_offset > self.log.high_watermark:
            raise OffsetNotAvailable(
                f"{self.topic_partition}: the high watermark {self.log.high_watermark} has not "
                f"reached the start of leader epoch {self.leader_epoch}"
            )
