"""Leave a test's process unchanged while a broker runs in it.

Such a broker does not change signals, limits or the garbage collector, does not notify systemd, and
does not observe the process's log events; broker_thread.py writes the broker's own events to a
file.
"""

from __future__ import annotations

import queue
import resource
import threading
from collections.abc import Callable, Mapping
from typing import Any

from twisted.logger import ILogObserver
from zope.interface import implementer

from plogd.process import OwnProcess
from plogd.sdnotify import ServiceNotifier


class EmbeddedProcess(OwnProcess):
    """Replaces `OwnProcess`; `statuses` receives the broker's status whenever it is ready."""

    def __init__(self) -> None:
        # An empty environment: systemd's variables, if any, were meant for the test's own process.
        super().__init__({})
        self.statuses: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        """A status whenever the broker is ready, and None when it has ended."""
        self.notifier = _ToQueue(self.statuses)

    def begin(self, hang_up: Callable[[], None]) -> int:
        """Return the limit on open files; do not change signals or limits."""
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    def serving(self) -> None:
        """Do not change the garbage collector."""

    def stopping(self) -> None:
        """Do not change the signals."""


class _ToQueue(ServiceNotifier):
    def __init__(self, statuses: queue.SimpleQueue[str | None]) -> None:
        super().__init__({})
        self._statuses = statuses

    def ready(self, status: str) -> None:
        self._statuses.put(status)


@implementer(ILogObserver)
class ThreadObserver:
    """Passes on the log events of the thread that created it, the broker's reactor thread."""

    def __init__(self, observer: Callable[[Mapping[str, Any]], None]) -> None:
        self._observer = observer
        self._thread = threading.get_ident()

    def __call__(self, event: Mapping[str, Any]) -> None:
        # Other events of the process may belong to the test or to another broker.
        if threading.get_ident() == self._thread:
            self._observer(event)
