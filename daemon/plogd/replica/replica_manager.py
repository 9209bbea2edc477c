"""All partitions this broker hosts: appends and reads over several of them, and who waits.

Handlers of Produce, Fetch and ListOffsets come here. What is ready is returned as a plain value;
what has to wait goes into purgatory and comes back as a `Later`. Also starts and stops the replicas
of a topic, as the controller says (it is the `Brokers` of one broker), and tells whoever waits when
a log directory fails.

Called on the reactor's thread. Source: Kafka 3.9 ReplicaManager; docs/architecture.md for R1-R8.
Invariant: a completion never runs inside an append or a sync's end, but from the turn after it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from plog.errors import (
    KafkaError,
    KafkaStorageError,
    UnknownTopicOrPartition,
)
from plog.types import TopicPartition
from plogd.config import BrokerConfig
from plogd.fair_queue import FairQueue
from plogd.log.creation import NewLog
from plogd.log.flush import SyncRounds
from plogd.log.log import Log
from plogd.log.log_manager import LogManager
from plogd.metadata.cache import MetadataCache, TopicState
from plogd.ports import Clock, Jobs, Later, MaybeLater, Timers, Turn, spawn
from plogd.replica.delayed import DelayedProduce, PartitionAppend
from plogd.replica.delayed_fetch import FetchParams
from plogd.replica.fetch_reader import FetchReader
from plogd.replica.fetch_sessions import FetchItem
from plogd.replica.partition import ACKS_ALL, Partition, PartitionRead
from plogd.replica.purgatory import Purgatory
from plogd.replica.topic_stats import TopicStats
from plogd.topic_config import TopicConfig

_OWN_DISK_TIMEOUT_MS = 30_000
"""How long acks=1 waits at least: the timeout is about followers, and in Kafka acks=1 waits for
nothing. Told too early, it would send again what is about to be durable."""

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
        self.config = config
        """Replaced when settings change."""
        self._log_manager = log_manager
        self._cache = cache
        self._clock = clock
        self._jobs = jobs
        self._turn = turn
        self._stats = stats
        self._on_bug = on_bug
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._without_log: set[tuple[str, int]] = set()
        """Partitions of a log directory that could not be read at the start."""
        self._refuses_writes = False
        self._to_check: dict[TopicPartition, None] = {}
        self._listeners: dict[TopicPartition, Callable[[], None]] = {}
        self.on_topic_started: Callable[[TopicState], None] = _nobody
        """Hears of a topic whose partitions this broker leads from now on."""
        self.on_topic_stopped: Callable[[TopicState], None] = _nobody
        """Hears of a topic that is not served any more."""
        self.delayed_produces = Purgatory(clock, timers, on_bug=on_bug)
        self.delayed_fetches = Purgatory(clock, timers, on_bug=on_bug)
        self._fetch_reader = FetchReader(
            partitions=self._partitions,
            look_up=self.partition,
            delayed_fetches=self.delayed_fetches,
            fair_queue=fair_queue,
            jobs=jobs,
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
        return offline + len(self._without_log)

    def partition(self, topic: str, number: int) -> Partition:
        """The partition. Raises UnknownTopicOrPartition, or KafkaStorageError if it has no log."""
        partition = self._partitions.get((topic, number))
        if partition is not None:
            return partition
        if (topic, number) in self._without_log:
            raise KafkaStorageError(f"the log directory of {topic}-{number} is offline")
        raise UnknownTopicOrPartition(f"this broker hosts no partition {topic}-{number}")

    def is_offline(self, topic: str, number: int) -> bool:
        """Whether the partition's log directory has failed."""
        partition = self._partitions.get((topic, number))
        return partition.log.offline if partition else (topic, number) in self._without_log

    # -- produce ------------------------------------------------------------------------------

    def append_records(
        self, entries: Sequence[Entry], *, required_acks: int, timeout_ms: int
    ) -> MaybeLater[list[PartitionAppend]]:
        """Append to each partition; done when all are as safe as `required_acks` asks.

        The records are taken before this returns: its caller may reuse their memory.
        """
        for rounds in self._log_manager.sync_rounds:
            if not rounds.has_room:
                copies = [(key, memoryview(bytearray(records))) for key, records in entries]
                full = self._full_rounds()
                return spawn(self._append_later(full, copies, required_acks, timeout_ms))
        return self._append_now(entries, required_acks, timeout_ms)

    def _full_rounds(self) -> SyncRounds:
        """A file system with as many unsynced bytes as it may have.

        One that is waited for already, if there is one: two lines would mix up their order.
        """
        full = [rounds for rounds in self._log_manager.sync_rounds if not rounds.has_room]
        return max(full, key=lambda rounds: rounds.is_awaited)

    async def _append_later(
        self, full: SyncRounds, entries: Sequence[Entry], required_acks: int, timeout_ms: int
    ) -> list[PartitionAppend]:
        await full.room()
        appended = self._append_now(entries, required_acks, timeout_ms)
        return await appended if isinstance(appended, Later) else appended

    def _append_now(
        self, entries: Sequence[Entry], required_acks: int, timeout_ms: int
    ) -> MaybeLater[list[PartitionAppend]]:
        now_ms = self._clock.now_ms()
        appends = [self._append(key, records, required_acks, now_ms) for key, records in entries]
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
        self, key: TopicPartition, records: memoryview, required_acks: int, now_ms: int
    ) -> PartitionAppend:
        append = PartitionAppend(key)
        try:
            partition = append.partition = self._partitions.get(key) or self.partition(*key)
            append.info = partition.append_records_to_leader(
                records, required_acks=required_acks, now_ms=now_ms
            )
        except KafkaError as error:
            append.error = error.bare()
        except Exception as error:  # One partition's bug must not cost the others their answer.
            self._on_bug(f"append to {key}", error)
            append.error = KafkaError("unexpected error, see the broker's log")
        if append.partition is not None:
            append.log_start_offset = append.partition.log.log_start_offset
        return append

    # -- fetch --------------------------------------------------------------------------------

    def fetch_records(
        self, items: Sequence[FetchItem], params: FetchParams
    ) -> MaybeLater[list[PartitionRead]]:
        """Read each partition as far as consumers may see it; see `FetchReader.fetch`."""
        return self._fetch_reader.fetch(items, params)

    # -- what wakes the waiting ---------------------------------------------------------------

    def _progress(self, partition: Partition) -> None:
        """Look after the waiting requests of `partition` when the current turn ends."""
        if not self._to_check:
            self._turn.defer(self._check_waiting)
        self._to_check[partition.topic_partition] = None

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

    # -- topics come and go -------------------------------------------------------------------

    def start_topic(self, topic: TopicState) -> Later[None]:
        """Make or take over the logs of `topic`, lead its partitions, and tell clients of it."""
        return spawn(self.start_topics([topic]))

    async def start_topics(self, topics: Sequence[TopicState]) -> None:
        """As `start_topic`, for many at once. Raises KafkaStorageError."""
        missing = [new for topic in topics for new in self._missing_logs(topic)]
        if missing:
            await self._log_manager.create(missing)
        for topic in topics:
            self._lead(topic)

    def _missing_logs(self, topic: TopicState) -> list[NewLog]:
        config = self._topic_config(topic)
        return [
            NewLog(
                topic_partition=TopicPartition(topic.name, state.partition),
                topic_id=topic.topic_id,
                config=config,
            )
            for state in topic.partitions
            if self._log_manager.get(TopicPartition(topic.name, state.partition)) is None
            and (topic.name, state.partition) not in self._without_log
        ]

    def make_logs(self, topic: TopicState) -> Later[None]:
        """Make the logs `topic` lacks; they are served once `start_topic` says so."""
        return spawn(self._make_logs(topic))

    async def _make_logs(self, topic: TopicState) -> None:
        await self._log_manager.create(self._missing_logs(topic))

    def remove_unserved_logs(self, topic: TopicState) -> Later[None]:
        """Remove the logs of `topic` that no partition serves: it will not have them after all."""
        return spawn(self._remove_unserved_logs(topic))

    async def _remove_unserved_logs(self, topic: TopicState) -> None:
        keys = [TopicPartition(topic.name, state.partition) for state in topic.partitions]
        unserved = [key for key in keys if key not in self._partitions]
        await self._log_manager.delete(*(key for key in unserved if self._log_manager.get(key)))

    def _topic_config(self, topic: TopicState) -> TopicConfig:
        return TopicConfig.resolve(self.config, topic.config)

    def _lead(self, topic: TopicState) -> None:
        topic_config = self._topic_config(topic)  # It may have changed since its logs were made.
        for state in topic.partitions:
            key = TopicPartition(topic.name, state.partition)
            log = self._log_manager.get(key)
            if log is None or key in self._partitions:  # Served already: others were added to it.
                continue
            partition = Partition(
                log=log, broker_id=self.config.node_id, on_progress=self._progress
            )
            partition.update_config(topic_config)
            partition.make_leader(state)
            log.refuses_writes = self._refuses_writes
            self._partitions[key] = partition
        self._cache.update(topic)
        self.on_topic_started(topic)

    def update_config(self, config: BrokerConfig) -> None:
        """The broker's settings have changed: those that topics fall back to, too."""
        self.config = config
        for topic in self._cache.topics():
            self._update_logs(topic)

    def update_topic_config(self, name: str, overrides: Mapping[str, str]) -> None:
        """The settings of a topic's own have changed; nothing if it is not served (yet)."""
        topic = self._cache.topic(name)
        if topic is not None:
            topic = replace(topic, config=overrides)
            self._cache.update(topic)
            self._update_logs(topic)

    def _update_logs(self, topic: TopicState) -> None:
        topic_config = self._topic_config(topic)
        for state in topic.partitions:
            partition = self._partitions.get((topic.name, state.partition))
            if partition is not None:
                partition.update_config(topic_config)

    def set_without_log(self, keys: Iterable[TopicPartition]) -> None:
        """These partitions lie in a log directory that cannot be read: they are offline."""
        self._without_log.update(keys)

    def without_logs(self, topics: Sequence[TopicState]) -> list[TopicPartition]:
        """The partitions of `topics` that have no log and should have one."""
        return [new.topic_partition for topic in topics for new in self._missing_logs(topic)]

    def make_logs_of(self, keys: Collection[TopicPartition]) -> Later[None]:
        """Make the logs of partitions that are offline for want of one, and lead those.

        Fails with KafkaStorageError.
        """
        return spawn(self._make_logs_of(keys))

    async def _make_logs_of(self, keys: Collection[TopicPartition]) -> None:
        wanted = self._without_log & set(keys)  # The others were deleted meanwhile.
        topics = [
            topic for topic in self._cache.topics() if any(topic.name == k[0] for k in wanted)
        ]
        self._without_log -= wanted
        missing = [new for topic in topics for new in self._missing_logs(topic)]
        self._without_log |= wanted
        await self._log_manager.create(missing)
        self._without_log -= wanted
        for topic in topics:
            self._lead(topic)

    def refuse_writes(self, refuses: bool) -> None:
        """Whether every append is refused, in all partitions there are and will be."""
        self._refuses_writes = refuses
        for partition in self._partitions.values():
            partition.log.refuses_writes = refuses

    def stop_topic(self, topic: TopicState) -> Later[None]:
        """Serve `topic` no longer; done when its logs are out of sight."""
        return spawn(self._stop_topic(topic))

    async def _stop_topic(self, topic: TopicState) -> None:
        if self._cache.topic(topic.name) is not None:
            self._cache.remove(topic.name)
        hosted: list[TopicPartition] = []
        for state in topic.partitions:
            key = TopicPartition(topic.name, state.partition)
            self._without_log.discard(key)
            partition = self._partitions.pop(key, None)
            if partition is not None:
                partition.gone = True
                self._progress(partition)
            if self._log_manager.get(key) is not None:
                hosted.append(key)
        deletion = self._log_manager.delete(*hosted)
        self._stats.forget(topic.name)
        self.on_topic_stopped(topic)
        await deletion


def _nobody(topic: TopicState) -> None:
    """Nobody wants to know."""
