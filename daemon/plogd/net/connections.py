"""All client connections of a broker: who is let in, what they share, which of them have to go.

Holds what every connection needs (the dispatch function, the shared receive buffer, the memory
budgets, the run queue), admits within ``max.connections`` and ``max.connections.per.ip``, and
counts. `sweep` is the row ``idle-connections`` of the task table: it closes the silent, the slow
and the dead. How one connection works is connection.py's business.

Reactor thread only. Invariant: a connection is counted from `add` to `remove`, once each way.
"""

from __future__ import annotations

from collections import Counter

from twisted.logger import Logger

from plogd.config.network_settings import NetworkSettings
from plogd.descriptor_budget import DescriptorBudget
from plogd.logging import RateLimit
from plogd.net.memory_shortage import MemoryShortage
from plogd.net.open_connection import OpenConnection
from plogd.net.receive_buffer import SHARED_BUFFER_BYTES
from plogd.net.request_memory import RequestMemory
from plogd.net.request_queue import Dispatch, RequestSlots
from plogd.net.response_memory import ResponseMemory
from plogd.net.run_queue import RunQueue
from plogd.ports import Clock, Jobs, Later, Timers, Turn

log = Logger()

_PEER_LOG_INTERVAL_MS = 60_000.0


class Connections:
    """The connections of one broker, and what they share.

    Attributes:
        settings: the bounds; `apply_settings` changes them.
        descriptors: how many connections there may be without taking those of the logs.
        accepted, refused, closed: how many connections ever were.
        bytes_in, bytes_out: what ever came and left.
        requests: requests ever started.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        settings: NetworkSettings,
        *,
        clock: Clock,
        timers: Timers,
        jobs: Jobs,
        turn: Turn,
        descriptors: DescriptorBudget | None = None,
    ) -> None:
        self.descriptors = descriptors or DescriptorBudget()
        self.descriptors.clients = lambda: len(self._open)
        self.dispatch = dispatch
        self.settings = settings
        self.clock = clock
        self.timers = timers
        self.jobs = jobs
        self.turn = turn
        self.shared_buffer = memoryview(bytearray(SHARED_BUFFER_BYTES))
        self.memory = RequestMemory(settings.queued_max_request_bytes, self._begin_shortage)
        self.responses = ResponseMemory(
            settings.plog_queued_max_response_bytes, self._begin_shortage
        )
        self._shortage = MemoryShortage(
            self.memory, self.responses, all_open=self.all_open, clock=clock, timers=timers
        )
        self.slots = RequestSlots(settings.queued_max_requests)
        self.run_queue = RunQueue(timers, clock)
        self.accepted = self.refused = self.closed = 0
        self.bytes_in = self.bytes_out = self.requests = 0
        self._open: dict[OpenConnection, None] = {}
        self._open_by_host: Counter[str] = Counter()
        self._peer_log = RateLimit(_PEER_LOG_INTERVAL_MS)
        self._all_closed: Later[None] | None = None

    def __len__(self) -> int:
        return len(self._open)

    def apply_settings(self, settings: NetworkSettings) -> None:
        """Use other bounds from now on; connections that are open stay."""
        self.settings = settings
        self.memory.limit_bytes = settings.queued_max_request_bytes
        self.responses.limit_bytes = settings.plog_queued_max_response_bytes
        self.slots.limit = settings.queued_max_requests

    def admit(self, host: str) -> bool:
        """Whether a new connection from `host` may stay; if not, it is counted and logged."""
        settings = self.settings
        if len(self._open) >= settings.max_connections:
            reason = f"max.connections={settings.max_connections} are open"
        elif self._open_by_host[host] >= settings.max_connections_per_ip:
            reason = f"max.connections.per.ip={settings.max_connections_per_ip} are open from there"
        elif self._all_closed is not None:
            reason = "the broker is stopping"
        else:
            return True
        self.refused += 1
        self.report(host, "refused", f"refused a connection: {reason}")
        return False

    def add(self, connection: OpenConnection) -> None:
        """A connection has been made."""
        self.accepted += 1
        self._open[connection] = None
        self._open_by_host[connection.host] += 1

    def remove(self, connection: OpenConnection) -> None:
        """A connection has ended."""
        del self._open[connection]
        self.closed += 1
        self._open_by_host[connection.host] -= 1
        if not self._open_by_host[connection.host]:
            del self._open_by_host[connection.host]
        if self._all_closed is not None and not self._open:
            self._all_closed.succeed(None)

    def report(self, host: str, kind: str, what: str) -> None:
        """One line about what a client did, but not a line for each time a client does it."""
        suppressed = self._peer_log.admit((host, kind), self.clock.monotonic_ms())
        if suppressed is not None:
            again = f" ({suppressed} more before it)" if suppressed else ""
            log.warn("{host}: {what}{again}", host=host, what=what, again=again)

    def all_open(self) -> list[OpenConnection]:
        """The connections that are open now."""
        return list(self._open)

    def sweep(self) -> None:
        """Close every connection that is idle, too slow, or whose client has gone."""
        now_ms = self.clock.monotonic_ms()
        for connection in self.all_open():
            connection.sweep(now_ms)

    def close_all(self) -> Later[None]:
        """Close every connection once its answers have left; ready when the last one is gone.

        Produces under way are answered, long polls are given up, nothing new starts and nobody is
        admitted. `abort_all` is for those that do not read their answers.
        """
        assert self._all_closed is None, "closed twice"
        self._all_closed = Later()
        if not self._open:
            self._all_closed.succeed(None)
        for connection in self.all_open():
            connection.finish("the broker is stopping")
        return self._all_closed

    def abort_all(self) -> None:
        """Cut every connection that is still open."""
        for connection in self.all_open():
            connection.abort("the broker has stopped")

    def _begin_shortage(self) -> None:
        self._shortage.begin()
