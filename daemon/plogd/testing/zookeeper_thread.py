"""A ZooKeeper for brokers in threads: a `MockZooKeeper` on a reactor in a thread of its own.

`ZooKeeperThread` is the ensemble. `ThreadedZooKeeperClient` is the client of one broker: it passes
requests to the ensemble's thread, and responses, watch events and states to the broker's reactor,
in order, as kazoo does with its own thread. Faults and sessions are those of mock_zookeeper.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from plog.zookeeper.operations import Operation, Result, SessionState, ZnodeStat
from plogd.metadata.zookeeper.port import Watch
from plogd.ports import Later
from plogd.system_clock import ReactorTimers
from plogd.testing.mock_time import MockTime, MovableClock, MovableReactor
from plogd.testing.mock_zookeeper import MockZooKeeper, MockZooKeeperClient

T = TypeVar("T")

_STOP_TIMEOUT_S = 60.0
_CALL_TIMEOUT_S = 120.0
"""Both only end a hanging test."""


class ZooKeeperThread:
    """An ensemble whose state is only used in its thread.

    `start` starts the thread, and `stop` ends it. After that, no client gets a response.
    """

    def __init__(self) -> None:
        self._reactor: Any = MovableReactor()
        timers: Any = ReactorTimers(self._reactor)
        self.ensemble = MockZooKeeper(MovableClock(self._reactor), timers)
        """Only for functions that are passed to `soon` or `call`."""
        self._time = MockTime(self._reactor)
        self._lock = threading.Lock()
        """Guards `_has_ended`."""
        self._has_ended = False
        # A daemon thread, so that an ensemble that was not stopped does not keep pytest from
        # exiting.
        self._thread = threading.Thread(target=self._run, name="plog-zookeeper", daemon=True)

    def start(self) -> None:
        """Start to serve."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self.soon(self._reactor.crash)
        self._thread.join(_STOP_TIMEOUT_S)

    def soon(self, function: Callable[[], object]) -> None:
        """Call `function` in the thread; it is dropped if the thread has ended."""
        with self._lock:
            # The reactor's descriptors may belong to other objects by now.
            if not self._has_ended:
                self._reactor.callFromThread(function)

    def call(self, function: Callable[[MockZooKeeper], T]) -> T:
        """Return the result of `function`, which is called in the thread with the ensemble."""
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(function(self.ensemble))
            # The caller's function may fail in any way.
            except Exception as error:
                done.set_exception(error)

        self.soon(run)
        return done.result(_CALL_TIMEOUT_S)

    def advance(self, seconds: float) -> Future[None]:
        """Let `seconds` pass for sessions and latencies."""
        done: Future[None] = Future()
        self.soon(
            lambda: self._time.advance(seconds).then(
                lambda _: done.set_result(None), done.set_exception
            )
        )
        return done

    def _run(self) -> None:
        try:
            # Signals belong to the test's process.
            self._reactor.run(installSignalHandlers=False)
        finally:
            with self._lock:
                self._has_ended = True
            # Twisted does not close a reactor's descriptors.
            for waker in list(self._reactor._internalReaders):
                waker.connectionLost(None)
            self._reactor._poller.close()


class ThreadedZooKeeperClient:
    """The connection of a broker on `reactor`; implements `ZooKeeperConnection`.

    All methods and callbacks run in the broker's thread, except those that say otherwise.
    """

    def __init__(self, zookeeper: ZooKeeperThread, reactor: Any, session_timeout_ms: int) -> None:
        self._zookeeper = zookeeper
        self._reactor = reactor
        self._session_timeout_ms = session_timeout_ms
        self._session_id = 0
        self._connected_s = 0.0
        """When the last connection was reported, because a handshake takes no time here."""
        self._listeners: list[Callable[[SessionState], None]] = []
        self._client: MockZooKeeperClient | None = None
        """Only used in ZooKeeper's thread."""
        self._is_cut = False
        """Whether the test has cut the connection; only used in ZooKeeper's thread."""
        self._lock = threading.Lock()
        """Guards `_has_ended`."""
        self._has_ended = False

    # -- the port -----------------------------------------------------------------------------

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_timeout_ms(self) -> int:
        return self._session_timeout_ms

    @property
    def handshake_age_ms(self) -> float:
        age_s: float = self._reactor.seconds() - self._connected_s
        return age_s * 1000

    @property
    def problem(self) -> str:
        return "the test's ZooKeeper does not respond"

    def listen(self, on_state: Callable[[SessionState], None]) -> None:
        self._listeners.append(on_state)

    def start(self) -> None:
        self._zookeeper.soon(self._connect)

    def get(self, path: str, watch: Watch | None = None) -> Later[tuple[bytes, ZnodeStat]]:
        return self._ask(lambda client: client.get(path, self._from_thread(watch)))

    def exists(self, path: str, watch: Watch | None = None) -> Later[ZnodeStat | None]:
        return self._ask(lambda client: client.exists(path, self._from_thread(watch)))

    def children(self, path: str, watch: Watch | None = None) -> Later[list[str]]:
        return self._ask(lambda client: client.children(path, self._from_thread(watch)))

    def multi(self, operations: Sequence[Operation]) -> Later[list[Result]]:
        return self._ask(lambda client: client.multi(operations))

    def sync(self) -> Later[None]:
        return self._ask(lambda client: client.sync())

    def confirm(self) -> Later[None]:
        return self._ask(lambda client: client.confirm())

    def close(self) -> Later[None]:
        return self._ask(lambda client: client.close())

    # -- for tests, in any thread -------------------------------------------------------------

    def cut(self) -> None:
        """Cut the connection to ZooKeeper, also one that is made later."""
        self._zookeeper.soon(lambda: self._set_cut(True))

    def heal(self) -> None:
        """Restore the connection to ZooKeeper."""
        self._zookeeper.soon(lambda: self._set_cut(False))

    def end(self) -> None:
        """End the connection with the broker's process; its session lasts until its timeout."""
        with self._lock:
            self._has_ended = True
        self._zookeeper.soon(self._kill)

    # -- in ZooKeeper's thread ----------------------------------------------------------------

    def _connect(self) -> None:
        timeout_ms = self._session_timeout_ms
        self._client = self._zookeeper.ensemble.connect(session_timeout_ms=timeout_ms)
        self._client.listen(self._changed)
        if self._is_cut:
            self._client.cut()

    def _kill(self) -> None:
        if self._client is not None:
            self._client.kill()

    def _set_cut(self, is_cut: bool) -> None:
        if self._is_cut == is_cut:
            return
        self._is_cut = is_cut
        if self._client is not None:
            if is_cut:
                self._client.cut()
            else:
                self._client.restore()

    def _changed(self, state: SessionState) -> None:
        session_id = 0 if self._client is None else self._client.session_id
        self._deliver(lambda: self._report(state, session_id))

    def _deliver(self, function: Callable[[], object]) -> None:
        """Call `function` in the broker's thread, after everything delivered before."""
        with self._lock:
            # The descriptors of the broker's reactor may belong to other objects by now.
            if not self._has_ended:
                self._reactor.callFromThread(function)

    def _from_thread(self, watch: Watch | None) -> Watch | None:
        return None if watch is None else lambda: self._deliver(watch)

    # -- in the broker's thread ---------------------------------------------------------------

    def _report(self, state: SessionState, session_id: int) -> None:
        self._session_id = session_id
        self._connected_s = self._reactor.seconds()
        for listener in list(self._listeners):
            listener(state)

    def _ask(self, ask: Callable[[MockZooKeeperClient], Later[T]]) -> Later[T]:
        later: Later[T] = Later()

        def run() -> None:
            assert self._client is not None, "the client has not started"
            ask(self._client).then(
                lambda value: self._deliver(lambda: later.succeed(value)),
                lambda error: self._deliver(lambda: later.fail(error)),
            )

        self._zookeeper.soon(run)
        return later
