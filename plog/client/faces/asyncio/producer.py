"""The asyncio face's `Producer` and the awaitable that its `send` returns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from plog.client.callback_checks import (
    check_functions,
    check_interceptors,
    check_partitioner,
)
from plog.client.faces.asyncio.base import Client
from plog.client.faces.method_adapters import awaitable, direct
from plog.client.producer.core import ProducerCore
from plog.client.producer.interceptors import ProducerInterceptor
from plog.client.producer.partitioner import Partitioner
from plog.client.producer.producer_batch import (
    OnDelivery,
    RecordHandle,
    call_when_done,
    metadata_of,
)
from plog.client.producer.record_checks import Headers, Serializer
from plog.client.settings import ProducerSettings
from plog.client.settings.settings_loader import Servers
from plog.client.transactions.faces import AsyncioTransactions
from plog.client.transactions.transactional_producer import producer_core
from plog.client.values import RecordMetadata


class RecordAwaitable(RecordHandle):
    """The outcome of a sent record. Await it, any number of times, to get the record's metadata."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, RecordMetadata]:
        # The future is created only here, because many records are never awaited.
        if not self.done():
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            call_when_done(self, lambda _: _wake(future))
            yield from future
        return metadata_of(self)

    async def result(self) -> RecordMetadata:
        """Wait for the record to be acknowledged and return its metadata."""
        return await self


def _wake(future: asyncio.Future[None]) -> None:
    # The future is already done if the waiting task was cancelled.
    if not future.done():
        future.set_result(None)


class Producer(Client[ProducerCore[RecordAwaitable]], AsyncioTransactions):
    """A client that sends records to topics.

        async with Producer(bootstrap_servers="localhost:9092") as producer:
            sent = await producer.send("page-views", b"/index.html", key=b"alice")
            print((await sent).offset)

    Settings have Kafka's names, with underscores as keyword arguments and with dots in `config`.

    Raises ConfigError for invalid settings.
    """

    def __init__(
        self,
        *,
        bootstrap_servers: Servers = None,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        partitioner: Partitioner | Callable[..., int] | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        config: Mapping[str, object] | None = None,
        **settings: object,
    ) -> None:
        check_functions(key_serializer=key_serializer, value_serializer=value_serializer)
        check_partitioner(partitioner)
        check_interceptors(interceptors)
        made = ProducerSettings.from_options(
            config, bootstrap_servers=bootstrap_servers, **settings
        )
        super().__init__(
            made,
            lambda cluster, network: producer_core(
                cluster,
                network,
                made,
                key_serializer=key_serializer,
                value_serializer=value_serializer,
                partitioner=partitioner,
                interceptors=interceptors,
                make_handle=RecordAwaitable,
            ),
            auto_create_topics=True,
        )

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
        on_delivery: OnDelivery | None = None,
    ) -> RecordAwaitable:
        """Send a record; the call waits only for a new topic's metadata and for buffer memory.

        Args:
            value, key: bytes, or objects that the serializers accept.
            timestamp: ms since 1970 (default: now).
            headers: a dict, or pairs of a name and bytes.
            on_delivery: called in the loop's thread with metadata and None, or None and an error.

        Raises:
            SerializationFailed: a serializer failed, or the key or value is not bytes.
            RecordTooLarge: the record exceeds max.request.size or buffer.memory.
            UnknownTopicOrPartition, RequestTimedOut: no metadata for the topic within max.block.ms.
            BufferExhausted: memory was still full after max.block.ms.
        """
        record = (topic, value, key, partition, timestamp, headers, on_delivery)
        core = self._core
        # Comparing the loops here saves a method call for each record.
        if asyncio.get_running_loop() is not self._loop:
            self._check_loop()
        # A new record must not overtake records that wait for memory.
        sent = None if core.has_waiters else core.send(*record)
        if sent is not None:
            return sent
        return await self._run(lambda core: core.send_soon(*record))

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> RecordMetadata:
        """Send a record and return its metadata. Raises errors from `send` and from delivery."""
        sent = await self.send(
            topic, value, key, partition=partition, timestamp=timestamp, headers=headers
        )
        return await sent

    flush = awaitable(ProducerCore.flush)
    partitions_for = awaitable(ProducerCore.partitions_for)
    metrics = direct(ProducerCore.metrics)

    async def _close_core(self, timeout_s: float | None) -> None:
        await self._run(lambda core: core.close(timeout_s))
