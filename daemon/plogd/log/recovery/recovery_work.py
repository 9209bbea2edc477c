"""Recover logs in another process, so that they can then be loaded like logs that were closed.

`recover_logs` is a function for the port `Work` (decision 0022). It loads each log as
log_recovery.py does, and writes what a clean stop would write: the producer snapshot and the leader
epochs. The broker then loads the log without reading its records again. recovery_processes.py runs
it.

Invariant: if the process is killed, the next recovery of the log finds what a crash may leave.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from plogd.log.io_errors import is_refusal
from plogd.log.log_state import LogState
from plogd.log.recovery.load_request import LoadRequest
from plogd.log.recovery.log_recovery import load_steps
from plogd.ports import Files, Report


class Scanned(NamedTuple):
    """Progress: the number of bytes of a log that have been scanned; `number` counts the logs."""

    number: int
    scanned_bytes: int


class Line(NamedTuple):
    """A report for the operator: the arguments of `plogd.ports.Report`."""

    message: str
    fields: Mapping[str, Any]


class Recovered(NamedTuple):
    """The end of the recovery of one log."""

    number: int
    log_end_offset: int
    lines: Sequence[Line]
    is_closed: bool
    """Whether the log can be loaded without recovery; False if the disk is full."""
    error: OSError | None


RecoveryReport: TypeAlias = Scanned | Recovered


def recover_logs(
    files: Files, requests: Sequence[LoadRequest]
) -> Generator[RecoveryReport, None, None]:
    """Recover logs, one after another; yield the progress, and the result for each log."""
    for number, request in enumerate(requests):
        lines: list[Line] = []
        error: OSError | None = None
        end_offset, is_closed = -1, False
        try:
            steps = load_steps(files, request, _collect(lines))
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    state: LogState = end.value
                    break
                yield Scanned(number, request.work.scanned_bytes)
            end_offset = state.log_end_offset
            is_closed = _close(files, state)
        except OSError as problem:
            error = problem
        yield Recovered(number, end_offset, lines, is_closed, error)


def _collect(lines: list[Line]) -> Report:
    def report(message: str, **fields: object) -> None:
        lines.append(Line(message, fields))

    return report


def _close(files: Files, state: LogState) -> bool:
    """Write what a clean stop would write; return False if the disk is full. Raises OSError."""
    try:
        if any(segment.indexes.lacks_last_entry for segment in state.segments):
            return False
        # The records are durable, which the snapshot proves (`load_log` has synced them).
        state.producer_state.write_snapshot(state.log_end_offset)
        state.leader_epochs.flush()
        files.sync_dir(state.directory)
    except OSError as error:
        if not is_refusal(error):
            raise
        return False
    finally:
        for segment in state.segments:
            segment.close()
    return True
