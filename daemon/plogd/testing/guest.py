"""How a broker behaves as a guest in a test's process: it changes nothing that is not its own.

No signal, no limit, no setting of the collector, no word to systemd, no observer for all that the
process logs; what the broker says goes to a file of its own (broker_thread.py).
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


class Guest(OwnProcess):
    """In the place of the process; `heard` gets what the broker tells when it is ready."""

    def __init__(self) -> None:
        super().__init__({})
        self.heard: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        """A status for each time it is ready, None when it has ended."""
        self.notifier = _ToQueue(self.heard)

    def begin(self, hang_up: Callable[[], None]) -> int:
        """Leave the signals and limits; how many files the process may open."""
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    def serving(self) -> None:
        """Leave the collector."""

    def stopping(self) -> None:
        """Leave the signals."""


class _ToQueue(ServiceNotifier):
    def __init__(self, heard: queue.SimpleQueue[str | None]) -> None:
        super().__init__({})
        self._heard = heard

    def ready(self, status: str) -> None:
        self._heard.put(status)


@implementer(ILogObserver)
class OfThread:
    """Hands on the events of one thread: the reactor's, where a broker does its work."""

    def __init__(self, observer: Callable[[Mapping[str, Any]], None]) -> None:
        self._observer = observer
        self._thread = threading.get_ident()

    def __call__(self, event: Mapping[str, Any]) -> None:
        if threading.get_ident() == self._thread:
            self._observer(event)
