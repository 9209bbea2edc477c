"""CPU seconds and memory of a broker, this process and the whole machine during a run.

CPU seconds are utime + stime from /proc, of the broker's process and its descendants; they are
reliable on a busy machine, unlike messages per second. The CPU that everything else used is
reported, too: distrust a run where it is not small. The kernel's threads are counted separately:
they mostly write back the broker's data.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")
_GB = 1_000_000_000
_MILLION = 1_000_000
_KTHREADD = 2
"""The parent of all kernel threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    wall_s: float
    client_s: float
    broker_user_s: float
    broker_system_s: float
    kernel_s: Mapping[int, float]
    """For each kernel thread; they start and end at any time."""
    machine_s: float
    steal_s: float


class Meter:
    """Measures the processes `pids` of the broker, or of a cluster, from `start` to `stop`.

    The pid 0 means that the broker is on another machine.
    """

    def __init__(self, *pids: int) -> None:
        self._pids = frozenset(pids) - {0}
        self._started = self._now()

    def start(self) -> None:
        """Begin the run."""
        # Reading all of /proc takes milliseconds, which must not count for the run or the client.
        before = self._now()
        self._started = replace(before, wall_s=time.monotonic(), client_s=_own_cpu_s())

    def stop(self) -> dict[str, float]:
        """Return the figures since `start`."""
        wall_s, client_s = time.monotonic(), _own_cpu_s()
        a, b = self._started, replace(self._now(), wall_s=wall_s, client_s=client_s)
        user_s = b.broker_user_s - a.broker_user_s
        system_s = b.broker_system_s - a.broker_system_s
        client_s = b.client_s - a.client_s
        used = {"wall_s": b.wall_s - a.wall_s, "client_cpu_s": client_s}
        if self._pids:
            used |= {
                "broker_cpu_s": user_s + system_s,
                "broker_user_s": user_s,
                "broker_sys_s": system_s,
                **self.memory(),
            }
        kernel_s = sum(now - a.kernel_s.get(pid, 0.0) for pid, now in b.kernel_s.items())
        known_s = client_s + user_s + system_s + kernel_s
        used["kernel_cpu_s"] = kernel_s
        used["other_cpu_s"] = b.machine_s - a.machine_s - known_s
        used["steal_s"] = b.steal_s - a.steal_s
        return {name: round(value, 3) for name, value in used.items()}

    def memory(self) -> dict[str, float]:
        """Return the broker's resident, anonymous and peak resident memory in MB."""
        names = {"VmRSS": "broker_rss_mb", "RssAnon": "broker_anon_mb", "VmHWM": "broker_peak_mb"}
        total = dict.fromkeys(names.values(), 0.0)
        for pid in self._tree():
            for line in (_PROC / str(pid) / "status").read_text().splitlines():
                key, _, value = line.partition(":")
                if key in names:
                    total[names[key]] += int(value.split()[0]) / 1024
        return total

    def _now(self) -> _Moment:
        user, system = self._broker_cpu()
        machine = [int(x) / _TICKS_PER_S for x in _first_line(_PROC / "stat").split()[1:9]]
        return _Moment(
            wall_s=time.monotonic(),
            client_s=_own_cpu_s(),
            broker_user_s=user,
            broker_system_s=system,
            kernel_s={pid: sum(_cpu_s({pid})) for pid in _descendants(_KTHREADD)},
            # All except idle (3), waiting for I/O (4) and stolen by the host (7).
            machine_s=sum(machine[:3]) + machine[5] + machine[6],
            steal_s=machine[7],
        )

    def _broker_cpu(self) -> tuple[float, float]:
        return _cpu_s(self._tree())

    def _tree(self) -> set[int]:
        """Return the broker's processes and all their descendants."""
        return _descendants(*self._pids) if self._pids else set()


def _descendants(*pids: int) -> set[int]:
    """Return processes and all their descendants."""
    parents: dict[int, int] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(_stat(int(entry.name))[1])
            except OSError:  # The process ended after it was listed.
                continue
    tree: set[int] = set()
    new = set(pids)
    while new:
        tree |= new
        new = {pid for pid, parent in parents.items() if parent in tree} - tree
    return tree


def _cpu_s(pids: set[int]) -> tuple[float, float]:
    """Return user and system seconds of processes."""
    user = system = 0
    for pid in pids:
        try:
            fields = _stat(pid)
        except OSError:  # The process has just ended.
            continue
        # cutime and cstime are those of children that have ended.
        user += int(fields[11]) + int(fields[13])
        system += int(fields[12]) + int(fields[14])
    return user / _TICKS_PER_S, system / _TICKS_PER_S


def per_message(used: Mapping[str, float], count: int, size: int) -> dict[str, float]:
    """Return the figures of a run with `count` messages of `size` bytes."""
    figures: dict[str, float] = {
        **used,
        "n": count,
        "size": size,
        "msgs_s": round(count / used["wall_s"]),
        "mb_s": round(count * size / used["wall_s"] / _MILLION, 2),
        "client_us_per_msg": round(used["client_cpu_s"] / count * _MILLION, 3),
    }
    if "broker_cpu_s" in used:
        per_mmsg = used["broker_cpu_s"] / count * _MILLION
        figures["broker_cpu_s_per_mmsg"] = round(per_mmsg, 3)
        figures["broker_cpu_s_per_gb"] = round(used["broker_cpu_s"] / (count * size) * _GB, 3)
    return figures


def quantiles_ms(times_us: list[float]) -> dict[str, float]:
    """Return p50 to p999 and the maximum in milliseconds."""
    ordered = sorted(times_us)
    if not ordered:
        return {}
    marks = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}
    last = len(ordered) - 1
    return {
        name: round(ordered[min(last, int(len(ordered) * mark))] / 1000, 3)
        for name, mark in marks.items()
    }


def _own_cpu_s() -> float:
    """Return the CPU seconds of this process and its ended children, such as kcat."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _stat(pid: int) -> list[str]:
    """Return /proc/PID/stat after the program's name, which may contain any character."""
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def _first_line(path: Path) -> str:
    with path.open() as file:
        return file.readline()
