"""The ports through which the pure rooms meet the world, and the one way they wait.

The log, the replicas, the controller and the request handlers are plain Python: they never touch a
socket, a thread, a clock or a file by themselves. They are given a `Clock`, `Timers`, `Files`,
`Random` and `Jobs`, and whatever is not ready yet is a `Later`. The Twisted shell implements the
ports over the real machine (os_files.py, net/thread_jobs.py, net/system_ports.py), the simulator
over a virtual one (tests/sim), so the very same code runs under both.

Everything here belongs to one thread, the reactor's, except `File` and `Files` (files.py), which
jobs may use from theirs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar, cast

from plogd.files import Buffer as Buffer
from plogd.files import DiskSpace as DiskSpace
from plogd.files import File as File
from plogd.files import Files as Files

T = TypeVar("T")
U = TypeVar("U")


class Cancelled(Exception):
    """The wait was given up: its deadline passed, its client left, or the broker is stopping."""


class Later(Generic[T]):
    """A value that comes later: one consumer, one outcome, and a way to give up.

    The producer calls `succeed` or `fail` once; the consumer calls `then` once, before or after.
    An outcome that arrives after `cancel` is dropped, which is why a continuation never runs for a
    client that has left. ``await later`` works inside a coroutine started with `spawn`.

    Once the outcome is delivered, it and the callbacks are let go of. They usually lead back here,
    and what each request leaves must not have to wait for the collector of cycles.

    >>> answer: Later[int] = Later()
    >>> answer.then(print, print)
    >>> answer.succeed(42)
    42
    """

    __slots__ = ("_error", "_on_cancel", "_on_error", "_on_value", "_state", "_value")

    _WAITING, _SUCCEEDED, _FAILED, _CANCELLED = range(4)

    def __init__(self, on_cancel: Callable[[], None] | None = None) -> None:
        self._state = self._WAITING
        self._value: T | None = None
        self._error: Exception | None = None
        self._on_value: Callable[[T], None] | None = None
        self._on_error: Callable[[Exception], None] | None = None
        self._on_cancel = on_cancel

    @property
    def done(self) -> bool:
        """Whether an outcome, or a cancellation, has come."""
        return self._state != self._WAITING

    def then(self, on_value: Callable[[T], None], on_error: Callable[[Exception], None]) -> None:
        """Call one of the two with the outcome, now if it is here already."""
        assert self._on_value is None, "a Later has one consumer"
        self._on_value, self._on_error = on_value, on_error
        if self._state != self._WAITING:
            self._deliver()

    def succeed(self, value: T) -> None:
        """Give the value; dropped when the consumer has cancelled."""
        if self._state == self._CANCELLED:
            return
        assert self._state == self._WAITING, "a Later has one outcome"
        self._state, self._value, self._on_cancel = self._SUCCEEDED, value, None
        if self._on_value is not None:
            self._deliver()

    def fail(self, error: Exception) -> None:
        """Give the reason there is no value; dropped when the consumer has cancelled."""
        if self._state == self._CANCELLED:
            return
        assert self._state == self._WAITING, "a Later has one outcome"
        self._state, self._error, self._on_cancel = self._FAILED, error, None
        if self._on_error is not None:
            self._deliver()

    def cancel(self) -> None:
        """Give up waiting: the consumer hears `Cancelled`, the producer's cancel hook runs once."""
        if self._state != self._WAITING:
            return
        self._state, self._error = self._CANCELLED, Cancelled()
        on_cancel, self._on_cancel = self._on_cancel, None
        if on_cancel is not None:
            on_cancel()
        if self._on_error is not None:
            self._deliver()

    def map(self, function: Callable[[T], U]) -> Later[U]:
        """A Later of ``function(value)``; an error it raises becomes the outcome."""
        mapped: Later[U] = Later(self.cancel)

        def on_value(value: T) -> None:
            try:
                result = function(value)
            except Exception as error:
                mapped.fail(error)
            else:
                mapped.succeed(result)

        self.then(on_value, mapped.fail)
        return mapped

    def _deliver(self) -> None:
        on_value, on_error = self._on_value, self._on_error
        assert on_value is not None and on_error is not None
        value, error = self._value, self._error
        self._on_value = self._on_error = _delivered
        self._value = self._error = None
        if self._state == self._SUCCEEDED:
            on_value(cast(T, value))
        else:
            assert error is not None
            on_error(error)

    def __await__(self) -> Generator[Later[Any], Any, T]:
        return cast(T, (yield self))


def _delivered(outcome: object) -> None:
    """Stands for the callbacks of a Later that has called one of them."""
    raise AssertionError("a Later has one outcome")


def ready(value: T) -> Later[T]:
    """A Later that has its value already."""
    later: Later[T] = Later()
    later.succeed(value)
    return later


def failed(error: Exception) -> Later[Any]:
    """A Later that has failed already."""
    later: Later[Any] = Later()
    later.fail(error)
    return later


def spawn(coroutine: Coroutine[Later[Any], Any, T]) -> Later[T]:
    """Run `coroutine` until it waits, go on whenever what it awaits arrives; its result as a Later.

    Cancelling the result cancels what the coroutine is waiting for at that moment, which raises
    `Cancelled` inside it.
    """
    run = _Run(coroutine)
    run.go_on(None, None)
    return run.result


class _Run(Generic[T]):
    """A coroutine under way. A class, as functions that call each other would be a cycle."""

    __slots__ = ("_coroutine", "_is_stepping", "_next", "_waiting_for", "result")

    def __init__(self, coroutine: Coroutine[Later[Any], Any, T]) -> None:
        self.result: Later[T] = Later(self._cancel)
        self._coroutine = coroutine
        self._waiting_for: Later[Any] | None = None
        self._next: tuple[Any, Exception | None] | None = None
        self._is_stepping = False

    def go_on(self, value: Any, error: Exception | None) -> None:
        """What was awaited is here, or has failed."""
        self._next = (value, error)
        if self._is_stepping:
            return  # It was here already: a loop, or the stack would grow each time.
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
        self.go_on(value, None)

    def _failed(self, error: Exception) -> None:
        self.go_on(None, error)

    def _cancel(self) -> None:
        if self._waiting_for is not None:
            self._waiting_for.cancel()


async def gather(laters: list[Later[T]]) -> list[T]:
    """Every value in order; the first failure by position is raised once all have ended."""
    values: list[T] = []
    first_error: Exception | None = None
    for later in laters:
        try:
            values.append(await later)
        except Exception as error:
            first_error = first_error or error
    if first_error is not None:
        raise first_error
    return values


MaybeLater: TypeAlias = T | Later[T]
"""What a call returns that is usually ready at once and sometimes has to wait."""


async def settle(value: MaybeLater[T]) -> T:
    """The value itself, awaited only if it has to be."""
    if isinstance(value, Later):
        return await value
    return value


class Clock(Protocol):
    """Two clocks: one people set, one nobody can."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch; may jump. Only for what is written to disk."""
        ...

    def monotonic_ms(self) -> float:
        """Milliseconds since some fixed moment; never jumps. For deadlines, sessions, intervals."""
        ...


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Do not call; harmless when it has been called already."""
        ...


class Timers(Protocol):
    """Calls in the future, on the reactor's thread."""

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> Timer:
        """Call `function` once, `delay_ms` from now; 0 means after the current turn."""
        ...


class Random(Protocol):
    """Chance, from the machine or from a seed."""

    def random_bytes(self, length: int) -> bytes:
        """`length` unpredictable bytes, as for topic ids and cluster ids."""
        ...

    def randrange(self, stop: int) -> int:
        """An int in [0, stop)."""
        ...


class Jobs(Protocol):
    """Work that may wait on a disk or take long, away from the reactor."""

    def submit(self, lane: str, function: Callable[[], T]) -> Later[T]:
        """Run `function` after the lane's earlier jobs; the outcome comes on the reactor's thread.

        Lanes are serial: two jobs of one lane never overlap, jobs of different lanes may.
        Cancelling the Later drops the outcome; the job still runs. If none can be taken, it fails.
        """
        ...


class Report(Protocol):
    """Where the pure rooms tell what an operator should know; the shell makes it a log line."""

    def __call__(self, message: str, **fields: object) -> None:
        """`message` is a format string with named fields, stable enough to grep for.

        One field is not part of the text: `level`, ``warn`` or ``error`` where it is not ``info``.
        """
        ...


def silence(message: str, **fields: object) -> None:
    """A `Report` that tells nobody."""


class CopyMemory(Protocol):
    """Counts the copies of requests that are decoded in slices (net/request_memory.py)."""

    def copied(self, nbytes: int) -> None:
        """Count a copy of a request of `nbytes`, until `decoded`."""
        ...

    def decoded(self, nbytes: int) -> None:
        """Stop counting a copy of `nbytes`."""
        ...


class Turn:
    """What must follow the current call, soon, but never inside it.

    High watermarks move and logs become dirty deep inside an append; the waits they complete and
    the sync rounds they need are started here, after the call that caused them has returned. A
    shell that handles many requests in one go wraps them in ``with turn:``, so that all their
    appends share one sync round; outside of that a deferred call runs as soon as the reactor is
    free.
    """

    __slots__ = ("_calls", "_depth", "_scheduled", "_timers")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._calls: deque[Callable[[], None]] = deque()
        self._depth = 0
        self._scheduled = False

    def defer(self, function: Callable[[], None]) -> None:
        """Run `function` when this turn ends; in the next one if no timer can be set for it."""
        self._calls.append(function)
        if self._depth == 0:
            self._schedule()

    def __enter__(self) -> Self:
        self._depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        if self._depth == 1:
            try:
                self._run()
            finally:
                self._depth = 0
                if self._calls:  # A call raised: the ones behind it still get their turn.
                    self._schedule()
        else:
            self._depth -= 1

    def _schedule(self) -> None:
        if not self._scheduled:
            self._timers.call_later(0, self._run_scheduled)
            self._scheduled = True

    def _run_scheduled(self) -> None:
        self._scheduled = False
        with self:
            pass

    def _run(self) -> None:
        while self._calls:
            self._calls.popleft()()
