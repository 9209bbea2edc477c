"""A broker in a thread of this process: the real service on its own reactor.

It starts ten times as fast as a process, and a debugger can inspect it. It does not change the
test's process (embedded_process.py), and does not use, install or import Twisted's global reactor.
`_Run` releases the resources that the end of a process would release, and closes every descriptor
when its reactor ends.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from twisted.logger import Logger, globalLogPublisher

from plogd.config import ConfigError, load_config
from plogd.logging import stream_observer
from plogd.net.poller import Poller
from plogd.service import BrokerService
from plogd.testing.controlled_machine import ControlledMachine
from plogd.testing.controls import Controls
from plogd.testing.embedded_process import EmbeddedProcess, ThreadObserver
from plogd.testing.mock_time import MovableReactor
from plogd.testing.ready_socket import addresses_in
from plogd.testing.running_broker import (
    ASK_TIMEOUT_S,
    NOT_RUNNING,
    RUNS_ALREADY,
    START_TIMEOUT_S,
    STOP_TIMEOUT_S,
    BrokerFailed,
    RunningBroker,
)

log = Logger()


class BrokerThread(RunningBroker):
    """A broker in a thread of this process, with its own reactor.

    `kill` ends the broker as SIGKILL would: only data already passed to the operating system is
    written, and clients lose their connections.
    """

    _run: _Run | None = None

    @property
    def is_running(self) -> bool:
        """Return whether the broker's thread is running."""
        return self._run is not None and self._run.is_alive

    def start(self) -> None:
        """Start the broker and wait until it is ready. Raises BrokerFailed if it fails to start."""
        if self.is_running:
            raise BrokerFailed(RUNS_ALREADY)
        self.data_dir.mkdir(parents=True, exist_ok=True)
        started_s = time.monotonic()
        try:
            run = self._run = _Run(
                self._assignments(), self.log_path, self._moved_s, self._make_machine
            )
        except ConfigError as error:
            raise BrokerFailed(f"cannot start the broker: invalid settings:\n{error}") from error
        run.thread.start()
        addresses = self._wait_until_ready(run)
        self._serves(addresses, time.monotonic() - started_s)

    def stop(self) -> None:
        """Stop the broker as SIGTERM does. Raises BrokerFailed if it does not stop cleanly."""
        run = self._running()
        if run.is_alive:
            # The broker may be ending already; its exit code is checked below.
            with contextlib.suppress(BrokerFailed):
                self.hooks.reset()
            run.soon(run.reactor.stop)
        self._join(run)
        if run.exit_code != 0:
            raise BrokerFailed(f"the broker stopped with code {run.exit_code}\n{self._log_tail()}")

    def kill(self) -> None:
        """End the broker immediately, without a flush or a clean shutdown marker."""
        run = self._running()
        if run.is_alive:
            with contextlib.suppress(BrokerFailed):
                self.hooks.reset()
            run.soon(run.die)
        self._join(run)

    def reload(self) -> None:
        """Reload the broker's settings, and wait until the reload is done."""
        run = self._running()
        run.soon(lambda: run.service.reload())
        self._wait_until_ready(run)

    def _make_machine(self, reactor: MovableReactor) -> ControlledMachine:
        """Return the ports of the next run."""
        # The interpreter's switch interval applies to the whole process, which is the test's.
        return ControlledMachine(reactor, switch_interval_s=None)

    def _wait_until_ready(self, run: _Run) -> list[str]:
        try:
            status = run.process.statuses.get(timeout=START_TIMEOUT_S)
        except queue.Empty:
            where = run.where()
            self.kill()
            raise BrokerFailed(
                f"the broker did not become ready\n{where}{self._log_tail()}"
            ) from None
        if status is None:
            self._join(run)
            raise BrokerFailed(f"the broker exited with code {run.exit_code}\n{self._log_tail()}")
        return addresses_in(status)

    def _join(self, run: _Run) -> None:
        run.thread.join(STOP_TIMEOUT_S)
        # Forgotten even if the thread hangs, so that the test can start another broker.
        self._run = None
        self._has_to_run = False
        self.hooks.forget()
        if run.is_alive:
            raise BrokerFailed(f"the broker did not stop\n{run.where()}{self._log_tail()}")

    def _running(self) -> _Run:
        if self._run is None:
            raise BrokerFailed(NOT_RUNNING)
        return self._run

    def _ask(self, command: str, *, timeout_s: float = ASK_TIMEOUT_S, **arguments: Any) -> Any:
        run = self._running()
        asked = run.asked(command, arguments)
        try:
            return asked.result(timeout_s)
        except TimeoutError:
            if asked.done():  # The command itself has failed with this error.
                raise
            raise TimeoutError(
                f"{command}: the broker did not respond within {timeout_s:g} s"
            ) from None


class _Run:
    """One run of a broker. Methods run on the reactor's thread unless marked otherwise."""

    def __init__(
        self,
        assignments: list[str],
        log_path: Path,
        offset_s: float,
        make_machine: Callable[[MovableReactor], ControlledMachine],
    ) -> None:
        self._loaded = load_config([], assignments)
        self._load = lambda: load_config([], assignments)
        self._log_path = log_path
        self.process = EmbeddedProcess()
        self.reactor: Any = MovableReactor(offset_s)
        self.machine = make_machine(self.reactor)
        self.exit_code = 1  # Unless the service ends normally.
        self.service: BrokerService
        self._controls: Controls
        self._stop_trigger: Any = None
        self._observer: ThreadObserver | None = None
        self._is_forked = False
        self._has_ended = False
        self._lock = threading.Lock()
        """Guards `_has_ended` for other threads."""
        self._asked: set[Future[Any]] = set()
        """The futures of commands in progress."""
        # A daemon thread, so that a broker that was not stopped does not keep pytest from exiting.
        self.thread = threading.Thread(target=self._run, name="plog-broker", daemon=True)
        _RUNS.add(self)

    # -- for any thread -------------------------------------------------------------------------

    @property
    def is_alive(self) -> bool:
        """Return whether the thread is running; False in a forked child."""
        return self.thread.is_alive() and not self._is_forked

    def soon(self, function: Any) -> None:
        """Call `function` on the reactor's thread. Raises BrokerFailed if the thread has ended."""
        with self._lock:
            if self._has_ended or not self.is_alive:
                raise BrokerFailed(NOT_RUNNING)
            # The only method of a reactor that other threads may call.
            self.reactor.callFromThread(function)

    def asked(self, command: str, arguments: dict[str, Any]) -> Future[Any]:
        """Start a command; its future fails with BrokerFailed if the broker ends first."""
        asked: Future[Any] = Future()
        self._asked.add(asked)  # Before the call, because the broker may end at any time.
        try:
            self.soon(lambda: self._ask(command, arguments, asked))
        except BrokerFailed:
            self._asked.discard(asked)
            raise
        return asked

    def where(self) -> str:
        """Return the thread's stack, for the message of a timeout."""
        frame = sys._current_frames().get(self.thread.ident or 0)
        return "" if frame is None else "".join(traceback.format_stack(frame))

    # -- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with self._log_path.open("a") as stream:
                # The log of the test's process is not changed: the observer writes only this
                # thread's events to a file.
                lines = stream_observer(stream, {}, self._loaded.config.plog_log_level)
                self._observer = ThreadObserver(lines)
                globalLogPublisher.addObserver(self._observer)
                try:
                    self._serve(lines)
                except Exception:
                    log.failure("the broker's thread failed")
                    self.exit_code = 1
                finally:
                    self._end()
        finally:
            _RUNS.discard(self)
            self.process.statuses.put(None)

    def _serve(self, observer: Any) -> None:
        service = self.service = BrokerService(
            self._loaded,
            self.reactor,
            load=self._load,
            observer=observer,
            machine=self.machine,
            process=self.process,
        )
        self._controls = Controls(service, self.machine)
        service.startService()
        self._stop_trigger = self.reactor.addSystemEventTrigger(
            "before", "shutdown", service.stopService
        )
        # Signals belong to the test's process, and only its main thread may handle them.
        self.reactor.run(installSignalHandlers=False)
        self.exit_code = service.exit_code

    def _ask(self, command: str, arguments: dict[str, Any], asked: Future[Any]) -> None:
        def answered() -> None:
            self._asked.discard(asked)

        def on_value(value: Any) -> None:
            answered()
            asked.set_result(value)

        def on_error(error: Exception) -> None:
            answered()
            asked.set_exception(error)

        self._controls.do(command, arguments).then(on_value, on_error)

    def die(self) -> None:
        """End the broker immediately, without further work or log events."""
        # A killed process does not log anything about its end.
        self._silence()
        if self.machine.jobs is not None:
            self.machine.jobs.abandon()
        # A killed process does not run stopService.
        self.reactor.removeSystemEventTrigger(self._stop_trigger)
        # Unlike stop, crash ends the loop without waiting for any shutdown triggers.
        self.reactor.crash()
        self.reactor.disconnectAll()

    def _end(self) -> None:
        """Release everything that the end of a process would release."""
        # From now on, `soon` raises BrokerFailed, so no command is added to those that fail here.
        with self._lock:
            self._has_ended = True
        while self._asked:
            self._asked.pop().set_exception(BrokerFailed("the broker has ended"))
        if self.machine.jobs is not None:
            self.machine.jobs.close()
        self.machine.end()
        self._silence()
        self._close_reactor()
        # Last, because jobs may use the files until their threads have ended.
        self.machine.files.close()

    def _silence(self) -> None:
        if self._observer is not None:
            globalLogPublisher.removeObserver(self._observer)
            self._observer = None

    def _close_reactor(self) -> None:
        # Twisted does not close a reactor's descriptors, because the global reactor exists until
        # the process ends.
        self.reactor.disconnectAll()
        for waker in list(self.reactor._internalReaders):
            waker.connectionLost(None)
        self.reactor._poller.close()

    def forget(self) -> None:
        """Close the inherited descriptors in a forked child, in which the thread does not exist."""
        # No lock is taken, because a thread that does not exist in the child may hold it.
        self._is_forked = True
        for selectable in {*self.reactor.getReaders(), *self.reactor.getWriters()}:
            if isinstance(selectable, Poller):
                selectable.forget()
                continue
            held = getattr(selectable, "socket", selectable)
            close = getattr(held, "close", None)
            if close is not None:
                close()
        for waker in list(self.reactor._internalReaders):
            waker.connectionLost(None)
        self.reactor._poller.close()
        self.machine.files.close()


# Weak references, so that a run can be freed when its broker is no longer used.
_RUNS: weakref.WeakSet[_Run] = weakref.WeakSet()


def _after_fork() -> None:
    for run in list(_RUNS):
        run.forget()


# Otherwise, a forked child would keep the broker's ports and files open.
os.register_at_fork(after_in_child=_after_fork)
