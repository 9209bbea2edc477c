"""Metrics of the process, with the names that Prometheus client libraries use.

They are read from getrusage and /proc/self at each scrape.
"""

from __future__ import annotations

import os
import resource

from plogd.metrics import Counter, Registry


def register_process_metrics(registry: Registry, *, start_time_seconds: float) -> None:
    """Add the ``process_`` metrics; `start_time_seconds` is wall-clock time."""
    registry.ask(
        "process_cpu_seconds_total",
        "User and system CPU time spent.",
        (),
        lambda: [((), _cpu_seconds())],
        kind=Counter.kind,
    )
    registry.gauge("process_resident_memory_bytes", "Memory in use.", _resident_bytes)
    registry.gauge("process_open_fds", "Open file descriptors.", _open_descriptors)
    registry.gauge("process_max_fds", "Maximum number of open file descriptors.", _descriptors_max)
    started = registry.gauge("process_start_time_seconds", "Start time of the process (Unix time).")
    started.value = start_time_seconds


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


# Not ru_maxrss, which is the maximum since the start. /proc/self remains available with systemd's
# ``ProcSubset=pid``.
def _resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as statm:
        resident_pages = int(statm.read().split()[1])
    # The page size depends on the architecture: on arm64, it can be 4, 16 or 64 KiB.
    return resident_pages * os.sysconf("SC_PAGE_SIZE")


def _open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd")) - 1  # Without the descriptor used by listdir.


def _descriptors_max() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
