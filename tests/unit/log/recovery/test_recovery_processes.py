"""Recovery in other processes gives the same logs as on threads, however the processes end."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plog.types import TopicPartition
from plogd.child_process import ChildProcesses
from plogd.log.file_names import SNAPSHOT_SUFFIX
from plogd.log.recovery.load_progress import LoadAmount, LoadingStopped
from plogd.log.recovery.load_request import LoadRequest
from plogd.log.recovery.log_recovery import load_log
from plogd.log.recovery.recovery_processes import RecoveryProcesses
from plogd.log.recovery.recovery_work import Recovered, recover_logs
from plogd.os_files import OsFiles
from plogd.ports import silence
from plogd.work import WorkerDied
from tests.helpers.log.log_site import CONFIG, LogSite, base_offsets, batch_offsets, values
from tests.helpers.sim.sim_files import Operation, SimCrash, SimFiles
from tests.helpers.sim.sim_ports import SimPorts

NAMES = [f"t-{number}" for number in range(4)]


def _filled(*, worthwhile_bytes: int, seed: int = 0) -> LogSite:
    """Return a site with logs of several segments; the last appends are not durable."""
    ports = SimPorts(files=SimFiles(["/a"]), worthwhile_bytes=worthwhile_bytes)
    site = LogSite(ports=ports).start()
    chance = random.Random(seed)
    for number, name in enumerate(NAMES):
        log = site.create(name)
        for sequence in range(chance.randrange(5, 20)):
            site.append(
                log, value=b"x" * 100, producer_id=number, producer_epoch=0, base_sequence=sequence
            )
        if chance.random() < 0.7:
            site.settle()
        site.fill(log, chance.randrange(3))
    site.write_checkpoints()
    return site


def _state(site: LogSite, name: str) -> object:
    log = site.log(name)
    producers = log.producer_state.producers
    return (
        values(log),
        batch_offsets(log),
        base_offsets(log),
        site.contents(log),
        log.leader_epochs.entries,
        {key: state.to_snapshot() for key, state in producers.items()},
        (log.log_start_offset, log.high_watermark, log.durable_end_offset, log.log_end_offset),
    )


@pytest.mark.parametrize("seed", range(20))
def test_recovery_in_processes_gives_the_same_logs_as_on_threads(seed: int) -> None:
    states, reports = [], []
    for worthwhile_bytes in (1, 1 << 62):
        site = _filled(worthwhile_bytes=worthwhile_bytes, seed=seed).crash(seed)
        states.append([_state(site, name) for name in NAMES])
        reports.append(sorted(site.reports))
        assert site.bugs == []
    assert states[0] == states[1]
    assert reports[0] == reports[1]


def test_log_recovered_in_a_process_needs_no_recovery_afterward() -> None:
    site = _filled(worthwhile_bytes=1).kill()
    for name in NAMES:
        log = site.log(name)
        assert log.recovery_point == log.log_end_offset
        assert log.log_end_offset in site.listing(log, SNAPSHOT_SUFFIX)


def test_records_of_a_log_are_read_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another pass over the records by the broker would hold the interpreter."""
    site = _filled(worthwhile_bytes=1).next_life()
    loads: list[LoadRequest] = []

    def spy(files: Any, request: LoadRequest, report: Any) -> Any:
        loads.append(request)
        return load_log(files, request, report)

    monkeypatch.setattr("plogd.log.recovery.log_loader.load_log", spy)
    site.start()
    assert len(loads) == len(NAMES)
    assert all(request.clean and request.was_recovered for request in loads)


def test_progress_counts_the_bytes_that_processes_scan() -> None:
    site = _filled(worthwhile_bytes=1).next_life().start()
    amount = site.manager.load_progress.amount
    assert (amount.logs, amount.total_logs) == (len(NAMES), len(NAMES))
    assert isinstance(amount, LoadAmount)
    assert amount.scanned_bytes == amount.total_bytes


def test_damage_is_reported_once() -> None:
    site = _filled(worthwhile_bytes=1)
    site.settle()
    log = site.log("t-0")
    site.settle(site.manager.write_log_starts())
    site.write_checkpoints()
    site.files.unlink(site.path(log, 0))
    site = site.kill()
    assert len([line for line in site.reports if "has lost offsets" in line]) == 1


# -- processes and disks that fail ------------------------------------------------------------


def _with_dying_work(site: LogSite, at: int) -> list[str]:
    """Let the process die at its file operation with this number; return the operations."""
    seen: list[str] = []
    work = site.manager._loading._recovery._work

    class Dying:
        max_processes, worthwhile_bytes = 2, 1

        def begin(self, function: Any, argument: Any) -> Any:
            task = work.begin(function, argument)
            return DyingTask(task)

    class DyingTask:
        def __init__(self, task: Any) -> None:
            self.task = task
            self.stop, self.close = task.stop, task.close

        def next_report(self) -> Any:
            def note(operation: Operation) -> None:
                seen.append(operation.name)
                if len(seen) == at:
                    raise WorkerDied("the process was killed by signal 9")

            site.files.on_operation = note
            try:
                return self.task.next_report()
            finally:
                site.files.on_operation = lambda operation: None

    site.manager._loading._recovery._work = Dying()
    return seen


def test_process_killed_at_any_file_operation_loses_nothing() -> None:
    expected = None
    at = 0
    while True:
        site = _filled(worthwhile_bytes=1).next_life()
        seen = _with_dying_work(site, at)
        site.start()
        states = [values(site.log(name)) for name in NAMES]
        expected = expected or states
        assert states == expected
        assert (site.bugs, site.offline) == ([], [])
        if len(seen) < at:
            break
        assert not at or any("recovering" in line for line in site.reports)
        at += 1
    assert at > 20


def test_broker_killed_at_any_file_operation_of_recovery_recovers_again() -> None:
    at = 1
    expected = [values(_filled(worthwhile_bytes=1).kill().log(name)) for name in NAMES]
    while True:
        site = _filled(worthwhile_bytes=1).next_life()
        site.files.crash_at(at)
        try:
            site.start()
        except SimCrash:
            files = site.files.crash(random.Random(at))
        else:
            break
        site = site._successor(files).start()
        for name, acknowledged in zip(NAMES, expected, strict=True):
            found = values(site.log(name))
            durable = [offset for offset in acknowledged if offset in found]
            assert durable == list(range(len(durable)))
        assert site.bugs == []
        at += 1
    assert at > 20


def test_full_disk_leaves_recovery_to_a_thread() -> None:
    site = _filled(worthwhile_bytes=1).next_life()
    site.files.fail_when(
        lambda operation: operation.name in ("create", "append") and ".snapshot" in operation.path,
        errno.ENOSPC,
    )
    site.start()
    assert [len(values(site.log(name))) for name in NAMES] == [
        len(values(_filled(worthwhile_bytes=1).kill().log(name))) for name in NAMES
    ]
    assert site.offline == []


def test_disk_error_takes_the_directory_offline() -> None:
    site = _filled(worthwhile_bytes=1).next_life()
    site.files.fail_when(
        lambda operation: operation.name == "sync" and operation.path.startswith("/a/t-1/"),
        errno.EIO,
    )
    site.start()
    assert site.offline == ["/a"]


def test_sync_that_fails_only_once_takes_the_directory_offline() -> None:
    """After a failed sync, another one can succeed although the records are lost (R15)."""
    site = _filled(worthwhile_bytes=1).next_life()
    failed: list[str] = []

    def is_first_sync(operation: Operation) -> bool:
        is_first = operation.name == "sync" and operation.path.endswith(".log") and not failed
        if is_first:
            failed.append(operation.path)
        return is_first

    site.files.fail_when(is_first_sync, errno.EIO)
    site.start()
    assert failed
    assert site.offline == ["/a"]


def test_process_that_cannot_start_leaves_recovery_to_threads() -> None:
    site = _filled(worthwhile_bytes=1).next_life()

    class Refusing:
        max_processes, worthwhile_bytes = 2, 1

        def begin(self, function: Any, argument: Any) -> Any:
            return self

        def next_report(self) -> Any:
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

        def stop(self) -> None: ...

        def close(self) -> None: ...

    site.manager._loading._recovery._work = Refusing()
    site.start()
    assert all(values(site.log(name)) for name in NAMES)
    assert any("Resource temporarily unavailable" in line for line in site.reports)


def test_stop_of_the_broker_ends_the_processes() -> None:
    site = _filled(worthwhile_bytes=1).next_life()
    site.settle(site.manager.open_directories())
    loading = site.manager.load_logs(site._topic_of)
    site.files.on_operation = lambda operation: site.manager.stop_loading()
    with pytest.raises(LoadingStopped):
        site.settle(loading)
    site.files.on_operation = lambda operation: None
    site.stop()
    site = site.kill()
    assert all(values(site.log(name)) for name in NAMES)


# -- shares -----------------------------------------------------------------------------------


def _shares(sizes: list[int], *, processes: int, worthwhile_bytes: int) -> list[list[int]]:
    ports = SimPorts(worthwhile_bytes=worthwhile_bytes)
    by_log = {TopicPartition("t", number): size for number, size in enumerate(sizes)}
    shares = RecoveryProcesses(ports.bundle(), set()).shares(by_log, processes)
    return [[sizes[key.partition] for key in share] for share in shares]


@pytest.mark.parametrize(
    ("sizes", "processes", "expected"),
    [
        ([], 2, []),
        ([40, 50], 2, []),
        ([40, 60], 2, [[60, 40]]),
        ([300, 200, 150, 0], 2, [[300], [200, 150]]),
        ([300, 200, 150], 1, [[300, 200, 150]]),
        ([300, 200, 150], 8, [[300], [200, 150]]),
        ([500], 2, [[500]]),
        ([1] * 200, 2, [[1] * 100] * 2),
    ],
)
def test_logs_are_divided_among_processes_by_their_bytes(
    sizes: list[int], processes: int, expected: list[list[int]]
) -> None:
    """The simulated machine has two cores."""
    assert _shares(sizes, processes=processes, worthwhile_bytes=100) == expected


def test_no_more_processes_run_than_there_are_cores() -> None:
    ports = SimPorts(files=SimFiles(["/a", "/b", "/c"]), worthwhile_bytes=1)
    site = LogSite(("/a", "/b", "/c"), ports=ports).start()
    for number in range(9):
        site.fill(site.create(f"t-{number}"), 6)
    site = site.next_life()
    recovery = site.manager._loading._recovery
    work, running, highest = recovery._work, 0, 0

    class Counting:
        max_processes, worthwhile_bytes = 2, 1

        def begin(self, function: Callable[..., Any], argument: Any) -> Any:
            nonlocal running, highest
            running += 1
            highest = max(highest, running)
            task = work.begin(function, argument)
            close = task.close

            def ended() -> None:
                nonlocal running
                running -= 1
                close()

            task.close = ended  # type: ignore[method-assign]
            return task

    recovery._work = Counting()
    site.start()
    assert (running, highest) == (0, 2)
    assert all(len(values(site.log(f"t-{number}"))) == 6 for number in range(9))


# -- a real process ---------------------------------------------------------------------------


def test_real_process_recovers_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[4]
    monkeypatch.setenv("PYTHONPATH", f"{root}:{root / 'daemon'}")
    site = _filled(worthwhile_bytes=1)
    site.settle()
    log = site.log("t-0")
    directory = tmp_path / "t-0"
    directory.mkdir()
    for name in site.files.listdir(log.directory):
        (directory / name).write_bytes(site.files.read_file(f"{log.directory}/{name}"))
    newest = max(directory.glob("*.log"))
    newest.write_bytes(newest.read_bytes() + b"torn")
    request = LoadRequest(
        topic_partition=log.topic_partition,
        topic_id=log.topic_id,
        directory=str(directory),
        log_dir=str(tmp_path),
        config=CONFIG,
        clean=False,
        recovery_point=0,
        high_watermark=0,
        log_start_offset=0,
        producer_id_expiration_ms=1000,
        now_ms=0,
        monotonic_ms=0,
    )
    task = ChildProcesses().begin(recover_logs, [request])
    reports = []
    while (report := task.next_report()) is not None:
        reports.append(report)
    task.close()
    recovered = reports[-1]
    assert isinstance(recovered, Recovered)
    assert (recovered.log_end_offset, recovered.is_closed) == (log.log_end_offset, True)
    [line] = [line for line in recovered.lines if "truncated" in line.message]
    assert line.fields["nbytes"] == 4
    state = load_log(OsFiles(), request, silence)
    assert state.log_end_offset == log.log_end_offset
    for segment in state.segments:
        segment.close()
