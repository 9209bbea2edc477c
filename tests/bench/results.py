"""Results as JSON lines: written while the bench runs, read by the report.

Each line is one object with a ``kind``: ``run`` (machine, date, sizes) comes first; ``version`` and
``missing`` name a broker; ``round`` has the figures of every broker in one round of a load;
``load`` ends a load with its duration or error. Loads in later files replace those in earlier ones.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from tests.bench.rounds import Figures, Round

_SHOWN = (
    "broker_cpu_s_per_gb",
    "out_broker_cpu_s_per_gb",
    "broker_us_per_request",
    "broker_us_per_poll",
    "broker_cpu_pct",
    "msgs_s",
    "requests_s",
    "end_to_end_ms",
    "produce_ack_ms",
    "fdatasync_ms",
    "acks_per_sync",
    "until_written_s",
    "until_acknowledged_s",
    "served_s",
    "start_s",
    "idle_mb",
    "partitions_mb",
    "connection_kb",
    "rss_mb",
    "broker_rss_mb",
)


class Results:
    """A results file that is written line by line, and the output on the terminal."""

    def __init__(self, file: IO[str], *, quick: bool) -> None:
        self._file = file
        self._write("run", quick=quick, date=_now(), **machine())

    def version(self, peer: str, version: str) -> None:
        """Record the version of a broker."""
        self._write("version", peer=peer, version=version)

    def missing(self, peer: str, why: str) -> None:
        """Record that a broker cannot run on this machine."""
        print(f"{peer}: cannot run: {why}", flush=True)
        self._write("missing", peer=peer, why=why)

    def say(self, load: str, peer: str, step: str, figures: Figures) -> None:
        """Print one line for one run."""
        shown = " ".join(
            f"{name}={_short(figures[name])}" for name in _SHOWN if figures.get(name) is not None
        )
        others = ""
        if "other_cpu_s" in figures and figures["wall_s"]:
            others = f" others={figures['other_cpu_s'] / figures['wall_s']:.2f}"
        name = f"{load}.{step}" if step else load
        print(f"{time.strftime('%T')} {name:14} {peer:13} {shown}{others}", flush=True)

    def round(self, load: str, number: int, runs: Round, *, kept: bool) -> None:
        """Record the figures of all brokers in one round."""
        if not kept:
            print(
                f"{load}: round {number} does not count: other processes used the CPU", flush=True
            )
        self._write("round", load=load, number=number, kept=kept, runs=dict(runs))

    def load(self, load: str, seconds: float, failed: str = "") -> None:
        """Record the end of a load."""
        print(f"{load}: {f'FAILED: {failed}' if failed else 'done'} in {seconds:.0f} s", flush=True)
        self._write("load", load=load, seconds=round(seconds, 1), failed=failed)

    def _write(self, kind: str, **fields: Any) -> None:
        self._file.write(json.dumps({"kind": kind, **fields}) + "\n")
        self._file.flush()


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return "/".join(str(value[key]) for key in ("p50", "p99") if key in value)
    return str(value)


@dataclass(slots=True)
class Run:
    """The contents of results files."""

    about: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    rounds: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def counted(self, load: str) -> list[Round]:
        """Return the rounds that count: those that were kept, or all if none was."""
        rounds = self.rounds.get(load, [])
        return [x["runs"] for x in rounds if x["kept"]] or [x["runs"] for x in rounds]

    def noisy(self, load: str) -> int:
        """Return the number of noisy rounds."""
        return sum(not x["kept"] for x in self.rounds.get(load, []))

    def is_doubtful(self, load: str) -> bool:
        """Whether all rounds of a load were noisy."""
        return 0 < len(self.rounds.get(load, [])) == self.noisy(load)


def read(lines: Iterable[str]) -> Run:
    """Return the run that these lines describe.

    >>> run = read(['{"kind": "load", "load": "idle", "seconds": 5.0, "failed": ""}'])
    >>> run.seconds
    {'idle': 5.0}
    """
    run = Run()
    for line in lines:
        entry = json.loads(line)
        match entry.pop("kind"):
            case "run":
                run.about = entry
            case "version":
                run.versions[entry["peer"]] = entry["version"]
            case "missing":
                run.missing[entry["peer"]] = entry["why"]
            case "round":
                run.rounds.setdefault(entry.pop("load"), []).append(entry)
            case "load":
                run.seconds[entry["load"]] = entry["seconds"]
                if entry["failed"]:
                    run.failed[entry["load"]] = entry["failed"]
    return run


def read_files(paths: Iterable[Path]) -> Run:
    """Merge several runs; a load of a later file replaces that of an earlier one."""
    whole = Run()
    for path in paths:
        run = read(path.read_text().splitlines())
        whole.about = run.about or whole.about
        for load in [*run.rounds, *run.failed]:
            whole.failed.pop(load, None)
            whole.rounds.pop(load, None)
        whole.versions |= run.versions
        whole.missing |= run.missing
        whole.rounds |= run.rounds
        whole.seconds |= run.seconds
        whole.failed |= run.failed
    return whole


def machine() -> dict[str, Any]:
    """Return a description of this machine."""
    model = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpus": os.cpu_count(),
        "cpu": model[0] if model else platform.machine(),
        "memory_gb": round(pages / 1e9),
        "kernel": platform.release().partition("-")[0],
        "python": platform.python_version(),
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
