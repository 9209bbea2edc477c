"""What a broker does to the process it runs in: signals, limits, the collector, systemd.

`OwnProcess` is for a daemon, whose process is there for nothing else. A broker that is a guest in
another program's process brings its own (plogd/testing/guest.py), which leaves all that alone.
Called by service.py, on the reactor's thread, which is the main one here.
"""

from __future__ import annotations

import gc
import resource
import signal
from collections.abc import Callable, Mapping

from plogd.sdnotify import ServiceNotifier

_COLLECT_AFTER = (25_000, 20, 50)
"""New objects before the collector looks, and looks before it looks at older ones, too.

Python's own 700 would be reached by 20 fetches that wait."""


class OwnProcess:
    """A process that is the broker's alone; `environment` tells who wants to hear of it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.notifier = ServiceNotifier(environment)

    def begin(self, hang_up: Callable[[], None]) -> int:
        """The broker starts; `hang_up` is for SIGHUP. How many files it may open."""
        signal.signal(signal.SIGHUP, lambda _signal, _frame: hang_up())
        return _raise_descriptor_limit()

    def serving(self) -> None:
        """The broker has started.

        What is here now stays: the collector need not look at it again and again. And what comes
        leaves without it (tests/unit/test_broker_leftovers.py), so it seldom looks: each request
        that waits is some dozens of objects, and none of them is garbage.
        """
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_COLLECT_AFTER)
        gc.enable()

    def stopping(self) -> None:
        """The broker stops; it cannot be stopped any more than that."""
        for again in (signal.SIGTERM, signal.SIGINT):
            signal.signal(again, signal.SIG_IGN)


def _raise_descriptor_limit() -> int:
    """Raise the limit as far as allowed; return it. See plogd/descriptor_budget.py for its use."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
