"""A machine of a cluster: a broker with a disk and clocks of its own, and its own faults.

The broker's process, its service manager and the nemesis are those of a run with one broker. The
random choices of a machine depend only on the seed and its number.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from plogd.log.log import Log
from plogd.metadata.store import DuplicateBrokerId
from plogd.metadata.zookeeper.store import ZooKeeperUnavailable
from plogd.ports import Later
from plogd.testing.mock_zookeeper import MockZooKeeperClient
from tests.helpers.sim.sim_files import Operation, SimCrash, SimFiles
from tests.sim.checker import Anomaly
from tests.sim.cluster.cluster_plan import MACHINE_FAULTS, make_machine_config
from tests.sim.cluster.cluster_process import ClusterProcess
from tests.sim.cluster.durable_ends import DurableEnds
from tests.sim.cluster.machine_clock import MAX_DRIFT, MachineClock
from tests.sim.compaction_faults import CompactionFaults
from tests.sim.exceptions import Exceptions
from tests.sim.monitor import Monitor
from tests.sim.nemesis import Nemesis
from tests.sim.network import Network
from tests.sim.plan import LOG_DIRS, make_tasks
from tests.sim.service import Service
from tests.sim.slow_directory import SlowDirectory

if TYPE_CHECKING:
    from tests.sim.cluster.cluster_world import ClusterWorld

_FAST_JOB_MS = 0.5
"""The longest duration of a job when all faults have ended."""
_WALL_ERROR_MS = 2_000


class Machine:
    """The machine of broker `node_id`; a `Host`."""

    def __init__(self, cluster: ClusterWorld, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.seed = f"{cluster.seed} broker {node_id}"
        chance = self.chance = random.Random(f"machine {self.seed}")
        self.timers = cluster.timers
        self.clock = MachineClock(
            cluster.clock,
            rate=1 + chance.uniform(-MAX_DRIFT, MAX_DRIFT),
            wall_error_ms=chance.uniform(-_WALL_ERROR_MS, _WALL_ERROR_MS),
        )
        self.files = SimFiles(LOG_DIRS, clock=self.clock)
        self.files.sync_fs_supported = chance.random() < 0.5
        self.files.everything_cached = chance.random() < 0.8
        self.history = cluster.history
        self.plans = cluster.plans
        self.config = make_machine_config(cluster.config, node_id)
        self.tasks = make_tasks(chance, self.config)
        self.network = Network(
            cluster.clock, cluster.timers, random.Random(chance.random()), self.fail
        )
        self.network.broker_id = node_id
        self.network.at_server = self._at_server
        self.max_job_ms = 5.0
        self._job_limit_ms = float("inf")
        self.max_down_ms = 200.0
        self.crash_is_power_loss = True
        self.last_fault_ms = -1.0
        self.exceptions = Exceptions(self, is_enabled=False)
        self.slow_directory = SlowDirectory(self)
        self.compaction_faults = CompactionFaults(self, random.Random(chance.random()))
        self.service = Service(self)
        self.nemesis = Nemesis(self, kinds=MACHINE_FAULTS, paces_ms=(300, 1_500, 6_000))
        self.needs_check = False
        """Whether the broker has run since the last check."""
        self._monitor = Monitor() if cluster.with_monitor else None
        self._durable_ends = DurableEnds()
        self._rewrites: dict[Log, int] = {}
        self._troubles = 0

    # -- the process --------------------------------------------------------------------------

    @property
    def process(self) -> ClusterProcess | None:
        """The running process."""
        process = self.service.process
        assert process is None or isinstance(process, ClusterProcess)
        return process

    @property
    def is_serving(self) -> bool:
        """Whether clients can connect, and the process is not paused."""
        process = self.process
        return process is not None and process.is_serving and not process.timers.is_paused

    def make_process(self, number: int) -> ClusterProcess:
        """Return the process of the broker's next life."""
        return ClusterProcess(self, number)

    def explains(self, error: Exception) -> bool:
        """Whether a start or a stop may fail with this error without a fault of the disk."""
        # ZooKeeper may have had no quorum, or an earlier session of this broker may still exist.
        return isinstance(error, (ZooKeeperUnavailable, DuplicateBrokerId))

    def life_begins(self) -> None:
        """A new process of the broker is about to start."""
        self.trace(f"life {self.service.life_number} begins")
        self.cluster.event("process started")
        self.cluster.cuts.rejoin(self.node_id)
        if self._monitor is not None:
            self._monitor.new_life()
        self._rewrites.clear()
        self._durable_ends.new_life()
        self.files.append_ms = self.slow_directory.write_ms
        self.files.on_operation = self._operation_begins
        self.max_down_ms = self.chance.choice((100.0, 500.0, 3 * self.cluster.session_ms))

    def _operation_begins(self, operation: Operation) -> None:
        if self.cluster.traces_operations:
            self.trace(f"disk: {operation}")
        self.compaction_faults.operation_begins(operation)

    def unsynced_is_lost(self) -> None:
        """Do nothing: all topics of a cluster are durable."""

    def crashed(self, crash: SimCrash) -> None:
        """End the process in whose file operation a planned crash has occurred."""
        [operation] = crash.args
        self.service.end(
            power_loss=self.crash_is_power_loss,
            inside_append=isinstance(operation, Operation) and operation.name == "append",
        )

    def zookeeper_connected(self, client: MockZooKeeperClient) -> None:
        """The process has made its connection to ZooKeeper."""
        self.cluster.zookeeper_faults.connected(self, client)

    # -- pauses -------------------------------------------------------------------------------

    def pause(self) -> None:
        """Stop the process, as by SIGSTOP: time passes, and nothing reaches it."""
        process = self.process
        if process is None or process.timers.is_paused:
            return
        process.timers.pause()
        self.cluster.cuts.isolate(self.node_id)
        if process.zookeeper is not None:
            process.zookeeper.client.cut()

    def resume(self) -> None:
        """Let a paused process continue."""
        self.cluster.cuts.rejoin(self.node_id)
        process = self.process
        if process is None or not process.timers.is_paused:
            return
        process.timers.resume()
        zookeeper = process.zookeeper
        if zookeeper is not None:
            # After everything that the process has missed.
            process.timers.soon(zookeeper.client.restore)

    def _at_server(self, function: Callable[[], None]) -> None:
        """Call a function for a client when the process runs."""
        process = self.process
        if process is not None:
            process.timers.soon(function)

    # -- the host -----------------------------------------------------------------------------

    @property
    def working(self) -> bool:
        """Whether the clients are still working."""
        return self.cluster.working

    @property
    def name(self) -> str:
        """The machine's name in the trace."""
        return f"b{self.node_id}"

    def sleep(self, delay_ms: float) -> Later[None]:
        """Wait."""
        return self.cluster.sleep(delay_ms)

    def fail(self, error: Exception) -> None:
        """End the run."""
        process = self.service.process
        self.cluster.fail(error if process is None else process.crash(error))

    def trace(self, text: str) -> None:
        """Trace an event."""
        self.cluster.trace(f"{self.name}: {text}")

    def count(self, what: str, number: int = 1) -> None:
        """Count an event for the summary."""
        self.cluster.count(what, number)

    @contextmanager
    def trouble(self) -> Iterator[None]:
        """While the disk has faults, slow or missing responses are not a bug."""
        self._troubles += 1
        try:
            with self.cluster.trouble():
                yield
        finally:
            self._troubles -= 1

    def set_speed(self, *, job_ms: float | None = None, network_ms: float | None = None) -> None:
        """Set the longest duration of a job, and the longest delay of a frame."""
        if job_ms is not None:
            job_ms = min(job_ms, self._job_limit_ms)
            self.max_job_ms = job_ms
            if self.service.process is not None:
                self.service.process.jobs.max_ms = job_ms
        if network_ms is not None:
            self.network.max_delay_ms = network_ms

    def heal(self) -> None:
        """End all faults of this machine."""
        self.nemesis.heal()
        # Otherwise, without a page cache or with few descriptors, the jobs that one fetch needs
        # can take longer than a follower waits for the response.
        self.files.everything_cached = True
        self._job_limit_ms = _FAST_JOB_MS
        self.set_speed(job_ms=_FAST_JOB_MS)
        self.resume()

    # -- checks -------------------------------------------------------------------------------

    def will_run(self) -> None:
        """Note that the broker is about to run, so that its state must be checked."""
        self.needs_check = True

    def check(self) -> None:
        """Check the state of the broker after an event. Raises Anomaly."""
        if self._troubles:
            self.last_fault_ms = self.clock.monotonic_ms()
        process = self.process
        if not self.needs_check or process is None:
            return
        self.needs_check = False
        if self._monitor is not None:
            try:
                self._monitor.check(process.broker, self._truncating(process))
                self.cluster.replicas.check(self, process)
                self._durable_ends.check(self.files, process.broker)
            except Anomaly as anomaly:
                raise Anomaly(anomaly.name, f"{self.name}: {anomaly}") from None

    def _truncating(self, process: ClusterProcess) -> Collection[Log]:
        """Return the logs whose ends may have fallen since the last check."""
        found = set()
        for log in process.broker.log_manager.logs.values():
            if log.is_truncating or self._rewrites.setdefault(log, log.rewrites) != log.rewrites:
                found.add(log)
                self._rewrites[log] = log.rewrites
        return found
