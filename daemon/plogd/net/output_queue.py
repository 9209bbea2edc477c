"""The ordered output of a plain connection: bytes, and regions of log files.

Nothing else writes to the socket, because a byte in the middle of a region would corrupt the
stream. Small pieces and small regions are joined into one send; for a larger region, sendfile makes
the kernel copy the data from the page cache to the socket. If a region is not in the page cache, a
job reads it first (uncached_reads.py).

A region's file stays open until its last byte is sent or the queue is closed, and is closed exactly
once. Reactor thread only; called by transport.py. Source: sendfile(2), tcp(7).
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import cast

from plogd.log.segment.file_records import FileRegion, RegionTruncated
from plogd.net import uncached_reads
from plogd.net.request_queue import Answer, close_regions
from plogd.ports import Jobs

FLUSH_MAX_BYTES = 1 << 20
"""Maximum number of bytes per flush, so that one fast client does not delay the others."""
JOIN_MAX_BYTES = 64 * 1024
"""Up to this size, copying the pieces and making one system call is cheaper than two system
calls."""
REGION_WEIGHT_BYTES = 16 * 1024
"""Size of a region as counted in `buffered_bytes`: it uses an open file but little memory."""

_Bytes = bytes | memoryview


class Flushed(Enum):
    """The outcome of a flush."""

    EMPTY = "everything has been sent"
    FULL = "continue when the socket is writable"
    COLD = "continue when a job has read the file"


class OutputQueue:
    """The unsent pieces of responses, and the progress within the first piece.

    Args:
        jobs: runs the jobs that read regions outside the page cache.
        on_warm: called when a flush that ended with COLD may be repeated.

    Attributes:
        buffered_bytes: the unsent bytes, with each region counted as REGION_WEIGHT_BYTES.
        sent_bytes: the total number of bytes sent.
    """

    __slots__ = (
        "_error",
        "_is_closed",
        "_is_reading",
        "_jobs",
        "_on_warm",
        "_parts",
        "_region_sent",
        "_regions",
        "_warm_end",
        "buffered_bytes",
        "sent_bytes",
    )

    def __init__(self, jobs: Jobs, on_warm: Callable[[], None]) -> None:
        self._jobs = jobs
        self._on_warm = on_warm
        self._parts: deque[_Bytes | FileRegion] = deque()
        self._region_sent = 0
        self._regions = 0  # The number of unsent regions.
        self._warm_end = 0  # The end of the part of the first region that is in the page cache.
        self._is_reading = False
        self._is_closed = False
        self._error: Exception | None = None
        self.buffered_bytes = 0
        self.sent_bytes = 0

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def memory_bytes(self) -> int:
        """Return the size of the unsent bytes in memory, excluding file regions."""
        return self.buffered_bytes - self._regions * REGION_WEIGHT_BYTES

    @property
    def end_position(self) -> int:
        """Return the value that `sent_bytes` will have once everything queued is sent."""
        unsent = sum(x.nbytes if isinstance(x, FileRegion) else len(x) for x in self._parts)
        return self.sent_bytes + unsent - self._region_sent

    def append(self, answer: Answer) -> None:
        """Queue a response and take ownership of its regions."""
        if self._is_closed:
            close_regions(answer)
            return
        for part in answer:
            if isinstance(part, _Bytes):
                self.buffered_bytes += len(part)
                self._parts.append(part)
            else:
                self.buffered_bytes += REGION_WEIGHT_BYTES
                self._regions += 1
                self._parts.append(cast(FileRegion, part))

    def flush(self, sock: socket.socket) -> Flushed:
        """Send as much as `sock` accepts, up to FLUSH_MAX_BYTES.

        The connection must be closed after an error, because the response is incomplete.

        Raises:
            OSError: the client has disconnected, or the file cannot be read.
            RegionTruncated: the log was truncated within a region.
        """
        parts = self._parts
        until = self.sent_bytes + FLUSH_MAX_BYTES
        try:
            while parts:
                if self._error is not None:
                    raise self._error
                # Later parts also wait, because the stream has a single order.
                if self._is_reading:
                    return Flushed.COLD
                # The reactor calls again in its next pass, after it has served other connections.
                if self.sent_bytes >= until:
                    return Flushed.FULL
                head = parts[0]
                if isinstance(head, FileRegion) and head.nbytes > JOIN_MAX_BYTES:
                    if self._is_warm(head):
                        self._send_region(sock, head, until - self.sent_bytes)
                # A single response, which is the usual case, does not need to be joined.
                elif (len(parts) == 1 and type(head) is bytes) or self._join_head():
                    self._send_bytes(sock)
        except BlockingIOError:
            return Flushed.FULL
        return Flushed.EMPTY

    def close(self) -> None:
        """Discard unsent data and close its files; calling this again has no effect."""
        self._is_closed = True
        parts, self._parts = self._parts, deque()
        self.buffered_bytes = self._regions = 0
        close_regions(parts)

    def _send_region(self, sock: socket.socket, region: FileRegion, budget: int) -> None:
        # Not beyond `_warm_end`, because sendfile could wait for the disk there.
        count = min(self._warm_end - self._region_sent, budget)
        position = region.position + self._region_sent
        sent = os.sendfile(sock.fileno(), region.file.fileno(), position, count)
        # sendfile returns 0 only at the end of the file.
        if sent == 0:
            raise RegionTruncated(f"{region.file.path} ends at {position}, inside a response")
        self.sent_bytes += sent
        self._region_sent += sent
        if self._region_sent == region.nbytes:
            self._finish_region(region)

    def _send_bytes(self, sock: socket.socket) -> None:
        data = cast(_Bytes, self._parts[0])
        # MSG_MORE, which replaces TCP_CORK, keeps a header and the records after it in one packet.
        sent = sock.send(data, socket.MSG_MORE if len(self._parts) > 1 else 0)
        self.sent_bytes += sent
        self.buffered_bytes -= sent
        if sent == len(data):
            self._parts.popleft()
        else:
            self._parts[0] = memoryview(data)[sent:]

    def _join_head(self) -> bool:
        """Join pieces at the head up to JOIN_MAX_BYTES; return False if the head is cold."""
        parts = self._parts
        run: list[_Bytes] = []
        nbytes = 0
        while parts:
            part = parts[0]
            if isinstance(part, FileRegion):
                if nbytes + part.nbytes > JOIN_MAX_BYTES or not self._is_warm(part):
                    break
                data: _Bytes = part.read()
                # The region, which was counted as REGION_WEIGHT_BYTES, becomes bytes in memory.
                self.buffered_bytes += len(data)
                self._finish_region(part)
            elif run and nbytes + len(part) > JOIN_MAX_BYTES:
                break
            else:
                data = part
                parts.popleft()
            run.append(data)
            nbytes += len(data)
        if run:
            parts.appendleft(run[0] if len(run) == 1 else b"".join(run))
        return bool(run)

    def _finish_region(self, region: FileRegion) -> None:
        self._parts.popleft()
        # The weight is removed only at the end, because the file stays open until then.
        self.buffered_bytes -= REGION_WEIGHT_BYTES
        self._regions -= 1
        self._region_sent = self._warm_end = 0
        region.close()

    def _is_warm(self, region: FileRegion) -> bool:
        """Return whether the first region's next bytes are in the page cache; if not, read them."""
        if self._region_sent < self._warm_end:
            return True
        nbytes = min(region.nbytes - self._region_sent, FLUSH_MAX_BYTES)
        position = region.position + self._region_sent
        # sendfile would make the reactor wait for the disk if the pages were not cached.
        if region.file.cached(position, nbytes):
            self._warm_end = self._region_sent + nbytes
            return True
        self._is_reading = True
        uncached_reads.warm(self._jobs, region.file, position, nbytes).then(
            lambda _: self._warmed(self._region_sent + nbytes), self._read_failed
        )
        return False

    def _warmed(self, warm_end: int) -> None:
        self._is_reading = False
        if not self._is_closed:
            # Do not check again: under memory pressure, the pages could be evicted every time, and
            # nothing would ever be sent.
            self._warm_end = warm_end
            self._on_warm()

    def _read_failed(self, error: Exception) -> None:
        self._is_reading = False
        if not self._is_closed:
            # The next flush raises the error, because only its caller can close the connection.
            self._error = error
            self._on_warm()
