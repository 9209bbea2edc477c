"""A reactor in a daemon thread of its own, for code that blocks and knows nothing of Twisted.

All blocking clients of a process share one. It never becomes the global reactor: an application
may have that one, of any kind, or none. After a fork the child has neither the thread nor anything
it held: its copies of the sockets are closed without a word to the brokers, clients made before
the fork raise `ForkedError`, and new ones get a reactor of their own.
"""

from __future__ import annotations

import concurrent.futures
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.python import threadable
from twisted.python.failure import Failure

from plog.client.errors import ForkedError, IllegalState

T = TypeVar("T")

_START_TIMEOUT_S = 30


class Client(Protocol):
    """Who uses the reactor."""

    def _forked(self) -> None:
        """In the child of a fork: raise `ForkedError` from now on, and take no lock."""
        ...


class PrivateReactor:
    """See the module's text; `current` gives this process' one."""

    _current: PrivateReactor | None = None
    _lock = threading.Lock()

    @classmethod
    def current(cls) -> PrivateReactor:
        """The reactor of this process, started if there is none."""
        with cls._lock:
            if cls._current is None:
                cls._current = cls()
            return cls._current

    def __init__(self) -> None:
        self.reactor = _make_reactor()
        self._clients: weakref.WeakSet[Client] = weakref.WeakSet()
        self.is_forked = False
        """Whether this is the copy that a fork has left in the child."""
        running = threading.Event()
        self.reactor.callWhenRunning(running.set)
        self._thread = threading.Thread(target=self._run, name="plog-client", daemon=True)
        self._thread.start()
        if not running.wait(_START_TIMEOUT_S):
            raise RuntimeError("the client's thread does not start")

    def _run(self) -> None:
        # A starting reactor declares its thread the one for I/O, as if it were the only one.
        declared = threadable.ioThread
        self.reactor.callWhenRunning(setattr, threadable, "ioThread", declared)
        self.reactor.run(installSignalHandlers=False)

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller is the reactor's thread, which must not wait for itself."""
        return threading.current_thread() is self._thread

    @classmethod
    def check_caller(cls) -> None:
        """Raise IllegalState in the thread that all blocking calls wait for."""
        current = cls._current
        if current is not None and current.is_own_thread:
            raise IllegalState(
                "this was called in the client's own thread, by a callback for instance, which"
                " must not wait for itself: hand it to a thread of the application"
            )

    def soon(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call `function` in the reactor's thread. From any thread."""
        self._check_fork()
        self.reactor.callFromThread(function, *arguments)

    def run(
        self, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any, **options: Any
    ) -> T:
        """What the coroutine of `function` returns or raises, run in the reactor's thread.

        Interrupted (Ctrl-C), it is told to end, and nobody waits for that.
        """
        return self.wait_for(self.begin(function, *arguments, **options))

    def begin(
        self, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any, **options: Any
    ) -> Running[T]:
        """Start the coroutine of `function` in the reactor's thread; nobody waits for its end."""
        self.check_caller()
        running: Running[T] = Running()
        self.soon(running.start, function, arguments, options)
        return running

    def wait_for(self, running: Running[T], timeout_s: float | None = None) -> T:
        """The outcome of what was begun. Raises TimeoutError if it is not there in time."""
        try:
            return running.outcome.result(timeout_s)
        except BaseException:
            if not running.outcome.done():
                self.soon(running.cancel)
            raise

    def _check_fork(self) -> None:
        if self.is_forked:
            raise ForkedError("the client was made before a fork: make a new one in the child")

    def add(self, client: Client) -> None:
        """Have `client` told of forks."""
        self._clients.add(client)

    def _forget(self) -> None:
        """In the child of a fork: close its copies of what the parent goes on using."""
        self.is_forked = True
        for client in self._clients:
            client._forked()
        reactor = self.reactor
        for descriptor in {*reactor.getReaders(), *reactor.getWriters()}:
            number = descriptor.fileno()
            if number >= 0:
                os.close(number)
        poller = getattr(reactor, "_poller", None)
        if poller is not None and hasattr(poller, "close"):
            poller.close()


class Running(Generic[T]):
    """A coroutine that runs in the reactor's thread; `outcome` is for any other thread."""

    def __init__(self) -> None:
        self.outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._deferred: Deferred[T] | None = None

    def start(
        self,
        function: Callable[..., Coroutine[Any, Any, T]],
        arguments: tuple[Any, ...],
        options: dict[str, Any],
    ) -> None:
        """Begin, in the reactor's thread."""
        try:
            coroutine = function(*arguments, **options)
        except Exception as error:  # Wrong arguments, say: whoever waits has given them.
            self.outcome.set_exception(error)
            return
        self._deferred = Deferred.fromCoroutine(coroutine)
        self._deferred.addCallbacks(self.outcome.set_result, self._failed)

    def _failed(self, failure: Failure) -> None:
        self.outcome.set_exception(failure.value)

    def cancel(self) -> None:
        """Tell it to end, in the reactor's thread."""
        if self._deferred is not None and not self.outcome.done():
            self._deferred.cancel()


def _after_fork() -> None:
    """In the child: there is no thread, and no lock that it may hold."""
    before, PrivateReactor._current = PrivateReactor._current, None
    PrivateReactor._lock = threading.Lock()
    if before is not None:
        before._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _make_reactor() -> Any:
    """The best reactor there is on this system, not installed as anything."""
    try:
        from twisted.internet.epollreactor import EPollReactor
    except ImportError:
        from twisted.internet.selectreactor import SelectReactor

        return SelectReactor()
    return EPollReactor()
