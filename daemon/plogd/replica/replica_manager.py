"""All partitions this broker hosts: appends and reads over several of them, and who waits.

Handlers of Produce, Fetch and ListOffsets come here. What is ready is returned as a plain value;
what has to wait goes into purgatory and comes back as a `Later`. Topics are created and deleted in
hosted_topics.py.

Called on the reactor's thread. Source: Kafka 3.9 ReplicaManager; docs/architecture.md for R1-R8.
Invariant: a completion never runs inside an append or a sync's end, but from the turn after it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from plog.errors import (
    KafkaError,
    KafkaStorageError,
    UnknownTopicOrPartition,
)
from plog.types import TopicPartition
from plogd.config import BrokerConfig
from plogd.fair_queue import FairQueue
from plogd.log.batch_validator import ValidatedBatch
from plogd.log.log import Log
from plogd.log.log_manager import LogManager
from plogd.metadata.cache import MetadataCache
from plogd.ports import Clock, Jobs, MaybeLater, Timers, Turn, settle, spawn
from plogd.replica.append_queue import AppendQueues, AppendRequest
from plogd.replica.delayed_fetch import FetchParams
from plogd.replica.delayed_produce import DelayedProduce, PartitionAppend
from plogd.replica.fetch_reader import FetchReader
from plogd.replica.fetch_sessions import FetchItem
from plogd.replica.hosted_topics import HostedTopics
from plogd.replica.partition import ACKS_ALL, Partition, PartitionRead
from plogd.replica.purgatory import Purgatory
from plogd.replica.topic_stats import TopicStats

_OWN_DISK_TIMEOUT_MS = 30_000
"""How long acks=1 waits at least: the timeout is about followers, and in Kafka acks=1 waits for
nothing. Told too early, it would send again what is about to be durable."""

_AT_ONCE = 128
"""How many partitions of a request are appended to before other requests have their turn."""

Entry = tuple[TopicPartition, memoryview]
"""Records for one partition."""


class ReplicaManager:
    """See the module's text."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        log_manager: LogManager,
        cache: MetadataCache,
        clock: Clock,
        timers: Timers,
        jobs: Jobs,
        turn: Turn,
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
            on_progress=self._progress,
        )
        self._partitions = self.topics.partitions
        self._log_manager = log_manager
        self._clock = clock
        self._jobs = jobs
        self._turn = turn
        self._on_bug = on_bug
        self._to_check: dict[TopicPartition, None] = {}
        self._listeners: dict[TopicPartition, Callable[[], None]] = {}
        self.append_queues = AppendQueues(
            clock=clock,
            timers=timers,
            jobs=jobs,
            turn=turn,
            config=lambda: self.topics.config,
            make_append=self._append,
            on_bug=on_bug,
        )
        self.delayed_produces = Purgatory(clock, timers, on_bug=on_bug)
        self.delayed_fetches = Purgatory(clock, timers, on_bug=on_bug)
        self.begin_read = log_manager.begin_read
        """Starts a job that reads what a look-up in a log needs; see `LogManager.begin_read`."""
        self._fetch_reader = FetchReader(
            partitions=self._partitions,
            look_up=self.partition,
            delayed_fetches=self.delayed_fetches,
            fair_queue=fair_queue,
            begin_read=log_manager.begin_read,
            on_bug=on_bug,
        )

    # -- look-ups -----------------------------------------------------------------------------

    @property
    def partitions(self) -> Collection[Partition]:
        """Every partition that has a log here."""
        return self._partitions.values()

    @property
    def offline_count(self) -> int:
        """Partitions that cannot be used because their log directory failed."""
        offline = sum(partition.log.offline for partition in self._partitions.values())
        return offline + len(self.topics.without_log)

    def partition(self, topic: str, number: int) -> Partition:
        """The partition. Raises UnknownTopicOrPartition, or KafkaStorageError if it has no log."""
        partition = self._partitions.get((topic, number))
        if partition is not None:
            return partition
        if (topic, number) in self.topics.without_log:
            raise KafkaStorageError(f"the log directory of {topic}-{number} is offline")
        raise UnknownTopicOrPartition(f"this broker hosts no partition {topic}-{number}")

    def is_offline(self, topic: str, number: int) -> bool:
        """Whether the partition's log directory has failed."""
        partition = self._partitions.get((topic, number))
        return partition.log.offline if partition else (topic, number) in self.topics.without_log

    # -- produce ------------------------------------------------------------------------------

    def append_records(
        self, entries: Sequence[Entry], *, required_acks: int, timeout_ms: int
    ) -> MaybeLater[list[PartitionAppend]]:
        """Append to each partition; done when all records are as safe as `required_acks` requires.

        The records are taken before this returns: its caller may reuse their memory. Where an
        append has to wait (append_queue.py) and its time ends, it is not made.
        """
        appends: list[PartitionAppend] = []
        request: AppendRequest | None = None
        for key, records in entries:
            append = PartitionAppend(key)
            appends.append(append)
            partition = append.partition = self._partitions.get(key)
            is_one_of_many = len(appends) > _AT_ONCE
            if partition is not None and (is_one_of_many or not partition.appends_at_once):
                request = request or self.append_queues.new_request(required_acks)
                if self.append_queues.takes(append, records, request, is_one_of_many):
                    continue
            self._append(append, records, required_acks)
        if request is not None and request.unsettled:
            return spawn(self._append_later(appends, request, timeout_ms))
        return self._answer_when_safe(appends, required_acks, timeout_ms)

    async def _append_later(
        self, appends: list[PartitionAppend], request: AppendRequest, timeout_ms: int
    ) -> list[PartitionAppend]:
        began_ms = self._clock.monotonic_ms()
        await self.append_queues.watch(request, timeout_ms)
        left_ms = max(0, timeout_ms - int(self._clock.monotonic_ms() - began_ms))
        return await settle(self._answer_when_safe(appends, request.required_acks, left_ms))

    def _answer_when_safe(
        self, appends: list[PartitionAppend], required_acks: int, timeout_ms: int
    ) -> MaybeLater[list[PartitionAppend]]:
        waiting = [append for append in appends if append.is_waiting(required_acks)]
        if not waiting:
            return appends
        delayed = DelayedProduce(appends, waiting, required_acks, self.delayed_produces.remove)
        keys = {append.topic_partition for append in waiting}
        if required_acks != ACKS_ALL:
            timeout_ms = max(timeout_ms, _OWN_DISK_TIMEOUT_MS)
        self.delayed_produces.watch(delayed, keys, timeout_ms)
        return delayed.later

    def _append(
        self, append: PartitionAppend, records: memoryview | ValidatedBatch, required_acks: int
    ) -> None:
        """Make one append, and set its info or its error."""
        key = append.topic_partition
        try:
            partition = append.partition or self.partition(*key)
            append.info = partition.append_records_to_leader(
                records, required_acks=required_acks, now_ms=self._clock.now_ms()
            )
        except KafkaError as error:
            append.error = error.bare()
        except Exception as error:  # One partition's bug must not cost the others their answer.
            self._on_bug(f"append to {key}", error)
            append.error = KafkaError("unexpected error, see the broker's log")
        if append.partition is not None:
            append.log_start_offset = append.partition.log.log_start_offset

    # -- fetch --------------------------------------------------------------------------------

    def fetch_records(
        self, items: Sequence[FetchItem], params: FetchParams
    ) -> MaybeLater[list[PartitionRead]]:
        """Read each partition as far as consumers may see it; see `FetchReader.fetch`."""
        return self._fetch_reader.fetch(items, params)

    # -- what wakes the waiting ---------------------------------------------------------------

    def _progress(self, partition: Partition) -> None:
        """Look after the waiting requests of `partition` when the current turn ends."""
        is_first = not self._to_check
        self._to_check[partition.topic_partition] = None
        if is_first:
            self._turn.defer(self._check_waiting)

    def _check_waiting(self) -> None:
        to_check, self._to_check = self._to_check, {}
        for key in to_check:
            self.delayed_fetches.check(key)
            self.delayed_produces.check(key)
            listener = self._listeners.get(key)
            if listener is not None:
                self._tell(key, listener)

    def _tell(self, key: TopicPartition, listener: Callable[[], None]) -> None:
        try:
            listener()
        except Exception as error:
            self._on_bug(f"what follows progress of {key}", error)

    def listen(self, key: TopicPartition, listener: Callable[[], None]) -> None:
        """Call `listener`, in a turn of its own, whenever waiting requests of `key` may go on.

        That is when its high watermark has moved, it is gone, or its log directory has failed. A
        partition has one listener, its coordinator.
        """
        self._listeners[key] = listener

    def stop_listening(self, key: TopicPartition) -> None:
        """Call the listener of `key` no more; harmless if there is none."""
        self._listeners.pop(key, None)

    def log_dir_failed(self, logs: Sequence[Log]) -> None:
        """The directory of these logs has failed: whoever waits for one of them is told."""
        for log in logs:
            partition = self._partitions.get(log.topic_partition)
            if partition is not None:
                self._progress(partition)
