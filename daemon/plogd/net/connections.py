"""All client connections of a broker: admission, shared state, limits and counters.

`Connections` holds the state that connections share (the dispatch function, the receive buffer, the
memory budgets, the run queue) and enforces ``max.connections`` and ``max.connections.per.ip``. The
task ``idle-connections`` calls `sweep`, which closes connections that are idle or too slow, or
whose clients have disconnected. connection.py implements a single connection.

Reactor thread only. Invariant: a connection is counted from `add` to `remove`.
"""

from __future__ import annotations

from collections import Counter

from twisted.logger import Logger

from plogd.config.network_settings import NetworkSettings
from plogd.connection_context import ConnectionContext
from plogd.descriptor_budget import DescriptorBudget
from plogd.logging import RateLimit
from plogd.net.memory_shortage import MemoryShortage
from plogd.net.open_connection import OpenConnection
from plogd.net.receive_buffer import SHARED_BUFFER_BYTES
from plogd.net.request_memory import RequestMemory
from plogd.net.request_queue import Dispatch, RequestSlots
from plogd.net.response_memory import ResponseMemory
from plogd.net.run_queue import DIRECT_MAX_MS, RunQueue
from plogd.ports import Later, Ports

log = Logger()

_PEER_LOG_INTERVAL_MS = 60_000.0
_NOTABLE_TURN_MS = 0.25
"""While few connections are open, shorter turns are not counted, because counting needs a timer."""
_FEW_CONNECTIONS = 100
"""While more connections are open, shorter turns are also counted, because they add up in a
pass."""


class Connections:
    """The connections of one broker and their shared state.

    Attributes:
        settings: the limits; `apply_settings` changes them.
        descriptors: limits connections so that logs have enough file descriptors.
        accepted, refused, closed: total numbers of connections.
        bytes_in, bytes_out: total numbers of bytes received and sent.
        requests: total number of requests started.
        notable_turn_ms: shorter turns are not counted, because they do not cause a noticeable delay
            even if each connection takes one.
    """

    def __init__(
        self,
        dispatch: Dispatch,
        settings: NetworkSettings,
        ports: Ports,
        *,
        descriptors: DescriptorBudget | None = None,
    ) -> None:
        self.descriptors = descriptors or DescriptorBudget()
        # The budget exists before the connections, so it counts them through this function.
        self.descriptors.clients = lambda: len(self._open)
        self.dispatch = dispatch
        self.settings = settings
        self.clock = ports.clock
        self.timers = ports.timers
        self.jobs = ports.jobs
        self.turn = ports.turn
        # One buffer suffices, because a connection handles or copies its bytes before the next one
        # reads. With a buffer of its own, an idle connection would take 66 kB instead of 2 kB
        # (decision 0004).
        self.shared_buffer = memoryview(bytearray(SHARED_BUFFER_BYTES))
        self.memory = RequestMemory(settings.queued_max_request_bytes, self._begin_shortage)
        self.responses = ResponseMemory(
            settings.plog_queued_max_response_bytes, self._begin_shortage
        )
        self._shortage = MemoryShortage(
            self.memory,
            self.responses,
            all_open=self.all_open,
            clock=self.clock,
            timers=self.timers,
        )
        self.slots = RequestSlots(settings.queued_max_requests)
        self.run_queue = RunQueue(self.timers, self.clock)
        self.notable_turn_ms = 0.0
        self.accepted = self.refused = self.closed = 0
        self.bytes_in = self.bytes_out = self.requests = 0
        self._open: dict[OpenConnection, None] = {}
        self._set_notable_turn()
        self._open_by_host: Counter[str] = Counter()
        self._peer_log = RateLimit(_PEER_LOG_INTERVAL_MS)
        self._all_closed: Later[None] | None = None

    def __len__(self) -> int:
        return len(self._open)

    def apply_settings(self, settings: NetworkSettings) -> None:
        """Use new limits; open connections stay open."""
        self.settings = settings
        self.memory.limit_bytes = settings.queued_max_request_bytes
        self.responses.limit_bytes = settings.plog_queued_max_response_bytes
        self.slots.limit = settings.queued_max_requests

    def admit(self, host: str) -> bool:
        """Return whether to accept a new connection from `host`; count and log a rejection."""
        settings = self.settings
        if len(self._open) >= settings.max_connections:
            # Kafka stops accepting instead (KIP-402), so further clients wait without an error.
            reason = f"the limit max.connections={settings.max_connections} is reached"
        elif self._open_by_host[host] >= settings.max_connections_per_ip:
            reason = (
                f"the limit max.connections.per.ip={settings.max_connections_per_ip} is reached"
            )
        elif self._all_closed is not None:
            reason = "the broker is stopping"
        else:
            return True
        self.refused += 1
        self.report(host, "refused", f"rejected a connection: {reason}")
        return False

    def add(self, connection: OpenConnection) -> None:
        """Count a new connection."""
        self.accepted += 1
        self._open[connection] = None
        self._set_notable_turn()
        self._open_by_host[connection.host] += 1

    def remove(self, connection: OpenConnection) -> None:
        """Remove a closed connection."""
        del self._open[connection]
        self._set_notable_turn()
        self.closed += 1
        self._open_by_host[connection.host] -= 1
        if not self._open_by_host[connection.host]:
            # Otherwise the counter would grow with every host that ever connected.
            del self._open_by_host[connection.host]
        if self._all_closed is not None and not self._open:
            self._all_closed.succeed(None)

    def _set_notable_turn(self) -> None:
        # Computed when the number changes, so that each turn only compares two numbers.
        is_few = len(self._open) <= _FEW_CONNECTIONS
        self.notable_turn_ms = _NOTABLE_TURN_MS if is_few else DIRECT_MAX_MS / len(self._open)

    def report(self, client: ConnectionContext | str, kind: str, what: str) -> None:
        """Log an event for a client, at most once a minute per host and `kind`.

        `client` is the client's connection, or its address if it has no connection.
        """
        host = client if isinstance(client, str) else client.client_address[0]
        self._report(host, kind, what, client=client)

    def report_port(self, port: int, kind: str, what: str) -> None:
        """Log an event for a listening port, at most once a minute per port and `kind`."""
        self._report(f"port {port}", kind, what)

    def _report(self, subject: str, kind: str, what: str, **fields: object) -> None:
        suppressed = self._peer_log.admit((subject, kind), self.clock.monotonic_ms())
        if suppressed is not None:
            again = f" ({suppressed} more suppressed)" if suppressed else ""
            text = "{subject}: {what}{again}"
            log.warn(text, subject=subject, what=what, again=again, **fields)

    def all_open(self) -> list[OpenConnection]:
        """Return the open connections."""
        # Return a copy, because callers close connections while they iterate.
        return list(self._open)

    def sweep(self) -> None:
        """Close every connection that is idle or too slow, or whose client has disconnected."""
        now_ms = self.clock.monotonic_ms()
        for connection in self.all_open():
            connection.sweep(now_ms)

    def close_all(self) -> Later[None]:
        """Close every connection after its responses are sent; return when all are closed.

        Produce requests in progress are completed, long polls are cancelled, and new requests and
        connections are rejected. Use `abort_all` for clients that do not read their responses.
        """
        assert self._all_closed is None, "closed twice"
        self._all_closed = Later()
        if not self._open:
            self._all_closed.succeed(None)
        for connection in self.all_open():
            connection.finish("the broker is stopping")
        return self._all_closed

    def abort_all(self) -> None:
        """Close every open connection without sending the pending responses."""
        for connection in self.all_open():
            connection.abort("the broker has stopped")

    def _begin_shortage(self) -> None:
        self._shortage.begin()
