"""Recover large logs in other processes, at most one for each core.

Recovery checks each batch, which takes CPU time. Threads would not use several cores, and would
take the interpreter from the reactor's thread. The start of a process takes a tenth of a second or
more, so a process recovers many logs (recovery_work.py), and none is started if little has to be
scanned. If a process dies, its remaining logs are recovered on threads, as small logs are.

log_loader.py calls this module, on the reactor's thread. Source: decision 0022.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from plog.types import TopicPartition
from plogd.concurrency import OneAtATime
from plogd.log.recovery.load_progress import LoadWork
from plogd.log.recovery.load_request import LoadRequest
from plogd.log.recovery.recovery_work import Line, Recovered, Scanned, recover_logs
from plogd.ports import Later, Ports
from plogd.work import Task, WorkerDied

LoadRecovered: TypeAlias = Callable[[LoadRequest, Collection[Line], OSError | None], None]


class RecoveryProcesses:
    """Runs `recover_logs` in processes; `lanes` receives the lanes of their jobs."""

    def __init__(self, ports: Ports, lanes: set[str]) -> None:
        self._jobs = ports.jobs
        self._work = ports.work
        self._report = ports.report
        self._lanes = lanes
        self._slots = [OneAtATime() for _ in range(ports.work.max_processes)]
        self._started = 0

    def shares(
        self, bytes_to_scan: Mapping[TopicPartition, int], max_processes: int
    ) -> list[list[TopicPartition]]:
        """Divide the logs of a directory among processes; return no shares if threads suffice.

        `max_processes` is ``num.recovery.threads.per.data.dir``.
        """
        total = sum(bytes_to_scan.values())
        count = min(
            max_processes,
            self._work.max_processes,
            math.ceil(total / self._work.worthwhile_bytes),
            sum(1 for nbytes in bytes_to_scan.values() if nbytes),
        )
        if total < self._work.worthwhile_bytes:
            return []
        shares: list[list[TopicPartition]] = [[] for _ in range(count)]
        sizes = [0] * count
        # The largest first, so that the processes end at about the same time.
        for key, nbytes in sorted(bytes_to_scan.items(), key=lambda item: -item[1]):
            if nbytes:
                least = sizes.index(min(sizes))
                shares[least].append(key)
                sizes[least] += nbytes
        return shares

    def recover(self, requests: Sequence[LoadRequest], load: LoadRecovered) -> Later[None]:
        """Recover logs in one process; call `load` for each log as soon as this has ended.

        `load` receives the request with which the log can be loaded, the lines that have already
        been reported, and the error of the disk, if any: after a failed sync, another one could
        succeed although it makes nothing durable (rule R15). Fails with LoadingStopped if the
        broker is stopping.
        """
        number = self._started % len(self._slots)
        self._started += 1
        lane = f"recovery:{number}"
        self._lanes.add(lane)
        return self._slots[number].run(lambda: self._recover(lane, requests, load))

    async def _recover(
        self,
        lane: str,
        requests: Sequence[LoadRequest],
        load: LoadRecovered,
    ) -> None:
        # The process gets a copy of the work, which is counted here.
        copies = [replace(request, work=LoadWork()) for request in requests]
        task = self._work.begin(recover_logs, copies)
        left = dict(enumerate(requests))
        failure: Exception | None = None
        try:
            await self._follow(task, lane, left, load)
        except (WorkerDied, OSError) as error:  # An OSError: the process could not be started.
            self._report(
                "recovering {count} logs on threads: {error}",
                count=len(left),
                error=str(error),
                level="warn",
            )
            for request in left.values():
                load(request, (), None)
        except Exception as error:
            failure = error
        task.stop()
        await self._jobs.submit(lane, task.close)
        if failure is not None:
            raise failure

    async def _follow(
        self,
        task: Task,
        lane: str,
        left: dict[int, LoadRequest],
        load: LoadRecovered,
    ) -> None:
        while (report := await self._jobs.submit(lane, task.next_report)) is not None:
            if isinstance(report, Scanned):
                left[report.number].work.scanned_to(report.scanned_bytes)
                continue
            assert isinstance(report, Recovered)
            request = left.pop(report.number)
            for message, fields in report.lines:
                self._report(message, **fields)
            load(_as_loaded(request, report), report.lines, report.error)
            for request in left.values():
                request.work.check()


def _as_loaded(request: LoadRequest, report: Recovered) -> LoadRequest:
    """Return the request for a log that has been recovered."""
    # On a full disk, the log is recovered again on a thread.
    if report.error is not None or not report.is_closed:
        return request
    return replace(request, clean=True, was_recovered=True, recovery_point=report.log_end_offset)
