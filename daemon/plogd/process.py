"""Process-wide state of a broker: signals, resource limits, the garbage collector, systemd.

`OwnProcess` is for a daemon, which has the process to itself. A broker that runs inside another
program uses plogd/testing/embedded_process.py instead, which leaves this state unchanged.
service.py calls these methods on the reactor's thread, which is the main thread.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
from collections.abc import Callable, MutableMapping

from plogd.net.passed_sockets import take_passed_descriptors
from plogd.sdnotify import ServiceNotifier
from plogd.start_errors import LogDirRemedies

_COLLECT_AFTER = (25_000, 20, 50)
"""Thresholds of the garbage collector's three generations. Twenty waiting fetches already exceed
Python's default of 700 objects for the youngest generation."""


class OwnProcess:
    """A process that runs only the broker; `environment` contains systemd's variables."""

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        # Not in `begin`, because twistd may fork before that, which changes the process id.
        self.passed_descriptors = take_passed_descriptors(environment, os.getpid())
        self.notifier = ServiceNotifier(environment)
        self.remedies = LogDirRemedies(environment)

    def begin(self, hang_up: Callable[[], None]) -> int:
        """Handle SIGHUP with `hang_up`, and raise the limit on open files; return that limit."""
        signal.signal(signal.SIGHUP, lambda _signal, _frame: hang_up())
        return _raise_descriptor_limit()

    def serving(self) -> None:
        """Set up the garbage collector for a broker that has started."""
        # Existing objects are permanent, so they are excluded from collections. Requests do not
        # leave cycles (tests/unit/test_broker_leftovers.py), so collections are rare: each waiting
        # request consists of dozens of objects, none of which are garbage.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_COLLECT_AFTER)
        gc.enable()

    def stopping(self) -> None:
        """Ignore further stop signals while the broker stops."""
        for number in (signal.SIGTERM, signal.SIGINT):
            # Otherwise, Twisted would log an error for each further signal.
            signal.signal(number, signal.SIG_IGN)


def _raise_descriptor_limit() -> int:
    """Raise the limit as far as allowed, and return it; descriptor_budget.py divides it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The soft limit of 1024 exists for programs that use select(2); the broker does not.
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
