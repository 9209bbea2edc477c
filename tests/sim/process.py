"""One life of the broker: from the start of its process to its clean or sudden end.

Everything that a life schedules ends with it. An exception from the broker's code is a `crash`;
`SimCrash`, which the file system raises at a planned moment, is not, and propagates to the world.
The periodic tasks, which a reactor runs in a real broker, run here in virtual time.
"""

from __future__ import annotations

import random
import traceback
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from plogd.apis.dispatch import Dispatched, Dispatcher
from plogd.broker import Broker
from plogd.descriptor_budget import DescriptorBudget
from plogd.file_pool import FilePool
from plogd.log.file_names import LOG_SUFFIX, segment_path
from plogd.log.log import Log
from plogd.metrics import Registry
from plogd.net.request_queue import RequestSlots
from plogd.ports import File, Files, Later, Ports, Turn
from plogd.work import InPlaceWork
from tests.helpers.sim.sim_files import SimFile, SimFiles
from tests.helpers.sim.sim_ports import SimRandom
from tests.helpers.sim.sim_time import LifeTimers
from tests.sim.checker import Anomaly
from tests.sim.jobs import SlowJobs

if TYPE_CHECKING:
    from plogd.connection_context import ConnectionContext
    from tests.sim.host import Host

_REPORTS_KEPT = 12


class Process:
    """The broker's process. `Service` decides how it ends; see service.py."""

    def __init__(self, world: Host, number: int) -> None:
        self.number = number
        self.is_serving = False
        self.reloads = 0
        """How often a coordinator has discarded its state."""
        self._logs: list[Log] = []
        self.reports: deque[str] = deque(maxlen=_REPORTS_KEPT)
        self._world = world
        self.timers = self._make_timers()
        chance = random.Random(world.chance.random())
        self.jobs = SlowJobs(self.timers, chance, world.max_job_ms)
        faults = world.exceptions.faults
        self.turn = Turn(self.timers)  # The shell delivers the results of jobs in a turn.
        self._files = _CountedFiles(world.files)
        self.slots = RequestSlots(world.config.queued_max_requests)
        ports = Ports(
            clock=world.clock,
            timers=self.timers,
            files=cast(Files, self._files),
            random=SimRandom(chance.randrange(1 << 30)),
            jobs=self.jobs,
            # Every other life recovers its logs on threads.
            work=InPlaceWork(
                cast(Files, self._files), worthwhile_bytes=1 if number % 2 else 1 << 62
            ),
            turn=self.turn,
            report=self.report,
        )
        self.broker = self._make_broker(
            replace(faults.ports(ports), timers=faults.timers(self.timers)),
            metrics=Registry(),
            on_bug=lambda where, error: world.fail(error),
        )
        self._dispatcher = Dispatcher(self.broker)
        self.broker.on_must_stop = self._must_stop
        world.slow_directory.apply_to(self)

    def _make_timers(self) -> LifeTimers:
        return LifeTimers(self._world.timers, self._world.fail)

    def _make_broker(self, ports: Ports, **parts: Any) -> Broker:
        return Broker(self._world.config, ports, **parts)

    def start(self) -> None:
        """Start the broker; calls `Service.started` or `Service.failed` when finished."""
        self.timers.call_later(0, self._start)

    def _start(self) -> None:
        self._begin_start().then(
            lambda _: self._started(), lambda error: self._world.service.failed(self, error)
        )

    def _begin_start(self) -> Later[None]:
        return self.broker.start()

    def _started(self) -> None:
        self.is_serving = True
        for task in self._world.tasks:
            self._repeat(task.interval_ms, task.function)
        self._world.service.started(self)

    def stop(self) -> None:
        """Begin a clean stop; calls `Service.stopped` when finished."""
        self.is_serving = False
        self._logs = list(self.broker.log_manager.logs.values())
        self.broker.stop().then(
            lambda _: self._stopped(),
            lambda error: self._world.service.failed(self, error),
        )

    def _stopped(self) -> None:
        """Check that a clean stop leaves no pending requests and no open logs."""
        replicas = self.broker.replica_manager
        waiting = replicas.waiting_produces + len(replicas.delayed_fetches)
        if waiting:
            raise Anomaly("leaked-wait", f"{waiting} requests are pending in a stopped broker")
        paths = {
            segment_path(log.directory, segment.base_offset, LOG_SUFFIX)
            for log in self._logs
            for segment in log.segments
        }
        leaked = [path for path in self._files.still_open if path in paths]
        if leaked and not self._world.service.has_met_faults:
            raise Anomaly("leaked-file", f"open after a clean stop: {leaked}")
        self._world.service.stopped(self)

    def _must_stop(self, why: str) -> None:
        """Exit and restart the process; the only reason is that no log directory is left."""
        self.timers.call_later(0, self._give_up)

    def _give_up(self) -> None:
        self._world.service.end(power_loss=False)

    def end(self) -> None:
        """End the process: none of its code runs any more."""
        self.timers.end()
        self.is_serving = False

    def dispatch(self, frame: memoryview, context: ConnectionContext) -> Dispatched:
        """Dispatch a request from the network."""
        return self._dispatcher(frame, context)

    def report(self, message: str, **fields: object) -> None:
        """Trace an event that the broker would log."""
        text = message.format(**fields)
        if "and will reload in" in text:
            self.reloads += 1
            self._world.service.coordinator_reloads()
        if text.startswith(("wrote metadata snapshot", "loaded metadata snapshot")):
            self._world.count(f"metadata snapshots {text.split()[0]}")
        self._world.compaction_faults.reported(message, fields)
        self.reports.append(text)
        self._world.trace(f"broker: {text}")

    def _repeat(self, interval_ms: float, function: Callable[[Broker], Later[Any] | None]) -> None:
        """Run a task, wait for its end, and repeat it after its interval, as tasks.py does."""

        def again(_: object = None) -> None:
            self.timers.call_later(interval_ms, run)

        def failed(error: Exception) -> None:
            self._world.fail(error)
            again()

        def run() -> None:
            if not self.is_serving:
                return
            try:
                later = function(self.broker)
            except Exception as error:
                failed(error)
                return
            if later is None:
                again()
            else:
                later.then(again, failed)

        again()

    def crash(self, error: Exception) -> Exception:
        """Return the anomaly for an exception from the broker."""
        if isinstance(error, Anomaly):
            return error
        lines = traceback.format_exception(error)
        return Anomaly("crash", "\n".join([*self.reports, "".join(lines)]))


class _FewOpenFiles(DescriptorBudget):
    """Closes log files constantly, as a broker with thousands of segments does."""

    max_idle = 3


class _CountedFiles:
    """The Files port of one life, which remembers all opened files."""

    def __init__(self, files: SimFiles) -> None:
        self._files = files
        self._opened: list[weakref.ref[SimFile]] = []
        self.descriptors = _FewOpenFiles()
        self._pool = FilePool(self.open_append, self.open_existing, self.descriptors, nullcontext())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def open_append(self, path: str) -> File:
        return self._remember(self._files.open_append(path))

    def open_existing(self, path: str) -> File:
        return self._remember(self._files.open_existing(path))

    def open_on_demand(self, path: str) -> File:
        return self._pool.open(path)

    def open_read(self, path: str) -> File:
        return self._remember(self._files.open_read(path))

    def _remember(self, file: File) -> File:
        assert isinstance(file, SimFile)
        self._opened.append(weakref.ref(file))
        return file

    @property
    def still_open(self) -> list[str]:
        """Return the paths of the files that are still open."""
        files = [reference() for reference in self._opened]
        return [file.path for file in files if file is not None and file._holders]
