"""Reads that may have to wait for the disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from plogd.net import uncached_reads
from tests.helpers.net_parts import WatchedFile
from tests.helpers.sim.sim_ports import SimJobs, outcome


def test_read_returns_the_bytes_and_closes_the_file(tmp_path: Path) -> None:
    file, jobs = WatchedFile(tmp_path / "0.log", b"0123456789"), SimJobs()
    later = uncached_reads.read(jobs, file, 3, 4)
    assert file.holders == 2
    jobs.run_all()
    assert outcome(later) == b"3456"
    assert file.holders == 1


def test_warm_reads_a_range_in_pieces(tmp_path: Path) -> None:
    file, jobs = WatchedFile(tmp_path / "0.log", bytes(500_000)), SimJobs()
    later = uncached_reads.warm(jobs, file, 1000, 400_000)
    jobs.run_all()
    outcome(later)
    assert file.reads[0] == (1000, 128 * 1024)
    assert sum(length for _, length in file.reads) == 400_000
    assert file.reads[-1][0] + file.reads[-1][1] == 401_000


def test_read_fails_with_the_error_of_the_disk(tmp_path: Path) -> None:
    file, jobs = WatchedFile(tmp_path / "0.log", b"0123456789"), SimJobs()
    file.read_error = OSError(errno.EIO, "I/O error")
    later = uncached_reads.read(jobs, file, 0, 1)
    jobs.run_all()
    with pytest.raises(OSError, match="I/O error"):
        outcome(later)
    assert file.holders == 1


def test_each_device_has_its_own_lane(tmp_path: Path) -> None:
    file, jobs = WatchedFile(tmp_path / "0.log", b"0123456789"), SimJobs()
    uncached_reads.read(jobs, file, 0, 1)
    assert jobs.waiting == [f"read-{os.stat(tmp_path).st_dev}"]


def test_file_is_closed_when_the_read_is_cancelled(tmp_path: Path) -> None:
    file, jobs = WatchedFile(tmp_path / "0.log", b"0123456789"), SimJobs()
    uncached_reads.read(jobs, file, 0, 1).cancel()
    assert file.holders == 2, "the job has it"
    jobs.run_all()
    assert file.holders == 1
