"""The blocking face's `Consumer`.

It decodes records in the caller's thread, and runs listeners and callbacks there while the caller
waits. Everything else is a coroutine of the engine.
"""

from __future__ import annotations

import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from plog.client.callback_checks import (
    check_assignors,
    check_callback,
    check_functions,
)
from plog.client.consumer.rebalance_listener import ConsumerRebalanceListener, check_listener
from plog.client.errors import WrongThread
from plog.client.faces.application_callback import ApplicationCallback
from plog.client.faces.blocking.base import Client
from plog.client.faces.consumer_face import ConsumerFace
from plog.client.faces.method_adapters import blocking, check_topics, in_engine_thread
from plog.client.faces.polling_consumer import ARROW_RECORDS_MAX, PollingConsumer
from plog.client.settings import ConsumerSettings
from plog.client.settings.settings_loader import Servers
from plog.client.values import ConsumerRecord, OffsetAndMetadata
from plog.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from plog.client.assignors import Assignor

T = TypeVar("T")

# At exit, for the request that leaves the group.
_LEAVE_TIMEOUT_S = 2.0


class Consumer(Client, ConsumerFace):
    """A client that reads records from topics. Use it from one thread at a time.

        for record in Consumer("page-views", bootstrap_servers="localhost:9092"):
            print(record.offset, record.value)

    With a `group_id`, the members of the group share the partitions, and the group stores the
    committed offsets. Without one, this consumer reads all partitions and starts at the position
    that ``auto.offset.reset`` selects. The methods of `listener` run in the consuming thread while
    it waits in a method of the consumer.

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
        super().__init__(made, auto_create_topics=made.allow_auto_create_topics)
        self._calls: deque[ApplicationCallback] = deque()
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

        # In the engine's thread, which owns all state of the engine.
        self._core = self._private.run(make)
        _consumers.add(self)
        # The collector calls this in the consuming thread.
        self._core.on_room = lambda: self._private.soon(self._core.fetch_more)
        self._unread = self._core.unread
        if topics or pattern is not None:
            self.subscribe(topics or None, pattern=pattern, listener=listener)

    # -- records ------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Yield records indefinitely, waiting for new ones."""
        while True:
            # Taken in batches, yielded singly: crossing threads for each record would be slow.
            if not self._unread:
                self._unread.put(self.consume())
            yield from self._unread.records()

    def __next__(self) -> ConsumerRecord:
        """Return the next record, waiting until one arrives."""
        if not self._unread:
            self._unread.put(self.consume())
        return next(self._unread.records())

    def poll(self, timeout_s: float = 0.0) -> ConsumerRecord | None:
        """Return the next record, or None if none arrives within `timeout_s`."""
        records = self.consume(1, timeout_s)
        return records[0] if records else None

    def consume(
        self, max_records: int | None = None, timeout_s: float | None = None
    ) -> list[ConsumerRecord]:
        """Return up to `max_records` (default ``max.poll.records``) as soon as any are available.

        Without `timeout_s` the call waits indefinitely; with it, the list is empty after that time.

        Raises:
            OffsetOutOfRange, CorruptRecords, SerializationFailed: a record cannot be read.
            UnknownTopicOrPartition: a topic does not exist and may not be created.
            WokenUp: `wakeup` was called.
            Exception: the group coordinator returned an error or a rebalance listener raised one.
        """
        count = self._core.max_records if max_records is None else max_records
        with self._use():
            if self._unread:
                return self._unread.take(count)
            return self._await_taken(lambda: self._core.take(count), timeout_s)

    def consume_arrow(
        self, max_records: int | None = None, timeout_s: float | None = None
    ) -> pyarrow.RecordBatch | None:
        """Read records as `consume` does, but return them as columns of an Arrow record batch.

        The columns are topic, partition, offset, timestamp, timestamp_type, key, value, headers and
        leader_epoch. Deserializers are not applied. Requires the extra ``plog[arrow]``.
        """
        count = ARROW_RECORDS_MAX if max_records is None else max_records
        with self._use():
            self._core.give_back_unread()
            return self._await_taken(lambda: self._core.take_arrow(count), timeout_s)

    def _await_taken(self, take: Callable[[], T], timeout_s: float | None) -> T:
        """Call `take` until it returns something or `timeout_s` is over; return its last result."""
        core = self._core
        # Before the records are taken, since a poll means that earlier records were processed.
        core.polled()
        # The usual case needs no switch of threads.
        if not core.needs_prepare and (taken := take()):
            return taken
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            came = self._run(core.wait_for_data, left_s)
            # The engine only announces the records; they are decoded in this thread.
            taken = take()
            # A listener, for example, may have taken them in the meantime.
            if taken or not came:
                return taken

    # -- subscription and seeking -------------------------------------------------------------

    subscribe = in_engine_thread(PollingConsumer.subscribe)
    unsubscribe = blocking(PollingConsumer.unsubscribe)
    assign = in_engine_thread(PollingConsumer.assign)
    seek = in_engine_thread(PollingConsumer.seek)
    seek_to_beginning = in_engine_thread(PollingConsumer.seek_to_beginning)
    seek_to_end = in_engine_thread(PollingConsumer.seek_to_end)
    seek_to_time = in_engine_thread(PollingConsumer.seek_to_time)
    pause = in_engine_thread(PollingConsumer.pause)
    resume = in_engine_thread(PollingConsumer.resume)

    # -- positions and commits ----------------------------------------------------------------

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
        """Commit `offsets` without waiting, by default the positions after all returned records.

        A later call of any method of this consumer passes `callback` the offsets and the error,
        which is None if the commit succeeded.
        """
        check_callback("callback", callback)
        with self._use():
            # In the engine's thread; the offsets are determined now, in this thread.
            self._private.soon(self._core.commit_async, self._core.to_commit(offsets), callback)

    # -- wakeup and close ---------------------------------------------------------------------

    def wakeup(self) -> None:
        """Make the call that waits in another thread raise WokenUp. Any thread may call this.

        If no call waits, the next call that reads records raises it. `close` and `unsubscribe` are
        not interrupted.
        """
        # Safe in any thread, because it only schedules a call.
        self._private.soon(self._wake)

    def _wake(self) -> None:
        self._wakeups += 1
        self._core.wake_up()
        # The consuming thread may be waiting for the engine's answer instead of for records.
        self._news.set()

    def close(self, timeout_s: float | None = None) -> None:
        """Commit if ``enable.auto.commit`` is true, leave the group and close the consumer."""
        if self._is_closed or self._is_forked:
            return
        try:
            self._run(self._core.close, timeout_s)
        finally:
            # Also after an error, such as one of a listener.
            self._is_closed = True
            self._private.run(self._cluster.close)

    def _abandon(self) -> None:
        """Leave the group when the process exits without a call of `close`."""
        if self._is_closed or self._is_forked:
            return
        warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=1)
        # The process exits: no caller could handle it.
        with suppress(Exception):
            self._private.wait_for(self._private.begin(self._core.abandon), _LEAVE_TIMEOUT_S)

    # -- threads ------------------------------------------------------------------------------

    def _use(self) -> _Use:
        return _Use(self)

    async def _call_user(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run `function` in the consuming thread and await its result in the engine's thread."""
        call = ApplicationCallback(function, arguments)
        self._calls.append(call)
        # The consuming thread waits in `_run`.
        self._news.set()
        try:
            return await call.outcome
        finally:
            # The wait was interrupted before the call was run.
            if call in self._calls:
                self._calls.remove(call)

    def _run(
        self, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any, **options: Any
    ) -> T:
        """Wait for a coroutine of the engine, and run its callbacks in this thread meanwhile."""
        self._check()
        with self._use():
            running = self._private.begin(function, *arguments, **options)
            outcome = running.outcome
            outcome.add_done_callback(lambda _: self._news.set())
            wakeups = self._wakeups
            try:
                # Callbacks run here until the coroutine has finished.
                while not outcome.done():
                    self._news.wait()
                    # Cleared before the calls are made, so that a call that arrives meanwhile is
                    # not missed.
                    self._news.clear()
                    self._make_calls()
                    # Only methods that do not check for a wakeup by themselves.
                    if self._wakeups != wakeups and function in _WOKEN and not outcome.done():
                        self._core.raise_if_woken()
            except BaseException:
                # Interrupted, for example by Ctrl-C: the coroutine must not continue unobserved.
                self._private.soon(running.cancel)
                raise
            # Calls that arrived together with the outcome.
            self._make_calls()
            return outcome.result()

    def _make_calls(self) -> None:
        while self._calls:
            self._calls.popleft().run(self._private.soon)


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
"""The methods that `wakeup` interrupts here; those that read records check for it themselves."""


class _Use:
    """A guard that admits one thread at a time."""

    __slots__ = ("_consumer",)

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def __enter__(self) -> None:
        consumer, thread = self._consumer, threading.get_ident()
        # Atomic, without a lock.
        if consumer._user.setdefault("thread", thread) != thread:
            raise WrongThread(
                "the consumer is in use in another thread; use it in one thread at a time or"
                " create one for each thread (only wakeup() may be called from any thread)"
            )
        # Reentrant, because a listener calls the consumer within another call.
        consumer._depth += 1

    def __exit__(self, *_: object) -> None:
        self._consumer._depth -= 1
        if not self._consumer._depth:
            del self._consumer._user["thread"]


_consumers: weakref.WeakSet[Consumer] = weakref.WeakSet()


def known_consumers() -> list[Consumer]:
    """Return all consumers that still exist, including closed ones."""
    return list(_consumers)
