"""A Twisted reactor in its own daemon thread, for the blocking face.

All blocking clients of a process share one reactor. It never becomes the global reactor, so the
application can use any global reactor, or none. After a fork, the reactor's thread does not exist
in the child. The child's copies of the sockets are closed without sending bytes to the brokers,
clients created before the fork raise `ForkedError`, and new clients get a new reactor.
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
    """A client that uses the reactor."""

    def _forked(self) -> None:
        """In the child of a fork, raise `ForkedError` from now on, without acquiring a lock."""
        ...


class PrivateReactor:
    """The private reactor of a process, with its thread. Use `current` to get it."""

    _current: PrivateReactor | None = None
    _lock = threading.Lock()

    @classmethod
    def current(cls) -> PrivateReactor:
        """Return the reactor of this process; start it on the first call."""
        with cls._lock:
            if cls._current is None:
                cls._current = cls()
            return cls._current

    def __init__(self) -> None:
        self.reactor = _make_reactor()
        self._clients: weakref.WeakSet[Client] = weakref.WeakSet()
        self.is_forked = False
        """Whether this is a copy in the child of a fork."""
        running = threading.Event()
        self.reactor.callWhenRunning(running.set)
        # With a daemon thread, an application can exit even if it does not close its clients.
        self._thread = threading.Thread(target=self._run, name="plog-client", daemon=True)
        self._thread.start()
        if not running.wait(_START_TIMEOUT_S):
            raise RuntimeError("cannot start the client's thread")

    def _run(self) -> None:
        # When a reactor starts, Twisted registers its thread as the process's I/O thread. Restore
        # the value, which may belong to the application's own reactor.
        declared = threadable.ioThread
        self.reactor.callWhenRunning(setattr, threadable, "ioThread", declared)
        # Only the main thread can install signal handlers, and they belong to the application.
        self.reactor.run(installSignalHandlers=False)

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller is in the reactor's thread, which must not wait for itself."""
        return threading.current_thread() is self._thread

    @classmethod
    def check_caller(cls) -> None:
        """Raise IllegalState in the reactor's thread, where a blocking call would never return."""
        current = cls._current
        if current is not None and current.is_own_thread:
            raise IllegalState(
                "cannot block in the client's own thread: this thread runs the callbacks and"
                " would wait for itself; make the call in an application thread"
            )

    def soon(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call `function` in the reactor's thread. Thread-safe."""
        self._check_fork()
        self.reactor.callFromThread(function, *arguments)

    def run(
        self, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any, **options: Any
    ) -> T:
        """Run the coroutine of `function` in the reactor's thread and return its result.

        If the wait is interrupted, for example by Ctrl-C, the coroutine is cancelled, and the call
        does not wait for its end.
        """
        return self.wait_for(self.begin(function, *arguments, **options))

    def begin(
        self, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any, **options: Any
    ) -> Running[T]:
        """Start the coroutine of `function` in the reactor's thread without waiting for it."""
        self.check_caller()
        running: Running[T] = Running()
        self.soon(running.start, function, arguments, options)
        return running

    def wait_for(self, running: Running[T], timeout_s: float | None = None) -> T:
        """Wait for a coroutine that `begin` started. Raises TimeoutError after `timeout_s`."""
        try:
            return running.outcome.result(timeout_s)
        except BaseException:
            # After Ctrl-C or a timeout, the coroutine must not continue unobserved.
            if not running.outcome.done():
                self.soon(running.cancel)
            raise

    def _check_fork(self) -> None:
        if self.is_forked:
            raise ForkedError(
                "the client was created before a fork; create a new one in the child process"
            )

    def add(self, client: Client) -> None:
        """Notify `client` of forks from now on."""
        self._clients.add(client)

    def _forget(self) -> None:
        """In the child of a fork, close the copies of sockets that the parent still uses."""
        self.is_forked = True
        # Clients must not acquire locks here: a thread that exists only in the parent may hold
        # them.
        for client in self._clients:
            client._forked()
        reactor = self.reactor
        for descriptor in {*reactor.getReaders(), *reactor.getWriters()}:
            # Only close the copies; a shutdown would end the parent's connection.
            number = descriptor.fileno()
            if number >= 0:
                os.close(number)
        # The child shares the epoll instance with the parent, so it must not change registrations.
        poller = getattr(reactor, "_poller", None)
        if poller is not None and hasattr(poller, "close"):
            poller.close()


class Running(Generic[T]):
    """A coroutine that runs in the reactor's thread; other threads wait for its `outcome`."""

    def __init__(self) -> None:
        self.outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._deferred: Deferred[T] | None = None

    def start(
        self,
        function: Callable[..., Coroutine[Any, Any, T]],
        arguments: tuple[Any, ...],
        options: dict[str, Any],
    ) -> None:
        """Start the coroutine. Call this in the reactor's thread."""
        try:
            coroutine = function(*arguments, **options)
        except Exception as error:  # For example, the arguments do not match the parameters.
            self.outcome.set_exception(error)
            return
        self._deferred = Deferred.fromCoroutine(coroutine)
        # If the coroutine is already done, the callback runs immediately.
        self._deferred.addCallbacks(self.outcome.set_result, self._failed)

    def _failed(self, failure: Failure) -> None:
        self.outcome.set_exception(failure.value)

    def cancel(self) -> None:
        """Cancel the coroutine. Call this in the reactor's thread."""
        if self._deferred is not None and not self.outcome.done():
            self._deferred.cancel()


def _after_fork() -> None:
    """Discard the reactor in the child of a fork, without acquiring a lock."""
    before, PrivateReactor._current = PrivateReactor._current, None
    # A thread that exists only in the parent may have held the old lock during the fork.
    PrivateReactor._lock = threading.Lock()
    if before is not None:
        before._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _make_reactor() -> Any:
    """Return the best reactor available on this system, without installing it."""
    try:
        from twisted.internet.epollreactor import EPollReactor
    except ImportError:
        from twisted.internet.selectreactor import SelectReactor

        return SelectReactor()
    return EPollReactor()
