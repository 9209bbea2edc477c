"""The budget for large requests."""

from __future__ import annotations

import mmap
from typing import Any

import pytest

from plogd.net.request_memory import MAPPED_ABOVE_BYTES, Lease, RequestMemory

MIB = 1 << 20


def test_a_lease_is_as_large_as_asked_for_and_writable() -> None:
    memory = RequestMemory(-1)
    for nbytes in (100_000, MAPPED_ABOVE_BYTES, MAPPED_ABOVE_BYTES + 1, 5 * MIB):
        lease = memory.lease(nbytes)
        assert lease is not None
        assert len(lease.view) == nbytes
        lease.view[-1] = 7
        lease.release()
    assert memory.used_bytes == 0


def test_a_large_lease_is_a_mapping_and_is_reserved_whole_before_a_byte_has_come() -> None:
    memory = RequestMemory(-1)
    lease = memory.lease(100 * MIB)
    assert lease is not None
    assert isinstance(lease.view.obj, mmap.mmap)
    assert memory.used_bytes == 100 * MIB
    lease.release()
    assert memory.used_bytes == 0


def test_a_released_view_raises() -> None:
    lease = RequestMemory(-1).lease(100_000)
    assert lease is not None
    lease.release()
    lease.release()
    with pytest.raises(ValueError, match="released"):
        lease.view[0]


def test_what_does_not_fit_waits_in_line_and_is_served_by_a_release() -> None:
    memory = RequestMemory(1_000_000)
    first = memory.lease(600_000)
    assert first is not None
    assert memory.lease(600_000) is None
    granted: list[Lease] = []
    memory.wait(600_000, granted.append)
    assert memory.waiting == 1
    assert memory.lease(100) is None, "nobody passes the line"
    first.release()
    assert [len(lease.view) for lease in granted] == [600_000]
    assert memory.used_bytes == 5 * 128 * 1024, "in whole units"
    assert memory.waiting == 0


def test_a_place_that_is_left_lets_those_behind_it_in() -> None:
    memory = RequestMemory(1_000_000)
    held = memory.lease(600_000)
    assert held is not None
    granted: list[Lease] = []
    large = memory.wait(900_000, granted.append)
    memory.wait(200_000, granted.append)
    memory.leave(large)
    memory.leave(large)
    assert [len(lease.view) for lease in granted] == [200_000]


def test_one_request_above_the_limit_is_let_in_when_nothing_else_is() -> None:
    memory = RequestMemory(1_000)
    lease = memory.lease(5_000)
    assert lease is not None
    assert memory.lease(1) is None
    lease.release()


@pytest.mark.parametrize(("nbytes", "kept"), [(MIB + 1, 8), (MIB, 16), (MIB - 5, 16)])
def test_buffers_are_used_again_but_not_hoarded(nbytes: int, kept: int) -> None:
    """16 MiB of them: mappings take 2 MiB, the largest others one."""
    memory = RequestMemory(-1)

    def take(count: int) -> list[Lease]:
        leases = [memory.lease(nbytes) for _ in range(count)]
        return [lease for lease in leases if lease is not None]

    def objects(leases: list[Lease]) -> set[int]:
        return {id(lease.view.obj) for lease in leases}

    leases = take(20)
    before = objects(leases)
    keep_alive: list[Any] = [lease.view.obj for lease in leases]
    for lease in leases:
        lease.release()
    again = take(20)
    assert len(objects(again) & before) == kept
    assert {len(lease.view) for lease in again} == {nbytes}
    assert len(keep_alive) == 20
