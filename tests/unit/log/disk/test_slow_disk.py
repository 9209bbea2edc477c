"""When a log directory becomes slow, and fast again."""

from __future__ import annotations

import pytest

from plogd.log.disk.slow_disk import (
    FIRST_QUIET_MS,
    FORGET_MS,
    SLOW_WRITE_MS,
    UNSEALED_MAX,
    SlowDisk,
)
from tests.helpers.sim.sim_ports import SimPorts


@pytest.fixture
def ports() -> SimPorts:
    return SimPorts()


@pytest.fixture
def reports(ports: SimPorts) -> list[str]:
    return ports.reports


@pytest.fixture
def writes(ports: SimPorts) -> SlowDisk:
    return SlowDisk("/a", "dir:/a", ports.bundle())


def test_directory_is_fast_until_a_write_takes_more_than_20_ms(
    writes: SlowDisk, reports: list[str]
) -> None:
    writes.took(SLOW_WRITE_MS)
    assert not writes.is_slow
    writes.took(SLOW_WRITE_MS + 1)
    assert writes.is_slow
    assert reports == [
        "a write to /a took 21 ms: using a thread for writes until the disk is fast again"
    ]


def test_directory_is_fast_again_a_second_after_a_single_slow_write(
    ports: SimPorts, writes: SlowDisk, reports: list[str]
) -> None:
    writes.took(50)
    ports.clock.advance_to(FIRST_QUIET_MS - 1)
    writes.took(0.1)
    assert writes.is_slow
    ports.clock.advance_to(FIRST_QUIET_MS)
    writes.took(0.1)
    assert not writes.is_slow
    assert reports[-1] == "writes to /a are fast again"


def quiet_time_ms(ports: SimPorts, writes: SlowDisk) -> float:
    """Return how long the directory stays slow after a slow write now."""
    writes.took(50)
    start_ms = ports.clock.monotonic_ms()
    while writes.is_slow:
        ports.clock.advance_to(ports.clock.monotonic_ms() + 500)
        writes.took(0.1)
    return ports.clock.monotonic_ms() - start_ms


def test_directory_that_is_slow_again_and_again_stays_slow_for_up_to_30_s(
    ports: SimPorts, writes: SlowDisk
) -> None:
    times_ms = [quiet_time_ms(ports, writes) for _ in range(7)]
    assert times_ms == [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]


def test_five_minutes_of_fast_writes_make_the_next_slow_write_the_first(
    ports: SimPorts, writes: SlowDisk
) -> None:
    for _ in range(3):
        quiet_time_ms(ports, writes)
    ports.clock.advance_to(ports.clock.monotonic_ms() + FORGET_MS + 1)
    assert quiet_time_ms(ports, writes) == FIRST_QUIET_MS


def test_further_slow_write_extends_the_time_and_is_not_reported(
    ports: SimPorts, writes: SlowDisk, reports: list[str]
) -> None:
    writes.took(50)
    ports.clock.advance_to(FIRST_QUIET_MS - 1)
    writes.took(50)
    ports.clock.advance_to(3 * FIRST_QUIET_MS - 2)
    writes.took(0.1)
    assert writes.is_slow
    assert len(reports) == 1


def test_write_job_runs_after_earlier_jobs_of_its_directory(
    ports: SimPorts, writes: SlowDisk
) -> None:
    ran: list[str] = []
    ports.jobs.submit("dir:/a", lambda: ran.append("before"))
    writes.submit(lambda: ran.append("write"))
    assert ports.jobs.waiting == ["dir:/a"]
    ports.jobs.run_one("dir:/a")
    assert ran == ["before"]


def test_jobs_write_while_many_segments_are_not_sealed(
    ports: SimPorts, writes: SlowDisk, reports: list[str]
) -> None:
    writes.unsealed(UNSEALED_MAX)
    assert not writes.is_slow
    writes.unsealed(1)
    assert writes.is_slow
    writes.took(50)
    writes.unsealed(-UNSEALED_MAX - 1)
    assert writes.is_slow, "the disk itself is slow"
    writes.unsealed(UNSEALED_MAX + 1)
    ports.clock.advance_to(FIRST_QUIET_MS)
    writes.took(0.1)
    assert writes.is_slow, "the disk is fast again, but segments are not sealed"
    writes.unsealed(-1)
    assert not writes.is_slow
