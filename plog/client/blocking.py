"""The blocking face: `Producer`, `Consumer` and `Admin` for code that waits, from any thread.

The engine runs on a private reactor in a daemon thread (private_reactor.py). `Producer.send` puts a
record into the accumulator in the caller's thread and returns a future; `Consumer` decodes records
in the caller's thread, and calls listeners there. Everything else is a coroutine of the engine that
the caller waits for. What is said of a method here is all that differs from the other faces.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from plog.client.blocking_admin import Admin
from plog.client.blocking_base import Client
from plog.client.consumer_face import ConsumerFace
from plog.client.errors import ForkedError, WrongThread
from plog.client.facing import blocking, check_functions, check_topics, elsewhere, here
from plog.client.options import Servers
from plog.client.polling import ARROW_RECORDS_MAX, PollingConsumer
from plog.client.private_reactor import PrivateReactor
from plog.client.producer import ProducerCore
from plog.client.producer_batch import OnDelivery, SendHandle
from plog.client.record_checks import Headers, Serializer
from plog.client.settings import (
    ConsumerSettings,
    ProducerSettings,
)
from plog.client.transactions.faces import BlockingTransactions
from plog.client.transactions.producer import producer_core
from plog.client.user_call import UserCall
from plog.client.values import ConsumerRecord, OffsetAndMetadata, RecordMetadata
from plog.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")

log = logging.getLogger("plog.client")

_EXIT_TIMEOUT_S = 30.0
_LEAVE_TIMEOUT_S = 2.0


class RecordFuture(SendHandle):
    """A record on its way. As a `concurrent.futures.Future`, but cannot be cancelled."""

    __slots__ = ()

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Where the record is, once that is known.

        Raises why it failed, or TimeoutError if that is not known after `timeout_s`: it may come to
        be written all the same. IllegalState in a callback, which would wait for itself.
        """
        self._wait(timeout_s)
        return self.metadata()

    def exception(self, timeout_s: float | None = None) -> Exception | None:
        """Why the record failed, None if it has not. Raises TimeoutError as `result`."""
        self._wait(timeout_s)
        return self.error()

    def add_done_callback(self, function: Callable[[RecordFuture], Any]) -> None:
        """Call `function` with this in the client's thread, or now if the outcome is known."""
        self.add_callback(function)  # type: ignore[arg-type]  # It is called with this very object.

    def cancel(self) -> bool:
        """False: what has been sent cannot be called back."""
        return False

    def _wait(self, timeout_s: float | None) -> None:
        if self.done():
            return
        PrivateReactor.check_caller()
        done = threading.Event()
        self.add_callback(lambda _: done.set())
        if not done.wait(timeout_s):
            raise TimeoutError(
                f"the record has no outcome after {timeout_s:g} s; it may still come"
            )


class Producer(Client, BlockingTransactions):
    """Sends records to topics; any number of threads may use one.

        with Producer(bootstrap_servers="localhost:9092") as producer:
            future = producer.send("page-views", b"/index.html", key=b"alice")
            print(future.result().offset)

    Settings have Kafka's names, with underscores as keywords, or with dots in `config`.

    Raises ConfigError for settings that are wrong.
    """

    def __init__(
        self,
        *,
        bootstrap_servers: Servers = None,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        partitioner: Any = None,
        interceptors: Sequence[Any] = (),
        config: Mapping[str, object] | None = None,
        **settings: object,
    ) -> None:
        check_functions(key_serializer=key_serializer, value_serializer=value_serializer)
        made = ProducerSettings.from_options(
            config, bootstrap_servers=bootstrap_servers, **settings
        )
        super().__init__(made, auto_create_topics=True)
        private = self._private
        self._core: ProducerCore[RecordFuture] = producer_core(
            self._cluster,
            self._network,
            made,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            interceptors=interceptors,
            wake=lambda: private.soon(self._core.woken),
            make_handle=RecordFuture,
        )
        self._send: Callable[..., RecordFuture | None] = self._core.send
        _open_producers.add(self)

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
        on_delivery: OnDelivery | None = None,
    ) -> RecordFuture:
        """Send a record; waits only for a topic that is not known yet, and for memory.

        `value` and `key` are bytes, or what the serializers take, `headers` a dict or pairs of name
        and bytes, `timestamp` is in ms since 1970, now by default. `on_delivery` is called with
        metadata and None, or None and an error, in the client's thread.

        Raises:
            SerializationFailed: a serializer failed, or key or value are no bytes.
            RecordTooLarge: it is larger than max.request.size or buffer.memory.
            UnknownTopicOrPartition, RequestTimedOut: the topic did not come in max.block.ms.
            BufferExhausted: memory stayed full for as long.
        """
        future = self._send(topic, value, key, partition, timestamp, headers, on_delivery)
        if future is not None:
            return future
        return self._run(
            self._core.send_soon, topic, value, key, partition, timestamp, headers, on_delivery
        )

    def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> RecordMetadata:
        """Send a record, and wait for where it is. Raises as `send`, and why it failed."""
        sent = self.send(
            topic, value, key, partition=partition, timestamp=timestamp, headers=headers
        )
        return sent.result()

    flush = blocking(ProducerCore.flush)
    partitions_for = blocking(ProducerCore.partitions_for)
    metrics = here(ProducerCore.metrics)

    def close(self, timeout_s: float | None = None) -> None:
        """Send what is there, and end. What is not acknowledged after `timeout_s` fails."""
        if self._is_closed or self._is_forked:
            return
        PrivateReactor.check_caller()
        try:
            self._private.run(self._core.close, timeout_s)
        finally:
            self._is_closed = True
            _open_producers.discard(self)
            self._private.run(self._cluster.close)

    def forked(self) -> None:
        super().forked()
        _open_producers.discard(self)
        self._send = _raise_forked
        self._core.forked(
            ForkedError("the record was sent before a fork: what becomes of it, the parent knows")
        )


def _raise_forked(*_: Any) -> Any:
    raise ForkedError("the producer was made before a fork: make a new one in the child")


class Consumer(Client, ConsumerFace):
    """Reads records of topics; used by one thread at a time.

        for record in Consumer("page-views", bootstrap_servers="localhost:9092"):
            print(record.offset, record.value)

    With a `group_id` the group shares the partitions, and remembers how far they have been read;
    without one this consumer reads all of them, from where ``auto.offset.reset`` says. A listener's
    methods are called in the consuming thread, while it waits here.

    Raises ConfigError for settings that are wrong.
    """

    def __init__(
        self,
        *topics: str,
        bootstrap_servers: Servers = None,
        group_id: str | None = None,
        pattern: str | None = None,
        listener: Any = None,
        key_deserializer: Callable[[bytes], Any] | None = None,
        value_deserializer: Callable[[bytes], Any] | None = None,
        assignors: Sequence[Any] | None = None,
        config: Mapping[str, object] | None = None,
        **settings: object,
    ) -> None:
        check_topics(topics)
        check_functions(key_deserializer=key_deserializer, value_deserializer=value_deserializer)
        made = ConsumerSettings.from_options(
            config, bootstrap_servers=bootstrap_servers, group_id=group_id, **settings
        )
        super().__init__(made, auto_create_topics=made.allow_auto_create_topics)
        self._calls: deque[UserCall] = deque()
        self._news = threading.Event()
        self._user: dict[str, int] = {}
        self._depth = 0
        self._wakeups = 0

        async def make() -> PollingConsumer:
            return PollingConsumer(
                self._cluster,
                self._network,
                made,
                key_deserializer=key_deserializer,
                value_deserializer=value_deserializer,
                assignors=assignors,
                call_user=self._call_user,
            )

        self._core = self._private.run(make)
        _consumers.add(self)
        self._core.on_room = lambda: self._private.soon(self._core.fetch_more)
        self._unread = self._core.unread
        if topics or pattern is not None:
            self.subscribe(topics or None, pattern=pattern, listener=listener)

    # -- records ------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Records without end; waits where there are none."""
        while True:
            if not self._unread:
                self._unread.put(self.consume())
            yield from self._unread.records()

    def __next__(self) -> ConsumerRecord:
        """The next record; waits until there is one."""
        if not self._unread:
            self._unread.put(self.consume())
        return next(self._unread.records())

    def poll(self, timeout_s: float = 0.0) -> ConsumerRecord | None:
        """The next record, None if there is none within `timeout_s`."""
        records = self.consume(1, timeout_s)
        return records[0] if records else None

    def consume(
        self, max_records: int | None = None, timeout_s: float | None = None
    ) -> list[ConsumerRecord]:
        """Up to `max_records` (``max.poll.records``), as soon as there are any.

        Waits for ever without `timeout_s`, and else returns an empty list when that is over. Raises
        what was found out in the meantime: OffsetOutOfRange, CorruptRecords, SerializationFailed,
        the coordinator's refusals, what a listener raised; WokenUp after `wakeup`.
        """
        count = self._core.max_records if max_records is None else max_records
        with self._use():
            if self._unread:
                return self._unread.take(count)
            return self._await_taken(lambda: self._core.take(count), timeout_s)

    def consume_arrow(
        self, max_records: int | None = None, timeout_s: float | None = None
    ) -> pyarrow.RecordBatch | None:
        """As `consume`, as columns: topic, partition, offset, timestamp, key, value, headers …

        Deserializers are not applied. Needs the extra ``plog[arrow]``.
        """
        count = ARROW_RECORDS_MAX if max_records is None else max_records
        with self._use():
            self._core.give_back_unread()
            return self._await_taken(lambda: self._core.take_arrow(count), timeout_s)

    def _await_taken(self, take: Callable[[], T], timeout_s: float | None) -> T:
        """What `take` gives, asked again until it is something or the time is over."""
        core = self._core
        core.polled()
        if not core.needs_prepare and (taken := take()):
            return taken
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            came = self._run(core.wait_for_data, left_s)
            taken = take()
            if taken or not came:
                return taken

    # -- what to read -------------------------------------------------------------------------

    subscribe = elsewhere(PollingConsumer.subscribe)
    unsubscribe = blocking(PollingConsumer.unsubscribe)
    assign = elsewhere(PollingConsumer.assign)
    seek = elsewhere(PollingConsumer.seek)
    seek_to_beginning = elsewhere(PollingConsumer.seek_to_beginning)
    seek_to_end = elsewhere(PollingConsumer.seek_to_end)
    seek_to_time = elsewhere(PollingConsumer.seek_to_time)
    pause = elsewhere(PollingConsumer.pause)
    resume = elsewhere(PollingConsumer.resume)

    # -- how far ------------------------------------------------------------------------------

    position = blocking(PollingConsumer.position)
    committed = blocking(PollingConsumer.committed)
    seek_to_committed = blocking(PollingConsumer.seek_to_committed)
    commit = blocking(PollingConsumer.commit)
    beginning_offsets = blocking(PollingConsumer.beginning_offsets)
    end_offsets = blocking(PollingConsumer.end_offsets)
    offsets_for_times = blocking(PollingConsumer.offsets_for_times)
    partitions_for = blocking(PollingConsumer.partitions_for)
    topics = blocking(PollingConsumer.topics)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        callback: Callable[..., Any] | None = None,
    ) -> None:
        """Commit without waiting; `callback` hears (offsets, error) in a later call here."""
        with self._use():
            self._private.soon(self._core.commit_async, self._core.to_commit(offsets), callback)

    # -- the end ------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """End a call that waits in another thread: it raises WokenUp. From any thread.

        Where none does, the next one that asks for records. `close` and `unsubscribe` go on.
        """
        self._private.soon(self._wake)

    def _wake(self) -> None:
        self._wakeups += 1
        self._core.wake_up()
        self._news.set()

    def close(self, timeout_s: float | None = None) -> None:
        """Commit what was read, if that is automatic, leave the group, and end."""
        if self._is_closed or self._is_forked:
            return
        try:
            self._run(self._core.close, timeout_s)
            self._private.run(self._cluster.close)
        finally:
            self._is_closed = True

    def _abandon(self) -> None:
        """The process ends and nobody has called `close`."""
        if self._is_closed or self._is_forked:
            return
        warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=1)
        with suppress(Exception):  # Nobody is left whom it could help.
            self._private.wait_for(self._private.begin(self._core.abandon), _LEAVE_TIMEOUT_S)

    # -- threads ------------------------------------------------------------------------------

    def _use(self) -> _Use:
        return _Use(self)

    async def _call_user(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Have a function of the application called by the consuming thread; in the engine's."""
        call = UserCall(function, arguments)
        self._calls.append(call)
        self._news.set()
        try:
            return await call.outcome
        finally:
            if call in self._calls:  # The wait was interrupted before it was made.
                self._calls.remove(call)

    def _run(
        self, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any, **options: Any
    ) -> T:
        """Wait for a coroutine of the engine, and do what it wants done here meanwhile."""
        self._check()
        with self._use():
            running = self._private.begin(function, *arguments, **options)
            outcome = running.outcome
            outcome.add_done_callback(lambda _: self._news.set())
            wakeups = self._wakeups
            try:
                while not outcome.done():
                    self._news.wait()
                    self._news.clear()
                    self._make_calls()
                    if self._wakeups != wakeups and function in _WOKEN and not outcome.done():
                        self._core.raise_if_woken()
            except BaseException:
                self._private.soon(running.cancel)
                raise
            self._make_calls()
            return outcome.result()

    def _make_calls(self) -> None:
        while self._calls:
            self._calls.popleft().make(self._private.soon)


_WOKEN = frozenset(
    {
        PollingConsumer.position,
        PollingConsumer.committed,
        PollingConsumer.commit,
        PollingConsumer.beginning_offsets,
        PollingConsumer.end_offsets,
        PollingConsumer.offsets_for_times,
        PollingConsumer.partitions_for,
        PollingConsumer.topics,
    }
)
"""What `wakeup` ends; those that ask for records hear of it by themselves."""


class _Use:
    """One thread at a time; a listener's calls are of the same thread, within another."""

    __slots__ = ("_consumer",)

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def __enter__(self) -> None:
        consumer, thread = self._consumer, threading.get_ident()
        if consumer._user.setdefault("thread", thread) != thread:  # In one step, without a lock.
            raise WrongThread(
                "this consumer is in use in another thread: use it in one at a time, or make one"
                " for each; only wakeup() may be called from everywhere"
            )
        consumer._depth += 1

    def __exit__(self, *_: object) -> None:
        self._consumer._depth -= 1
        if not self._consumer._depth:
            del self._consumer._user["thread"]


_open_producers: set[Producer] = set()
"""Kept also where the application has let go of them: what they were given is still to be sent."""
_consumers: weakref.WeakSet[Consumer] = weakref.WeakSet()


@atexit.register
def _at_exit() -> None:
    """At the end of the process: what was sent leaves, and members their groups, if that is quick.

    Consumers commit nothing then: a program may end because of the record it has in hand.
    """
    deadline_s = time.monotonic() + _EXIT_TIMEOUT_S
    try:
        for consumer in list(_consumers):
            consumer._abandon()
        for producer in list(_open_producers):
            try:
                producer.close(max(0.0, deadline_s - time.monotonic()))
            except Exception:  # The others are to have their turn.
                log.exception("a producer could not be closed")
    except KeyboardInterrupt:
        pass  # Whoever waits for the end has had enough of it.


__all__ = ["Admin", "Consumer", "Producer", "RecordFuture"]
