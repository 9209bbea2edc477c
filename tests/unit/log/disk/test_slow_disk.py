"""When a log directory becomes slow, and fast again."""

from __future__ import annotations

import pytest

from plogd.log.disk.slow_disk import QUIET_MS, SLOW_WRITE_MS, SlowDisk
from tests.helpers.sim_ports import SimPorts


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
    assert reports == ["a write to /a took 21 ms: writing on a thread until the disk is fast again"]


def test_directory_is_fast_again_after_30_s_without_a_slow_write(
    ports: SimPorts, writes: SlowDisk, reports: list[str]
) -> None:
    writes.took(50)
    ports.clock.advance_to(QUIET_MS - 1)
    writes.took(0.1)
    assert writes.is_slow
    ports.clock.advance_to(QUIET_MS)
    writes.took(0.1)
    assert not writes.is_slow
    assert reports[-1] == "writes to /a are fast again"


def test_slow_write_restarts_the_30_s_and_is_reported_once(
    ports: SimPorts, writes: SlowDisk, reports: list[str]
) -> None:
    writes.took(50)
    ports.clock.advance_to(QUIET_MS - 1)
    writes.took(50)
    ports.clock.advance_to(2 * QUIET_MS - 2)
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
