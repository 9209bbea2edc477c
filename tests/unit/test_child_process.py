"""Functions in real child processes: their reports, errors and ends."""

from __future__ import annotations

import os
import pickle
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plogd.child_process import ChildProcesses
from plogd.log.compaction.cleaning import CannotClean, Cleaned, Read
from plogd.os_files import OsFiles
from plogd.work import InPlaceWork, Task, Work, WorkerDied, WorkFunction
from tests.helpers.eventually import eventually
from tests.helpers.work_functions import (
    Unpicklable,
    count_up,
    echo,
    fail,
    fail_at_once,
    fail_to_pickle,
    fail_with_unpicklable,
    print_much,
    report_hash,
    report_process,
    spin,
    touch_before_each_report,
)

TIMEOUT_S = 60
ROOT = str(Path(__file__).parents[2])


# -- helpers --------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the children import the functions of this file."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([ROOT, f"{ROOT}/daemon"]))


@pytest.fixture
def begin() -> Iterator[Callable[[WorkFunction, Any], Task]]:
    """A function that begins a task, which is stopped after the test."""
    tasks: list[Task] = []

    def begin_task(function: WorkFunction, argument: Any = None) -> Task:
        task = ChildProcesses().begin(function, argument)
        tasks.append(task)
        return task

    yield begin_task
    for task in tasks:
        task.close()


Begin = Callable[..., Task]


def _all_reports(task: Task) -> list[Any]:
    reports = []
    while (report := task.next_report()) is not None:
        reports.append(report)
    return reports


def _is_running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def _wait_for_end(pid: int) -> None:
    """Wait until a process that is not a child of this process has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        readable, _, _ = select.select([descriptor], [], [], TIMEOUT_S)
        assert readable, f"process {pid} still runs"
    finally:
        os.close(descriptor)


# -- reports --------------------------------------------------------------------------------------


def test_reports_arrive_in_order_and_end_with_none(begin: Begin) -> None:
    assert _all_reports(begin(count_up, 5)) == [0, 1, 2, 3, 4]
    assert _all_reports(begin(count_up, 0)) == []


def test_function_runs_in_another_process_with_low_priority(begin: Begin) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    pid, priority = begin(report_process).next_report()
    assert pid != os.getpid()
    assert priority == min(19, own + 10)
    assert os.getpriority(os.PRIO_PROCESS, 0) == own


def test_hashes_are_secret_even_if_the_broker_has_a_fixed_seed(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    first, second = (begin(report_hash, b"key").next_report() for _ in range(2))
    assert first != second


def test_no_process_is_started_before_the_first_report_is_requested() -> None:
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    before = children.read_text()
    task = ChildProcesses().begin(count_up, 5)
    assert children.read_text() == before
    task.stop()
    with pytest.raises(WorkerDied, match="stopped"):
        task.next_report()
    assert children.read_text() == before


def test_process_ends_with_the_function(begin: Begin) -> None:
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    before = children.read_text()
    _all_reports(begin(count_up, 2))
    assert children.read_text() == before


def test_arguments_and_reports_may_be_large(begin: Begin) -> None:
    """They are larger than the pipe's buffer in both directions."""
    argument = {"data": os.urandom(5_000_000), "nested": [(1, b"2"), Read(3, 4)]}
    assert _all_reports(begin(echo, argument)) == [argument]


def test_reports_of_a_compaction_keep_their_types(begin: Begin) -> None:
    [report] = _all_reports(begin(echo, Cleaned(7, 0.5, 1)))
    assert isinstance(report, Cleaned)


def test_nothing_runs_ahead_of_the_requested_report(begin: Begin, tmp_path: Path) -> None:
    task = begin(touch_before_each_report, str(tmp_path))
    for number in range(5):
        assert task.next_report() == number
        # The next file would exist by now if the child went on by itself, at least sometimes.
        assert len([*tmp_path.iterdir()]) == number + 1
    assert task.next_report() is None


def test_output_of_the_function_is_not_a_report(
    begin: Begin, capfd: pytest.CaptureFixture[str]
) -> None:
    assert _all_reports(begin(print_much)) == ["report"]
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "written by the function" in captured.err


# -- errors ---------------------------------------------------------------------------------------


def test_operating_system_error_arrives(begin: Begin) -> None:
    task = begin(fail, OSError(28, "No space left on device", "/some/path"))
    assert task.next_report() == "before"
    with pytest.raises(OSError, match="No space left") as raised:
        task.next_report()
    assert (raised.value.errno, raised.value.filename) == (28, "/some/path")


def test_error_of_plog_arrives(begin: Begin) -> None:
    task = begin(fail, CannotClean("the log is damaged: here; do this"))
    assert task.next_report() == "before"
    with pytest.raises(CannotClean, match="the log is damaged: here; do this"):
        task.next_report()


def test_error_before_the_first_report_arrives(begin: Begin) -> None:
    with pytest.raises(FileNotFoundError):
        begin(fail_at_once, FileNotFoundError(2, "No such file", "/x")).next_report()


@pytest.mark.parametrize("error", [KeyError("missing"), AssertionError("wrong"), MemoryError()])
def test_bug_is_reported_with_its_type(begin: Begin, error: Exception) -> None:
    task = begin(fail, error)
    assert task.next_report() == "before"
    with pytest.raises(WorkerDied, match=f"unexpected error: {type(error).__name__}"):
        task.next_report()


def test_error_that_cannot_be_unpickled_is_an_error_of_the_worker(begin: Begin) -> None:
    with pytest.raises(TypeError):
        pickle.loads(pickle.dumps(Unpicklable(3, "reason")))  # noqa: S301
    task = begin(fail_with_unpicklable)
    assert task.next_report() == "before"
    with pytest.raises(WorkerDied, match=r"reason \(3\)"):
        task.next_report()


def test_report_that_cannot_be_pickled_is_an_error_of_the_worker(begin: Begin) -> None:
    with pytest.raises(WorkerDied):
        begin(fail_to_pickle).next_report()


def test_task_has_ended_after_an_error(begin: Begin) -> None:
    task = begin(fail, OSError(5, "Input/output error"))
    assert task.next_report() == "before"
    with pytest.raises(OSError, match="Input"):
        task.next_report()
    with pytest.raises(WorkerDied):
        task.next_report()


# -- ends -----------------------------------------------------------------------------------------


def test_stop_ends_a_function_that_waits(begin: Begin) -> None:
    task = begin(report_process)
    pid, _ = task.next_report()
    task.stop()
    task.close()
    assert not _is_running(pid)
    task.stop()
    with pytest.raises(WorkerDied, match="stopped"):
        task.next_report()


def test_stop_ends_a_function_that_runs(begin: Begin, tmp_path: Path) -> None:
    task = begin(spin, str(tmp_path))
    pid = task.next_report()
    errors: list[BaseException] = []

    def wait_for_report() -> None:
        try:
            task.next_report()
        except WorkerDied as error:
            errors.append(error)

    waiting = threading.Thread(target=wait_for_report)
    waiting.start()
    eventually((tmp_path / "spinning").exists, "busy child")
    task.stop()
    waiting.join(TIMEOUT_S)
    assert not waiting.is_alive()
    assert len(errors) == 1
    assert not _is_running(pid)


def test_killed_process_is_reported(begin: Begin, tmp_path: Path) -> None:
    task = begin(spin, str(tmp_path))
    pid = task.next_report()
    killer = threading.Thread(
        target=lambda: (
            eventually((tmp_path / "spinning").exists, "busy child"),
            os.kill(pid, signal.SIGKILL),
        )
    )
    killer.start()
    with pytest.raises(WorkerDied, match=f"the process {pid} ended with status -9"):
        task.next_report()
    killer.join()


def test_process_that_was_killed_between_reports_is_reported(begin: Begin) -> None:
    task = begin(report_process)
    pid, _ = task.next_report()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerDied, match="ended with status -9"):
        task.next_report()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_signals_for_the_broker_do_not_end_the_function(
    begin: Begin, number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C and a service manager send them to all processes. The broker ends its children."""
    task = begin(report_process)
    pid, _ = task.next_report()
    os.kill(pid, number)
    assert task.next_report()[0] == pid
    task.stop()
    assert capfd.readouterr().err == ""


PARENT = """
import sys
from plogd.child_process import ChildProcesses
from tests.helpers.work_functions import {function}
task = ChildProcesses().begin({function}, {argument!r})
first = task.next_report()
print(first[0] if isinstance(first, tuple) else first, flush=True)
{then}
"""


@pytest.mark.parametrize("is_busy", [False, True])
def test_child_ends_when_its_parent_dies(is_busy: bool, tmp_path: Path) -> None:
    program = PARENT.format(
        function="spin" if is_busy else "report_process",
        argument=str(tmp_path),
        then="task.next_report()" if is_busy else "sys.stdin.read()",
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    try:
        child = int(parent.stdout.readline())
        if is_busy:
            eventually((tmp_path / "spinning").exists, "busy child")
        assert _is_running(child)
    finally:
        parent.kill()
        parent.wait()
        parent.stdin.close()
        parent.stdout.close()
    _wait_for_end(child)


def test_many_tasks_run_beside_each_other(begin: Begin) -> None:
    """The pipes of one child are not inherited by another, which would keep it alive."""
    tasks = [begin(report_process) for _ in range(3)]
    pids = [task.next_report()[0] for task in tasks]
    assert len(set(pids)) == 3
    for task, pid in zip(tasks, pids, strict=True):
        task.close()
        assert not _is_running(pid)


def test_module_of_the_working_directory_is_not_imported(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker may be started in any directory, for example in one that others can write to."""
    (tmp_path / "pickle.py").write_text("raise SystemExit('imported from the directory')")
    monkeypatch.chdir(tmp_path)
    assert _all_reports(begin(count_up, 2)) == [0, 1]


# -- the other implementation ---------------------------------------------------------------------


@pytest.mark.parametrize("work", [ChildProcesses(), InPlaceWork(OsFiles())], ids=["child", "here"])
def test_both_implementations_behave_alike(work: Work) -> None:
    assert _all_reports(work.begin(count_up, 3)) == [0, 1, 2]
    task = work.begin(fail, OSError(5, "Input/output error"))
    assert task.next_report() == "before"
    with pytest.raises(OSError, match="Input"):
        task.next_report()
    task = work.begin(count_up, 3)
    assert task.next_report() == 0
    task.stop()
    with pytest.raises(WorkerDied, match="stopped"):
        task.next_report()
