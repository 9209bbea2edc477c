"""The output of a TLS connection, which copies its bytes to the transport.

Responses are written to a standard Twisted transport in order, in pieces of about 64 KiB, and only
as fast as the transport accepts them. `CopyingOutput` is the transport's only producer.

Created by protocol_connection.py; reactor thread only. Invariant: at most one read is in progress,
and pieces queued after it wait for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, cast

from twisted.internet.interfaces import IPushProducer
from twisted.logger import Logger
from zope.interface import implementer

from plogd.apis.encoded_response import SharedAnswer
from plogd.log.segment.file_records import FileRegion, RegionTruncated
from plogd.net import uncached_reads
from plogd.net.connection import Connection
from plogd.net.connections import Connections
from plogd.net.output_queue import REGION_WEIGHT_BYTES
from plogd.net.request_queue import Answer, close_regions
from plogd.net.shared_output import SharedOutput

log = Logger()

PIECE_BYTES = 64 * 1024


@implementer(IPushProducer)
class CopyingOutput:
    """Writes a connection's responses to `transport` by copying.

    Args:
        transport: an ITCPTransport, or an object that can pause and resume reading, register a
            streaming producer, and lose and abort its connection.
        on_reading: called when bytes may be read again; some may have been delivered while reading
            was paused.
    """

    def __init__(self, transport: Any, shared: Connections, on_reading: Callable[[], None]) -> None:
        self._transport = transport
        self._shared = shared
        self._on_reading = on_reading
        self.connection: Connection | None = None
        self._parts: deque[bytes | memoryview | FileRegion] = deque()
        self._region_sent = 0
        self._gathered: list[bytes | memoryview] = []  # The pieces of the next write.
        self._gathered_bytes = 0
        self._is_paused = self._is_corked = self._is_reading_file = False
        self._is_closing = self._is_lost = False
        self._is_dead = False  # Whether all further output is discarded.
        self.is_reading = True
        self.buffered_bytes = 0
        self.sent_bytes = 0
        self._regions = self._unsent_bytes = 0
        self._shared_output = SharedOutput(shared.responses)
        # A streaming producer: a pull producer would be asked for data during its registration,
        # before data written earlier is sent, and with TLS it would need the global reactor.
        transport.registerProducer(self, True)

    def write_answer(self, answer: Answer) -> None:
        """Queue a response and take ownership of its regions."""
        if self._is_dead:
            close_regions(answer)
            return
        for part in answer:
            if isinstance(part, bytes | memoryview):
                self.buffered_bytes += len(part)
                self._parts.append(part)
            else:
                self.buffered_bytes += REGION_WEIGHT_BYTES
                self._regions += 1
                self._parts.append(cast(FileRegion, part))
        if type(answer) is SharedAnswer:
            self._shared_output.add(answer, self._end_position())
        if not self._is_corked:
            self._pump()

    def _end_position(self) -> int:
        """Return the value of `sent_bytes` once everything in the queue has been sent."""
        unsent = sum(x.nbytes if isinstance(x, FileRegion) else len(x) for x in self._parts)
        return self.sent_bytes + self._gathered_bytes + unsent - self._region_sent

    def cork(self) -> None:
        """Hold back responses until `uncork` is called."""
        self._is_corked = True

    def uncork(self) -> None:
        """Send as many of the held bytes as the transport accepts."""
        self._is_corked = False
        self._pump()

    def set_reading(self, is_reading: bool) -> None:
        """Start or stop reading; bytes that are already decrypted may still be delivered."""
        if is_reading is not self.is_reading:
            self.is_reading = is_reading
            if not self._is_lost:
                if is_reading:
                    self._transport.resumeProducing()
                else:
                    self._transport.pauseProducing()
            if is_reading:
                # Not immediately, because the caller may be in the middle of another connection's
                # turn.
                self._shared.timers.call_later(0, self._on_reading)

    def close(self) -> None:
        """Close the connection after all responses are written."""
        if self._is_lost:
            self._end_lost()
        self._is_closing = True
        self._pump()

    def abort(self) -> None:
        """Close the connection without writing anything more, after this call has returned."""
        # `_abort` can release the connection at once, but callers still use it after this call.
        self._shared.timers.call_later(0, self._abort)

    def peer_has_left(self) -> bool:
        """Return whether `lost` was called. Until then, the transport reads the socket."""
        return self._is_lost

    def lost(self) -> None:
        """Discard unsent data and close its files, because the transport has closed.

        Requests received earlier may continue until the `Connection` closes.
        """
        self._is_lost = self._is_dead = True
        parts, self._parts = self._parts, deque()
        close_regions(parts)
        self._gathered.clear()
        self.buffered_bytes = self._regions = self._unsent_bytes = 0
        if self.connection is not None:
            self._shared_output.clear(self.connection)
            self.connection.unsent(0)
            # The connection may be waiting for its output to drain, and would otherwise never end.
            self.connection.drained()

    # The following methods implement IPushProducer for the transport.

    def pauseProducing(self) -> None:
        """Stop writing until `resumeProducing` is called."""
        self._is_paused = True

    def resumeProducing(self) -> None:
        """Continue writing."""
        self._is_paused = False
        self._pump()

    def stopProducing(self) -> None:
        """Stop writing, because the transport has closed; `lost` follows."""
        self._is_paused = True

    def _abort(self) -> None:
        if self._is_lost:
            self._end_lost()
        else:
            self._transport.abortConnection()

    def _end_lost(self) -> None:
        if self.connection is not None:
            self.connection.lost()

    def _pump(self) -> None:
        parts = self._parts
        sent_before = self.sent_bytes
        while parts and not (self._is_paused or self._is_corked or self._is_reading_file):
            part = parts[0]
            if isinstance(part, FileRegion):
                self._send_piece(part)
            else:
                parts.popleft()
                self.buffered_bytes -= len(part)
                self._write(part)
        self._flush()
        if self.connection is not None:
            if self._shared_output.unsent:
                self._shared_output.report(self.connection, self.sent_bytes)
            unsent_bytes = self.buffered_bytes - self._regions * REGION_WEIGHT_BYTES
            if unsent_bytes != self._unsent_bytes:
                self._unsent_bytes = unsent_bytes
                self.connection.unsent(unsent_bytes)
            if self.sent_bytes != sent_before:
                self.connection.drained()
        if self._is_closing and not parts and not self._is_dead:
            self._is_dead = True
            # A transport does not close its connection while it has a producer.
            self._transport.unregisterProducer()
            self._transport.loseConnection()

    def _send_piece(self, region: FileRegion) -> None:
        position = region.position + self._region_sent
        nbytes = min(PIECE_BYTES, region.nbytes - self._region_sent)
        try:
            # Reading cached pages does not wait for the disk, so no job is needed.
            data = (
                region.file.pread(nbytes, position)
                if region.file.cached(position, nbytes)
                else None
            )
        except OSError as error:
            self._cannot_read(error)
            return
        if data is not None:
            self._piece_read(region, data)
            return
        self._is_reading_file = True
        uncached_reads.read(self._shared.jobs, region.file, position, nbytes).then(
            lambda data: self._cold_piece_read(region, data), self._cannot_read
        )

    def _cold_piece_read(self, region: FileRegion, data: bytes) -> None:
        self._is_reading_file = False
        if not self._is_dead:
            self._piece_read(region, data)
            self._pump()

    def _piece_read(self, region: FileRegion, data: bytes) -> None:
        if not data:
            position = region.position + self._region_sent
            self._cannot_read(
                RegionTruncated(f"{region.file.path} ends at {position}, inside a response")
            )
            return
        self._region_sent += len(data)
        if self._region_sent == region.nbytes:
            self._parts.popleft()
            self.buffered_bytes -= REGION_WEIGHT_BYTES
            self._regions -= 1
            self._region_sent = 0
            region.close()
        self._write(data)

    def _cannot_read(self, error: Exception) -> None:
        """Abort the connection, because its response is incomplete."""
        if not self._is_dead and self.connection is not None:
            self._is_reading_file = True  # Prevents further writes.
            log.error(
                "cannot send to {host}: {error}",
                host=self.connection.host,
                error=error,
                client=self.connection.context,
            )
            self.connection.abort("the records of a response could not be read")

    def _write(self, data: bytes | memoryview) -> None:
        """Add to the next write, which is flushed when it is large enough or nothing follows."""
        # If pieces were written one by one, each would become a TLS record with a header and a
        # checksum.
        self._gathered.append(data)
        self._gathered_bytes += len(data)
        if self._gathered_bytes >= PIECE_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._gathered:
            gathered, self._gathered = self._gathered, []
            self._shared.bytes_out += self._gathered_bytes
            self.sent_bytes += self._gathered_bytes
            self._gathered_bytes = 0
            self._transport.write(b"".join(gathered))
