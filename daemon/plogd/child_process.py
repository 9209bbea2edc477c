"""Run functions in child processes of low priority: the implementation of the port in work.py.

A child is a new interpreter, not a fork: a fork of a process with threads may hang. Parent and
child exchange pickles through the child's standard input and output, each after its length. The
child ends at once if its input is closed, so that it never outlives the broker: a broker that is
started again may use the same files.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from struct import Struct
from typing import IO, Any

from plog.errors import PlogError
from plogd.os_files import OsFiles
from plogd.work import Task, WorkerDied, WorkFunction

_LENGTH = Struct(">I")
_NEXT = b"n"
_NICENESS = 10
_WORTHWHILE_BYTES = 32 << 20
"""A thread checks this in 0.03 to 1 s, depending on the size of the batches; a process needs 0.2 s
to start."""


class ChildProcesses:
    """The port `Work`: a child process for each function."""

    worthwhile_bytes = _WORTHWHILE_BYTES

    def __init__(self) -> None:
        self.max_processes = len(os.sched_getaffinity(0))

    def begin(self, function: WorkFunction, argument: Any) -> Task:
        """Begin `function` when its first report is requested."""
        return _Child(function, argument)


class _Child:
    """A function in a child process. `next_report` is called by one job at a time."""

    def __init__(self, function: WorkFunction, argument: Any) -> None:
        self._start: tuple[WorkFunction, Any] | None = (function, argument)
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._is_stopped = False

    def next_report(self) -> Any:
        """Return the next report, or None at the end."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if self._start is not None:
                start, self._start = self._start, None
                _write(process.stdin, start)
            process.stdin.write(_NEXT)
            process.stdin.flush()
            kind, report = _read(process.stdout)
        except (EOFError, OSError, ValueError) as error:
            self.close()
            status = process.returncode
            raise WorkerDied(f"the process {process.pid} ended with status {status}") from error
        if kind == "report":
            return report
        self.close()
        if isinstance(report, BaseException):
            raise report
        return None

    def stop(self) -> None:
        """Kill the process, without waiting for its end."""
        with self._lock:
            self._is_stopped = True
            if self._process is not None:
                self._process.kill()

    def close(self) -> None:
        """Kill the process, and wait for its end."""
        self.stop()
        process = self._process
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with contextlib.suppress(OSError):  # The process no longer reads what is left.
                    pipe.close()
            process.wait()

    def _started(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_stopped:
                raise WorkerDied("the function was stopped")
            if self._process is None:
                self._process = subprocess.Popen(
                    # -P: a module in the working directory must not be imported.
                    [sys.executable, "-P", "-m", "plogd.child_process"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=_environment(),
                    # Otherwise, Ctrl-C in the broker's terminal would also interrupt the child.
                    start_new_session=True,
                )
            return self._process


def _environment() -> dict[str, str]:
    # The child must find the same modules, wherever this process found them.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    # A fixed seed would let clients choose keys whose hashes collide (plog/records/offset_map.py).
    environment.pop("PYTHONHASHSEED", None)
    return environment


def _write(pipe: IO[bytes], message: Any) -> None:
    data = pickle.dumps(message)
    pipe.write(_LENGTH.pack(len(data)) + data)
    pipe.flush()


def _read(pipe: IO[bytes]) -> Any:
    """Return the next message. Raises EOFError."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    # Parent and child trust each other: both are this program.
    return pickle.loads(_read_exactly(pipe, _LENGTH.unpack(head)[0]))  # noqa: S301


def _read_exactly(pipe: IO[bytes], length: int) -> bytes:
    data = pipe.read(length)
    if len(data) < length:
        raise EOFError
    return data


# -- in the child ---------------------------------------------------------------------------------


def _serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Run the function that the parent sends; one report for each request."""
    function, argument = _read(requests)
    wanted = threading.Semaphore(0)
    threading.Thread(target=_count_requests, args=(requests, wanted), daemon=True).start()
    reports = function(OsFiles(), argument)
    while True:
        wanted.acquire()
        answer = _next_answer(reports)
        _write(answers, answer)
        if answer[0] == "end":
            return


def _next_answer(reports: Generator[Any, None, None]) -> tuple[str, Any]:
    try:
        return "report", next(reports)
    except StopIteration:
        return "end", None
    except (OSError, PlogError) as error:
        return "end", error if _can_be_pickled(error) else WorkerDied(repr(error))
    except Exception as error:  # A bug: the parent reports it by its type and text.
        return "end", WorkerDied(f"unexpected error: {error!r}")


def _can_be_pickled(error: Exception) -> bool:
    """Return whether the parent can create the error again from its arguments."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301
    except Exception:
        return False
    return True


def _count_requests(requests: IO[bytes], wanted: threading.Semaphore) -> None:
    while requests.read(1):
        wanted.release()
    os._exit(1)  # The parent has ended, or wants nothing more.


def main(set_niceness: Callable[[int], object] = os.nice) -> None:
    """Run one function for the parent process."""
    with contextlib.suppress(OSError):
        set_niceness(_NICENESS)
    # Terminals and service managers signal all processes. The broker then stops its children.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # Output of the function must not be taken for an answer.
    _serve(requests, answers)
    answers.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
