"""Reassembly of frames from bytes that arrive in arbitrary pieces."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plogd.net.receive_buffer import (
    HELD_MAX_BYTES,
    LEASE_FROM_BYTES,
    SCARCE_READ_BYTES,
    SHARED_BUFFER_BYTES,
    SMALL_FRAME_BYTES,
    BadFrameSize,
    ReceiveBuffer,
)
from plogd.net.request_memory import RequestMemory

MIB = 1 << 20
SHARED = memoryview(bytearray(SHARED_BUFFER_BYTES))
JUNK = bytes([0xEE]) * SHARED_BUFFER_BYTES


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


class Harness:
    """A receive buffer and its transport."""

    def __init__(self, memory: RequestMemory | None = None, max_frame_bytes: int = 100 * MIB):
        self.memory = memory or RequestMemory(-1)
        self.granted = 0
        self.buffer = ReceiveBuffer(
            SHARED,
            self.memory,
            host="192.0.2.1",
            max_frame_bytes=max_frame_bytes,
            on_memory=self._on_memory,
        )

    def _on_memory(self) -> None:
        self.granted += 1

    def read(self, data: bytes, *, is_blocked: bool = False) -> bytes:
        """Read as much as fits; return the rest of `data`."""
        target = self.buffer.target(is_blocked=is_blocked)
        nbytes = min(len(target), len(data))
        target[:nbytes] = data[:nbytes]
        self.buffer.received(nbytes)
        return data[nbytes:]

    def turn(self) -> list[bytes]:
        """Consume all complete frames; afterwards the shared buffer must be empty."""
        frames = []
        while (frame := self.buffer.next_frame()) is not None:
            frames.append(bytes(frame))
            frame.release()
            self.buffer.consume()
        self.keep()
        return frames

    def keep(self) -> None:
        self.buffer.keep()
        SHARED[:] = JUNK

    def feed(self, data: bytes) -> list[bytes]:
        """Alternate reads and turns until `data` is used up."""
        frames = []
        while data:
            rest = self.read(data)
            assert len(rest) < len(data), "stuck"
            data = rest
            frames += self.turn()
        return frames


def test_complete_frames_are_not_copied() -> None:
    harness = Harness()
    harness.read(sized(b"one") + sized(b"two"))
    frame = harness.buffer.next_frame()
    assert frame is not None
    assert frame.obj is SHARED.obj
    assert bytes(frame) == b"one"
    assert harness.turn() == [b"one", b"two"]
    assert harness.buffer.nbytes == 0


def test_idle_connection_uses_no_memory() -> None:
    harness = Harness()
    harness.feed(sized(bytes(2 * MIB)) + sized(b"x" * 100_000) + sized(b"y"))
    assert harness.memory.used_bytes == 0
    assert harness.buffer._view is SHARED


def exchange(sizes: list[int], cuts: list[int]) -> None:
    """Send frames of `sizes`, split at `cuts`; assert that they arrive unchanged."""
    sent = [bytes([i % 251 + 1]) * size for i, size in enumerate(sizes)]
    stream = memoryview(b"".join(map(sized, sent)))
    harness = Harness()
    received = []
    turn = 0
    while stream:
        cut = cuts[turn % len(cuts)]
        received += harness.feed(bytes(stream[:cut]))
        stream = stream[cut:]
        turn += 1
    assert received == sent
    assert harness.memory.used_bytes == 0


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=12),
    st.lists(st.integers(1, 50), min_size=1, max_size=8),
)
def test_small_frames_are_reassembled_from_any_pieces(sizes: list[int], cuts: list[int]) -> None:
    exchange(sizes, cuts)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.integers(1, 300),
            st.integers(SMALL_FRAME_BYTES - 8, SMALL_FRAME_BYTES + 8),
            st.integers(SHARED_BUFFER_BYTES - 8, SHARED_BUFFER_BYTES + 8),
            st.integers(MIB - 5, MIB + 5),
        ),
        min_size=1,
        max_size=5,
    ),
    st.lists(st.integers(30_000, 400_000), min_size=1, max_size=8),
)
def test_large_frames_are_reassembled_from_any_pieces(sizes: list[int], cuts: list[int]) -> None:
    exchange(sizes, cuts)


def test_frames_are_writable_in_every_buffer() -> None:
    """An append writes offsets into the batches that it receives."""
    harness = Harness()
    for data in (sized(b"whole"), sized(b"held")[:5], sized(bytes(100_000))[:50]):
        harness.buffer.close()
        harness.read(data)
        harness.keep()
        assert not harness.buffer._view.readonly


def test_small_incomplete_frame_uses_only_its_own_size() -> None:
    harness = Harness()
    harness.read(sized(b"done") + sized(b"half of it")[:9])
    assert harness.turn() == [b"done"]
    assert len(harness.buffer._view) == 9
    assert harness.memory.used_bytes == harness.memory.held_bytes == 9
    assert harness.feed(sized(b"half of it")[9:]) == [b"half of it"]
    assert harness.memory.used_bytes == 0


def test_held_bytes_are_trimmed_to_the_incomplete_frame() -> None:
    harness = Harness()
    harness.read(sized(b"x" * 1000) * 100 + b"\0\0")
    harness.keep()
    assert len(harness.buffer._view) == 100 * 1004 + 2
    assert len(harness.turn()) == 100
    assert len(harness.buffer._view) == 2


def test_large_frame_is_read_into_a_lease_that_grows_as_it_fills() -> None:
    harness = Harness()
    data = sized(b"z" * 3 * MIB)
    rest = harness.read(data[:LEASE_FROM_BYTES]) + data[LEASE_FROM_BYTES:]
    assert harness.turn() == []
    assert harness.memory.used_bytes == 16 * LEASE_FROM_BYTES
    target = harness.buffer.target(is_blocked=False)
    assert target.obj is not SHARED.obj
    assert len(target) == 15 * LEASE_FROM_BYTES
    harness.read(rest[: len(target)])
    rest = rest[len(target) :]
    assert harness.turn() == []
    assert harness.memory.used_bytes == 2 * MIB
    assert harness.feed(rest) == [data[4:]]
    assert harness.memory.used_bytes == 0


def test_read_into_a_lease_is_limited() -> None:
    harness = Harness()
    harness.read(sized(b"z" * 30 * MIB))
    harness.turn()
    assert len(harness.buffer.target(is_blocked=False)) == MIB


def test_large_frame_gets_a_lease_only_after_part_of_it_has_arrived() -> None:
    harness = Harness()
    data = sized(b"z" * 3 * MIB)
    for position in range(0, LEASE_FROM_BYTES - 1024, 1024):
        assert harness.read(data[position : position + 1024]) == b""
        assert harness.turn() == []
    assert harness.memory.leased_bytes == 0
    assert harness.memory.used_bytes == LEASE_FROM_BYTES - 1024
    assert harness.feed(data[LEASE_FROM_BYTES - 1024 :]) == [data[4:]]
    assert harness.memory.used_bytes == 0


def test_lease_does_not_grow_while_requests_may_not_start() -> None:
    harness = Harness()
    data = sized(b"z" * 3 * MIB)
    harness.read(data[:LEASE_FROM_BYTES])
    harness.turn()
    held = harness.memory.used_bytes
    harness.read(data[LEASE_FROM_BYTES:held], is_blocked=True)
    harness.buffer.keep(lambda: False)
    assert harness.memory.used_bytes == held
    assert not harness.buffer.may_read(is_blocked=True)
    assert harness.turn() == []
    assert harness.feed(data[held:]) == [data[4:]]


def test_read_ahead_is_limited_while_all_copies_use_too_much_memory() -> None:
    memory = RequestMemory(16 * MIB)
    memory.held_bytes = 2 * MIB + 1
    idle, pipelining, sending = Harness(memory), Harness(memory), Harness(memory)
    assert len(idle.buffer.target(is_blocked=False)) == SCARCE_READ_BYTES
    assert idle.feed(sized(b"x" * 1000) * 20) == [b"x" * 1000] * 20
    pipelining.read(sized(b"x" * 1000) * 20)
    pipelining.keep()
    assert not pipelining.buffer.may_read(is_blocked=True)
    data = sized(b"y" * 30_000)
    rest = sending.read(data)
    sending.read(rest[:1000])
    assert sending.turn() == []
    assert memory.leased_bytes == len(data), "an incomplete request counts with its full size"
    assert sending.feed(rest[1000:]) == [data[4:]]
    idle.buffer.close(), pipelining.buffer.close()
    assert memory.used_bytes == memory.held_bytes == 2 * MIB + 1


def test_lease_contains_no_bytes_of_the_next_frame() -> None:
    harness = Harness()
    first, second = sized(b"a" * 100_000), sized(b"b")
    rest = harness.read(first[:50_000])
    assert harness.turn() == []
    rest = harness.read(first[50_000:] + second)
    assert rest == second
    assert harness.turn() == [first[4:]]


@pytest.mark.parametrize("size", [0, -1, -(2**31), 1001, 2**31 - 1])
def test_invalid_size_raises_with_the_size(size: int) -> None:
    harness = Harness(max_frame_bytes=1000)
    harness.read(struct.pack(">i", size))
    assert harness.buffer.has_frame()
    with pytest.raises(BadFrameSize, match=rf"of {size} bytes \(allowed: 1 to 1000\)"):
        harness.buffer.next_frame()


def test_invalid_size_after_a_parked_frame_uses_no_memory() -> None:
    harness = Harness(max_frame_bytes=1000)
    harness.read(struct.pack(">i", 2**31 - 1) + b"x" * 10)
    harness.keep()
    assert harness.memory.leased_bytes == 0
    with pytest.raises(BadFrameSize):
        harness.buffer.next_frame()


def test_frame_of_the_maximum_size_is_accepted() -> None:
    harness = Harness(max_frame_bytes=1000)
    assert harness.feed(sized(b"x" * 1000)) == [b"x" * 1000]


def test_read_ahead_is_limited_while_nothing_may_start() -> None:
    harness = Harness()
    stream = sized(b"q" * 996) * 200
    taken = 0
    while harness.buffer.may_read(is_blocked=True):
        rest = harness.read(stream[taken : taken + 30_000], is_blocked=True)
        taken = min(taken + 30_000, len(stream)) - len(rest)
        harness.keep()
    assert taken == HELD_MAX_BYTES
    assert len(harness.buffer.target(is_blocked=True)) == 0
    assert harness.buffer.may_read(is_blocked=False)
    frames = harness.turn() + harness.feed(stream[taken:])
    assert frames == [b"q" * 996] * 200


def test_full_lease_is_not_extended_while_its_frame_may_not_start() -> None:
    harness = Harness()
    data = sized(b"p" * 100_000)
    harness.read(data[:LEASE_FROM_BYTES])
    harness.keep()
    harness.read(data[LEASE_FROM_BYTES:], is_blocked=True)
    harness.keep()
    assert not harness.buffer.may_read(is_blocked=True)
    assert harness.turn() == [data[4:]]


def test_reading_stops_without_memory_until_another_lease_is_released() -> None:
    memory = RequestMemory(3 * MIB)
    first, second = Harness(memory), Harness(memory)
    data = sized(b"m" * 2_000_000)
    first.read(data[:50_000])
    first.keep()
    second.read(data[:70_000])
    second.keep()
    assert second.buffer.waits_for_memory
    assert not second.buffer.may_read(is_blocked=False)
    assert len(second.buffer.target(is_blocked=False)) == 0
    assert first.feed(data[50_000:]) == [data[4:]]
    assert second.granted == 1
    assert second.feed(data[70_000:]) == [data[4:]]
    assert memory.used_bytes == 0


def test_close_releases_the_lease_and_the_position_in_the_queue() -> None:
    memory = RequestMemory(2 * MIB)
    data = sized(b"m" * 2_000_000)
    harnesses = [Harness(memory) for _ in range(3)]
    for harness in harnesses:
        harness.read(data[:LEASE_FROM_BYTES])
        harness.keep()
    assert memory.waiting == 2
    harnesses[1].buffer.close()
    assert memory.waiting == 1
    harnesses[0].buffer.close()
    assert harnesses[2].granted == 1
    harnesses[2].buffer.close()
    harnesses[2].buffer.close()
    assert memory.used_bytes == 0


def test_head_returns_the_first_bytes_when_four_have_arrived() -> None:
    harness = Harness()
    harness.read(b"GE")
    assert harness.buffer.head() is None
    harness.keep()
    harness.read(b"T /")
    assert harness.buffer.head() == b"GET /"
    harness.keep()
    harness.read(b"index.html")
    assert harness.buffer.head() == b"GET /ind"
