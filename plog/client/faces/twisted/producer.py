"""The Twisted face's `Producer`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from plog.client.callback_checks import (
    check_functions,
    check_interceptors,
    check_partitioner,
)
from plog.client.faces.method_adapters import (
    deferred,
    here,
)
from plog.client.faces.twisted.base import Client
from plog.client.network.backoff import timed_out
from plog.client.network.deadline import Deadline
from plog.client.producer.core import ProducerCore
from plog.client.producer.interceptors import ProducerInterceptor
from plog.client.producer.partitioner import Partitioner
from plog.client.producer.producer_batch import SendHandle
from plog.client.producer.record_checks import Headers, Serializer
from plog.client.settings import ProducerSettings
from plog.client.settings.settings_loader import Servers
from plog.client.task_completion import TaskCompletion
from plog.client.transactions.faces import TwistedTransactions
from plog.client.transactions.transactional_producer import producer_core
from plog.client.values import RecordMetadata
from plog.errors import RequestTimedOut


class Producer(Client, TwistedTransactions):
    """Sends records to topics.

        producer = Producer(bootstrap_servers="localhost:9092")
        producer.send("page-views", b"/index.html", key=b"alice").addCallback(print)

    Settings have Kafka's names, with underscores as keywords, or with dots in `config`.

    Raises ConfigError for settings that are wrong.
    """

    def __init__(
        self,
        *,
        bootstrap_servers: Servers = None,
        reactor: Any = None,
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
        super().__init__(made, reactor, auto_create_topics=True)
        self._core: ProducerCore[SendHandle] = producer_core(
            self._cluster,
            self._network,
            made,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            interceptors=interceptors,
        )
        self._begun = 0
        self._waiting: dict[int, None] = {}
        """Records that wait for their topic, or for memory, by when they began to."""
        self._one_came_through = self._network.signal()

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> Deferred[RecordMetadata]:
        """Send a record; where it is, once that is known.

        Fails with why the record was not taken (SerializationFailed, RecordTooLarge,
        UnknownTopicOrPartition, BufferExhausted after max.block.ms) or not written.
        What is sent while memory is full waits for it: see `ProducerFactory` for flow control.
        """
        record = (topic, value, key, partition, timestamp, headers)
        try:
            handle = None if self._core.has_waiters else self._core.send(*record)
        except Exception:
            return Deferred.fromCoroutine(_raise(Failure()))
        if handle is not None:
            return _outcome_of(handle)
        return Deferred.fromCoroutine(self._send_soon(*record)).addCallback(_outcome_of)

    async def _send_soon(self, *record: Any) -> SendHandle:
        self._begun += 1
        number = self._begun
        self._waiting[number] = None
        with TaskCompletion(self._came_through, number):
            return await self._core.send_soon(*record)

    def _came_through(self, number: int) -> None:
        del self._waiting[number]
        self._one_came_through.set()

    send_and_wait = send  # Named so by the other faces, where `send` itself tells less.

    def flush(self, timeout_s: float | None = None) -> Deferred[None]:
        """Send what lingers, and wait until every record sent so far has its outcome.

        Records that wait for their topic or for memory count as well. Fails with RequestTimedOut
        if `timeout_s` pass before; the records are still sent.
        """
        return Deferred.fromCoroutine(self._flush(timeout_s))

    async def _flush(self, timeout_s: float | None = None) -> None:
        await self._core.flush(await self._until_taken(timeout_s))

    async def _until_taken(self, timeout_s: float | None) -> float | None:
        """Wait until records that wait for their topic or for memory are taken; the time left."""
        deadline = Deadline(self._network, math.inf if timeout_s is None else timeout_s)
        pending = list(self._waiting)
        while pending:
            if pending[-1] not in self._waiting:
                pending.pop()
                continue
            self._one_came_through.clear()
            came = await self._one_came_through.wait(deadline.wait_s)
            if not came and timeout_s is not None:
                waiting = len(self._waiting.keys() & pending)
                raise timed_out(f"a flush ({waiting} records still wait)", timeout_s)
        return deadline.wait_s

    @property
    def is_full(self) -> bool:
        """Whether there is no memory for a batch more: what is sent now waits."""
        return self._core.is_full

    partitions_for = deferred(ProducerCore.partitions_for)
    metrics = here(ProducerCore.metrics)

    async def _close(self, timeout_s: float | None) -> None:
        left_s: float | None = 0.0
        with suppress(RequestTimedOut):
            left_s = await self._until_taken(timeout_s)
        await self._core.close(left_s)
        await self._cluster.close()


async def _raise(failure: Failure) -> Any:
    failure.raiseException()


def _outcome_of(handle: SendHandle) -> Deferred[RecordMetadata]:
    outcome: Deferred[RecordMetadata] = Deferred()

    def done(metadata: RecordMetadata | None, error: Exception | None) -> None:
        if outcome.called:  # Cancelled: nobody wants to know any more.
            return
        if error is None and metadata is not None:
            outcome.callback(metadata)
        else:
            outcome.errback(Failure(error))

    handle.add_outcome(done)
    return outcome
