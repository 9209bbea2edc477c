"""The memory budget for requests that are being received."""

from __future__ import annotations

import mmap
import random
from collections.abc import Callable

import pytest

from plogd.net.request_memory import MAPPED_ABOVE_BYTES, Lease, RequestMemory

KIB = 1 << 10
MIB = 1 << 20


def nothing() -> None:
    """Do nothing when a lease grows; the test checks the lease itself."""


def lease(
    memory: RequestMemory,
    frame_bytes: int,
    arrived_bytes: int = 16 * KIB,
    on_granted: Callable[[], None] = nothing,
    host: str = "host",
) -> Lease:
    made = memory.lease(frame_bytes, host, on_granted)
    made.grow(arrived_bytes)
    return made


def room(made: Lease) -> int:
    return 0 if made.view is None else len(made.view)


def fill(made: Lease) -> int:
    """Fill the lease as far as memory permits; return the number of received bytes."""
    while not made.is_waiting and not made.is_complete:
        made.grow(room(made))
    return room(made)


@pytest.mark.parametrize("frame_bytes", [100_000, MIB, MIB + 1, 5 * MIB])
def test_lease_grows_to_its_request_and_keeps_what_is_in_it(frame_bytes: int) -> None:
    memory = RequestMemory(-1)
    made = lease(memory, frame_bytes)
    written = 0
    while True:
        assert made.view is not None
        made.view[written:] = bytes([written % 251]) * (len(made.view) - written)
        assert made.view[0] == 0
        written = len(made.view)
        if made.is_complete:
            break
        assert made.grow(written)
    assert written == frame_bytes
    made.release()
    assert memory.used_bytes == 0


def test_lease_grows_in_proportion_to_the_bytes_received() -> None:
    memory = RequestMemory(-1)
    made = lease(memory, 100 * MIB, 16 * KIB)
    assert memory.used_bytes == 256 * KIB
    made.grow(64 * KIB)
    assert memory.used_bytes == MIB
    made.grow(256 * KIB)
    assert memory.used_bytes == 2 * MIB
    assert made.view is not None
    assert isinstance(made.view.obj, mmap.mmap)
    made.grow(2 * MIB)
    assert memory.used_bytes == 4 * MIB
    made.release()
    made.release()
    assert memory.used_bytes == 0


def test_released_view_raises() -> None:
    made = lease(RequestMemory(-1), 100_000)
    view = made.view
    assert view is not None
    made.release()
    with pytest.raises(ValueError, match="released"):
        view[0]


def test_lease_waits_when_it_does_not_fit_and_grows_when_another_is_released() -> None:
    waits: list[None] = []
    memory = RequestMemory(4 * MIB, lambda: waits.append(None))
    granted: list[str] = []
    first = lease(memory, 600 * KIB)
    second = lease(memory, 600 * KIB, 64 * KIB, lambda: granted.append("second"))
    third = lease(memory, 100 * KIB, 16 * KIB, lambda: granted.append("third"))
    assert (second.is_waiting, third.is_waiting) == (True, True)
    assert (memory.waiting, len(waits)) == (2, 2)
    assert fill(first) == 600 * KIB, "the largest request can always be completed"
    first.release()
    assert granted == ["second", "third"]
    assert memory.waiting == 0
    second.release()
    third.release()
    assert memory.used_bytes == 0


def test_large_requests_leave_memory_to_ordinary_ones() -> None:
    memory = RequestMemory(128 * MIB)
    tricklers = [lease(memory, 100 * MIB) for _ in range(50)]
    for made in tricklers:
        fill(made)
    assert memory.waiting == 49
    assert memory.used_bytes <= 104 * MIB
    ordinary = [lease(memory, MIB) for _ in range(20)]
    assert [fill(made) for made in ordinary] == [MIB] * 20


def test_ordinary_requests_leave_memory_to_a_large_one() -> None:
    memory = RequestMemory(128 * MIB)
    for made in [lease(memory, MIB) for _ in range(100)]:
        fill(made)
    assert memory.used_bytes <= 32 * MIB
    assert memory.waiting > 0
    assert fill(lease(memory, 100 * MIB)) == 100 * MIB


def test_waiting_host_with_the_least_memory_goes_first() -> None:
    memory = RequestMemory(4 * MIB)
    granted: list[str] = []

    def wait(name: str, host: str) -> Lease:
        return lease(memory, 600 * KIB, 64 * KIB, lambda: granted.append(name), host)

    first = lease(memory, 700 * KIB, 700 * KIB, host="greedy")
    waiting = {f"greedy {n}": wait(f"greedy {n}", "greedy") for n in range(5)}
    waiting |= {f"modest {n}": wait(f"modest {n}", "modest") for n in range(2)}
    assert memory.waiting == 7
    first.release()
    for n in range(6):
        waiting[granted[n]].release()
    assert granted == ["modest 0", "modest 1", *(f"greedy {n}" for n in range(5))]


def test_release_of_a_waiting_lease_lets_later_ones_grow() -> None:
    memory = RequestMemory(4 * MIB)
    held = lease(memory, 512 * KIB, 512 * KIB)
    large = lease(memory, 900 * KIB, 900 * KIB)
    small = lease(memory, 100 * KIB)
    assert (held.is_waiting, large.is_waiting, small.is_waiting) == (False, True, True)
    large.release()
    assert not small.is_waiting
    assert room(small) == 100 * KIB


def test_single_request_over_the_limit_is_accepted() -> None:
    memory = RequestMemory(1_000)
    made = lease(memory, 5_000)
    assert fill(made) == 5_000
    other = lease(memory, 100)
    assert other.is_waiting
    made.release()
    assert not other.is_waiting


def test_raised_limit_lets_waiting_leases_grow() -> None:
    memory = RequestMemory(1_000)
    lease(memory, 5_000)
    other = lease(memory, 100)
    assert other.is_waiting
    memory.limit_bytes = -1
    assert not other.is_waiting


@pytest.mark.parametrize("seed", range(30))
def test_every_request_completes_in_any_order_of_arrival(seed: int) -> None:
    chance = random.Random(seed)
    memory = RequestMemory(16 * MIB)
    sizes = [chance.choice([3, 10, 200, 900, 1100, 3000, 12_000]) * KIB for _ in range(60)]
    open_leases: dict[Lease, int] = {}
    completed = 0
    while sizes or open_leases:
        if sizes and (not open_leases or chance.random() < 0.3):
            open_leases[memory.lease(sizes.pop(), chance.choice("abc"), nothing)] = 0
        ready = [made for made in open_leases if not made.is_waiting]
        assert ready, "a deadlock"
        made = chance.choice(ready)
        if made.is_complete:
            made.release()
            del open_leases[made]
            completed += 1
        else:
            made.grow(max(room(made), min(made.frame_bytes, 16 * KIB)))
        # Reused buffers, whose pages were touched before, may add to it.
        assert memory.used_bytes <= (16 + 16) * MIB
    assert completed == 60
    assert memory.used_bytes == memory.waiting == 0


@pytest.mark.parametrize(("nbytes", "kept"), [(MIB + 1, 4), (MIB, 8), (MIB - 5, 8)])
def test_buffers_are_reused_up_to_a_limit(nbytes: int, kept: int) -> None:
    """At most 8 MiB: a mapping takes 2 MiB, the largest other buffer 1 MiB."""
    memory = RequestMemory(-1)

    def take(count: int) -> list[Lease]:
        leases = [lease(memory, nbytes, min(nbytes, MAPPED_ABOVE_BYTES)) for _ in range(count)]
        assert {room(made) for made in leases} == {nbytes}
        return leases

    def objects(leases: list[Lease]) -> list[object]:
        return [made.view.obj for made in leases if made.view is not None]

    leases = take(20)
    before = objects(leases)
    for made in leases:
        made.release()
    again = take(20)
    assert len({id(x) for x in objects(again)} & {id(x) for x in before}) == kept


def test_touched_pages_of_a_reused_buffer_are_counted() -> None:
    memory = RequestMemory(-1)
    made = lease(memory, 4 * MIB, MIB)
    fill(made)
    made.release()
    assert memory.used_bytes == 0
    lease(memory, 4 * MIB, MIB)
    assert memory.used_bytes == 4 * MIB


def test_copies_without_a_lease_have_their_own_limit() -> None:
    memory = RequestMemory(8 * MIB)
    memory.held_bytes = MIB
    assert not memory.holds_too_much
    memory.held_bytes += 1
    assert memory.holds_too_much
    assert memory.used_bytes == MIB + 1
    memory.limit_bytes = -1
    assert not memory.holds_too_much


def test_copies_in_decoding_make_large_requests_wait() -> None:
    memory = RequestMemory(16 * MIB)
    for _ in range(3):
        memory.copied(4 * MIB)
    assert memory.used_bytes == 12 * MIB
    large, small = lease(memory, 4 * MIB), lease(memory, 100 * KIB)
    assert large.is_waiting
    assert not small.is_waiting
    memory.decoded(4 * MIB)
    assert fill(large) == 4 * MIB
    memory.decoded(4 * MIB)
    memory.decoded(4 * MIB)
    large.release()
    small.release()
    assert memory.used_bytes == 0


def test_request_over_the_limit_is_accepted_after_the_copies_are_decoded() -> None:
    memory = RequestMemory(4 * MIB)
    memory.copied(2 * MIB)
    large = lease(memory, 10 * MIB)
    assert large.is_waiting
    memory.decoded(2 * MIB)
    assert fill(large) == 10 * MIB


def test_copies_of_ordinary_requests_reduce_the_read_ahead() -> None:
    memory = RequestMemory(8 * MIB)
    memory.copied(600 * KIB)
    memory.held_bytes = 400 * KIB
    assert not memory.holds_too_much
    memory.copied(100 * KIB)
    assert memory.holds_too_much
    memory.limit_bytes = 16 * MIB
    assert not memory.holds_too_much
    memory.decoded(600 * KIB)
    memory.decoded(100 * KIB)
    assert memory.held_limit_bytes == 2 * MIB


@pytest.mark.parametrize("seed", range(10))
def test_requests_that_become_copies_stay_within_the_limit(seed: int) -> None:
    chance = random.Random(seed)
    memory = RequestMemory(16 * MIB)
    sizes = [chance.choice([200, 900, 1100, 3000, 12_000]) * KIB for _ in range(60)]
    leases: list[Lease] = []
    copies: list[int] = []
    while sizes or leases or copies:
        if sizes and chance.random() < 0.3:
            leases.append(memory.lease(sizes.pop(), chance.choice("abc"), nothing))
        if copies and chance.random() < 0.2:
            memory.decoded(copies.pop(0))
        ready = [made for made in leases if not made.is_waiting]
        assert ready or copies or sizes or not leases, "a deadlock"
        if not ready:
            continue
        made = chance.choice(ready)
        if made.is_complete:  # The request is copied, and its buffer is reused by the next one.
            memory.copied(made.frame_bytes)
            copies.append(made.frame_bytes)
            made.release()
            leases.remove(made)
        else:
            made.grow(max(room(made), min(made.frame_bytes, 16 * KIB)))
        # Reused buffers may add to it, as may a request that exceeds its share.
        assert memory.used_bytes <= (16 + 16) * MIB
    assert memory.used_bytes == memory.waiting == 0
