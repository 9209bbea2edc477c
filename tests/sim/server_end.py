"""The broker's end of a simulated connection, and the lanes that carry its frames.

Each connection has a real `RequestQueue` over the broker's real `dispatch`. A frame's buffer is
overwritten as soon as the queue has copied the request, as the transport's shared buffer is, and a
file region is read only when it is sent. network.py creates these objects.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from plog.wire.primitives import Part
from plogd.apis.dispatch import Dispatched
from plogd.connection_context import ConnectionContext
from plogd.log.segment.file_records import FileRegion
from plogd.net.request_queue import RequestQueue, RequestSlots, close_regions
from plogd.ports import Turn
from tests.helpers.sim.sim_time import SimClock, SimTimers
from tests.sim.checker import Anomaly

_JUNK = 0xDB


class Server(Protocol):
    """A running broker, as seen by the network."""

    turn: Turn
    slots: RequestSlots

    def dispatch(self, frame: memoryview, context: ConnectionContext) -> Dispatched:
        """Start a request."""
        ...


class Weather(Protocol):
    """The parts of the network that a lane uses."""

    clock: SimClock
    timers: SimTimers
    chance: random.Random
    fail: Callable[[Exception], None]
    forgives: Callable[[Exception], bool]

    def delay_ms(self) -> float:
        """Return the delay of the next frame."""
        ...


class Lane:
    """One direction of a connection: frames arrive in the order in which they were sent."""

    def __init__(self, network: Weather, arrive: Callable[[bytes], None]) -> None:
        self._network = network
        self._arrive = arrive
        self._under_way: deque[Callable[[], bytes | None]] = deque()
        self._last_due_ms = 0.0

    def send(self, content: Callable[[], bytes | None]) -> None:
        """Send a frame; `content` is called on arrival and may return nothing by then."""
        network = self._network
        self._under_way.append(content)
        now_ms = network.clock.monotonic_ms()
        self._last_due_ms = max(self._last_due_ms, now_ms + network.delay_ms())
        network.timers.call_later(self._last_due_ms - now_ms, self._next)

    def _next(self) -> None:
        content = self._under_way.popleft()() if self._under_way else None
        if content is not None:
            self._arrive(content)

    def cut(self, share: float) -> None:
        """Lose the frames in transit, except for the first `share` of them."""
        keep = int(len(self._under_way) * share)
        while len(self._under_way) > keep:
            self._under_way.pop()


class ServerEnd:
    """The state of a connection in the broker's process."""

    def __init__(
        self,
        network: Weather,
        server: Server,
        port: int,
        answered: Callable[[bytes], None],
        closed: Callable[[str, bool], None],
    ) -> None:
        self._network = network
        self._server = server
        self._closed = closed
        self._waiting: deque[bytes] = deque()
        self._unsent: deque[Sequence[Part]] = deque()
        self._down = Lane(network, answered)
        self._gone = False
        self._queue = RequestQueue(
            server.dispatch,
            make_context(port),
            write=self._write,
            close=self._close,
            on_ready=self._on_ready,
            slots=server.slots,
            timers=network.timers,
        )

    def deliver(self, frame: bytes) -> None:
        """Deliver a frame to the broker."""
        self._waiting.append(frame)
        self._offer()

    def _on_ready(self) -> None:
        self._network.timers.call_later(0, self._offer)

    def _offer(self) -> None:
        if self._gone:
            return
        with self._server.turn:
            while self._waiting and not self._gone:
                frame = self._waiting.popleft()
                buffer = bytearray(frame)
                if not self._queue.offer(memoryview(buffer)):
                    self._waiting.appendleft(frame)
                    return
                buffer[:] = bytes([_JUNK]) * len(buffer)

    def _write(self, parts: Sequence[Part]) -> None:
        if self._gone:
            close_regions(parts)
            return
        self._unsent.append(parts)
        self._down.send(self._take)

    def _take(self) -> bytes | None:
        """Return the oldest response; its file regions are read now, when sendfile would run."""
        parts = self._unsent.popleft()
        try:
            return b"".join(bytes_of(part) for part in parts)
        except Exception as error:
            if not isinstance(error, OSError) and not self._network.forgives(error):
                raise
            # A response that can no longer be read from disk leaves only closing the connection.
            self.lose()
            self._closed(f"a file could not be read: {error}", True)
            return None
        finally:
            close_regions(parts)

    def _close(self, why: str, bug: Exception | None) -> None:
        """Close the connection for the queue."""
        if bug is not None:
            self._network.fail(bug)
        self.lose()
        self._closed(why, bug is not None and self._network.forgives(bug))

    def lose(self) -> None:
        """Report the lost connection to a process that continues."""
        if self._gone:
            return
        with self._server.turn:
            self._queue.connection_lost()
        self.abandon()

    def abandon(self) -> None:
        """Discard all frames: the process has ended."""
        self._gone = True
        self._down.cut(0)
        self._waiting.clear()
        for parts in self._unsent:
            close_regions(parts)
        self._unsent.clear()


def bytes_of(part: Part) -> bytes:
    """Return the bytes that a part of a response sends."""
    if isinstance(part, bytes | memoryview):
        return bytes(part)
    assert isinstance(part, FileRegion)
    data = part.read()
    if len(data) != part.nbytes:
        raise Anomaly("short-read", f"a region of {part.nbytes} bytes gave {len(data)}")
    return data


def make_context(port: int) -> ConnectionContext:
    """Return the context of a simulated client."""
    return ConnectionContext(
        listener_name="PLAINTEXT",
        security_protocol="PLAINTEXT",
        client_address=("127.0.0.1", port),
        local_address=("127.0.0.1", 9092),
    )
