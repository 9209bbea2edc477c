"""The transport of plain ports: it reads into the shared buffer and sends files to the socket.

Twisted's ``tcp.Server`` creates a bytes object for each read, which a protocol would have to join
and split again. Here, `doRead` reads into the buffer in which requests are handled
(receive_buffer.py), and responses are sent from one ordered queue at the end of the turn
(output_queue.py). The poller waits until the socket is writable only if the socket was full.

For plain sockets only: with TLS, the bytes must pass through OpenSSL. Created by listener_port.py;
reactor thread only. Invariant: nothing else writes to the socket, and all resources are released
before the socket is closed.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterable
from typing import Any

from twisted.internet import main, tcp
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import ISSLTransport
from twisted.logger import Logger
from twisted.python.failure import Failure

from plogd.apis.encoded_response import SharedAnswer
from plogd.connection_context import ConnectionContext
from plogd.log.segment.file_records import RegionTruncated
from plogd.net.connection import Connection
from plogd.net.connections import Connections
from plogd.net.output_queue import Flushed, OutputQueue
from plogd.net.request_queue import Answer
from plogd.net.shared_output import SharedOutput

log = Logger()

_TCP_ESTABLISHED = 1
"""From the kernel's tcp_states.h; the socket module lacks this constant."""
_COUNTED_FROM_BYTES = 16 << 10
"""Unsent bytes from which a response counts before the end of the poller's round."""
_PEER_IS_GONE = (errno.EPIPE, errno.ECONNRESET, errno.ETIMEDOUT, errno.ENOTCONN)


class ServerTransport(tcp.Server):
    """An accepted socket that reads, writes and sends files for its `Connection`.

    Its Twisted protocol receives only the calls connectionMade and connectionLost.
    """

    _connection: Connection | None = None

    def serve(self, shared: Connections, context: ConnectionContext) -> None:
        """Create the `Connection`; called once, by connectionMade."""
        self._shared = shared
        self._output = OutputQueue(shared.jobs, self._flush_soon)
        self._is_reading = True  # tcp.Server has started reading.
        self._is_writing = False
        self._flush_is_due = False
        self._unsent_bytes = 0
        self._shared_output = SharedOutput(shared.responses)
        self._receive = self.socket.recv_into
        self._connection = Connection(shared, context, self)

    # The annotation in Twisted belongs to a stub in its mixin for aborted connections.
    def doRead(self) -> ConnectionLost | None:  # type: ignore[override]
        """Read from the socket and start the requests that have arrived."""
        connection = self._connection
        assert connection is not None, "reading must start after serve()"
        target = connection.target()
        if not target:
            return None  # Reading was paused after the kernel had reported this socket.
        try:
            nbytes = self._receive(target)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            return main.CONNECTION_LOST
        if nbytes:
            connection.received(nbytes)
        else:
            connection.end_of_stream()
        return None

    def doWrite(self) -> ConnectionDone | None:  # type: ignore[override]
        """Send more bytes; end a closing connection when everything has been sent."""
        if self._flush() is Flushed.EMPTY and self.disconnecting:
            return main.CONNECTION_DONE
        return None

    def connectionLost(self, reason: Failure) -> None:
        """Release all resources before the socket is closed."""
        connection, self._connection = self._connection, None
        if connection is None:
            super().connectionLost(reason)
            return
        run_queue, clock = self._shared.run_queue, self._shared.clock
        # Thousands of connections may be lost in one pass, and each takes about 30 µs.
        began_ms = clock.monotonic_ms()
        connection.lost()
        self._output.close()
        del self._receive, self._output  # Avoid reference cycles.
        super().connectionLost(reason)
        run_queue.spent(clock.monotonic_ms() - began_ms)

    def write(self, data: bytes) -> None:
        """Queue bytes like a response: sent directly, they could end up inside a file region."""
        self.write_answer([data])

    def writeSequence(self, iovec: Iterable[bytes]) -> None:
        """Queue bytes like a response."""
        self.write_answer(list(iovec))

    def startTLS(self, *args: Any, **kwargs: Any) -> None:
        """Raise RuntimeError: this transport bypasses the protocol layer that TLS would need."""
        raise RuntimeError("cannot start TLS on the transport of a plain port")

    # The following methods implement `Wire` for the Connection.

    @property
    def buffered_bytes(self) -> int:
        """Return the size of the unsent responses."""
        return self._output.buffered_bytes

    @property
    def sent_bytes(self) -> int:
        """Return the total number of bytes sent."""
        return self._output.sent_bytes

    def write_answer(self, answer: Answer) -> None:
        """Queue a response; it is sent at the end of the turn."""
        self._output.append(answer)
        if type(answer) is SharedAnswer:
            self._shared_output.add(answer, self._output.end_position)
        if not self._flush_is_due:
            self._flush_soon()

    def cork(self) -> None:
        """Start a turn: `uncork` sends the responses that the turn writes."""
        self._flush_is_due = True

    def uncork(self) -> None:
        """Send the responses that the turn wrote, when the poller's round ends."""
        connection = self._connection
        if connection is None:
            return
        # A long poll, for example, has only started to wait.
        if not self._output and not self.disconnecting:
            self._flush_is_due = False
            return
        # Small responses are not counted, because they are usually sent at the end of the round.
        if self._output.buffered_bytes >= _COUNTED_FROM_BYTES:
            self._unsent_bytes = self._output.memory_bytes
            connection.unsent(self._unsent_bytes)
        self._shared.turn.at_end(self._flush)

    def set_reading(self, is_reading: bool) -> None:
        """Start or stop reading from the socket."""
        if is_reading is not self._is_reading and not self.disconnecting:
            self._is_reading = is_reading
            if is_reading:
                self.startReading()  # type: ignore[no-untyped-call]
            else:
                self.stopReading()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Close the connection after all responses are sent."""
        # loseConnection starts writing, and then `doWrite` ends the connection.
        self._is_writing = True
        self.loseConnection()  # type: ignore[no-untyped-call]

    def abort(self) -> None:
        """Close the connection without sending anything more, after this call has returned."""
        self.abortConnection()  # type: ignore[no-untyped-call]

    def peer_has_left(self) -> bool:
        """Return whether the client has disconnected while reading was paused."""
        if self._is_reading or self.disconnected:
            return False
        # The first byte of struct tcp_info is the state.
        info = self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
        return bool(struct.unpack("B", info)[0] != _TCP_ESTABLISHED)

    def _flush_soon(self) -> None:
        """Flush when the current turn ends, so that all its responses are sent together."""
        self._flush_is_due = True
        self._shared.turn.defer(self.uncork)

    def _flush(self) -> Flushed | None:
        """Send as much as the socket accepts; return None if the connection is closing."""
        self._flush_is_due = False
        connection = self._connection
        if connection is None or self._aborting:
            return None
        output = self._output
        sent_before = output.sent_bytes
        try:
            outcome = output.flush(self.socket)
        except (OSError, RegionTruncated) as error:
            if not (isinstance(error, OSError) and error.errno in _PEER_IS_GONE):
                log.error(
                    "cannot send to {host}: {error}",
                    host=self.hostname,
                    error=error,
                    client=connection.context,
                )
            connection.abort("its socket cannot be written to")
            return None
        except Exception:
            # A part of a response may be lost, and the next bytes would be read as its rest.
            log.failure("sending to {client} failed unexpectedly", client=connection.context)
            connection.abort("sending to it failed unexpectedly")
            return None
        has_sent = output.sent_bytes != sent_before
        if has_sent:
            self._shared.bytes_out += output.sent_bytes - sent_before
        if self._shared_output.unsent:
            self._shared_output.report(connection, output.sent_bytes)
        if output.buffered_bytes or self._unsent_bytes:
            self._unsent_bytes = output.memory_bytes
            connection.unsent(self._unsent_bytes)
        if has_sent:
            connection.drained()
        self._watch(outcome)
        return outcome

    def _watch(self, outcome: Flushed) -> None:
        """Have the poller call `doWrite` if the outcome of a flush requires it."""
        # Only doWrite can end a closing connection, so it is also needed for an empty queue.
        wanted = outcome is Flushed.FULL or (outcome is Flushed.EMPTY and bool(self.disconnecting))
        if wanted is not self._is_writing:
            self._is_writing = wanted
            if wanted:
                self.startWriting()  # type: ignore[no-untyped-call]
            else:
                self.stopWriting()  # type: ignore[no-untyped-call]


def can_send_files(transport: object) -> bool:
    """Return whether `transport` sends files directly to its socket."""
    # A TLS transport also has a file descriptor, so the provided interfaces decide.
    return isinstance(transport, ServerTransport) and not ISSLTransport.providedBy(transport)
