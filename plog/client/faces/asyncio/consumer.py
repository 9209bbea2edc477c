"""The asyncio face's `Consumer`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from twisted.internet.defer import Deferred

from plog.client.callback_checks import (
    check_assignors,
    check_functions,
)
from plog.client.consumer.rebalance_listener import ConsumerRebalanceListener, check_listener
from plog.client.faces.asyncio.base import Client
from plog.client.faces.consumer_face import ReactorConsumerFace
from plog.client.faces.method_adapters import awaitable, check_topics
from plog.client.faces.polling_consumer import ARROW_RECORDS_MAX, PollingConsumer
from plog.client.faces.zookeeper_connection import make_zookeeper
from plog.client.network.cluster import Cluster
from plog.client.network.twisted_network import TwistedNetwork
from plog.client.settings import ConsumerSettings
from plog.client.settings.settings_loader import Servers
from plog.client.values import ConsumerRecord

if TYPE_CHECKING:
    import pyarrow

    from plog.client.assignors import Assignor

T = TypeVar("T")


async def _call_user(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call an application's function, which may be a coroutine function."""
    result = function(*arguments)
    if inspect.isawaitable(result):
        # The engine's coroutines can await only Deferreds.
        result = await Deferred.fromFuture(asyncio.ensure_future(result))
    return result


class Consumer(Client[PollingConsumer], ReactorConsumerFace):
    """A client that reads records from topics. Use it in one task at a time.

        async with Consumer("page-views", bootstrap_servers="localhost:9092") as consumer:
            async for record in consumer:
                print(record.offset, record.value)

    With a `group_id`, the members of the group share the partitions, and the group stores the
    committed offsets. Without a group, this consumer reads all partitions and starts at the
    position that ``auto.offset.reset`` selects. The methods of `listener` may be coroutine
    functions.

    Raises ConfigError for invalid settings.
    """

    def __init__(
        self,
        *topics: str,
        bootstrap_servers: Servers = None,
        group_id: str | None = None,
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
        key_deserializer: Callable[[bytes], Any] | None = None,
        value_deserializer: Callable[[bytes], Any] | None = None,
        assignors: Sequence[str | Assignor | type[Assignor]] | None = None,
        config: Mapping[str, object] | None = None,
        **settings: object,
    ) -> None:
        check_topics(topics)
        check_functions(key_deserializer=key_deserializer, value_deserializer=value_deserializer)
        check_listener(listener)
        assignors = check_assignors(assignors)
        made = ConsumerSettings.from_options(
            config, bootstrap_servers=bootstrap_servers, group_id=group_id, **settings
        )

        def make(cluster: Cluster, network: TwistedNetwork) -> PollingConsumer:
            core = PollingConsumer(
                cluster,
                network,
                made,
                key_deserializer=key_deserializer,
                value_deserializer=value_deserializer,
                assignors=assignors,
                zookeeper=make_zookeeper(made, network.reactor),
                call_user=_call_user,
            )
            # Not in the constructor: subscribing needs the engine, which exists only in a running
            # loop.
            if topics or pattern is not None:
                core.subscribe(topics or None, pattern=pattern, listener=listener)
            return core

        super().__init__(made, make, auto_create_topics=made.allow_auto_create_topics)

    # -- records ------------------------------------------------------------------------------

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Yield records indefinitely; wait for new records."""
        unread = self._core.unread
        while True:
            # Taking records one by one would take longer per record.
            if not unread:
                unread.put(await self.consume())
            for record in unread.records():
                yield record

    async def __anext__(self) -> ConsumerRecord:
        """Return the next record; wait until a record arrives."""
        unread = self._core.unread
        if not unread:
            unread.put(await self.consume())
        return next(unread.records())

    async def poll(self, timeout_s: float = 0.0) -> ConsumerRecord | None:
        """Return the next record, or None if none arrives within `timeout_s`."""
        records = await self.consume(1, timeout_s)
        return records[0] if records else None

    async def consume(
        self, max_records: int | None = None, timeout_s: float | None = None
    ) -> list[ConsumerRecord]:
        """Return up to `max_records` (default ``max.poll.records``) as soon as any are available.

        Without `timeout_s`, the call waits indefinitely. Otherwise, it returns an empty list if no
        records arrive within that time.

        Raises:
            OffsetOutOfRange, CorruptRecords, SerializationFailed: a record cannot be read.
            UnknownTopicOrPartition: a topic does not exist and may not be created.
            WokenUp: `wakeup` was called.
            Exception: the group coordinator returned an error, or a rebalance listener failed.
        """
        core = self._core
        self._check_loop()
        count = core.max_records if max_records is None else max_records
        # Records that an iterator has left unread come first, to keep offset order.
        if core.unread:
            return core.unread.take(count)
        core.polled()
        # Usually, records are already available: return them without creating a future.
        if not core.needs_prepare and (records := core.take(count)):
            return records
        return await self._await_taken(lambda: core.take(count), timeout_s)

    async def consume_arrow(
        self, max_records: int | None = None, timeout_s: float | None = None
    ) -> pyarrow.RecordBatch | None:
        """Read records as `consume` does, but return them as columns of an Arrow record batch.

        The columns are topic, partition, offset, timestamp, timestamp_type, key, value, headers and
        leader_epoch. Deserializers are not applied. Requires the extra ``plog[arrow]``.
        """
        core = self._core
        count = ARROW_RECORDS_MAX if max_records is None else max_records
        core.give_back_unread()
        return await self._await_taken(lambda: core.take_arrow(count), timeout_s)

    async def _await_taken(self, take: Callable[[], T], timeout_s: float | None) -> T:
        """Call `take` until it returns records or `timeout_s` has passed; return its result."""
        self._check_loop()
        loop = asyncio.get_running_loop()
        if timeout_s is not None and timeout_s <= 0:
            # The engine shares this loop. A task that polls with a timeout of 0 would never let it
            # fetch records.
            await asyncio.sleep(0)

        # An asyncio task cannot await a Deferred.
        def as_future(awaitable: Any) -> asyncio.Future[Any]:
            if not isinstance(awaitable, Deferred):
                awaitable = Deferred.fromCoroutine(awaitable)
            future: asyncio.Future[Any] = awaitable.asFuture(loop)
            return future

        # `take` runs in this task. If the engine called it, a task that is cancelled while records
        # arrive would lose them.
        return await self._core.until_taken(take, timeout_s, adapt=as_future)

    # -- subscription, positions and commits --------------------------------------------------

    unsubscribe = awaitable(PollingConsumer.unsubscribe)
    position = awaitable(PollingConsumer.position)
    committed = awaitable(PollingConsumer.committed)
    seek_to_committed = awaitable(PollingConsumer.seek_to_committed)
    commit = awaitable(PollingConsumer.commit)
    beginning_offsets = awaitable(PollingConsumer.beginning_offsets)
    end_offsets = awaitable(PollingConsumer.end_offsets)
    offsets_for_times = awaitable(PollingConsumer.offsets_for_times)
    partitions_for = awaitable(PollingConsumer.partitions_for)
    topics = awaitable(PollingConsumer.topics)

    async def _close_core(self, timeout_s: float | None) -> None:
        await self._run(PollingConsumer.close, timeout_s)
