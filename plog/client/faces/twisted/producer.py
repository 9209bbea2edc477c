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
    direct,
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
    """A client that sends records to topics.

        producer = Producer(bootstrap_servers="localhost:9092")
        producer.send("page-views", b"/index.html", key=b"alice").addCallback(print)

    Settings have Kafka's names: with underscores as keywords, with dots in `config`.

    Raises ConfigError for invalid settings.
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
        """The numbers of records that wait for their topic or for memory, in order of arrival."""
        self._wait_ended = self._network.signal()

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
        """Send a record; the Deferred fires with its metadata once the record is acknowledged.

        It fails with SerializationFailed, RecordTooLarge, UnknownTopicOrPartition or
        BufferExhausted (after max.block.ms) if the record is not accepted, otherwise with the error
        of the delivery. A record sent while memory is full waits; `ProducerFactory` adds flow
        control.
        """
        record = (topic, value, key, partition, timestamp, headers)
        try:
            # Records that wait for memory must not be overtaken.
            handle = None if self._core.has_waiters else self._core.send(*record)
        except Exception:
            # Errors of `send` fail the Deferred, as Twisted's users expect, instead of raising.
            return Deferred.fromCoroutine(_raise(Failure()))
        if handle is not None:
            return _outcome_of(handle)
        return Deferred.fromCoroutine(self._send_soon(*record)).addCallback(_outcome_of)

    async def _send_soon(self, *record: Any) -> SendHandle:
        self._begun += 1
        number = self._begun
        # `flush` must know which records wait, and the core counts them only by topic.
        self._waiting[number] = None
        # Also if the caller cancels the Deferred.
        with TaskCompletion(self._end_wait, number):
            return await self._core.send_soon(*record)

    def _end_wait(self, number: int) -> None:
        del self._waiting[number]
        self._wait_ended.set()

    # In the other faces `send` returns before the record is acknowledged.
    send_and_wait = send

    def flush(self, timeout_s: float | None = None) -> Deferred[None]:
        """Send all buffered records and wait for the outcome of every record sent so far.

        This includes records that wait for their topic or for memory. Fails with RequestTimedOut
        after `timeout_s`; the records are still sent.
        """
        return Deferred.fromCoroutine(self._flush(timeout_s))

    async def _flush(self, timeout_s: float | None = None) -> None:
        # A record that still waits is in no batch yet, so `flush` would miss it.
        await self._core.flush(await self._until_accepted(timeout_s))

    async def _until_accepted(self, timeout_s: float | None) -> float | None:
        """Wait until the records that wait are accepted; return the time left in seconds.

        Returns None if `timeout_s` is None.
        """
        deadline = Deadline(self._network, math.inf if timeout_s is None else timeout_s)
        pending = list(self._waiting)
        while pending:
            # From the end: records are accepted in order, so the last is usually the last to end.
            if pending[-1] not in self._waiting:
                pending.pop()
                continue
            self._wait_ended.clear()
            has_ended = await self._wait_ended.wait(deadline.wait_s)
            if not has_ended and timeout_s is not None:
                waiting = len(self._waiting.keys() & pending)
                raise timed_out(f"cannot flush {waiting} records that wait for memory", timeout_s)
        return deadline.wait_s

    @property
    def is_full(self) -> bool:
        """Whether memory is full, so that the next record has to wait."""
        return self._core.is_full

    partitions_for = deferred(ProducerCore.partitions_for)
    metrics = direct(ProducerCore.metrics)

    async def _close(self, timeout_s: float | None) -> None:
        left_s: float | None = 0.0
        # The records that still wait then fail in the close.
        with suppress(RequestTimedOut):
            left_s = await self._until_accepted(timeout_s)
        # The cluster closes last: the close still sends records.
        await self._core.close(left_s)
        await self._cluster.close()


async def _raise(failure: Failure) -> Any:
    failure.raiseException()


def _outcome_of(handle: SendHandle) -> Deferred[RecordMetadata]:
    outcome: Deferred[RecordMetadata] = Deferred()

    def done(metadata: RecordMetadata | None, error: Exception | None) -> None:
        # The caller has cancelled it.
        if outcome.called:
            return
        if error is None and metadata is not None:
            outcome.callback(metadata)
        else:
            outcome.errback(Failure(error))

    handle.add_outcome(done)
    return outcome
