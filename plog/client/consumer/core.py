"""The core of every consumer: it combines positions, fetching and group membership.

At most two threads use a core. The engine's thread runs all coroutines, and all methods unless
their docstrings say otherwise. The consuming thread calls `take` and `take_arrow`, which decode and
return buffered records and never wait. The core calls `on_data` when another call may return
records. A face (blocking, asyncio or Twisted) connects the two threads for an application.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from plog.client.consumer.completed_fetch import Deserialize, ReadingRules
from plog.client.consumer.fetch_buffer import FetchBuffer
from plog.client.consumer.fetch_collector import FetchCollector
from plog.client.consumer.fetch_metrics import FetchMetrics
from plog.client.consumer.fetch_response import FetchResponseHandler
from plog.client.consumer.fetch_sessions import FetchLimits
from plog.client.consumer.fetcher import Fetcher
from plog.client.consumer.missing_topics import MissingTopics
from plog.client.consumer.offset_fetcher import OffsetFetcher
from plog.client.consumer.offset_lookup import OffsetLookup
from plog.client.consumer.offset_queries import OffsetQueries
from plog.client.consumer.rebalance_listener import ConsumerRebalanceListener
from plog.client.consumer.reset_target import EARLIEST, LATEST, ResetTo, reset_to
from plog.client.consumer.subscription_state import SubscriptionState
from plog.client.consumer.timestamps import Time, time_ms
from plog.client.errors import IllegalState, error_about
from plog.client.group.group_metadata import GroupMetadata
from plog.client.group.member import GroupMember
from plog.client.group.standalone_member import StandaloneMember
from plog.client.network.backoff import timed_out
from plog.client.network.cluster import Cluster
from plog.client.network.metadata import ClusterMetadata
from plog.client.network.ports import Network
from plog.client.settings import ConsumerSettings
from plog.client.task_completion import TaskCompletion
from plog.client.values import (
    ConsumerRecord,
    OffsetAndMetadata,
    checked_partitions,
)
from plog.client.zookeeper.ports import ZooKeeperConnection
from plog.errors import ErrorCode, KafkaError
from plog.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger("plog.client")

# The same default as in Kafka's consumer.
_CLOSE_TIMEOUT_S = 30.0
_METADATA = "metadata"
# A retry does not help against these errors: the ACL or the topic name must be corrected.
_REFUSALS = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION)


class ConsumerCore(OffsetQueries):
    """A consumer without the interface of a face: its assignment, positions and fetched records.

    `call_user` runs the application's listeners in the thread that the face requires. Deserializers
    receive bytes, never None.
    """

    def __init__(
        self,
        cluster: Cluster,
        network: Network,
        settings: ConsumerSettings,
        *,
        key_deserializer: Deserialize | None = None,
        value_deserializer: Deserialize | None = None,
        assignors: Sequence[Any] | None = None,
        zookeeper: ZooKeeperConnection | None = None,
        call_user: Callable[..., Awaitable[Any]] | None = None,
    ) -> None:
        self.on_data: Callable[[], None] = lambda: None
        """Called in the engine's thread when `take` may return new records or raise a new error."""
        self.on_room: Callable[[], None] = self.fetch_more
        """Called in the consuming thread when the buffer has room again. A face with two threads
        replaces it with a function that calls `fetch_more` in the engine's thread."""
        self._cluster = cluster
        self._network = network
        self._settings = settings
        read_committed = settings.isolation_level == "read_committed"
        self.positions = SubscriptionState(
            default_reset=reset_to(settings.offset_reset), read_committed=read_committed
        )
        self.positions.on_assign = self._assigned
        self._buffer = FetchBuffer(self.positions)
        self._metrics = FetchMetrics(network, self.positions)
        self._collector = FetchCollector(
            network,
            self.positions,
            self._buffer,
            self._metrics,
            # Corrupt data usually stays corrupt, so fetch it again at the slowest rate.
            retry_s=settings.retry_backoff_max_ms / 1000,
            on_room=self._room,
        )
        self._rules = ReadingRules(
            check_crcs=settings.check_crcs,
            read_committed=read_committed,
            deserialize_key=key_deserializer,
            deserialize_value=value_deserializer,
        )
        self._lookup = OffsetLookup(cluster, network, isolation_level=int(read_committed))
        super().__init__(cluster, self._lookup, settings.default_api_timeout_ms / 1000)
        self._missing = MissingTopics(
            may_be_created=settings.allow_auto_create_topics,
            repeat_s=settings.default_api_timeout_ms / 1000,
        )
        self._moved = network.signal()
        self._is_closed = False
        self._member = self._make_member(assignors, zookeeper, call_user)
        self._offset_fetcher = self._make_offset_fetcher()
        self._fetcher = self._make_fetcher(int(read_committed))
        cluster.on_update.append(self._metadata_changed)
        cluster.on_refusal.append(self._refused)
        self._offset_fetcher.start()

    def _make_member(
        self,
        assignors: Sequence[Any] | None,
        zookeeper: ZooKeeperConnection | None,
        call_user: Callable[..., Awaitable[Any]] | None,
    ) -> GroupMember | StandaloneMember:
        if self._settings.group_id is None:
            solo = StandaloneMember(
                self._cluster, self._settings, self.positions, call_user=call_user or _call_directly
            )
            solo.on_attention = self._notify
            return solo
        group = GroupMember(
            self._cluster,
            self._network,
            self._settings,
            self.positions,
            assignors=assignors,
            zookeeper=zookeeper,
            call_user=call_user or _call_directly,
        )
        group.on_attention = self._notify
        self._collector.on_poll = group.polled
        return group

    def _make_offset_fetcher(self) -> OffsetFetcher:
        settings = self._settings
        return OffsetFetcher(
            self._cluster,
            self._network,
            self.positions,
            self._lookup,
            committed=None if self._settings.group_id is None else self._member.committed,
            request_timeout_s=settings.request_timeout_ms / 1000,
            # After this time, a partition missing from the metadata is reported as an error.
            patience_s=settings.default_api_timeout_ms / 1000,
            delay_s=self._delay_s,
            on_found=self._positions_found,
            on_error=self._notify,
        )

    def _make_fetcher(self, isolation_level: int) -> Fetcher:
        settings, network = self._settings, self._network
        results = FetchResponseHandler(
            self.positions,
            self._buffer,
            self._rules,
            now_s=network.now_s,
            delay_s=self._delay_s,
            # As in Kafka's consumer, a follower is used for at most metadata.max.age.ms (KIP-392).
            replica_lease_s=settings.metadata_max_age_ms / 1000,
        )
        return Fetcher(
            self._cluster,
            network,
            self.positions,
            self._buffer,
            results,
            self._metrics,
            limits=FetchLimits(
                max_wait_ms=settings.fetch_max_wait_ms,
                min_bytes=settings.fetch_min_bytes,
                isolation_level=isolation_level,
                rack_id=settings.client_rack,
            ),
            fetch_max_bytes=settings.fetch_max_bytes,
            partition_max_bytes=settings.max_partition_fetch_bytes,
            delay_s=self._delay_s,
            on_data=self._notify,
            on_lost_position=self._offset_fetcher.wake,
        )

    def _delay_s(self, failures: int) -> float:
        """Return the backoff after `failures` earlier failures, with a jitter of 20 percent."""
        settings = self._settings
        # The limit of 16 doublings avoids huge numbers after many failures.
        delay_ms = min(
            settings.retry_backoff_ms << min(failures, 16), settings.retry_backoff_max_ms
        )
        # The jitter keeps clients that failed at the same time from retrying at the same time
        # (KIP-580).
        return delay_ms / 1000 * (0.8 + 0.4 * self._network.random())

    # -- the consuming thread ---------------------------------------------------------------------

    def take(self, max_records: int) -> list[ConsumerRecord]:
        """Return buffered records; see `FetchCollector.take`."""
        return self._collector.take(max_records)

    def take_arrow(self, max_records: int) -> pyarrow.RecordBatch | None:
        """Return buffered records as Arrow columns; see `FetchCollector.take_arrow`."""
        return self._collector.take_arrow(max_records)

    @property
    def has_data(self) -> bool:
        """Whether `take` would return records or raise an error. Thread-safe."""
        return self._collector.has_data

    @property
    def needs_prepare(self) -> bool:
        """Whether `prepare` must be awaited before more records are taken. Thread-safe."""
        return self._member.needs_attention

    # -- calls by the application -----------------------------------------------------------------

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Assign exactly these partitions; partitions already assigned keep their positions.

        Raises IllegalState while the consumer is subscribed to topics, and TypeError for invalid
        partitions.
        """
        if self._member.is_subscribed:
            raise IllegalState(
                "cannot assign partitions: the consumer is subscribed to topics; unsubscribe first"
            )
        self._missing.reset()
        self.positions.assign(dict.fromkeys(checked_partitions(partitions)))
        # With manual assignment, no rebalance starts the automatic commits.
        self._member.commit_when_due()

    def subscribe(
        self,
        topics: Collection[str] | None = None,
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribe to topics, or to all topics whose full name matches `pattern`.

        During the next polls, the group assigns partitions of the topics. Without a group.id, the
        consumer gets all partitions. Raises IllegalState while partitions are assigned manually.
        """
        if not self._member.is_subscribed and self.positions.assigned:
            raise IllegalState(
                "cannot subscribe: partitions are assigned manually; unsubscribe first"
            )
        self._member.subscribe(topics, pattern, listener)
        self._missing.reset()

    @property
    def subscription(self) -> frozenset[str]:
        """The subscribed topics."""
        return self._member.subscription

    async def unsubscribe(self) -> None:
        """Leave the group and remove all assigned partitions."""
        await self._member.leave("the consumer unsubscribed from all topics")
        self.positions.assign(())

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The assigned partitions."""
        return self.positions.assigned

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Continue reading at `offset`. Raises IllegalState if the partition is not assigned."""
        if isinstance(offset, OffsetAndMetadata):
            self.positions.seek(partition, offset.offset, offset.leader_epoch)
        elif not isinstance(offset, int):
            raise TypeError(f"{offset!r} is not an offset: pass a number or an OffsetAndMetadata")
        else:
            self.positions.seek(partition, offset)
        self._positions_found()
        self._offset_fetcher.wake()

    def seek_to_beginning(self, partitions: Collection[TopicPartition] = ()) -> None:
        """Continue at the first record of each partition, by default of all assigned partitions."""
        self._seek_to(partitions, EARLIEST)

    def seek_to_end(self, partitions: Collection[TopicPartition] = ()) -> None:
        """Continue with the next record to be written to each partition.

        By default, this applies to all assigned partitions.
        """
        self._seek_to(partitions, LATEST)

    def seek_to_time(self, time: Time, partitions: Collection[TopicPartition] = ()) -> None:
        """Continue at each partition's first record with this or a later timestamp, or at its end.

        `time` is in ms since 1970, or a datetime with a time zone. By default, the call applies to
        all assigned partitions.
        """
        self._seek_to(partitions, ResetTo(time_ms(time)))

    def _seek_to(self, partitions: Collection[TopicPartition], where: ResetTo) -> None:
        asked = checked_partitions(partitions) or self.positions.assigned
        if not asked:
            raise IllegalState(
                "cannot seek: no partitions are assigned; assign partitions, or poll first if the"
                " consumer is subscribed to topics"
            )
        for partition in asked:
            self.positions.request_reset(partition, where)
        self._offset_fetcher.wake()

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Stop returning records from these partitions until `resume`; keep buffered records."""
        self.positions.pause(checked_partitions(partitions))
        self._fetcher.wake()

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Return records from these partitions again."""
        self.positions.resume(checked_partitions(partitions))
        self._fetcher.wake()
        # Records from these partitions may already be buffered, so wake a waiting poll.
        self._notify()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The paused partitions."""
        return self.positions.paused

    def lag(self, partition: TopicPartition) -> int | None:
        """Return the number of records from the position to the end, or None if it is unknown."""
        return self.positions.lag(partition)

    def metrics(self) -> dict[str, float]:
        """Return the metrics by Kafka's names."""
        return self._metrics.values() | self._member.metrics()

    # -- coroutines -------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Perform the group's work that is due before records can be returned.

        The call waits for listeners and commits, but not for other members. Raises permanent errors
        from the group's coordinator, and exceptions from listeners.
        """
        await self._member.attend()

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Commit `offsets`, by default the positions after all taken records."""
        await self._member.commit(
            self.positions.consumed() if offsets is None else offsets, timeout_s=timeout_s
        )

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        callback: Callable[..., Any] | None = None,
    ) -> None:
        """Commit as `commit` does, without waiting. See `Commits.commit_async`."""
        consumed = self.positions.consumed() if offsets is None else offsets
        self._member.commit_async(consumed, callback)

    async def committed(
        self, partitions: Collection[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offset for each partition, or None if it has no offset."""
        asked = checked_partitions(partitions)
        return await self._member.committed(asked, timeout_s=timeout_s)

    def group_metadata(self) -> GroupMetadata:
        """Return this consumer's group metadata, for `Producer.send_offsets_to_transaction`.

        Call this after taking the records of a transaction, before taking more. Thread-safe. Raises
        InvalidGroupId if the consumer has no group.
        """
        return self._member.metadata

    async def position(self, partition: TopicPartition, timeout_s: float | None = None) -> int:
        """Return the offset of the next record that `take` returns; wait until it is known.

        Raises IllegalState, RequestTimedOut, or the error that prevents finding the position.
        """
        limit_s = self._api_timeout_s if timeout_s is None else timeout_s
        deadline_s = self._network.now_s() + limit_s
        while (position := self.positions.position(partition)) is None:
            self._moved.clear()
            error = self.positions.pop_error_of(partition)
            if error is not None:
                raise error
            # If a broker may still create the topic, keep waiting.
            missing = self._missing.error_of(partition)
            if missing is not None and not self._missing.may_appear(partition):
                raise missing
            left_s = deadline_s - self._network.now_s()
            if left_s <= 0 or not await self._moved.wait(left_s):
                # Raise the reason, which is more useful than the timeout.
                if (missing := self._missing.error_of(partition)) is not None:
                    raise missing
                what = f"cannot determine the position in {partition}"
                raise timed_out(what, limit_s, self._cluster.trouble)
        return position

    async def close(self, timeout_s: float | None = None) -> None:
        """Commit if auto-commit is enabled, leave the group, and cancel all work in progress.

        The call takes at most `timeout_s` (default: 30 s). Repeated calls have no effect. Raises
        exceptions from listeners. The cluster stays open.
        """
        if self._is_closed:
            return
        self._is_closed = True
        # A poll that waits for records must end with ClosedError.
        self._notify()
        with TaskCompletion(self._close_rest):
            await self._member.close(_CLOSE_TIMEOUT_S if timeout_s is None else timeout_s)

    def _close_rest(self) -> None:
        # The cluster outlives the consumer, so remove the consumer's callbacks.
        self._cluster.on_update.remove(self._metadata_changed)
        self._cluster.on_refusal.remove(self._refused)
        self.positions.assign(())
        self._moved.set()
        self._offset_fetcher.close()
        self._fetcher.close()

    # -- events -----------------------------------------------------------------------------------

    def _room(self) -> None:
        self.on_room()

    def fetch_more(self) -> None:
        """Wake the fetcher because the buffer has room again."""
        self._fetcher.wake()

    def _assigned(self) -> None:
        """Update metadata after the application or the group has changed the assignment."""
        # For a subscription, the cluster already requests the metadata of all subscribed topics.
        if not self._member.is_subscribed:
            self._cluster.want_topics({p.topic for p in self.positions.assigned})
            self._look_for_missing_partitions()
        self._update_leaders(self._cluster.metadata)

    def _refused(self, error: KafkaError) -> None:
        # The brokers reject every metadata request, so the error is not about a single topic.
        self.positions.fail_all(_METADATA, error)
        self._notify()

    def _metadata_changed(self, metadata: ClusterMetadata) -> None:
        # A broker has returned metadata, so an earlier rejection no longer applies.
        self.positions.clear_error(_METADATA)
        self._fetcher.close_removed_brokers(metadata)
        self._update_leaders(metadata)
        self._report_missing(metadata)
        assigned = {partition.topic for partition in self.positions.assigned}
        for name in assigned | self._member.subscription:
            topic = metadata.topics.get(name)
            if topic is not None and topic.error in _REFUSALS:
                self.positions.fail_all(name, error_about(topic.error, f"topic {name}"))
                self._notify()

    def _report_missing(self, metadata: ClusterMetadata) -> None:
        is_subscribed = self._member.is_subscribed
        report = self._missing.check(
            metadata,
            self._member.named_topics,
            () if is_subscribed else self.positions.assigned,
            self._network.now_s(),
        )
        for topic in report.awaited:
            log.warning("topic %s does not exist; waiting for it to be created", topic)
        for missing, error in report.errors.items():
            self.positions.fail_all(missing, error)
        if report.errors:
            self._notify()
        # Only a manual assignment can contain partitions that do not exist.
        if not is_subscribed:
            self._look_for_missing_partitions()

    def _look_for_missing_partitions(self) -> None:
        """Request metadata until it contains all assigned partitions."""
        if any(self._cluster.metadata.partition(x) is None for x in self.positions.assigned):
            self._cluster.request_update()

    def _update_leaders(self, metadata: ClusterMetadata) -> None:
        self.positions.update_leaders(metadata, self._network.now_s())
        self._offset_fetcher.wake()
        self._fetcher.wake()

    def _positions_found(self) -> None:
        self._moved.set()
        self._fetcher.wake()

    def _notify(self) -> None:
        self._moved.set()
        self.on_data()


async def _call_directly(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a listener in the engine's thread and return its result."""
    result = function(*arguments)
    return await result if isinstance(result, Awaitable) else result
