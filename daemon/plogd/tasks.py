"""Periodic tasks of the broker: a table with one row per task, and the loops that run them.

A row contains the setting with the task's interval and the function to call. Each task has its own
LoopingCall, so a call never starts while the previous call is waiting. The first call is made one
interval after startup. service.py starts and stops the tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from plog.settings import LONG_MAX, settings_of
from plogd.broker import Broker
from plogd.config import BrokerConfig
from plogd.metrics import Counter, Registry
from plogd.net.connections import Connections
from plogd.ports import Later
from plogd.supervision import Supervision

log = Logger()

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Generic[T]):
    """A periodic task: the function to call, and the setting with its interval in milliseconds.

    The function may return a Later; the next call waits for it.
    """

    name: str
    interval_setting: str
    function: Callable[[T], Later[Any] | None]

    def interval_ms(self, config: BrokerConfig) -> int:
        """Return the interval; the largest long value means never."""
        interval = config.value(settings_of(BrokerConfig)[self.interval_setting])
        assert isinstance(interval, int), f"{self.interval_setting} is not an interval"
        return interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The objects on which the broker's tasks operate."""

    broker: Broker
    connections: Connections
    supervision: Supervision


BROKER_TASKS: tuple[Task[Running], ...] = (
    Task(
        name="log-retention",
        interval_setting="log.retention.check.interval.ms",
        # The wall clock, because retention compares it with the timestamps of records.
        function=lambda at: at.broker.log_manager.apply_retention(at.broker.clock.now_ms()),
    ),
    Task(
        name="log-flush",
        interval_setting="log.flush.scheduler.interval.ms",
        # The monotonic clock, because flush.ms is an interval, which a clock change must not
        # shorten.
        function=lambda at: at.broker.log_manager.flush_overdue(at.broker.clock.monotonic_ms()),
    ),
    Task(
        name="recovery-point-checkpoint",
        interval_setting="log.flush.offset.checkpoint.interval.ms",
        function=lambda at: at.broker.log_manager.write_recovery_points(),
    ),
    Task(
        name="metadata-room",
        interval_setting="log.flush.offset.checkpoint.interval.ms",
        function=lambda at: at.broker.keep_room(),
    ),
    Task(
        name="log-start-offset-checkpoint",
        interval_setting="log.flush.start.offset.checkpoint.interval.ms",
        function=lambda at: at.broker.log_manager.write_log_starts(),
    ),
    Task(
        name="high-watermark-checkpoint",
        interval_setting="replica.high.watermark.checkpoint.interval.ms",
        function=lambda at: at.broker.log_manager.write_high_watermarks(),
    ),
    Task(
        name="producer-expiration",
        interval_setting="producer.id.expiration.check.interval.ms",
        # The monotonic clock: a clock change must not make the broker forget its producers.
        function=lambda at: at.broker.log_manager.expire_producers(at.broker.clock.monotonic_ms()),
    ),
    Task(
        name="offsets-cleanup",
        interval_setting="offsets.retention.check.interval.ms",
        function=lambda at: at.broker.group_coordinator.clean_up(),
    ),
    Task(
        name="idle-connections",
        interval_setting="plog.connections.sweep.interval.ms",
        function=lambda at: at.connections.sweep(),
    ),
    Task(
        name="status",
        interval_setting="plog.status.interval.ms",
        function=lambda at: at.supervision.update(),
    ),
)


class RunningTasks:
    """The tasks that `start_tasks` has started."""

    def __init__(self, loops: Sequence[tuple[LoopingCall, Deferred[LoopingCall]]]) -> None:
        self._loops = loops

    def stop(self) -> Deferred[None]:
        """Stop the loops; the Deferred fires when the calls in progress have ended."""
        for loop, _ in self._loops:
            # LoopingCall.stop raises an exception if the loop is not running.
            if loop.running:
                loop.stop()
        return gatherResults([ended for _, ended in self._loops]).addCallback(lambda _: None)


def start_tasks(
    tasks: Sequence[Task[T]],
    target: T,
    *,
    config: BrokerConfig,
    reactor: IReactorTime,
    registry: Registry,
) -> RunningTasks:
    """Call each task's function with `target` at its interval, until the tasks are stopped."""
    runs = registry.counters("plog_task_runs_total", "Runs of periodic tasks.", ("task",))
    failures = registry.counters(
        "plog_task_failures_total", "Failed runs of periodic tasks.", ("task",)
    )
    loops = []
    for task in tasks:
        interval_ms = task.interval_ms(config)
        if interval_ms >= LONG_MAX:
            continue
        run = _guarded(task, target, runs.labels(task.name), failures.labels(task.name))
        loop = _Loop(run, reactor)
        loops.append((loop, loop.start(interval_ms / 1000, now=False)))
    return RunningTasks(loops)


class _Loop(LoopingCall):
    """A LoopingCall that uses a given clock."""

    def __init__(self, function: Callable[[], object], clock: IReactorTime) -> None:
        # LoopingCall.__init__ is not called, because it imports the global reactor and so installs
        # it.
        self.f = function
        self.a = ()
        self.kw = {}
        self.clock = clock


def _guarded(
    task: Task[T], target: T, runs: Counter, failures: Counter
) -> Callable[[], Deferred[None] | None]:
    """Return a function that runs `task` and never fails."""

    def failed(failure: Failure | None = None) -> None:
        failures.inc()
        log.failure(
            "task {task} failed; it will run again at the next scheduled time",
            failure,
            task=task.name,
        )

    def run() -> Deferred[None] | None:
        runs.inc()
        try:
            # An exception would end a bare LoopingCall, so it is counted and logged here.
            later = task.function(target)
        except Exception:
            # Without a Failure, log.failure logs the exception that is being handled.
            failed()
            return None
        if later is None:
            return None
        ended: Deferred[None] = Deferred()
        later.then(lambda _: ended.callback(None), ended.errback)
        return ended.addErrback(failed)

    return run
