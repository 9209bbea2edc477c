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

    Settings have Kafka's names, with underscores as keyword arguments and with dots in `config`.

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

        If the record is not accepted, the Deferred fails with SerializationFailed, RecordTooLarge,
        UnknownTopicOrPartition or BufferExhausted (after max.block.ms); otherwise, it can fail with
        the delivery's error. A record that is sent while memory is full waits; `ProducerFactory`
        adds flow control.
        """
        record = (topic, value, key, partition, timestamp, headers)
        try:
            # A new record must not overtake records that wait for memory.
            handle = None if self._core.has_waiters else self._core.send(*record)
        except Exception:
            # Twisted users expect a function that returns a Deferred to report errors only there.
            return Deferred.fromCoroutine(_raise(Failure()))
        if handle is not None:
            return _outcome_of(handle)
        return Deferred.fromCoroutine(self._send_soon(*record)).addCallback(_outcome_of)

    async def _send_soon(self, *record: Any) -> SendHandle:
        self._begun += 1
        number = self._begun
        # `flush` must know which records wait; the core only counts them per topic.
        self._waiting[number] = None
        # The wait must also end if the caller cancels the Deferred.
        with TaskCompletion(self._end_wait, number):
            return await self._core.send_soon(*record)

    def _end_wait(self, number: int) -> None:
        del self._waiting[number]
        self._wait_ended.set()

    # This matches the other faces, where `send` returns before the acknowledgment.
    send_and_wait = send

    def flush(self, timeout_s: float | None = None) -> Deferred[None]:
        """Send all buffered records and wait for the outcome of every record sent so far.

        Records that wait for topic metadata or memory are included. Fails with RequestTimedOut
        after `timeout_s`; the producer still sends the records.
        """
        return Deferred.fromCoroutine(self._flush(timeout_s))

    async def _flush(self, timeout_s: float | None = None) -> None:
        # The core's `flush` covers batches; a record that still waits is not in a batch yet.
        await self._core.flush(await self._until_accepted(timeout_s))

    async def _until_accepted(self, timeout_s: float | None) -> float | None:
        """Wait until the producer has accepted all waiting records, or failed them.

        Returns the seconds left, or None if `timeout_s` is None.
        """
        deadline = Deadline(self._network, math.inf if timeout_s is None else timeout_s)
        pending = list(self._waiting)
        while pending:
            # Records are usually accepted in order. Checking the last record first therefore saves
            # checking all others after each wait.
            if pending[-1] not in self._waiting:
                pending.pop()
                continue
            self._wait_ended.clear()
            has_ended = await self._wait_ended.wait(deadline.wait_s)
            if not has_ended and timeout_s is not None:
                waiting = len(self._waiting.keys() & pending)
                raise timed_out(
                    f"cannot flush {waiting} records that are waiting for memory", timeout_s
                )
        return deadline.wait_s

    @property
    def is_full(self) -> bool:
        """Whether buffer memory is full, so that the next record has to wait."""
        return self._core.is_full

    partitions_for = deferred(ProducerCore.partitions_for)
    metrics = direct(ProducerCore.metrics)

    async def _close(self, timeout_s: float | None) -> None:
        left_s: float | None = 0.0
        # After a timeout, closing the core fails the records that still wait.
        with suppress(RequestTimedOut):
            left_s = await self._until_accepted(timeout_s)
        # The core still sends records while it closes, so the cluster closes last.
        await self._core.close(left_s)
        await self._cluster.close()


async def _raise(failure: Failure) -> Any:
    failure.raiseException()


def _outcome_of(handle: SendHandle) -> Deferred[RecordMetadata]:
    outcome: Deferred[RecordMetadata] = Deferred()

    def done(metadata: RecordMetadata | None, error: Exception | None) -> None:
        # If the caller has cancelled the Deferred, it has already fired.
        if outcome.called:
            return
        if error is None and metadata is not None:
            outcome.callback(metadata)
        else:
            outcome.errback(Failure(error))

    handle.add_outcome(done)
    return outcome
