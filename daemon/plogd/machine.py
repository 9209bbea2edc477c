"""The ports of plogd/ports.py over this machine, as a broker is given them.

service.py asks for them once, at the start. A test's broker is given others in their place
(plogd/testing/controlled_machine.py), so that the broker itself holds nothing that is for tests.
"""

from __future__ import annotations

from typing import Any

from plogd.apis.dispatch import Dispatcher
from plogd.broker import Broker
from plogd.net.request_queue import Dispatch
from plogd.net.system_ports import ReactorTimers, SystemClock, SystemRandom
from plogd.net.thread_jobs import ThreadJobs
from plogd.os_files import OsFiles
from plogd.ports import Clock, Turn


class Machine:
    """Clock, timers, files and chance for one broker; `reactor` is Any as in service.py."""

    def __init__(self, reactor: Any, files: OsFiles | None = None) -> None:
        self.reactor = reactor
        self.clock: Clock = SystemClock()
        self.timers = ReactorTimers(reactor)
        self.turn = Turn(self.timers)
        self.files = files or OsFiles()
        self.random = SystemRandom()

    def make_jobs(self) -> ThreadJobs:
        """The threads, for a broker that starts now."""
        return ThreadJobs(self.reactor, self.turn)

    def dispatch_of(self, broker: Broker) -> Dispatch:
        """Return what the connections hand each request to: one `Dispatcher` for the broker."""
        return Dispatcher(broker)
