"""The network between brokers in one process: connections, delays and faults.

A broker joins the network with its dispatcher, and asks other brokers through `InMemoryPeers`
(in_memory_peers.py). A connection delivers frames in order, like TCP. Time passes only in the
`Timers` that the network gets, so that the same seed of a simulation has the same result.

Faults, each between a source and a target: `delay_ms` delays every frame, `cut` holds frames back
until `heal`, `reset` breaks connections, and `lose_response` breaks a connection after the next
request has been processed. `leave` is the end of a process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from plogd.apis.close_connection import CloseConnection
from plogd.apis.dispatch import Dispatched, Parts
from plogd.connection_context import ConnectionContext
from plogd.log.segment.file_records import FileRegion
from plogd.peers import PeerUnavailable
from plogd.ports import Clock, Later, Timer, Timers, Turn, failed

_SIZE_BYTES = 4
_CONNECT_RETRY_MS = 50.0
"""Interval between the attempts of TCP to open a connection while the network is cut."""


class Dispatch(Protocol):
    """Starts a request, like `Dispatcher`."""

    def __call__(self, frame: memoryview, connection: ConnectionContext) -> Dispatched:
        """Start the request in `frame`. Raises CloseConnection."""
        ...


class _End:
    """A broker on the network."""

    def __init__(self, dispatch: Dispatch, turn: Turn, listener_name: str) -> None:
        self.dispatch = dispatch
        self.turn = turn
        self.listener_name = listener_name
        self.links: list[Link] = []
        """Open connections from and to the broker."""


class PeerNetwork:
    """The network between brokers; `delay_ms` returns the delay of a frame between two brokers."""

    def __init__(
        self,
        clock: Clock,
        timers: Timers,
        delay_ms: Callable[[int, int], float] = lambda source, target: 0.0,
    ) -> None:
        self.clock = clock
        self.timers = timers
        self.delay_ms = delay_ms
        self._ends: dict[int, _End] = {}
        self._cuts: set[tuple[int, int]] = set()
        self._losses: list[tuple[int, int]] = []

    # -- brokers ------------------------------------------------------------------------------

    def join(
        self,
        broker_id: int,
        dispatch: Dispatch,
        *,
        turn: Turn,
        listener_name: str = "PLAINTEXT",
    ) -> None:
        """Add a broker, which must not be on the network.

        `dispatch` receives requests of other brokers, which arrive on the listener with this name.
        """
        assert broker_id not in self._ends, f"broker {broker_id} is on the network"
        self._ends[broker_id] = _End(dispatch, turn, listener_name)

    def leave(self, broker_id: int) -> None:
        """Remove a broker, whose process has ended: its connections break, new ones are refused.

        No code of the broker runs any more: its requests get no outcome, and the requests that it
        is handling are not cancelled.
        """
        end = self._ends.pop(broker_id)
        for link in list(end.links):
            link.close("the broker has ended", ended=broker_id)

    # -- faults -------------------------------------------------------------------------------

    def cut(self, source: int, target: int) -> None:
        """Hold back all frames from `source` to `target`; frames in the other direction arrive."""
        self._cuts.add((source, target))

    def heal(self, source: int, target: int) -> None:
        """Deliver frames from `source` to `target` again, including those held back."""
        self._cuts.discard((source, target))
        for link in self._links(source, target):
            link.resume()

    def is_cut(self, source: int, target: int) -> bool:
        """Return whether frames from `source` to `target` are held back."""
        return (source, target) in self._cuts

    def reset(self, source: int, target: int) -> None:
        """Break all connections that `source` has opened to `target`."""
        for link in self._links(source, target):
            if link.source == source:
                link.close("the connection was reset")

    def lose_response(self, source: int, target: int) -> None:
        """Break the connection when `target` has processed its next request from `source`."""
        self._losses.append((source, target))

    def takes_loss(self, source: int, target: int) -> bool:
        """Return whether `lose_response` applies to a response, and use it up."""
        if (source, target) not in self._losses:
            return False
        self._losses.remove((source, target))
        return True

    def _links(self, one: int, other: int) -> list[Link]:
        end = self._ends.get(one)
        links = [] if end is None else end.links
        return [link for link in links if {link.source, link.target} == {one, other}]

    # -- connections --------------------------------------------------------------------------

    def connect(self, source: int, target: int) -> Later[Link]:
        """Return a new connection. Fails with PeerUnavailable; waits while the network is cut."""
        opened: Later[Link] = Later()
        asks = self._ends.get(source)
        delay_ms = self.delay_ms(source, target) + self.delay_ms(target, source)
        self.timers.call_later(delay_ms, lambda: self._open(source, asks, target, opened))
        return opened

    def _open(self, source: int, asks: _End | None, target: int, opened: Later[Link]) -> None:
        # The process that asks may have ended, and the next one may have joined.
        if opened.done or asks is None or self._ends.get(source) is not asks:
            return
        if self.is_cut(source, target) or self.is_cut(target, source):
            # TCP repeats its first packet, so that the connection is opened soon after `heal`.
            self.timers.call_later(
                _CONNECT_RETRY_MS, lambda: self._open(source, asks, target, opened)
            )
            return
        is_asked = self._ends.get(target)
        if is_asked is None:
            opened.fail(PeerUnavailable("cannot connect: connection refused"))
            return
        link = Link(self, source, target, is_asked)
        asks.links.append(link)
        is_asked.links.append(link)
        opened.succeed(link)

    def forget(self, link: Link) -> None:
        """Remove a closed connection from both brokers."""
        for broker_id in (link.source, link.target):
            end = self._ends.get(broker_id)
            if end is not None and link in end.links:
                end.links.remove(link)


class _Direction:
    """The frames of one connection from one broker to the other, delivered in order."""

    def __init__(
        self, network: PeerNetwork, source: int, target: int, deliver: Callable[[bytes], None]
    ) -> None:
        self._network = network
        self._source, self._target = source, target
        self._deliver = deliver
        self._frames: deque[tuple[float, bytes]] = deque()
        self._last_due_ms = 0.0
        self._timer: Timer | None = None

    def send(self, frame: bytes) -> None:
        network = self._network
        due_ms = network.clock.monotonic_ms() + network.delay_ms(self._source, self._target)
        # A frame cannot overtake an earlier frame with a longer delay.
        self._last_due_ms = max(self._last_due_ms, due_ms)
        self._frames.append((self._last_due_ms, frame))
        self.resume()

    def resume(self) -> None:
        """Schedule the delivery of the next frame, unless the network is cut."""
        network = self._network
        if self._timer is not None or not self._frames or self._is_cut:
            return
        delay_ms = max(0.0, self._frames[0][0] - network.clock.monotonic_ms())
        self._timer = network.timers.call_later(delay_ms, self._arrive)

    @property
    def _is_cut(self) -> bool:
        return self._network.is_cut(self._source, self._target)

    def _arrive(self) -> None:
        self._timer = None
        if self._is_cut:  # Since the delivery was scheduled.
            return
        _, frame = self._frames.popleft()
        try:
            self._deliver(frame)
        finally:
            self.resume()

    def close(self) -> None:
        self._frames.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Link:
    """A connection that `source` has opened to `target`, with requests in flight in order."""

    def __init__(self, network: PeerNetwork, source: int, target: int, end: _End) -> None:
        self.source = source
        self.target = target
        self.is_open = True
        self._network = network
        self._end = end
        self._up = _Direction(network, source, target, self._requested)
        self._down = _Direction(network, target, source, self._answered)
        self._in_flight: deque[Later[bytes]] = deque()
        self._to_handle: deque[bytes] = deque()
        self._handling: Later[Any] | None = None
        self._is_handling = False
        address = ("127.0.0.1", target)
        self._connection = ConnectionContext(
            listener_name=end.listener_name,
            security_protocol="PLAINTEXT",
            client_address=("127.0.0.1", source),
            local_address=address,
        )

    # -- the end of the broker that asks --------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """The number of requests without a response."""
        return len(self._in_flight)

    def ask(self, frame: bytes) -> Later[bytes]:
        """Send a request frame; return the response frame, without sizes.

        Fails with PeerUnavailable if the connection breaks.
        """
        if not self.is_open:
            return failed(PeerUnavailable("the connection is closed"))
        answer: Later[bytes] = Later()
        self._in_flight.append(answer)
        self._up.send(frame)
        return answer

    def _answered(self, frame: bytes) -> None:
        self._in_flight.popleft().succeed(frame)

    def resume(self) -> None:
        """Deliver frames that were held back."""
        self._up.resume()
        self._down.resume()

    def close(self, why: str, *, ended: int | None = None) -> None:
        """Close the connection at both ends; frames in transit are lost.

        `ended` is the broker whose process has ended, if that is the reason.
        """
        if not self.is_open:
            return
        self.is_open = False
        self._network.forget(self)
        self._up.close()
        self._down.close()
        self._to_handle.clear()
        # As for a client that has disconnected.
        if self._handling is not None and ended != self.target:
            self._handling.cancel()
        in_flight, self._in_flight = self._in_flight, deque()
        for answer in in_flight if ended != self.source else ():
            answer.fail(PeerUnavailable(why))

    # -- the end of the broker that is asked ----------------------------------------------------

    def _requested(self, frame: bytes) -> None:
        self._to_handle.append(frame)
        self._handle_next()

    def _handle_next(self) -> None:
        """Handle requests one at a time, as the broker does for each connection."""
        while self._to_handle and not self._is_handling and self.is_open:
            frame = bytearray(self._to_handle.popleft())
            self._is_handling = True
            try:
                with self._end.turn:
                    result = self._end.dispatch(memoryview(frame), self._connection).result
                    # The transport reuses its buffer, so that late use of the frame is detected.
                    frame[:] = bytes(len(frame))
            except CloseConnection as error:
                self.close(f"broker {self.target} closed the connection: {error}")
                return
            if isinstance(result, Later):
                self._handling = result
                result.then(self._handled, self._cannot_handle)
            else:
                self._handled(result)

    def _cannot_handle(self, error: Exception) -> None:
        self._handling = None
        self.close(f"broker {self.target} closed the connection: {error}")

    def _handled(self, parts: Parts | None) -> None:
        self._handling = None
        self._is_handling = False
        try:
            frame = b"".join(map(_bytes_of, parts or ()))
        except OSError as error:
            # As in the transport: the response may have begun, so it cannot become an error.
            self.close(f"broker {self.target} closed the connection: {error}")
            return
        if not self.is_open:
            return
        if self._network.takes_loss(self.source, self.target):
            self.close("the response was lost")
            return
        if parts is not None:
            self._down.send(frame[_SIZE_BYTES:])
        self._handle_next()


def _bytes_of(part: Any) -> bytes:
    if isinstance(part, FileRegion):
        try:
            return part.read()
        finally:
            part.close()
    return bytes(part)
