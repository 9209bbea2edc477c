"""What the broker's process, its service manager and the nemesis need of the machine they run on.

`World` is the only machine of a run with one broker. In a run with several, each broker has a
`Machine` (cluster/machine.py).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from plogd.config import BrokerConfig
    from plogd.ports import Later
    from tests.helpers.sim.sim_files import SimFiles
    from tests.helpers.sim.sim_time import SimClock, SimTimers
    from tests.sim.checker import History
    from tests.sim.compaction_faults import CompactionFaults
    from tests.sim.exceptions import Exceptions
    from tests.sim.network import Network
    from tests.sim.plan import PeriodicTask
    from tests.sim.process import Process
    from tests.sim.service import Service
    from tests.sim.slow_directory import SlowDirectory


class Host(Protocol):
    """A machine with a disk, clocks, a network and faults."""

    chance: random.Random
    clock: SimClock
    timers: SimTimers
    files: SimFiles
    config: BrokerConfig
    network: Network
    history: History
    service: Service
    tasks: Sequence[PeriodicTask]
    exceptions: Exceptions
    slow_directory: SlowDirectory
    compaction_faults: CompactionFaults
    working: bool
    """Whether the clients are still working, so that faults may be injected."""
    max_job_ms: float
    max_down_ms: float
    """How long it takes at most until a process that has ended is started again."""
    crash_is_power_loss: bool
    """Whether a crash at a chosen file operation is a power loss, and not a kill."""
    last_fault_ms: float
    """When the disk last had a fault."""

    def make_process(self, number: int) -> Process:
        """Return the process of the broker's next life."""
        ...

    def explains(self, error: Exception) -> bool:
        """Whether a start or a stop may fail with this error without a fault of the disk."""
        ...

    def life_begins(self) -> None:
        """A new process of the broker is about to start."""
        ...

    def unsynced_is_lost(self) -> None:
        """After a power loss, discard the history of topics that are not durable."""
        ...

    def sleep(self, delay_ms: float) -> Later[None]:
        """Wait."""
        ...

    def fail(self, error: Exception) -> None:
        """End the run because of an anomaly or a bug."""
        ...

    def trace(self, text: str) -> None:
        """Trace an event."""
        ...

    def count(self, what: str, number: int = 1) -> None:
        """Count an event for the summary."""
        ...

    def trouble(self) -> AbstractContextManager[None]:
        """While the disk has faults, slow or missing responses are not a bug."""
        ...

    def set_speed(self, *, job_ms: float | None = None, network_ms: float | None = None) -> None:
        """Set the longest duration of a job, and the longest delay of a frame."""
        ...
