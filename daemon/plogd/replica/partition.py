"""A partition hosted by this broker: leadership, leader epoch, ISR and high watermark.

`Partition` is the layer between requests and the `Log`. It determines whether an append or a read
is allowed, and which records are committed; the log manages offsets and bytes. The high watermark
is the offset that all in-sync replicas can acknowledge (rules R1 and R2 in docs/architecture.md).
If the partition has other replicas, remote_replicas.py contains what the leader knows about them.

Called on the reactor thread. Source: Kafka 3.9 Partition; KIP-101 and KIP-320 for leader epochs;
KIP-497 for changes of the ISR. Invariant: the high watermark decreases only if the log is
truncated, and never exceeds the offset that the log can acknowledge.
"""

from __future__ import annotations

from plog.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidTxnState,
    KafkaError,
    KafkaStorageError,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from plog.records.batch import ATTRIBUTES_POSITION, TRANSACTIONAL_BIT
from plog.types import TopicPartition, Uuid
from plogd.log.batch_validator import AppendOrigin, RecordCheck, ValidatedBatch
from plogd.log.disk.group_commit import SyncRounds
from plogd.log.follower_append import append_or_restart
from plogd.log.log import Log
from plogd.log.log_results import AppendInfo
from plogd.metadata.cache import NO_LEADER, PartitionState
from plogd.replica.divergence import divergence
from plogd.replica.fetch.partition_read import PartitionRead
from plogd.replica.partition_context import PartitionContext
from plogd.replica.remote_replicas import RemoteReplicas
from plogd.topic_config import TopicConfig

ACKS_ALL = -1
NO_EPOCH = -1
READ_COMMITTED = 1
"""The isolation level of requests in which a client does not want undecided records (KIP-98)."""
_ATTRIBUTES_LOW_BYTE = ATTRIBUTES_POSITION + 1  # Big-endian; it holds all attributes in use.


class Partition:
    """A partition that has a replica on this broker."""

    __slots__ = (
        "_leader_high_watermark",
        "_on_progress",
        "adding_replicas",
        "broker_id",
        "context",
        "epoch_start_offset",
        "has_queue",
        "is_deleted",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "partition_epoch",
        "record_check",
        "remote",
        "removing_replicas",
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
        context: PartitionContext,
        record_check: RecordCheck | None = None,
    ) -> None:
        self.log = log
        self.sync_rounds = sync_rounds
        """The sync rounds for the log's file system."""
        self.record_check = record_check
        """The check for records from clients; set only for internal topics."""
        self.has_queue = False
        """Whether appends are queued (append_queue.py), so that later ones must also be queued."""
        self.broker_id = context.broker_id
        self.topic_partition: TopicPartition = log.topic_partition
        self.topic_id: Uuid = log.topic_id
        self.leader = -1
        self.leader_epoch = NO_EPOCH
        self.epoch_start_offset = 0
        """The log end offset when this leader epoch began."""
        self.partition_epoch = -1
        """The version of the partition's state; every change of the ISR raises it (KIP-497)."""
        self.isr: tuple[int, ...] = ()
        """The confirmed in-sync replicas; empty while this broker is a follower."""
        self.replicas: tuple[int, ...] = ()
        self.adding_replicas: tuple[int, ...] = ()  # By a reassignment (KIP-455).
        self.removing_replicas: tuple[int, ...] = ()
        self.remote: RemoteReplicas | None = None
        """The followers; None unless this broker is the leader and there are other replicas."""
        self._leader_high_watermark = 0
        """The leader's high watermark, if this broker is a follower."""
        self.is_deleted = False
        """Whether the topic was deleted; if so, this object must no longer be used."""
        self.context = context
        self._on_progress = context.on_progress
        # The log reports only its durable end; whether clients may see it depends on the partition.
        log.on_durable = self._log_advanced

    def make_leader(self, state: PartitionState) -> None:
        """Become the leader in the epoch that `state` contains, or update its replicas and ISR."""
        assert state.leader_epoch >= self.leader_epoch
        # Rule R6: two leaders must never append in the same epoch.
        assert state.leader_epoch >= self.log.leader_epochs.latest_epoch, "deposed leader"
        is_new = state.leader_epoch > self.leader_epoch or self.leader != state.leader
        # At startup, no request waits for any of the thousands of partitions.
        may_have_waiting = is_new and self.leader_epoch != NO_EPOCH
        self._set(state)
        self.isr = state.isr
        if is_new:
            # KIP-207: until the high watermark reaches it, records of earlier leaders may be
            # committed although this leader does not know that.
            self.epoch_start_offset = self.log.log_end_offset
            self.remote = None  # Rule C6: positions of followers belong to one epoch.
        if len(state.replicas) > 1:
            self._update_remote(state)
        else:
            self.remote = None
        # After a restart, the recovered records are durable, and no append may follow for a long
        # time.
        if self._raise_high_watermark() or may_have_waiting:
            self._on_progress(self)

    def _set(self, state: PartitionState) -> None:
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas = state.replicas
        self.adding_replicas = state.adding_replicas
        self.removing_replicas = state.removing_replicas

    def _update_remote(self, state: PartitionState) -> None:
        if self.remote is None:
            self.remote = self.context.remote_replicas(
                self.topic_partition, state, epoch_start_offset=self.epoch_start_offset
            )
        else:
            self.remote.confirm(state.isr)
            self.remote.assign(state.replicas, self.context.monotonic_ms())

    def make_follower(self, state: PartitionState) -> None:
        """Follow the leader in `state`, or no leader; produce requests that wait then fail.

        If this broker was the leader, the caller first waits until a slow disk has written all
        batches of the old epoch (rule C5).
        """
        assert state.leader_epoch >= self.leader_epoch
        assert state.leader != self.broker_id
        self._set(state)
        self.isr, self.remote = (), None
        # A leader learns the high watermark of its predecessor only by replication, so the new
        # leader's may be lower. What was committed stays committed.
        self._leader_high_watermark = self.log.high_watermark
        self._on_progress(self)

    @property
    def high_watermark(self) -> int:
        """The first offset that consumers cannot read yet."""
        return self.log.high_watermark

    def end_offset_for_consumers(self, *, read_committed: bool) -> int:
        """Return the first offset that a consumer with this isolation level cannot read yet."""
        return self.log.last_stable_offset if read_committed else self.log.high_watermark

    def problem(
        self, leader_epoch: int = NO_EPOCH, *, any_replica: bool = False
    ) -> KafkaError | None:
        """Return the error for a request that needs this partition, or None if it can be used.

        Unless `any_replica` is set, the request needs the leader. `leader_epoch` is the epoch that
        the client knows, if any.
        """
        if self.is_deleted:
            return UnknownTopicOrPartition(f"{self.topic_partition} was deleted")
        if self.log.offline:
            return KafkaStorageError(f"{self.topic_partition}: {self.log.log_dir} is offline")
        # A replica that neither leads nor follows may have lost records: consumers that it sent out
        # of range would skip records.
        if self.leader != self.broker_id and (not any_replica or self.leader == NO_LEADER):
            return NotLeaderOrFollower(f"{self.topic_partition} is led by broker {self.leader}")
        if leader_epoch in (NO_EPOCH, self.leader_epoch):
            return None
        # KIP-320: a client with an older epoch must refresh its metadata; with a newer epoch, it
        # must wait until this broker also has the metadata.
        text = (
            f"{self.topic_partition}: the leader epoch is {self.leader_epoch}, not {leader_epoch}"
        )
        return (FencedLeaderEpoch if leader_epoch < self.leader_epoch else UnknownLeaderEpoch)(text)

    def check_leader(self, leader_epoch: int = NO_EPOCH) -> None:
        """Raise a KafkaError unless this broker is the leader, in `leader_epoch` if given."""
        problem = self.problem(leader_epoch)
        if problem is not None:
            raise problem

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
        if self.remote is not None and required_acks != ACKS_ALL:
            self.remote.check_lease()
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
        # If flush.messages is not 1, records can be acknowledged before they are synced. Followers
        # fetch records that are not durable yet, so that all replicas sync at the same time (C6).
        if self._raise_high_watermark() or self.remote is not None:
            self._on_progress(self)
        return info

    async def append_records_to_follower(
        self, data: memoryview, *, leader_epoch: int, leader_high_watermark: int, now_ms: int
    ) -> AppendInfo | None:
        """Append what the leader of `leader_epoch` has sent, and take over its high watermark.

        Returns None if `data` contains no complete batch. Raises FencedLeaderEpoch if this broker
        does not follow that leader any more, and the errors of `append_or_restart`.
        """
        self._check_follows(leader_epoch)
        info = await append_or_restart(self.log, data, leader_epoch=leader_epoch, now_ms=now_ms)
        self._check_follows(leader_epoch)
        self._leader_high_watermark = leader_high_watermark
        if self._raise_high_watermark():
            self._on_progress(self)
        return info

    def _check_follows(self, leader_epoch: int) -> None:
        if self.leader_epoch != leader_epoch or self.leader == self.broker_id:
            raise FencedLeaderEpoch(
                f"{self.topic_partition}: the leader epoch is {self.leader_epoch}, not"
                f" {leader_epoch}"
            )

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
        """Advance the high watermark as far as rule R2 allows; return whether it has changed."""
        log = self.log
        end_offset = log.acknowledged_end_offset
        if end_offset <= log.high_watermark:
            return False
        if self.remote is not None or self.leader != self.broker_id:
            end_offset = self._replicated_end(end_offset)
            if end_offset <= log.high_watermark:
                return False
        log.high_watermark = end_offset
        return True

    def _replicated_end(self, acknowledged: int) -> int:
        """Return the end of the records that may be committed; `acknowledged` is this replica's."""
        if self.remote is None:
            return min(acknowledged, self._leader_high_watermark)
        # As in Kafka (KAFKA-15583): with fewer replicas, a record that consumers have read could
        # be lost with a single broker.
        if len(self.isr) < self.min_isr:
            return self.log.high_watermark
        now_ms = self.context.monotonic_ms()
        return self.remote.high_watermark(acknowledged, self.log.log_end_offset, now_ms)

    # -- followers ----------------------------------------------------------------------------

    def read_for_follower(
        self,
        follower: int,
        offset: int,
        max_bytes: int,
        *,
        broker_epoch: int,
        leader_epoch: int,
        last_fetched_epoch: int,
        log_start_offset: int,
        at_least_one: bool,
        nowait: bool = False,
    ) -> PartitionRead:
        """Read up to the log end offset, and record the follower's position (rule R5).

        By fetching from `offset`, the follower acknowledges all records below it. Like `read`, it
        returns errors.
        """
        log = self.log
        try:
            self.check_leader(leader_epoch)
            if self.remote is None:
                raise NotLeaderOrFollower(f"{self.topic_partition} has no other replicas")
            self.remote.check_follower(follower, broker_epoch)
        except KafkaError as error:
            return PartitionRead(error)
        if (  # The usual case in a fetch of many partitions.
            log.log_end_offset == log.high_watermark == offset
            and last_fetched_epoch in (NO_EPOCH, log.leader_epochs.latest_epoch)
            and self.remote.is_idle(follower, offset, broker_epoch, log_start_offset)
        ):
            self.remote.followers[follower].caught_up(self.context.monotonic_ms())
            return PartitionRead(None, offset, log.last_stable_offset, log.log_start_offset)
        if last_fetched_epoch != NO_EPOCH:
            # A diverging follower must truncate first; its offset says nothing about this log.
            diverged = divergence(self, offset, last_fetched_epoch)
            if diverged is not None:
                return diverged
        try:
            data = log.read(
                offset,
                max_bytes,
                end_offset=log.log_end_offset,
                at_least_one=at_least_one,
                nowait=nowait,
            )
        except KafkaError as error:
            return PartitionRead(error)
        self._follower_fetched(follower, offset, broker_epoch, log_start_offset)
        return PartitionRead(
            None,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            data.region,
            has_news=self.remote.send_high_watermark(follower, log.high_watermark),
        )

    def _follower_fetched(
        self, follower: int, offset: int, broker_epoch: int, log_start_offset: int
    ) -> None:
        assert self.remote is not None
        has_deleted = self.remote.followers[follower].fetched(
            offset,
            log_start_offset=log_start_offset,
            broker_epoch=broker_epoch,
            leader_end_offset=self.log.log_end_offset,
            now_ms=self.context.monotonic_ms(),
        )
        if self._raise_high_watermark() or has_deleted:
            self._on_progress(self)
        self._propose(self.remote.after_fetch(follower, self.log.high_watermark))

    def check_isr(self) -> None:
        """Propose to remove followers that have fallen behind; called at regular intervals."""
        log = self.log
        if self.remote is not None and not self.is_deleted and not log.offline:
            now_ms = self.context.monotonic_ms()
            self._propose(self.remote.shrunk(log.log_end_offset, log.high_watermark, now_ms))

    def _propose(self, isr: tuple[int, ...] | None) -> None:
        remote = self.remote
        if isr is None or remote is None:
            return
        remote.proposed = isr
        self.context.isr_changes.propose(self, isr).then(
            lambda state: self._isr_changed(remote, state),
            lambda error: self._isr_refused(remote, error),
        )

    def _isr_changed(self, remote: RemoteReplicas, state: PartitionState) -> None:
        # A newer state may have arrived by another way, or this broker may not lead any more.
        if remote is self.remote and self.partition_epoch < state.partition_epoch:
            self.make_leader(state)
            # Requests with acks=all depend on the size of the ISR.
            self._on_progress(self)

    def _isr_refused(self, remote: RemoteReplicas, error: Exception) -> None:
        # With any other error, the controller's state is newer, and it may even have made the
        # change. Until the new state arrives, the proposed members still count.
        if isinstance(error, IneligibleReplica):
            remote.withdraw()
            if remote is self.remote and self._raise_high_watermark():
                self._on_progress(self)

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
        any_replica: bool = False,
        nowait: bool = False,
    ) -> PartitionRead:
        """Read records below the high watermark from `offset` on, up to `max_bytes`.

        With `read_committed`, only records below the last stable offset. With `any_replica`, also
        from a follower, which may know a lower high watermark than the leader (KIP-392).

        Returns errors instead of raising them, because a fetch reads several partitions. With
        `nowait`, raises UncachedLookup if the data is not in the page cache.
        """
        log = self.log
        # The conditions of `problem`, repeated here to save most reads a call.
        if (
            self.is_deleted
            or log.offline
            or self.leader != self.broker_id
            or (leader_epoch != self.leader_epoch and leader_epoch != NO_EPOCH)
        ):
            problem = self.problem(leader_epoch, any_replica=any_replica)
            if problem is not None:
                return PartitionRead(problem)
        high_watermark, log_start_offset = log.high_watermark, log.log_start_offset
        stable_offset = log.last_stable_offset
        end_offset = stable_offset if read_committed else high_watermark
        if last_fetched_epoch != NO_EPOCH:
            # Checked before the read, even at the high watermark: the offset may belong to another
            # history.
            diverged = divergence(self, offset, last_fetched_epoch)
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

    def check_offset_is_known(self) -> None:
        """Raise OffsetNotAvailable while a new leader's high watermark is out of date (KIP-207)."""
        if self.epoch_start_offset > self.log.high_watermark:
            raise OffsetNotAvailable(
                f"{self.topic_partition}: the high watermark {self.log.high_watermark} has not "
                f"reached the start of leader epoch {self.leader_epoch}"
            )
