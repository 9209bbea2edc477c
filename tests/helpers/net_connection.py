"""A `plogd.net.connection.Connection` over a transport that keeps written data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plog.wire.primitives import Part
from plogd.net.connection import Connection
from tests.helpers.net_parts import ScriptedDispatch, joined, make_connections, make_context
from tests.helpers.sim.sim_ports import SimPorts


class FakeWire:
    """Keeps written data until a test sends it."""

    def __init__(self) -> None:
        self.answers: list[list[Part]] = []
        self.buffered_bytes = self.sent_bytes = 0
        self.is_corked = False
        self.is_reading = True
        self.is_closed = self.is_aborted = False
        self.has_left = False
        self.takes_answers = True
        self.on_close: Callable[[], None] = lambda: None
        self.connection: Connection | None = None

    def write_answer(self, answer: list[Part]) -> None:
        self.answers.append(answer)
        if not self.takes_answers:
            self.buffered_bytes += sum(len(part) for part in answer if isinstance(part, bytes))
            if self.connection is not None:
                self.connection.unsent(self.buffered_bytes)

    def cork(self) -> None:
        self.is_corked = True

    def uncork(self) -> None:
        self.is_corked = False

    def set_reading(self, is_reading: bool) -> None:
        self.is_reading = is_reading

    def close(self) -> None:
        self.is_closed = True
        self.on_close()

    def abort(self) -> None:
        self.is_aborted = True

    def peer_has_left(self) -> bool:
        return self.has_left


class ConnectionHarness:
    """A connection, its transport and its broker."""

    def __init__(self, **settings: Any) -> None:
        self.dispatch = ScriptedDispatch()
        self.dispatch.hold = lambda api_key, text: text.startswith("slow")
        self.ports = SimPorts()
        self.shared = make_connections(self.dispatch, self.ports, **settings)
        self.connect()

    def connect(self) -> Connection:
        self.wire = FakeWire()
        self.connection = self.wire.connection = Connection(self.shared, make_context(), self.wire)
        return self.connection

    def feed(self, data: bytes) -> bytes:
        """Feed `data` to the connection; return the part that it did not accept."""
        while data and self.wire.is_reading:
            target = self.connection.target()
            nbytes = min(len(target), len(data))
            assert nbytes, "reading is on, but there is no buffer"
            target[:nbytes] = data[:nbytes]
            data = data[nbytes:]
            self.connection.received(nbytes)
        return data

    @property
    def answers(self) -> list[str]:
        return [joined(answer)[4:].decode() for answer in self.wire.answers]

    def let_leave(self, nbytes: int | None = None) -> None:
        """Make the client read `nbytes` of the written data, or all of it."""
        wire = self.wire
        nbytes = wire.buffered_bytes if nbytes is None else nbytes
        wire.buffered_bytes -= nbytes
        wire.sent_bytes += nbytes
        self.connection.unsent(wire.buffered_bytes)
        self.connection.drained()
