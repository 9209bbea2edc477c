"""Bytes and file regions sent in order through a real socket pair."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from plogd.log.segment.file_records import FileRegion, RegionTruncated
from plogd.net.output_queue import (
    FLUSH_MAX_BYTES,
    JOIN_MAX_BYTES,
    REGION_WEIGHT_BYTES,
    Flushed,
    OutputQueue,
)
from tests.helpers.net_parts import WatchedFile
from tests.helpers.sim.sim_ports import SimJobs

KIB = 1024
MIB = 1 << 20


class Harness:
    """A queue, the socket that it writes to, and the client's end."""

    def __init__(self, path: Path) -> None:
        self.sock, self.client = socket.socketpair()
        self.sock.setblocking(False)
        self.client.setblocking(False)
        self.sends: list[int] = []
        self.jobs = SimJobs()
        self.warmed = 0
        self.queue = OutputQueue(self.jobs, self._on_warm)
        self.file = WatchedFile(path, os.urandom(3 * MIB))

    def _on_warm(self) -> None:
        self.warmed += 1

    def region(self, position: int, nbytes: int) -> FileRegion:
        return FileRegion(self.file, position, nbytes)

    def flush(self) -> Flushed:
        return self.queue.flush(self.sock)

    def read(self) -> bytes:
        received = bytearray()
        try:
            while data := self.client.recv(MIB):
                received += data
        except BlockingIOError:
            pass
        return bytes(received)

    def drain(self) -> bytes:
        """Flush and read until everything has been sent."""
        received = b""
        while self.flush() is not Flushed.EMPTY:
            received += self.read()
        return received + self.read()

    def close(self) -> None:
        self.queue.close()
        self.sock.close()
        self.client.close()


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path / "0.log")
    yield harness
    harness.close()


def test_bytes_are_sent_in_order_and_in_one_send(harness: Harness) -> None:
    for number in range(64):
        harness.queue.append([b"answer %02d;" % number])
    assert harness.queue.buffered_bytes == 64 * 10
    assert harness.flush() is Flushed.EMPTY
    assert harness.read() == b"".join(b"answer %02d;" % number for number in range(64))
    assert harness.queue.buffered_bytes == 0
    assert harness.queue.sent_bytes == 640


def test_small_regions_are_joined_with_the_bytes_around_them(harness: Harness) -> None:
    content = harness.file.content
    harness.queue.append([b"head", harness.region(10, 5000), b"tail"])
    harness.queue.append([b"next"])
    assert harness.file.holders == 2
    assert harness.flush() is Flushed.EMPTY
    assert harness.read() == b"head" + content[10:5010] + b"tailnext"
    assert harness.file.reads == [(10, 5000)]
    assert harness.file.holders == 1


def test_large_region_is_sent_by_sendfile_without_interruption(harness: Harness) -> None:
    content = harness.file.content
    harness.queue.append([b"head", harness.region(7, 2 * MIB), b"tail"])
    received = b""
    assert harness.flush() is Flushed.FULL
    harness.queue.append([b"late", harness.region(0, 3), b"end"])
    received += harness.drain()
    assert received == b"head" + content[7 : 7 + 2 * MIB] + b"tail" + b"late" + content[:3] + b"end"
    assert harness.file.reads == [(0, 3)], "the large region was not read into memory"
    assert harness.file.holders == 1
    assert len(harness.queue) == 0
    assert harness.queue.buffered_bytes == 0


def test_bytes_larger_than_the_socket_buffer_arrive_completely(harness: Harness) -> None:
    data = os.urandom(4 * MIB)
    harness.queue.append([data, b"."])
    assert harness.drain() == data + b"."


def test_flush_is_limited_and_leaves_the_rest_for_the_next_turn(harness: Harness) -> None:
    class Bottomless:
        """A socket that accepts any amount of data."""

        def fileno(self) -> int:
            return sink

        def send(self, data: bytes, flags: int) -> int:
            return len(data)

    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        harness.queue.append([harness.region(0, 3 * MIB)])
        sock: socket.socket = Bottomless()  # type: ignore[assignment]
        assert harness.queue.flush(sock) is Flushed.FULL
        assert harness.queue.sent_bytes == FLUSH_MAX_BYTES
        assert harness.queue.flush(sock) is Flushed.FULL
        assert harness.queue.flush(sock) is Flushed.EMPTY
        assert harness.queue.sent_bytes == 3 * MIB
    finally:
        os.close(sink)


def test_regions_count_as_a_fixed_size_and_bytes_completely(harness: Harness) -> None:
    harness.queue.append([b"12345", harness.region(0, MIB)])
    assert harness.queue.buffered_bytes == 5 + REGION_WEIGHT_BYTES


@pytest.mark.parametrize("nbytes", [5000, MIB])
def test_cold_region_is_read_by_a_job_before_it_is_sent(harness: Harness, nbytes: int) -> None:
    harness.file.is_cached = False
    harness.queue.append([b"head", harness.region(0, nbytes), b"tail"])
    assert harness.flush() is Flushed.COLD
    assert harness.read() == b"head"
    assert harness.jobs.waiting == [f"read-{os.stat(harness.file.path).st_dev}"]
    assert harness.flush() is Flushed.COLD, "still waiting for the first job"
    assert harness.warmed == 0
    harness.jobs.run_all()
    assert harness.warmed == 1
    assert harness.drain() == harness.file.content[:nbytes] + b"tail"
    assert harness.file.holders == 1


def test_response_is_sent_even_if_pages_are_always_evicted(harness: Harness) -> None:
    harness.file.is_cached = False
    harness.queue.append([harness.region(0, 3 * MIB)])
    received = b""
    rounds = 0
    while (state := harness.flush()) is not Flushed.EMPTY:
        received += harness.read()
        if state is Flushed.COLD:
            harness.jobs.run_all()
            rounds += 1
    assert received + harness.read() == harness.file.content
    assert rounds == 3


def test_truncated_region_raises_during_sendfile(harness: Harness) -> None:
    harness.queue.append([harness.region(2 * MIB, MIB)])
    harness.file.truncate(2 * MIB + 100)
    with pytest.raises(RegionTruncated, match="inside a response"):
        harness.drain()


def test_truncated_small_region_raises(harness: Harness) -> None:
    harness.queue.append([b"head", harness.region(2 * MIB, 1000)])
    harness.file.truncate(MIB)
    with pytest.raises(RegionTruncated):
        harness.flush()
    harness.queue.close()
    assert harness.file.holders == 1


def test_read_error_of_the_disk_raises(harness: Harness) -> None:
    harness.file.is_cached = False
    harness.file.read_error = OSError(errno.EIO, "I/O error")
    harness.queue.append([harness.region(0, MIB)])
    assert harness.flush() is Flushed.COLD
    harness.jobs.run_all()
    assert harness.warmed == 1
    with pytest.raises(OSError, match="I/O error"):
        harness.flush()


def test_close_closes_every_file_exactly_once(harness: Harness) -> None:
    regions = [harness.region(0, MIB), harness.region(5, 10), harness.region(0, 2 * MIB)]
    harness.queue.append([b"x", *regions[:2]])
    harness.flush()
    harness.queue.append([regions[2]])
    harness.queue.close()
    harness.queue.close()
    assert harness.file.holders == 1
    assert harness.queue.buffered_bytes == 0


def test_response_after_close_is_discarded(harness: Harness) -> None:
    harness.queue.close()
    harness.queue.append([b"x", harness.region(0, MIB)])
    assert harness.file.holders == 1
    assert len(harness.queue) == 0


def test_job_keeps_the_file_open_after_the_connection_closes(harness: Harness) -> None:
    harness.file.is_cached = False
    harness.queue.append([harness.region(0, MIB)])
    assert harness.flush() is Flushed.COLD
    harness.queue.close()
    harness.file.close()
    assert harness.file.is_open
    harness.jobs.run_all()
    assert not harness.file.is_open
    assert harness.warmed == 0


def test_joined_pieces_are_limited_in_size(harness: Harness) -> None:
    large = os.urandom(JOIN_MAX_BYTES)
    harness.queue.append([b"head", large, b"tail"])
    assert harness.queue._join_head()
    assert harness.queue._parts[0] == b"head"
    assert harness.drain() == b"head" + large + b"tail"


def test_flush_raises_when_the_peer_has_disconnected(harness: Harness) -> None:
    harness.client.close()
    harness.queue.append([b"anybody?"])
    with pytest.raises(BrokenPipeError):
        harness.flush()


def test_regions_of_files_are_not_counted_as_memory(harness: Harness) -> None:
    queue = harness.queue
    queue.append([b"head", harness.region(0, 200_000), b"tail", harness.region(5, 10)])
    assert queue.buffered_bytes == 8 + 2 * REGION_WEIGHT_BYTES
    assert queue.memory_bytes == 8
    harness.drain()
    assert queue.buffered_bytes == queue.memory_bytes == 0
    queue.append([b"head", harness.region(0, 200_000)])
    queue.close()
    assert queue.memory_bytes == 0
