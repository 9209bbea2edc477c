"""Waiting for log starts on disk, and sharing the write."""

from __future__ import annotations

import errno

import pytest

from plogd.log import file_names
from plogd.log.disk.checkpoint_files import read_offsets
from plogd.log.disk.log_start_checkpoint import LogStartCheckpoint
from plogd.ports import Later, ready
from tests.helpers.log.log_site import LogSite, four_segments, partition_of, spied
from tests.helpers.sim.sim_ports import SimPorts, outcome, settled


def test_waiters_of_one_turn_share_a_write() -> None:
    ports, written = SimPorts(), []

    def write(log_dir: str) -> Later[bool]:
        written.append(log_dir)
        return ready(log_dir == "/a")

    writes = LogStartCheckpoint(turn=ports.turn, write=write)
    with ports.turn:
        asked = [writes.written(log_dir) for log_dir in ("/a", "/b", "/a")]
        assert written == []
    assert written == ["/a", "/b"]
    assert [outcome(later) for later in asked] == [True, False, True]
    assert settled(ports, writes.written("/a"))
    assert written == ["/a", "/b", "/a"]


def test_all_waiters_fail_when_the_write_fails() -> None:
    ports = SimPorts()

    def write(log_dir: str) -> Later[bool]:
        raise RuntimeError("a bug")

    writes = LogStartCheckpoint(turn=ports.turn, write=write)
    asked = [writes.written("/a"), writes.written("/a")]
    ports.settle()
    for later in asked:
        with pytest.raises(RuntimeError):
            outcome(later)


def start_on_disk(site: LogSite) -> int | None:
    path = f"/a/{file_names.LOG_START_OFFSET_CHECKPOINT}"
    return read_offsets(site.files, path).get(partition_of("t-0"))


def test_written_log_start_survives_a_power_loss() -> None:
    for seed in range(5):
        site, log = four_segments()
        log.delete_records_before(12)
        assert site.settle(site.manager.write_log_start_of(log))
        assert start_on_disk(site) == 12
        assert site.crash(seed).log().log_start_offset == 12


def test_current_log_start_is_not_written_again() -> None:
    site, log = four_segments()
    log.delete_records_before(3)
    assert site.settle(site.manager.write_log_start_of(log))
    appends = spied(site.files, "append")
    log.delete_records_before(2)
    assert site.settle(site.manager.write_log_start_of(log))
    assert appends() == []


@pytest.mark.parametrize(("number", "offline"), [(errno.ENOSPC, []), (errno.EIO, ["/a"])])
def test_failed_write_is_reported(number: int, offline: list[str]) -> None:
    site, log = four_segments()
    site.files.fail_when(lambda operation: operation.path.startswith("/a/log-start"), number)
    log.delete_records_before(3)
    assert not site.settle(site.manager.write_log_start_of(log))
    assert site.offline == offline
