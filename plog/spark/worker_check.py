"""A check of each Python worker before its first task: plog's version, and compiled packages.

Readers and writers travel from the driver to the workers in pickled form. `CheckedPickle` makes the
check the first thing that happens there, because another version of plog might not even be able to
restore them. This module imports little for the same reason.
"""

from __future__ import annotations

import pickle
import sys
from functools import cache
from importlib import import_module
from typing import Any, Final

from plog.error_base import PlogError
from plog.spark.frozen_modules import freeze_modules
from plog.version import VERSION

# The compiled packages: one for checksums and three for compression. gzip is a part of Python.
_CODECS: Final = ("crc32c", "lz4.frame", "snappy", "zstandard")
_REMEDY: Final = (
    "install the driver's version of plog on all executors with pip, or pack it with plog spark"
    " pack and pass it with --archives"
)


class WorkerError(PlogError):
    """A Python worker cannot run tasks of plog; the message names the reason and a remedy."""


class CheckedPickle:
    """An object whose worker is checked when it is unpickled; a base of readers and writers."""

    def __reduce__(self) -> tuple[Any, ...]:
        kind = type(self)
        # The state is pickled separately, so that it is restored only after the check.
        state = pickle.dumps(self.__getstate__())
        return _restored, (VERSION, kind.__module__, kind.__qualname__, state)


def _restored(driver_version: str, module: str, name: str, state: bytes) -> object:
    check_worker(driver_version)
    kind = getattr(import_module(module), name)
    made: object = kind.__new__(kind)
    vars(made).update(pickle.loads(state))  # noqa: S301 - Spark has already unpickled this object
    freeze_modules()
    return made


@cache
def check_worker(driver_version: str) -> None:
    """Check this process, once. Raises WorkerError."""
    if driver_version != VERSION:
        raise WorkerError(
            f"cannot run a task: the driver has plog {driver_version}, but the Python worker"
            f" {sys.executable} has plog {VERSION}; {_REMEDY}"
        )
    for name in _CODECS:
        try:
            import_module(name)
        except ImportError as error:
            raise WorkerError(
                f"cannot run a task: the Python worker {sys.executable} cannot import"
                f" {name.partition('.')[0]}: {error}; {_REMEDY} (compiled packages do not load from"
                " a zip file)"
            ) from None
