"""Functions for tests of child processes, which import this file; it therefore imports little."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

from plog.errors import PlogError
from plogd.files import Files

Steps = Generator[Any, None, None]


def count_up(files: Files, limit: int) -> Steps:
    """Yield the numbers below `limit`."""
    yield from range(limit)


def report_process(files: Files, argument: Any) -> Steps:
    """Yield the process id and priority, forever."""
    while True:
        yield os.getpid(), os.getpriority(os.PRIO_PROCESS, 0)


def report_hash(files: Files, key: bytes) -> Steps:
    """Yield the hash of a key."""
    yield hash(key)


def echo(files: Files, argument: Any) -> Steps:
    """Yield the argument."""
    yield argument


def fail(files: Files, error: BaseException) -> Steps:
    """Raise `error` after one report."""
    yield "before"
    raise error


def fail_at_once(files: Files, error: BaseException) -> Steps:
    """Raise `error` instead of the first report."""
    raise error
    yield  # Makes this function a generator function.


def fail_to_pickle(files: Files, argument: Any) -> Steps:
    """Yield something that cannot be pickled."""
    yield lambda: None


class Unpicklable(PlogError):
    """An error that cannot be created from its message alone."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{reason} ({code})")


def fail_with_unpicklable(files: Files, argument: Any) -> Steps:
    """Raise an error that cannot be unpickled."""
    yield "before"
    raise Unpicklable(3, "reason")


def touch_before_each_report(files: Files, directory: str) -> Steps:
    """Create a file before each report."""
    for number in range(5):
        files.open_append(f"{directory}/{number}").close()
        yield number


def spin(files: Files, directory: str) -> Steps:
    """Never report again after the first time."""
    yield os.getpid()
    files.open_append(f"{directory}/spinning").close()
    while True:
        pass


def print_much(files: Files, argument: Any) -> Steps:
    """Write to the standard output in two ways."""
    print("printed by the function", flush=True)
    os.write(1, b"written by the function\n")
    yield "report"
