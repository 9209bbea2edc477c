"""The consumer's engine: positions, fetching and a group put together behind one object.

Two threads at most come here. The engine's runs all coroutines and all methods whose text does not
say otherwise. The consuming one calls `take` and `take_arrow`: they hand out what is buffered,
decode it there, and never wait. `on_data` tells when asking again is worth while. A face (blocking,
asyncio, Twisted) is what joins the two for an application.
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
from plog.client.consumer.offset_reset import EARLIEST, LATEST, ResetTo, reset_to
from plog.client.consumer.rebalance_listener import ConsumerRebalanceListener
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
from plog.errors import ErrorCode, KafkaError
from plog.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

log = logging.getLogger("plog.client")

_CLOSE_TIMEOUT_S = 30.0
_METADATA = "metadata"
_REFUSALS = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION)


class ConsumerCore(OffsetQueries):
    """A consumer without a face: what is assigned, where it reads, what it has fetched.

    `call_user` runs an application's listeners where its face wants them. Deserializers are given
    bytes and never None.
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
        call_user: Callable[..., Awaitable[Any]] | None = None,
    ) -> None:
        self.on_data: Callable[[], None] = lambda: None
        """Called in the engine's thread when `take` may find something new, or has to raise."""
        self.on_room: Callable[[], None] = self.fetch_more
        """Called in the consuming thread when there is room again to fetch ahead. A face with two
        threads replaces it by what has `fetch_more` called in the engine's."""
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
        self._taking = FetchCollector(
            network,
            self.positions,
            self._buffer,
            self._metrics,
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
        self._member = self._make_member(assignors, call_user)
        self._keeper = self._make_keeper()
        self._fetcher = self._make_fetcher(int(read_committed))
        cluster.on_update.append(self._metadata_changed)
        cluster.on_refusal.append(self._refused)
        self._keeper.start()

    def _make_member(
        self, assignors: Sequence[Any] | None, call_user: Callable[..., Awaitable[Any]] | None
    ) -> GroupMember | StandaloneMember:
        if self._settings.group_id is None:
            solo = StandaloneMember(
                self._cluster, self._settings, self.positions, call_user=call_user or _call_here
            )
            solo.on_attention = self._news
            return solo
        group = GroupMember(
            self._cluster,
            self._network,
            self._settings,
            self.positions,
            assignors=assignors,
            call_user=call_user or _call_here,
        )
        group.on_attention = self._news
        self._taking.on_poll = group.polled
        return group

    def _make_keeper(self) -> OffsetFetcher:
        settings = self._settings
        return OffsetFetcher(
            self._cluster,
            self._network,
            self.positions,
            self._lookup,
            committed=None if self._settings.group_id is None else self._member.committed,
            request_timeout_s=settings.request_timeout_ms / 1000,
            patience_s=settings.default_api_timeout_ms / 1000,
            delay_s=self._delay_s,
            on_found=self._found_positions,
            on_error=self._news,
        )

    def _make_fetcher(self, isolation_level: int) -> Fetcher:
        settings, network = self._settings, self._network
        results = FetchResponseHandler(
            self.positions,
            self._buffer,
            self._rules,
            now_s=network.now_s,
            delay_s=self._delay_s,
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
            on_data=self._news,
            on_lost_position=self._keeper.wake,
        )

    def _delay_s(self, failures: int) -> float:
        """How long to wait after so many failures before this one, a fifth more or less."""
        settings = self._settings
        delay_ms = min(
            settings.retry_backoff_ms << min(failures, 16), settings.retry_backoff_max_ms
        )
        return delay_ms / 1000 * (0.8 + 0.4 * self._network.random())

    # -- taking: the consuming thread -------------------------------------------------------------

    def take(self, max_records: int) -> list[ConsumerRecord]:
        """See `FetchCollector.take`."""
        return self._taking.take(max_records)

    def take_arrow(self, max_records: int) -> pyarrow.RecordBatch | None:
        """See `FetchCollector.take_arrow`."""
        return self._taking.take_arrow(max_records)

    @property
    def has_data(self) -> bool:
        """Whether `take` would return or raise something. Any thread."""
        return self._taking.has_data

    @property
    def needs_prepare(self) -> bool:
        """Whether `prepare` has to be awaited before anything more is taken. Any thread."""
        return self._member.needs_attention

    # -- what the application does ----------------------------------------------------------------

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions; those that stay keep their position.

        Raises IllegalState while topics are subscribed to, TypeError for what is no partition.
        """
        if self._member.is_subscribed:
            raise IllegalState("partitions follow from topics: unsubscribe first")
        self._missing.reset()
        self.positions.assign(dict.fromkeys(checked_partitions(partitions)))
        self._member.commit_when_due()

    def subscribe(
        self,
        topics: Collection[str] | None = None,
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Have the group assign partitions of these topics, from the next `prepare` on.

        Without a group.id all of them are assigned. Raises IllegalState while partitions are
        assigned by hand.
        """
        if not self._member.is_subscribed and self.positions.assigned:
            raise IllegalState("partitions are assigned by hand: unsubscribe first")
        self._member.subscribe(topics, pattern, listener)
        self._missing.reset()

    @property
    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed to."""
        return self._member.subscription

    async def unsubscribe(self) -> None:
        """Be assigned nothing, and leave the group."""
        await self._member.leave("the consumer unsubscribed from all topics")
        self.positions.assign(())

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """What is assigned now."""
        return self.positions.assigned

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Go on at `offset`. Raises IllegalState if the partition is not assigned."""
        if isinstance(offset, OffsetAndMetadata):
            self.positions.seek(partition, offset.offset, offset.leader_epoch)
        elif not isinstance(offset, int):
            raise TypeError(f"{offset!r} is no offset")
        else:
            self.positions.seek(partition, offset)
        self._found_positions()
        self._keeper.wake()

    def seek_to_beginning(self, partitions: Collection[TopicPartition] = ()) -> None:
        """Go on with the first record there is, of all partitions if none are given."""
        self._seek_to(partitions, EARLIEST)

    def seek_to_end(self, partitions: Collection[TopicPartition] = ()) -> None:
        """Go on with the next record to come."""
        self._seek_to(partitions, LATEST)

    def seek_to_time(self, time: Time, partitions: Collection[TopicPartition] = ()) -> None:
        """Go on with the first record of that time or later, at the end if there is none.

        `time` is in ms since 1970, or a datetime with a time zone.
        """
        self._seek_to(partitions, ResetTo(time_ms(time)))

    def _seek_to(self, partitions: Collection[TopicPartition], where: ResetTo) -> None:
        asked = checked_partitions(partitions) or self.positions.assigned
        if not asked:
            raise IllegalState(
                "no partitions are assigned, so there is nowhere to seek: assign some, or ask for"
                " records first if topics are subscribed to"
            )
        for partition in asked:
            self.positions.request_reset(partition, where)
        self._keeper.wake()

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Hand out nothing of these until `resume`; what is buffered of them is kept."""
        self.positions.pause(checked_partitions(partitions))
        self._fetcher.wake()

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Undo `pause`."""
        self.positions.resume(checked_partitions(partitions))
        self._fetcher.wake()
        self._news()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """What is paused."""
        return self.positions.paused

    def lag(self, partition: TopicPartition) -> int | None:
        """Records between the position and the end, None while one of the two is not known."""
        return self.positions.lag(partition)

    def metrics(self) -> dict[str, float]:
        """What is measured, under Kafka's names."""
        return self._metrics.values() | self._member.metrics()

    # -- coroutines -------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """What a group has to have done while the application asks for records.

        Waits for listeners and for commits, but for no other member. Raises what the group's
        coordinator refuses for good, and what a listener raises.
        """
        await self._member.attend()

    async def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Commit `offsets`, by default those of all that was taken. See `Commits.commit`."""
        await self._member.commit(
            self.positions.consumed() if offsets is None else offsets, timeout_s=timeout_s
        )

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        callback: Callable[..., Any] | None = None,
    ) -> None:
        """As `commit`, without waiting. See `Commits.commit_async`."""
        consumed = self.positions.consumed() if offsets is None else offsets
        self._member.commit_async(consumed, callback)

    async def committed(
        self, partitions: Collection[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where it has nothing."""
        asked = checked_partitions(partitions)
        return await self._member.committed(asked, timeout_s=timeout_s)

    def group_metadata(self) -> GroupMetadata:
        """Who commits this consumer's offsets, for `Producer.send_offsets_to_transaction`.

        Ask for it after the records were taken, and before the next ones are. Any thread.
        Raises InvalidGroupId without a group.
        """
        return self._member.metadata

    async def position(self, partition: TopicPartition, timeout_s: float | None = None) -> int:
        """The next offset `take` gives, waiting until it is found.

        Raises IllegalState, RequestTimedOut, and what is in the way of finding it.
        """
        limit_s = self._api_timeout_s if timeout_s is None else timeout_s
        deadline_s = self._network.now_s() + limit_s
        while (position := self.positions.position(partition)) is None:
            self._moved.clear()
            error = self.positions.pop_error_of(partition)
            if error is not None:
                raise error
            missing = self._missing.error_of(partition)
            if missing is not None and not self._missing.may_appear(partition):
                raise missing
            left_s = deadline_s - self._network.now_s()
            if left_s <= 0 or not await self._moved.wait(left_s):
                if (missing := self._missing.error_of(partition)) is not None:
                    raise missing
                what = f"cannot find the position of {partition}"
                raise timed_out(what, limit_s, self._cluster.trouble)
        return position

    async def close(self, timeout_s: float | None = None) -> None:
        """Commit if that goes by itself, leave the group, end all that is under way.

        Takes 30 s at the most without `timeout_s`, as Kafka's consumer.
        The cluster stays open. Harmless when it has ended. Raises what a listener raises.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._news()  # Whoever waits for records waits in vain.
        with TaskCompletion(self._close_rest):
            await self._member.close(_CLOSE_TIMEOUT_S if timeout_s is None else timeout_s)

    def _close_rest(self) -> None:
        self._cluster.on_update.remove(self._metadata_changed)
        self._cluster.on_refusal.remove(self._refused)
        self.positions.assign(())
        self._moved.set()
        self._keeper.close()
        self._fetcher.close()

    # -- what happens -----------------------------------------------------------------------------

    def _room(self) -> None:
        self.on_room()

    def fetch_more(self) -> None:
        """There is room in the buffer again."""
        self._fetcher.wake()

    def _assigned(self) -> None:
        """Other partitions are assigned, by the application or by the group."""
        if not self._member.is_subscribed:
            self._cluster.want_topics({p.topic for p in self.positions.assigned})
            self._look_for_missing_partitions()
        self._take_in_leaders(self._cluster.metadata)

    def _refused(self, error: KafkaError) -> None:
        self.positions.fail_all(_METADATA, error)
        self._news()

    def _metadata_changed(self, metadata: ClusterMetadata) -> None:
        self.positions.clear_error(_METADATA)
        self._fetcher.brokers_are(metadata)
        self._take_in_leaders(metadata)
        self._report_missing(metadata)
        assigned = {partition.topic for partition in self.positions.assigned}
        for name in assigned | self._member.subscription:
            topic = metadata.topics.get(name)
            if topic is not None and topic.error in _REFUSALS:
                self.positions.fail_all(name, error_about(topic.error, f"topic {name}"))
                self._news()

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
            self._news()
        if not is_subscribed:
            self._look_for_missing_partitions()

    def _look_for_missing_partitions(self) -> None:
        """Refresh metadata until all assigned partitions are there."""
        if any(self._cluster.metadata.partition(x) is None for x in self.positions.assigned):
            self._cluster.request_update()

    def _take_in_leaders(self, metadata: ClusterMetadata) -> None:
        self.positions.update_leaders(metadata, self._network.now_s())
        self._keeper.wake()
        self._fetcher.wake()

    def _found_positions(self) -> None:
        self._moved.set()
        self._fetcher.wake()

    def _news(self) -> None:
        self._moved.set()
        self.on_data()


async def _call_here(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a listener returns, called where the engine runs."""
    result = function(*arguments)
    return await result if isinstance(result, Awaitable) else result
