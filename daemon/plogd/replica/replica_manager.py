"""All partitions of a broker: appends to and reads from several partitions, and the purgatories.

The handlers for Produce, Fetch and ListOffsets call `ReplicaManager`. Its methods return a plain
value if the result is available immediately, and a `Later` if the request has to wait.
hosted_topics.py creates and deletes topics.

Called on the reactor thread. Source: Kafka 3.9 ReplicaManager; docs/architecture.md for R1-R8.
Invariant: a delayed request never completes inside an append or at the end of a sync, but when the
turn ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from plog.errors import (
    KafkaError,
    KafkaStorageError,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    UnknownTopicOrPartition,
)
from plog.types import TopicPartition
from plogd.config import BrokerConfig
from plogd.fair_queue import FairQueue
from plogd.log.batch_validator import ValidatedBatch
from plogd.log.log import Log
from plogd.log.log_manager import LogManager
from plogd.metadata.cache import MetadataCache
from plogd.ports import Later, MaybeLater, Ports, settle, spawn
from plogd.replica.append_queue import AppendQueues, AppendRequest, note_refused
from plogd.replica.cluster.replication_quota import ReplicationQuota
from plogd.replica.delayed_delete_records import DelayedDeleteRecords, low_watermark_of
from plogd.replica.delayed_produce import DelayedProduce, PartitionAppend
from plogd.replica.fetch.fetch_reader import FetchReader
from plogd.replica.fetch.replica_selector import ReplicaSelector
from plogd.replica.hosted_topics import HostedTopics
from plogd.replica.partition import ACKS_ALL, Partition
from plogd.replica.partition_context import (
    ChangedPartition,
    IsrChanges,
    PartitionContext,
)
from plogd.replica.pending_acks import PendingAcks
from plogd.replica.purgatory import Purgatory
from plogd.replica.topic_stats import TopicStats

# The timeout in a request is meant for followers; in Kafka, acks=1 does not wait at all. After a
# short timeout, a producer would resend records that are about to become durable.
_OWN_DISK_TIMEOUT_MS = 30_000
"""Minimum timeout for acks=0 and acks=1."""

_MAX_IMMEDIATE_APPENDS = 128
"""Maximum number of a request's appends that are made before other requests can run; its other
appends are queued (decision 0015)."""

Entry = tuple[TopicPartition, memoryview]
"""A partition, and the records to append to it."""


class ReplicaManager:
    """All partitions of a broker, its append queues and its purgatories."""

    def __init__(
        self,
        ports: Ports,
        *,
        config: BrokerConfig,
        log_manager: LogManager,
        cache: MetadataCache,
        fair_queue: FairQueue,
        stats: TopicStats,
        on_bug: Callable[[str, Exception], None],
    ) -> None:
        self.topics = HostedTopics(
            config=config,
            log_manager=log_manager,
            cache=cache,
            stats=stats,
            fair_queue=fair_queue,
            partition_context=PartitionContext.of_single_broker(
                config.node_id,
                on_progress=self._progress,
                monotonic_ms=ports.clock.monotonic_ms,
            ),
        )
        self._on_stop: Callable[[], None] = lambda: None
        self._partitions = self.topics.partitions
        self._log_manager = log_manager
        self._cache = cache
        self._clock = ports.clock
        self._jobs = ports.jobs
        self._turn = ports.turn
        self._on_bug = on_bug
        self._to_check: dict[TopicPartition, None] = {}
        self._listeners: dict[TopicPartition, Callable[[], None]] = {}
        self.append_queues = AppendQueues(
            ports,
            config=lambda: self.topics.config,
            make_append=self._append,
            on_bug=on_bug,
        )
        self.pending_acks = PendingAcks(ports.clock, ports.timers, on_bug=on_bug)
        self.delayed_produces = Purgatory(ports.clock, ports.timers, on_bug=on_bug)
        self.delayed_fetches = Purgatory(ports.clock, ports.timers, on_bug=on_bug)
        self.delayed_deletions = Purgatory(ports.clock, ports.timers, on_bug=on_bug)
        self.begin_read = log_manager.begin_read
        """Starts the jobs that read the data for a lookup; see `LogManager.begin_read`."""
        self._fetch_reader = FetchReader(
            partitions=self._partitions,
            look_up=self.partition,
            delayed_fetches=self.delayed_fetches,
            fair_queue=fair_queue,
            begin_read=log_manager.begin_read,
            on_bug=on_bug,
        )
        self.count_sent = self._fetch_reader.count_sent
        """Counts records that a follower gets; see `FetchReader.count_sent`."""
        self.fetch_records = self._fetch_reader.fetch
        """Reads each partition up to its high watermark; see `FetchReader.fetch`."""

    def use_cluster(
        self,
        *,
        is_eligible: Callable[[int, int], bool],
        is_leased: Callable[[], bool],
        max_lag_ms: Callable[[], float],
        isr_changes: IsrChanges,
        replica_selector: ReplicaSelector | None,
        leader_quota: ReplicationQuota,
        on_stop: Callable[[], None],
    ) -> None:
        """Let partitions have followers; see `PartitionContext`. Called before any is hosted.

        `replica_selector` selects the followers from which consumers read. `leader_quota` limits
        what followers fetch. `on_stop` is called when the broker stops.
        """
        assert not self._partitions, "the partitions have another context"
        self._fetch_reader.leader_quota = leader_quota
        self._on_stop = on_stop
        self.topics.partition_context = replace(
            self.topics.partition_context,
            is_eligible=is_eligible,
            is_leased=is_leased,
            max_lag_ms=max_lag_ms,
            isr_changes=isr_changes,
            prompt_high_watermark=lambda: replica_selector is not None,
        )
        self._fetch_reader.replica_selector = replica_selector

    def stop(self) -> None:
        """Stop replication, and fail appends that are queued, because the broker is stopping."""
        self._on_stop()
        self.append_queues.close()

    # -- lookups ------------------------------------------------------------------------------

    @property
    def partitions(self) -> Collection[Partition]:
        """Every partition that has a log here."""
        return self._partitions.values()

    @property
    def waiting_produces(self) -> int:
        """Number of produce requests whose records do not satisfy their acks yet."""
        return len(self.pending_acks) + len(self.delayed_produces)

    @property
    def offline_count(self) -> int:
        """Number of partitions that have no log or whose log directory has failed."""
        offline = sum(partition.log.offline for partition in self._partitions.values())
        return offline + len(self.topics.without_log)

    def partition(self, topic: str, number: int) -> Partition:
        """Return a partition.

        Raises UnknownTopicOrPartition, NotLeaderOrFollower if only other brokers have it, or
        KafkaStorageError if it has no log.
        """
        partition = self._partitions.get((topic, number))
        if partition is not None:
            return partition
        if (topic, number) in self.topics.without_log:
            raise KafkaStorageError(
                f"cannot use {topic}-{number}: it has no log, because its log directory is offline"
                " or full"
            )
        known = self._cache.topic(topic)
        if known is not None and 0 <= number < len(known.partitions):
            # As in Kafka's getPartitionOrException: the client refreshes its metadata and finds the
            # leader.
            raise NotLeaderOrFollower(f"this broker does not have a replica of {topic}-{number}")
        raise UnknownTopicOrPartition(f"this broker does not host {topic}-{number}")

    def is_offline(self, topic: str, number: int) -> bool:
        """Return whether the partition has no log, or is in a failed log directory."""
        partition = self._partitions.get((topic, number))
        return partition.log.offline if partition else (topic, number) in self.topics.without_log

    # -- produce ------------------------------------------------------------------------------

    def append_one(
        self,
        topic: str,
        number: int,
        records: memoryview,
        required_acks: int,
        timeout_ms: int,
    ) -> MaybeLater[list[PartitionAppend]]:
        """Append to a single partition, as most requests do; see `append_records`."""
        partition = self._partitions.get((topic, number))
        if partition is None or not partition.can_append_now:
            entries = [(TopicPartition(topic, number), records)]
            return self.append_records(entries, required_acks=required_acks, timeout_ms=timeout_ms)
        append = PartitionAppend(partition.topic_partition, partition)
        self._append(append, records, required_acks)
        if append.is_waiting(required_acks):
            return self._wait([append], [append], required_acks, timeout_ms)
        return [append]

    def append_records(
        self, entries: Sequence[Entry], *, required_acks: int, timeout_ms: int
    ) -> MaybeLater[list[PartitionAppend]]:
        """Append to each partition; complete when all records satisfy `required_acks`.

        The records are written or copied before this method returns, so the caller can then reuse
        their memory. If a queued append (append_queue.py) times out, it is not made.
        """
        appends: list[PartitionAppend] = []
        request: AppendRequest | None = None
        for key, records in entries:
            partition = self._partitions.get(key)
            append = PartitionAppend(key, partition)
            appends.append(append)
            is_one_of_many = len(appends) > _MAX_IMMEDIATE_APPENDS
            if partition is not None and (is_one_of_many or not partition.can_append_now):
                request = request or self.append_queues.new_request(required_acks)
                if self.append_queues.enqueue(append, records, request, is_one_of_many):
                    continue
            self._append(append, records, required_acks)
        if request is not None and request.unsettled:
            return spawn(self._append_later(appends, request, timeout_ms))
        return self._wait_for_acks(appends, required_acks, timeout_ms)

    async def _append_later(
        self, appends: list[PartitionAppend], request: AppendRequest, timeout_ms: int
    ) -> list[PartitionAppend]:
        began_ms = self._clock.monotonic_ms()
        await self.append_queues.watch(request, timeout_ms)
        # The time that the appends have spent in the queue counts toward the request's timeout.
        left_ms = max(0, timeout_ms - int(self._clock.monotonic_ms() - began_ms))
        return await settle(self._wait_for_acks(appends, request.required_acks, left_ms))

    def _wait_for_acks(
        self, appends: list[PartitionAppend], required_acks: int, timeout_ms: int
    ) -> MaybeLater[list[PartitionAppend]]:
        waiting = [append for append in appends if append.is_waiting(required_acks)]
        if not waiting:
            return appends
        return self._wait(appends, waiting, required_acks, timeout_ms)

    def _wait(
        self,
        appends: list[PartitionAppend],
        waiting: list[PartitionAppend],
        required_acks: int,
        timeout_ms: int,
    ) -> Later[list[PartitionAppend]]:
        """Wait for the appends in `waiting`, a list that no other code uses."""
        if required_acks != ACKS_ALL:
            timeout_ms = max(timeout_ms, _OWN_DISK_TIMEOUT_MS)
        if len(appends) == 1:
            pending = self.pending_acks.add(appends[0], required_acks, timeout_ms)
            if pending is not None:
                return pending
        delayed = DelayedProduce(appends, waiting, required_acks, self.delayed_produces.remove)
        # Only the partitions that are not done, so that progress elsewhere causes no checks.
        keys = {append.topic_partition for append in waiting}
        self.delayed_produces.watch(delayed, keys, timeout_ms)
        return delayed.later

    def _append(
        self, append: PartitionAppend, records: memoryview | ValidatedBatch, required_acks: int
    ) -> None:
        """Make one append and set its info or error."""
        key = append.topic_partition
        try:
            # If there is no such partition, this call raises the KafkaError for the client.
            partition = append.partition or self.partition(*key)
            append.info = partition.append_records_to_leader(
                records, required_acks=required_acks, now_ms=self._clock.now_ms()
            )
            append.leader_epoch = partition.leader_epoch
        except KafkaError as error:
            append.error = error.bare()  # A traceback would keep the request's records in memory.
            view = records.view if isinstance(records, ValidatedBatch) else records
            self._note_refused(append, error, view)
        except Exception as error:  # A bug in one partition must not fail the others.
            self._on_bug(f"appending to {key}", error)
            append.error = KafkaError("unexpected error; see the broker log")
        if append.partition is not None:
            append.log_start_offset = append.partition.log.log_start_offset

    def _note_refused(
        self, append: PartitionAppend, error: KafkaError, records: memoryview
    ) -> None:
        """Record a batch that its producer has to send again before its next ones (rule R15)."""
        if append.partition is None:
            self.topics.note_refused(append.topic_partition, records)
        # Its next batches may already be on their way, and arrive when this broker leads the
        # partition, or when there are enough replicas. Kafka would append them out of order.
        elif isinstance(error, NotLeaderOrFollower | NotEnoughReplicas):
            note_refused(append.partition.log, records)

    # -- deletion -----------------------------------------------------------------------------

    def replicas_deleted(
        self, partition: Partition, offset: int, timeout_ms: float
    ) -> MaybeLater[int]:
        """Wait until all live replicas have deleted the records below `offset`.

        Returns the smallest log start offset of these replicas. Fails with RequestTimedOut, and
        with the error of a partition that this broker does not lead any more.
        """
        low_watermark = low_watermark_of(partition)
        if low_watermark >= offset:
            return low_watermark
        delayed = DelayedDeleteRecords(partition, offset, self.delayed_deletions.remove)
        self.delayed_deletions.watch(delayed, [partition.topic_partition], timeout_ms)
        return delayed.later

    def brokers_changed(self) -> None:
        """Check the deletions that may have waited for a broker that is gone."""
        self.delayed_deletions.check_all()

    # -- completion of delayed requests -------------------------------------------------------

    def _progress(self, partition: ChangedPartition) -> None:
        """Check the delayed requests for `partition` when the current turn ends."""
        # One check per turn: many appends of a turn can advance the same partition.
        is_first = not self._to_check
        self._to_check[partition.topic_partition] = None
        if is_first:
            self._turn.defer(self._check_delayed)

    def _check_delayed(self) -> None:
        # Replaced first, because the completion of a request may cause progress, which schedules
        # another check.
        to_check, self._to_check = self._to_check, {}
        for key in to_check:
            # In the order of Kafka's DelayedOperations.checkAndCompleteAll.
            self.delayed_fetches.check(key)
            self.pending_acks.check(key)
            self.delayed_produces.check(key)
            if len(self.delayed_deletions):
                self.delayed_deletions.check(key)
            listener = self._listeners.get(key)
            if listener is not None:
                self._notify(key, listener)

    def _notify(self, key: TopicPartition, listener: Callable[[], None]) -> None:
        try:
            listener()
        except Exception as error:
            self._on_bug(f"progress listener of {key}", error)

    def listen(self, key: TopicPartition, listener: Callable[[], None]) -> None:
        """Call `listener` at the end of each turn in which partition `key` has made progress.

        A partition makes progress when its high watermark advances, when it is deleted, and when
        its log directory fails. There is at most one listener: the coordinator of a partition that
        this broker leads, or the fetcher of one that it follows.
        """
        self._listeners[key] = listener

    def stop_listening(self, key: TopicPartition) -> None:
        """Remove the listener for partition `key`, if there is one."""
        self._listeners.pop(key, None)

    def log_dir_failed(self, logs: Sequence[Log]) -> None:
        """Check the delayed requests for `logs`, because their directory has failed."""
        for log in logs:
            partition = self._partitions.get(log.topic_partition)
            if partition is not None:
                self._progress(partition)
