"""Injection of arbitrary exceptions, such as bugs or a lack of memory, at any call of a port.

`Faults` counts the calls of the ports that it has wrapped, and makes one of them raise:

    faults = Faults()
    broker = Broker(config, faults.ports(ports), metrics=Registry())
    faults.arm(faults.calls + 5, When.AFTER, MemoryError("injected"))

It wraps all calls with an effect: every method of `Files` and `File` that touches the disk, each
job, and `Random`. A job fails before it runs, after it has run (its outcome is lost), or on
submission. `Faults.timers` wraps `Timers.call_later`, too; the simulator uses both. Not wrapped are
calls that only count or remember something in memory and cannot fail partway: `File.retain`,
`close` and `fileno`, and both clocks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from enum import Enum
from typing import Any, TypeVar, cast

from plogd.file_pool import FilePool
from plogd.ports import File, Files, Jobs, Later, Ports, Random, Timer, Timers, failed

T = TypeVar("T")


class When(Enum):
    """When a call raises; `PARTWAY` applies to calls that can take effect partially."""

    BEFORE = "before"
    PARTWAY = "partway"
    AFTER = "after"


class Faults:
    """Makes calls raise. `raised` contains the exceptions raised so far."""

    def __init__(self) -> None:
        self.calls = 0
        self.raised: list[Exception] = []
        self.on_raise: Callable[[str], None] = lambda name: None
        """Called with the name of a call that is about to raise."""
        self._at = 0
        self._when = When.BEFORE
        self._error: Exception = RuntimeError()

    def arm(self, number: int, when: When, error: Exception) -> None:
        """Raise `error` at the call with this number, counted from 1; replaces an earlier one."""
        self._at, self._when, self._error = number, when, error

    def disarm(self) -> None:
        """Raise no more exceptions."""
        self._at = 0

    @property
    def is_armed(self) -> bool:
        """Whether an exception is still pending."""
        return self._at > self.calls

    def caused(self, error: BaseException | None) -> bool:
        """Return whether `error` is an injected exception, or has one as its cause or context."""
        if error is None:
            return False
        if any(error is one for one in self.raised):
            return True
        if isinstance(error, ExceptionGroup):
            return all(self.caused(one) for one in error.exceptions)
        return self.caused(error.__cause__) or self.caused(error.__context__)

    def ports(self, ports: Ports) -> Ports:
        """`ports` with exceptions from files, jobs and random numbers."""
        return replace(
            ports,
            files=self.files(ports.files),
            jobs=self.jobs(ports.jobs),
            random=self.random(ports.random),
        )

    def files(self, files: Files) -> Files:
        """Return `files` with exceptions."""
        return cast(Files, _Files(self, files))

    def jobs(self, jobs: Jobs) -> Jobs:
        """Return `jobs` with exceptions."""
        return _Jobs(self, jobs)

    def random(self, random: Random) -> Random:
        """Return `random` with exceptions."""
        return _Random(self, random)

    def timers(self, timers: Timers) -> Timers:
        """Return `timers` with exceptions."""
        return _Timers(self, timers)

    # -- used by the wrapped ports -------------------------------------------------------------

    def strikes(self, name: str) -> When | None:
        """Count a call; return when it must raise, or None."""
        self.calls += 1
        if self.calls != self._at:
            return None
        self.raised.append(self._error)
        self.on_raise(f"{self._when.value} {name}")
        return self._when

    @property
    def error(self) -> Exception:
        """Return the exception for the current call."""
        return self.raised[-1]

    def call(self, name: str, do: Callable[[], T]) -> T:
        """Make a call that takes effect completely or not at all."""
        when = self.strikes(name)
        if when is None:
            return do()
        if when is not When.BEFORE:
            do()
        raise self.error


_OPENING = frozenset({"open_append", "open_existing", "open_read", "lock"})
"""The results of these calls must be closed, so they raise only before opening."""


class _Files:
    """The Files port."""

    def __init__(self, faults: Faults, files: Files) -> None:
        self._faults = faults
        self._files = files
        self.descriptors = files.descriptors
        # A pool of its own, so that files opened on demand raise, too.
        self._pool = FilePool(self.open_append, self.open_existing, self.descriptors, nullcontext())

    def open_on_demand(self, path: str) -> File:
        """Like `Files.open_on_demand`."""
        return self._pool.open(path)

    def __getattr__(self, name: str) -> Any:
        faults, method = self._faults, getattr(self._files, name)

        def call(*arguments: Any) -> Any:
            return faults.call(f"files.{name}", lambda: method(*arguments))

        def opening(*arguments: Any) -> Any:
            if faults.strikes(f"files.{name}"):
                raise faults.error
            opened = method(*arguments)
            return opened if name == "lock" else _File(faults, opened)

        wrapped = opening if name in _OPENING else call
        self.__dict__[name] = wrapped
        return wrapped


class _File:
    """The File port."""

    def __init__(self, faults: Faults, file: File) -> None:
        self._faults = faults
        self._file = file
        self.fileno, self.close, self.end_writing = file.fileno, file.close, file.end_writing

    @property
    def is_open(self) -> bool:
        """Like `File.is_open`."""
        return self._file.is_open

    def try_retain(self) -> bool:
        """Like `File.try_retain`."""
        return self._file.try_retain()

    def retain(self) -> _File:
        """Like `File.retain`; the holder's calls raise, too."""
        self._file.retain()
        return self

    def retain_for_writing(self, *, is_reserved: bool = False) -> _File:
        """Like `File.retain_for_writing`."""
        self._file.retain_for_writing(is_reserved=is_reserved)
        return self

    def append(self, data: Any) -> None:
        """Like `File.append`; may take effect partially."""
        when = self._faults.strikes(f"append {self.path}")
        if when is When.PARTWAY:
            self._file.append(memoryview(data)[: len(data) // 2])
        elif when is not When.BEFORE:
            self._file.append(data)
        if when is not None:
            raise self._faults.error

    def __getattr__(self, name: str) -> Any:
        faults, method = self._faults, getattr(self._file, name)
        if name == "path":
            return method

        def call(*arguments: Any) -> Any:
            return faults.call(f"{name} {self.path}", lambda: method(*arguments))

        self.__dict__[name] = call
        return call

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "path":
            self._file.path = value
        else:
            self.__dict__[name] = value


class _Jobs:
    """The Jobs port."""

    def __init__(self, faults: Faults, jobs: Jobs) -> None:
        self._faults = faults
        self._jobs = jobs

    def submit(self, lane: str, function: Callable[[], T]) -> Later[T]:
        """Like `Jobs.submit`."""
        when = self._faults.strikes(f"job on {lane}")
        if when is None:
            return self._jobs.submit(lane, function)
        error = self._faults.error
        if when is When.PARTWAY:
            return failed(error)

        def run() -> T:
            if when is When.AFTER:
                function()
            raise error

        return self._jobs.submit(lane, run)


class _Timers:
    """The Timers port."""

    def __init__(self, faults: Faults, timers: Timers) -> None:
        self._faults = faults
        self._timers = timers

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> Timer:
        """Like `Timers.call_later`; a call that raises has no effect."""
        if self._faults.strikes("call_later"):
            raise self._faults.error
        return self._timers.call_later(delay_ms, function)


class _Random:
    """The Random port."""

    def __init__(self, faults: Faults, random: Random) -> None:
        self._faults = faults
        self._random = random

    def random_bytes(self, length: int) -> bytes:
        """Like `Random.random_bytes`."""
        return self._faults.call("random_bytes", lambda: self._random.random_bytes(length))

    def randrange(self, stop: int) -> int:
        """Like `Random.randrange`."""
        return self._faults.call("randrange", lambda: self._random.randrange(stop))
