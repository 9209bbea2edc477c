"""The blocking face's `Consumer`.

It decodes records in the caller's thread. Listeners and callbacks also run in that thread, while
the caller waits. All other work runs in the engine's thread.
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
from plog.client.faces.zookeeper_connection import make_zookeeper
from plog.client.settings import ConsumerSettings
from plog.client.settings.settings_loader import Servers
from plog.client.values import ConsumerRecord, OffsetAndMetadata
from plog.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from plog.client.assignors import Assignor

T = TypeVar("T")

# At process exit, an unreachable coordinator must not delay the process for long.
_LEAVE_TIMEOUT_S = 2.0


class Consumer(Client, ConsumerFace):
    """A client that reads records from topics. Use it in one thread at a time.

        for record in Consumer("page-views", bootstrap_servers="localhost:9092"):
            print(record.offset, record.value)

    With a `group_id`, the members of the group share the partitions, and the group stores the
    committed offsets. Without a group, this consumer reads all partitions and starts at the
    position that ``auto.offset.reset`` selects. The methods of `listener` run in the consuming
    thread, while that thread waits in a method of the consumer.

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
                zookeeper=make_zookeeper(made, self._private.reactor),
                call_user=self._call_user,
            )

        # The engine's thread owns all of the engine's state, so it must also create this object.
        self._core = self._private.run(make)
        _consumers.add(self)
        # The fetch collector calls `on_room` in the consuming thread.
        self._core.on_room = lambda: self._private.soon(self._core.fetch_more)
        self._unread = self._core.unread
        if topics or pattern is not None:
            self.subscribe(topics or None, pattern=pattern, listener=listener)

    # -- records ------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Yield records indefinitely; wait for new records."""
        while True:
            # Taking records one by one would switch threads for each record, which is slow.
            if not self._unread:
                self._unread.put(self.consume())
            yield from self._unread.records()

    def __next__(self) -> ConsumerRecord:
        """Return the next record; wait until a record arrives."""
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

        Without `timeout_s`, the call waits indefinitely. Otherwise, it returns an empty list if no
        records arrive within that time.

        Raises:
            OffsetOutOfRange, CorruptRecords, SerializationFailed: a record cannot be read.
            UnknownTopicOrPartition: a topic does not exist and may not be created.
            WokenUp: `wakeup` was called.
            Exception: the group coordinator returned an error, or a rebalance listener failed.
        """
        count = self._core.max_records if max_records is None else max_records
        with self._use():
            # Records that an iterator has left unread come first, to keep offset order.
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
        """Call `take` until it returns records or `timeout_s` has passed; return its result."""
        core = self._core
        # A poll means that all earlier records were processed. Records that are taken now were not,
        # so the poll must be recorded first.
        core.polled()
        # Usually, records are already available: no thread switch is needed.
        if not core.needs_prepare and (taken := take()):
            return taken
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            came = self._run(core.wait_for_data, left_s)
            # `take` decodes the records in this thread, which keeps the engine's thread free.
            taken = take()
            # The result can be empty although data had arrived: a listener, for example, may have
            # taken the records. In that case, wait again.
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

        `callback` receives the offsets and the error, or None if the commit succeeded. It runs in
        the consuming thread, during a later call that waits for the engine.
        """
        check_callback("callback", callback)
        with self._use():
            # `to_commit` runs now, in this thread: by the time the engine runs the commit, the
            # positions may have advanced.
            self._private.soon(self._core.commit_async, self._core.to_commit(offsets), callback)

    # -- wakeup and close ---------------------------------------------------------------------

    def wakeup(self) -> None:
        """Interrupt a call that waits in another thread; it raises WokenUp. Thread-safe.

        If no call is waiting, the next call that reads records raises WokenUp. `close` and
        `unsubscribe` are not interrupted.
        """
        # `soon` is safe in any thread: it only schedules a call in the engine's thread.
        self._private.soon(self._wake)

    def _wake(self) -> None:
        self._wakeups += 1
        self._core.wake_up()
        # The consuming thread may be waiting in `_run` for a coroutine's outcome, not for records.
        self._news.set()

    def close(self, timeout_s: float | None = None) -> None:
        """Commit if ``enable.auto.commit`` is true, leave the group and close the consumer."""
        if self._is_closed or self._is_forked:
            return
        try:
            self._run(self._core.close, timeout_s)
        finally:
            # The consumer is closed even if a listener or the commit has failed.
            self._is_closed = True
            self._private.run(self._cluster.close)

    def _abandon(self) -> None:
        """Leave the group at process exit if the application did not call `close`."""
        if self._is_closed or self._is_forked:
            return
        warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=1)
        # The process is exiting, so no caller could handle an error.
        with suppress(Exception):
            self._private.wait_for(self._private.begin(self._core.abandon), _LEAVE_TIMEOUT_S)

    # -- threads ------------------------------------------------------------------------------

    def _use(self) -> _Use:
        return _Use(self)

    async def _call_user(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run `function` in the consuming thread and await its result in the engine's thread."""
        call = ApplicationCallback(function, arguments)
        self._calls.append(call)
        # Wake the consuming thread, which waits in `_run`.
        self._news.set()
        try:
            return await call.outcome
        finally:
            # An interrupted wait can leave the call in the queue. It must not run later.
            if call in self._calls:
                self._calls.remove(call)

    def _run(
        self, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any, **options: Any
    ) -> T:
        """Run a coroutine in the engine's thread, and its callbacks in this thread; then return."""
        self._check()
        with self._use():
            running = self._private.begin(function, *arguments, **options)
            outcome = running.outcome
            outcome.add_done_callback(lambda _: self._news.set())
            wakeups = self._wakeups
            try:
                while not outcome.done():
                    self._news.wait()
                    # Clear the event before making the calls: a call that arrives in the meantime
                    # must end the next wait.
                    self._news.clear()
                    self._make_calls()
                    # The methods that read records check for a wakeup themselves.
                    if self._wakeups != wakeups and function in _WOKEN and not outcome.done():
                        self._core.raise_if_woken()
            except BaseException:
                # After an interruption, such as Ctrl-C, the coroutine must not continue unobserved.
                self._private.soon(running.cancel)
                raise
            # Some calls may have arrived together with the outcome.
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
"""The methods that `_run` interrupts after a `wakeup`; methods that read records check for it."""


class _Use:
    """A context manager that raises WrongThread if another thread is using the consumer."""

    __slots__ = ("_consumer",)

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def __enter__(self) -> None:
        consumer, thread = self._consumer, threading.get_ident()
        # `dict.setdefault` is atomic in CPython, so no lock is needed.
        if consumer._user.setdefault("thread", thread) != thread:
            raise WrongThread(
                "the consumer is in use in another thread; use it in one thread at a time or"
                " create one for each thread (only wakeup() may be called from any thread)"
            )
        # Calls can be nested: a listener calls the consumer during another call.
        consumer._depth += 1

    def __exit__(self, *_: object) -> None:
        self._consumer._depth -= 1
        if not self._consumer._depth:
            del self._consumer._user["thread"]


_consumers: weakref.WeakSet[Consumer] = weakref.WeakSet()


def known_consumers() -> list[Consumer]:
    """Return all consumers in memory, including closed consumers."""
    return list(_consumers)
