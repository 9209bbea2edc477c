"""The ports between the pure core and the outside world, and `Later`, with which the core waits.

The log, the replicas, the controller and the request handlers are plain Python: they do not access
sockets, threads, clocks or files directly. They receive a `Clock`, `Timers`, `Files`, `Random`,
`Jobs` and `Work`, and represent a value that is not available yet as a `Later`. The ports are
implemented with the real machine (system_clock.py, system_random.py, os_files.py, child_process.py,
net/thread_jobs.py; machine.py creates them) and with a virtual machine in the simulator
(tests/sim), so the same code runs on both.

Everything here belongs to the reactor's thread, except `File` and `Files` (files.py), which jobs
use on their threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar, cast

# The form `X as X` tells mypy that other modules may import the name from here.
from plogd.files import Buffer as Buffer
from plogd.files import DiskSpace as DiskSpace
from plogd.files import File as File
from plogd.files import Files as Files
from plogd.files import size_of as size_of
from plogd.work import Work

T = TypeVar("T")
U = TypeVar("U")


class Cancelled(Exception):
    """The wait was cancelled: its deadline passed, its client left, or the broker is stopping."""


class Later(Generic[T]):
    """A value that will be available later, for one consumer, unless the wait is cancelled.

    The producer calls `succeed` or `fail` once; the consumer calls `then` once, before or after
    that. An outcome that arrives after `cancel` is dropped, so a continuation never runs for a
    client that has disconnected. ``await later`` works inside a coroutine started with `spawn`.

    >>> answer: Later[int] = Later()
    >>> answer.then(print, print)
    >>> answer.succeed(42)
    42
    """

    __slots__ = ("_error", "_functions", "_on_cancel", "_on_error", "_on_value", "_state", "_value")

    _WAITING, _SUCCEEDED, _FAILED, _CANCELLED = range(4)

    def __init__(self, on_cancel: Callable[[], None] | None = None) -> None:
        self._state = self._WAITING
        # Any, because `map` changes the type, and a cast would be a call for each request.
        self._value: Any = None
        self._error: Exception | None = None
        self._on_value: Callable[[T], None] | None = None
        self._on_error: Callable[[Exception], None] | None = None
        self._on_cancel = on_cancel
        self._functions: tuple[Callable[[Any], Any], ...] = ()
        """The functions of `map`, in the order in which they are applied to the value."""

    @property
    def done(self) -> bool:
        """Whether the Later has an outcome or was cancelled."""
        return self._state != self._WAITING

    def then(self, on_value: Callable[[T], None], on_error: Callable[[Exception], None]) -> None:
        """Call `on_value` or `on_error` with the outcome, immediately if it is already set."""
        assert self._on_value is None, "a Later can have only one consumer"
        self._on_value, self._on_error = on_value, on_error
        if self._state != self._WAITING:
            self._deliver()

    def succeed(self, value: T) -> None:
        """Set the value; it is dropped if the consumer has cancelled."""
        if self._state == self._CANCELLED:
            return
        assert self._state == self._WAITING, "a Later can have only one outcome"
        self._on_cancel = None
        if self._functions:
            functions, self._functions = self._functions, ()
            try:
                # Caught, because an exception would otherwise reach the code that produced the
                # value.
                for function in functions:
                    value = function(value)
            except Exception as error:
                self.fail(error)
                return
            if self._state == self._CANCELLED:  # By one of the functions.
                return
        self._state, self._value = self._SUCCEEDED, value
        if self._on_value is not None:
            self._deliver()

    def fail(self, error: Exception) -> None:
        """Set the error; it is dropped if the consumer has cancelled."""
        if self._state == self._CANCELLED:
            return
        assert self._state == self._WAITING, "a Later can have only one outcome"
        self._state, self._error, self._on_cancel = self._FAILED, error, None
        if self._on_error is not None:
            self._deliver()

    def cancel(self) -> None:
        """Stop waiting: the producer's cancel hook runs, and the consumer receives `Cancelled`."""
        if self._state != self._WAITING:
            return
        # Set before the hook runs, so that an outcome that the hook causes is dropped.
        self._state, self._error = self._CANCELLED, Cancelled()
        on_cancel, self._on_cancel = self._on_cancel, None
        if on_cancel is not None:
            on_cancel()
        if self._on_error is not None:
            self._deliver()

    def map(self, function: Callable[[T], U]) -> Later[U]:
        """Replace the value with ``function(value)``; an error in `function` becomes the outcome.

        Returns this Later, not a second one, because requests that wait are frequent.
        """
        assert self._on_value is None, "a Later can have only one consumer"
        mapped: Any = self
        if self._state == self._WAITING:
            self._functions = (*self._functions, function)
        elif self._state == self._SUCCEEDED:
            self._state, self._functions = self._WAITING, (function,)
            self.succeed(self._value)
        return mapped  # type: ignore[no-any-return]  # It is this Later, with the new type.

    def _deliver(self) -> None:
        on_value, on_error = self._on_value, self._on_error
        assert on_value is not None and on_error is not None
        value, error = self._value, self._error
        self._functions = ()
        # The callbacks usually refer back to this Later, and requests must not leave reference
        # cycles, so all references are dropped when the outcome is delivered.
        self._on_value = self._on_error = _delivered
        self._value = self._error = None
        if self._state == self._SUCCEEDED:
            on_value(value)
        else:
            assert error is not None
            on_error(error)

    def __await__(self) -> Generator[Later[Any], Any, T]:
        # `_Run` receives the Later itself, so awaiting it requires no event loop (decision 0001).
        return cast(T, (yield self))


def _delivered(outcome: object) -> None:
    """Reject a second outcome; replaces the callbacks after the first outcome is delivered."""
    raise AssertionError("a Later can have only one outcome")


def ready(value: T) -> Later[T]:
    """Return a Later that has succeeded with `value`."""
    later: Later[T] = Later()
    later.succeed(value)
    return later


def failed(error: Exception) -> Later[Any]:
    """Return a Later that has failed with `error`."""
    later: Later[Any] = Later()
    later.fail(error)
    return later


def spawn(coroutine: Coroutine[Later[Any], Any, T]) -> Later[T]:
    """Run `coroutine`, resuming it with the outcome of each Later it awaits; return its result.

    Cancelling the result cancels the Later that the coroutine awaits at that moment, which raises
    `Cancelled` inside the coroutine.
    """
    run = _Run(coroutine)
    # Runs up to the first wait, so a request that need not wait is answered in the same call.
    run.resume(None, None)
    return run.result


class _Run(Generic[T]):
    """A running coroutine. A class, because closures that call each other would form a cycle."""

    __slots__ = ("_coroutine", "_is_stepping", "_next", "_waiting_for", "result")

    def __init__(self, coroutine: Coroutine[Later[Any], Any, T]) -> None:
        self.result: Later[T] = Later(self._cancel)
        self._coroutine = coroutine
        self._waiting_for: Later[Any] | None = None
        self._next: tuple[Any, Exception | None] | None = None
        self._is_stepping = False

    def resume(self, value: Any, error: Exception | None) -> None:
        """Continue the coroutine with the outcome of the Later it awaits."""
        self._next = (value, error)
        if self._is_stepping:
            # The outcome was ready. The loop below continues, so that the stack does not grow.
            return
        self._is_stepping = True
        while self._next is not None:
            (value, error), self._next = self._next, None
            self._step(value, error)
        self._is_stepping = False

    def _step(self, value: Any, error: Exception | None) -> None:
        try:
            if error is None:
                waiting_for = self._coroutine.send(value)
            else:
                waiting_for = self._coroutine.throw(error)
        except StopIteration as stop:
            self.result.succeed(stop.value)
        except Exception as raised:
            self.result.fail(raised)
        else:
            self._waiting_for = waiting_for
            waiting_for.then(self._arrived, self._failed)

    def _arrived(self, value: Any) -> None:
        self.resume(value, None)

    def _failed(self, error: Exception) -> None:
        self.resume(None, error)

    def _cancel(self) -> None:
        if self._waiting_for is not None:
            self._waiting_for.cancel()


async def gather(laters: list[Later[T]]) -> list[T]:
    """Wait for all; return their values in order, or raise the first failure in that order."""
    values: list[T] = []
    first_error: Exception | None = None
    for later in laters:
        try:
            values.append(await later)
        except Exception as error:
            # The remaining Laters are still awaited, because every Later needs a consumer.
            first_error = first_error or error
    if first_error is not None:
        raise first_error
    return values


MaybeLater: TypeAlias = T | Later[T]
"""A result that is usually available immediately, and sometimes only later."""


async def settle(value: MaybeLater[T]) -> T:
    """Return the value, awaiting it if it is a Later."""
    if isinstance(value, Later):
        return await value
    return value


class Clock(Protocol):
    """The wall clock and the monotonic clock."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch. The clock may jump: use it only for data on disk."""
        ...

    def monotonic_ms(self) -> float:
        """Return monotonic time in milliseconds, which never jumps, for deadlines and intervals."""
        ...


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call; this has no effect if it has been made."""
        ...


class Timers(Protocol):
    """Schedules calls on the reactor's thread."""

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> Timer:
        """Call `function` once, `delay_ms` from now; 0 means after the current turn."""
        ...


class Random(Protocol):
    """Randomness, from the machine or from a seed."""

    def random_bytes(self, length: int) -> bytes:
        """Return `length` unpredictable bytes, for example for a topic id."""
        ...

    def randrange(self, stop: int) -> int:
        """Return an int in [0, stop)."""
        ...


class Jobs(Protocol):
    """Runs work outside the reactor's thread, because it waits for a disk or takes a long time."""

    def submit(self, lane: str, function: Callable[[], T]) -> Later[T]:
        """Run `function` after the lane's earlier jobs; return its outcome.

        Lanes are serial: two jobs of one lane never overlap, but jobs of different lanes may. The
        outcome is delivered on the reactor's thread. Cancelling the Later drops the outcome, but
        the job still runs. The Later fails if the job cannot be accepted.
        """
        ...


class Report(Protocol):
    """Reports events in the pure core to the operator; service.py logs them."""

    def __call__(self, message: str, **fields: object) -> None:
        """Report `message`, a format string with named fields that is stable enough to grep for.

        The field `level` is not part of the text: ``info`` (the default), ``warn`` or ``error``.
        Pass the subject of the event in the fields of journal.py (`topic`, `topic_partition`,
        `topic_partitions`), even if the text does not contain them.
        """
        ...


def silence(message: str, **fields: object) -> None:
    """Discard a report; a `Report` for brokers without a log."""


class CopyMemory(Protocol):
    """Counts the copies of requests that are decoded in slices (net/request_memory.py)."""

    def copied(self, nbytes: int) -> None:
        """Count a copy of `nbytes` until `decoded` is called."""
        ...

    def decoded(self, nbytes: int) -> None:
        """Stop counting a copy of `nbytes`."""
        ...


class Turn:
    """Deferred calls, which run soon after the current call, but never during it.

    Deep inside an append, high watermarks advance and logs become dirty. The waits that this
    completes are resumed, and the sync rounds that it requires are started, only after that call
    has returned. Code that handles several requests together wraps them in ``with turn:``, so that
    their appends share one sync round. Outside a turn, a deferred call runs as soon as the reactor
    is free.
    """

    __slots__ = ("_calls", "_depth", "_scheduled", "_timers")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._calls: deque[Callable[[], object]] = deque()
        self._depth = 0
        self._scheduled = False

    def defer(self, function: Callable[[], None]) -> None:
        """Run `function` when this turn ends, or in the next turn if no timer can be set."""
        # Appended first, so that the call is not lost if the timer cannot be set.
        self._calls.append(function)
        if self._depth == 0:
            self._schedule()

    def at_end(self, function: Callable[[], object]) -> None:
        """Run `function` when the current turn ends, or immediately outside a turn."""
        if self._depth:
            self._calls.append(function)
        else:
            function()

    def __enter__(self) -> Self:
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        if self._depth == 1:
            try:
                # The depth remains 1 during these calls, so calls that they defer also run in this
                # turn.
                self._run()
            finally:
                self._depth = 0
                # A call raised an exception, and the calls after it must still run.
                if self._calls:
                    self._schedule()
        else:
            self._depth -= 1

    def _schedule(self) -> None:
        if not self._scheduled:
            self._timers.call_later(0, self._run_scheduled)
            # Set last: if the timer cannot be set, the next `defer` tries again.
            self._scheduled = True

    def _run_scheduled(self) -> None:
        self._scheduled = False
        # The calls run at the end of this empty turn.
        with self:
            pass

    def _run(self) -> None:
        while self._calls:
            # Removed before it runs, so that a call that raises is not repeated.
            self._calls.popleft()()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The ports of one broker. machine.py builds them; tests and the simulator build their own.

    A class that uses three or more ports takes the bundle and copies those ports to its attributes;
    other classes take single ports.
    """

    clock: Clock
    timers: Timers
    files: Files
    random: Random
    jobs: Jobs
    work: Work
    turn: Turn
    report: Report = silence
