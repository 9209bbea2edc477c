"""The transport of plain ports: from the socket into the shared buffer, from files to the socket.

Twisted's own ``tcp.Server`` makes a bytes object of whatever it reads, and a protocol above it
joins and cuts those again; here `doRead` reads where the requests are handled (receive_buffer.py),
and answers leave by one ordered queue at the end of the turn (output_queue.py). The reactor is told
to wait for a writable socket only when the socket has refused to take more.

For plain sockets only: under TLS the bytes must pass through OpenSSL, so `can_send_files` decides
by what the transport says it provides; a TLS transport has a file descriptor too. Made by
listener_port.py; reactor thread only. Invariant: nothing else writes to the socket, and everything
is released before it is closed.
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
_PEER_IS_GONE = (errno.EPIPE, errno.ECONNRESET, errno.ETIMEDOUT, errno.ENOTCONN)


class ServerTransport(tcp.Server):
    """An accepted socket that reads, writes and sends files for its `Connection` by itself.

    The Twisted protocol above it only hears that the connection was made and lost.
    """

    _connection: Connection | None = None

    def serve(self, shared: Connections, context: ConnectionContext) -> None:
        """Begin; called once, when the connection has been made."""
        self._shared = shared
        self._output = OutputQueue(shared.jobs, self._flush_soon)
        self._is_reading = True  # tcp.Server has begun that.
        self._is_writing = False
        self._flush_is_due = False
        self._unsent_bytes = 0
        self._shared_output = SharedOutput(shared.responses)
        self._receive = self.socket.recv_into
        self._connection = Connection(shared, context, self)

    # Twisted annotates the stub its mixin puts in the way of an aborted connection.
    def doRead(self) -> ConnectionLost | None:  # type: ignore[override]
        """The socket is readable: take what came and let its requests start."""
        connection = self._connection
        assert connection is not None, "no connection is read from before it is made"
        target = connection.target()
        if not target:
            return None  # Reading was switched off after the kernel had reported this socket.
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
        """The socket takes more; or the connection is to end when all has been sent."""
        if self._flush() is Flushed.EMPTY and self.disconnecting:
            return main.CONNECTION_DONE
        return None

    def connectionLost(self, reason: Failure) -> None:
        """Let go of everything, before the socket is closed."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.lost()
            self._output.close()
            del self._receive, self._output  # So that nothing is left to the collector.
        super().connectionLost(reason)

    def write(self, data: bytes) -> None:
        """Queue bytes like an answer: sent past the queue they might land inside of a file."""
        self.write_answer([data])

    def writeSequence(self, iovec: Iterable[bytes]) -> None:
        """Queue bytes like an answer."""
        self.write_answer(list(iovec))

    def startTLS(self, *args: Any, **kwargs: Any) -> None:
        """Refused: TLS would have to see every byte, and this transport shows it none."""
        raise RuntimeError("a plain port's transport cannot begin TLS")

    # What follows is `Wire`, for the Connection.

    @property
    def buffered_bytes(self) -> int:
        """Answers that wait to be sent."""
        return self._output.buffered_bytes

    @property
    def sent_bytes(self) -> int:
        """What has left so far."""
        return self._output.sent_bytes

    def write_answer(self, answer: Answer) -> None:
        """Queue an answer; it leaves at the end of the turn."""
        self._output.append(answer)
        if type(answer) is SharedAnswer:
            self._shared_output.add(answer, self._output.end_position)
        if not self._flush_is_due:
            self._flush_soon()

    def cork(self) -> None:
        """A turn begins: `uncork` will send what it writes."""
        self._flush_is_due = True

    def uncork(self) -> None:
        """Send what the turn wrote."""
        self._flush()

    def set_reading(self, is_reading: bool) -> None:
        """Watch the socket for bytes, or not."""
        if is_reading is not self._is_reading and not self.disconnecting:
            self._is_reading = is_reading
            if is_reading:
                self.startReading()  # type: ignore[no-untyped-call]
            else:
                self.stopReading()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """End the connection once what was written has left."""
        self._is_writing = True
        self.loseConnection()  # type: ignore[no-untyped-call]

    def abort(self) -> None:
        """End the connection, never inside this call."""
        self.abortConnection()  # type: ignore[no-untyped-call]

    def peer_has_left(self) -> bool:
        """Whether the client has closed its end while nothing is read, so that nobody noticed."""
        if self._is_reading or self.disconnected:
            return False
        info = self.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
        return bool(struct.unpack("B", info)[0] != _TCP_ESTABLISHED)

    def _flush_soon(self) -> None:
        """Flush when the current turn ends, so that all it completes leaves in one go."""
        self._flush_is_due = True
        self._shared.turn.defer(self.uncork)

    def _flush(self) -> Flushed | None:
        """Send what the socket takes now; None if the connection is going already."""
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
                log.error("cannot send to {peer}: {error}", peer=self.hostname, error=error)
            connection.abort("it cannot be written to")
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
        """Have `doWrite` called when there is something for it to do."""
        # An empty queue that ends the connection needs it too: only doWrite can do that.
        wanted = outcome is Flushed.FULL or (outcome is Flushed.EMPTY and bool(self.disconnecting))
        if wanted is not self._is_writing:
            self._is_writing = wanted
            if wanted:
                self.startWriting()  # type: ignore[no-untyped-call]
            else:
                self.stopWriting()  # type: ignore[no-untyped-call]


def can_send_files(transport: object) -> bool:
    """Whether bytes may go past `transport`, straight from a file to its socket."""
    return isinstance(transport, ServerTransport) and not ISSLTransport.providedBy(transport)
