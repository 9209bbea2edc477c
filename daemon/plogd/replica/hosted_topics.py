"""The topics that this broker hosts: create, start, reconfigure and stop replicas of partitions.

A single broker's controller calls this module (`Brokers` in controller/brokers.py), and so does the
broker when it starts. Request handlers find partitions through `ReplicaManager`, which shares
`partitions` with `HostedTopics`. A topic may have thousands of partitions, so they are processed in
slices (fair_queue.py).

Called on the reactor thread. Source: Kafka 3.9 ReplicaManager.becomeLeaderOrFollower,
ReplicaManager.stopReplicas. In a cluster, role_changes.py determines which partitions this broker
leads. Invariant of a single broker: while `MetadataCache` lists a topic, this broker leads all its
partitions that have a log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from plog.errors import InvalidRecord, KafkaError
from plog.records.batch import BatchHeader
from plog.types import TopicPartition
from plogd.config import BrokerConfig
from plogd.fair_queue import FairQueue, Slices
from plogd.log.batch_validator import AppendOrigin, BatchRules, RecordCheck, check_header
from plogd.log.creation import NewLog
from plogd.log.log import Log
from plogd.log.log_manager import LogManager
from plogd.metadata.cache import INTERNAL_TOPICS, MetadataCache, PartitionState, TopicState
from plogd.ports import Later, spawn
from plogd.replica.partition import Partition
from plogd.replica.partition_context import PartitionContext
from plogd.replica.topic_stats import TopicStats
from plogd.topic_config import TopicConfig

MAX_REFUSED = 10_000
"""Maximum number of rejected batches of all partitions without a log that are remembered."""


class HostedTopics:
    """The replicas of all topics on this broker, and the partitions that have no log."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        log_manager: LogManager,
        cache: MetadataCache,
        stats: TopicStats,
        fair_queue: FairQueue,
        partition_context: PartitionContext,
    ) -> None:
        self.config = config
        """Replaced when settings change."""
        self._log_manager = log_manager
        self._cache = cache
        self._stats = stats
        self._queue = fair_queue
        self.partition_context = partition_context
        """The context of partitions that are hosted from now on."""
        self.partitions: dict[tuple[str, int], Partition] = {}
        """Every partition that has a log here, by topic and number."""
        self.without_log: set[tuple[str, int]] = set()
        """Partitions that are offline because they have no log: the log directory was unreadable
        or full."""
        self._refused: dict[tuple[TopicPartition, int], BatchHeader] = {}
        """Each producer's first rejected batch for a partition without a log."""
        self._refuses_writes = False
        self.record_checks: dict[str, RecordCheck] = {}
        """Checks for records from clients, by internal topic; without a check, all are rejected."""
        self.on_topic_started: Callable[[TopicState], None] = _ignore
        """Called with a topic when this broker becomes the leader of its partitions."""
        self.on_topic_stopped: Callable[[TopicState], None] = _ignore
        """Called with a topic that is no longer served."""
        self.on_unhosted: Callable[[TopicPartition], None] = _ignore_partition
        """Called with a partition that is no longer hosted."""

    def start_topic(self, topic: TopicState) -> Later[None]:
        """Create missing logs for `topic`, lead its partitions, and list the topic for clients."""
        return spawn(self.start_topics([topic]))

    async def start_topics(self, topics: Sequence[TopicState]) -> None:
        """Start several topics, like `start_topic`. Raises KafkaStorageError or PolicyViolation."""
        slices = Slices(self._queue)
        missing = await self._missing_logs(topics, slices)
        if missing:  # A single call for all topics, so that their new logs share syncs.
            await self._log_manager.create(missing)
        for topic in topics:
            await self._lead(topic, slices)

    async def _missing_logs(self, topics: Sequence[TopicState], slices: Slices) -> list[NewLog]:
        """Return the logs that are missing from `topics`."""
        missing: list[NewLog] = []
        for topic in topics:
            config = self._topic_config(topic)
            async for state in slices.over(topic.partitions):
                key = TopicPartition(topic.name, state.partition)
                # A partition in `without_log` has failed before; only `create_missing_logs` tries
                # it again.
                if self._log_manager.get(key) is None and key not in self.without_log:
                    missing.append(
                        NewLog(topic_partition=key, topic_id=topic.topic_id, config=config)
                    )
        return missing

    def create_logs(self, topic: TopicState) -> Later[None]:
        """Create the missing logs for `topic`; `start_topic` makes them available to clients."""
        return spawn(self._create_logs(topic))

    async def _create_logs(self, topic: TopicState) -> None:
        await self._log_manager.create(await self._missing_logs([topic], Slices(self._queue)))

    def remove_unserved_logs(self, topic: TopicState) -> Later[None]:
        """Remove logs of `topic` that no partition uses, because its creation was abandoned."""
        return spawn(self._remove_unserved_logs(topic))

    async def _remove_unserved_logs(self, topic: TopicState) -> None:
        keys = [TopicPartition(topic.name, state.partition) for state in topic.partitions]
        unserved = [key for key in keys if key not in self.partitions]
        await self._log_manager.delete(*(key for key in unserved if self._log_manager.get(key)))

    def _record_check(self, name: str) -> RecordCheck | None:
        return self.record_checks.get(name, _refuse) if name in INTERNAL_TOPICS else None

    def _topic_config(self, topic: TopicState) -> TopicConfig:
        return TopicConfig.resolve(self.config, topic.config)

    async def _lead(self, topic: TopicState, slices: Slices) -> None:
        # The settings may have changed since the logs were created.
        topic_config = self._topic_config(topic)
        async for state in slices.over(topic.partitions):
            self._lead_some(topic, (state,), topic_config)
        self._list(topic, topic_config)

    def _lead_some(
        self, topic: TopicState, states: Iterable[PartitionState], topic_config: TopicConfig
    ) -> None:
        for state in states:
            key = TopicPartition(topic.name, state.partition)
            log = self._log_manager.get(key)
            # If partitions were added to the topic, this broker already leads the others.
            if log is None or key in self.partitions:
                continue
            self.partitions[key] = self._new_partition(log, topic_config)
            self.partitions[key].make_leader(state)

    def _new_partition(self, log: Log, topic_config: TopicConfig) -> Partition:
        partition = Partition(
            log=log,
            sync_rounds=self._log_manager.dirs.rounds_of(log.log_dir),
            context=self.partition_context,
            record_check=self._record_check(log.topic_partition.topic),
        )
        partition.update_config(topic_config)
        # Rule R6: the broker may still lack the space to record its start.
        log.refuses_writes = self._refuses_writes
        return partition

    def host(self, log: Log, topic_config: TopicConfig) -> Partition:
        """Host the partition of `log`, which has no leader yet."""
        partition = self._new_partition(log, topic_config)
        self.partitions[log.topic_partition] = partition
        return partition

    def unhost(self, key: TopicPartition) -> None:
        """Stop serving a partition; its delayed requests fail. Its log remains open."""
        self.without_log.discard(key)
        partition = self.partitions.pop(key, None)
        if partition is not None:
            partition.is_deleted = True
            self.on_unhosted(key)
            # Delayed requests then fail now instead of at their timeouts.
            self.partition_context.on_progress(partition)

    def _list(self, topic: TopicState, topic_config: TopicConfig) -> None:
        """Make `topic` visible to clients; its partitions currently have `topic_config`."""
        listed = self._cache.topic(topic.name)
        # If partitions were added to the topic, its settings may have changed in the meantime.
        if listed is not None:
            topic = replace(topic, config=listed.config)
        # Only after every partition has its leader: clients that find the topic use it at once.
        self._cache.update(topic)
        if self._topic_config(topic) != topic_config:
            self._update_logs([topic])
        # Last, because a coordinator starts to read the partitions in this call.
        self.on_topic_started(topic)

    def update_config(self, config: BrokerConfig) -> None:
        """Apply a new broker configuration, including the defaults of topic settings."""
        self.config = config
        self._update_logs(self._cache.topics())

    def update_topic_config(self, name: str, overrides: Mapping[str, str]) -> None:
        """Apply new topic settings; do nothing if the topic is not served."""
        topic = self._cache.topic(name)
        if topic is not None:
            topic = replace(topic, config=overrides)
            self._cache.update(topic)
            self._update_logs([topic])

    def _update_logs(self, topics: Iterable[TopicState]) -> None:
        """Start applying the current settings to all partitions of `topics`, in slices."""
        spawn(self._update_in_slices([topic.name for topic in topics])).then(_done, _raise)

    async def _update_in_slices(self, names: Sequence[str]) -> None:
        slices = Slices(self._queue)
        for name in names:
            known: tuple[TopicState, BrokerConfig] | None = None
            topic = self._cache.topic(name)
            async for state in slices.over(() if topic is None else topic.partitions):
                # The topic and the configuration may have changed since the last slice.
                topic = self._cache.topic(name)
                if topic is None:
                    break
                if known is None or topic is not known[0] or self.config is not known[1]:
                    known = topic, self.config
                    topic_config = self._topic_config(topic)
                partition = self.partitions.get((name, state.partition))
                if partition is not None:
                    partition.update_config(topic_config)

    def set_without_log(self, keys: Iterable[TopicPartition]) -> None:
        """Mark partitions as offline because they have no log."""
        self.without_log.update(keys)

    def note_refused(self, key: TopicPartition, records: memoryview) -> None:
        """Record a batch that was rejected because its partition has no log (rule R15)."""
        # The producer's next batch may already be on its way. If the log exists when that batch
        # arrives, it must not be appended before this one.
        topic = self._cache.topic(key.topic)
        if key not in self.without_log or topic is None:
            return
        try:
            rules = BatchRules.of(self._topic_config(topic))
            header = check_header(records, rules, AppendOrigin.CLIENT)
        except KafkaError:
            return  # An invalid batch is always rejected, and is not retried.
        if header.producer_id < 0:
            return
        noted = self._refused.get((key, header.producer_id))
        # Of an epoch's rejected batches, only the first can continue the producer's sequence.
        if noted is None or noted.producer_epoch < header.producer_epoch:
            self._refused[key, header.producer_id] = header
        if len(self._refused) > MAX_REFUSED:
            # Bounded, because every producer id that a client makes up would take an entry.
            del self._refused[next(iter(self._refused))]

    def _pass_on_refused(self, keys: Collection[tuple[str, int]]) -> None:
        """Pass rejected batches to the new logs for `keys`, because they must be appended first."""
        refused, self._refused = self._refused, {}
        for (key, producer_id), header in refused.items():
            if key not in keys:
                self._refused[key, producer_id] = header
                continue
            log = self._log_manager.get(key)
            if log is not None:
                log.producer_state.note_refused(header)

    async def without_logs(self, topics: Sequence[TopicState]) -> list[TopicPartition]:
        """Return the partitions of `topics` that should have a log but do not."""
        missing = await self._missing_logs(topics, Slices(self._queue))
        return [new.topic_partition for new in missing]

    def create_missing_logs(self, keys: Collection[TopicPartition]) -> Later[None]:
        """Create the missing logs for offline partitions, and lead these partitions.

        The topics must not be deleted meanwhile.
        Fails with KafkaStorageError or PolicyViolation.
        """
        return spawn(self._create_missing_logs(keys))

    async def _create_missing_logs(self, keys: Collection[TopicPartition]) -> None:
        wanted = self.without_log & set(keys)  # The other partitions have been deleted.
        topics = [
            topic for topic in self._cache.topics() if any(topic.name == k[0] for k in wanted)
        ]
        missing = [
            NewLog(
                topic_partition=TopicPartition(topic.name, state.partition),
                topic_id=topic.topic_id,
                config=self._topic_config(topic),
            )
            for topic in topics
            for state in topic.partitions
            if (topic.name, state.partition) in wanted
        ]
        # If this fails, nothing below has changed, so that the caller can retry it.
        await self._log_manager.create(missing)
        self._pass_on_refused(wanted)
        self.without_log -= wanted
        # Not in slices, because clients could delete a topic between two slices.
        for topic in topics:
            topic_config = self._topic_config(topic)
            self._lead_some(topic, topic.partitions, topic_config)
            self._list(topic, topic_config)

    def refuse_writes(self, refuses: bool) -> None:
        """Reject or allow appends to all partitions, including partitions that start later."""
        self._refuses_writes = refuses
        for partition in self.partitions.values():
            partition.log.refuses_writes = refuses

    def stop_topic(self, topic: TopicState) -> Later[None]:
        """Stop serving `topic`; complete when its partition directories have been renamed."""
        return spawn(self._stop_topic(topic))

    async def _stop_topic(self, topic: TopicState) -> None:
        # Hidden first, so that clients do not find a topic that has already lost partitions.
        if self._cache.topic(topic.name) is not None:
            self._cache.remove(topic.name)
        hosted: list[TopicPartition] = []
        async for state in Slices(self._queue).over(topic.partitions):
            key = TopicPartition(topic.name, state.partition)
            self.unhost(key)
            if self._log_manager.get(key) is not None:
                hosted.append(key)
        # Awaited last, so that the callbacks do not wait for the renames on a slow disk.
        deletion = self._log_manager.delete(*hosted)
        self._stats.forget(topic.name)
        self.on_topic_stopped(topic)
        await deletion


def _refuse(key: bytes | None, value: bytes | None) -> None:
    """Reject a record for an internal topic for which this broker does not have a coordinator."""
    raise InvalidRecord("cannot append the record: this broker has no coordinator to replay it")


def _ignore(topic: TopicState) -> None:
    """Do nothing; a coordinator replaces this callback."""


def _ignore_partition(key: TopicPartition) -> None:
    """Do nothing; a cluster replaces this callback."""


def _done(_: None) -> None:
    """Do nothing, because no caller waits until all partitions have the new settings."""


def _raise(error: Exception) -> None:
    """Raise the error, which is a bug, so that the caller or the reactor reports it."""
    raise error
