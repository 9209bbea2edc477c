"""A segment with damage is scanned once, in jobs; later lookups skip the damage."""

from __future__ import annotations

import errno
import struct
from dataclasses import replace

import pytest

from plog.errors import CorruptMessage
from plogd.log import file_names
from plogd.log.log import Log
from plogd.log.segment.index_rebuild import RECHECK_MS
from plogd.log.segment.log_segment import LogSegment, UncheckedSegment
from plogd.log.segment.uncached_lookup import UncachedLookup
from plogd.log.time_lookup import offset_for_timestamp
from plogd.ports import Later
from tests.helpers.log.log_site import CONFIG, LogSite, batch_offsets
from tests.helpers.sim.sim_files import Operation, SimFile
from tests.helpers.sim.sim_time import START_MS
from tests.helpers.steps import finished

BATCH_BYTES = 173


def _restarted(index_interval_bytes: int = 150) -> tuple[LogSite, Log]:
    """Segments of five batches, loaded after a clean stop, which checks no batch."""
    site = LogSite().start()
    site.fill(site.create("t-0", replace(CONFIG, index_interval_bytes=index_interval_bytes)), 17)
    site.settle()
    site = site.restart()
    return site, site.log()


def _damaged_header(base_offset: int = 0) -> tuple[LogSite, Log]:
    """Damage the length of a segment's third batch; the index has no entry after it."""
    site, log = _restarted(index_interval_bytes=900)
    site.flip(site.path(log, base_offset), 2 * BATCH_BYTES + 8)
    return site, log


def _look_up(site: LogSite, log: Log, offset: int) -> UncheckedSegment:
    """Return the check that a fetch at `offset` waits for, after its index was opened."""
    for _ in range(5):
        with pytest.raises(UncachedLookup) as raised:
            log.read(offset, 1, end_offset=log.high_watermark, nowait=True)
        if isinstance(raised.value, UncheckedSegment):
            return raised.value
        site.settle(site.manager.begin_read(log, raised.value))
    raise AssertionError("no damage was found")


def _read(site: LogSite, log: Log, offset: int) -> int:
    """Return the base offset of the batch that a fetch finds, after all its waits."""
    for _ in range(5):
        try:
            data = log.read(offset, 1, end_offset=log.high_watermark, nowait=True)
        except UncachedLookup as cold:
            site.settle(site.manager.begin_read(log, cold))
            continue
        assert data.region is not None
        base_offset = int.from_bytes(data.region.read()[:8], "big")
        data.region.close()
        return base_offset
    raise AssertionError("still cold")


def _reports(site: LogSite, text: str) -> list[str]:
    return [line for line in site.reports if text in line]


def test_damaged_header_is_scanned_once_and_then_skipped() -> None:
    site, log = _damaged_header()
    with pytest.raises(CorruptMessage, match="offsets 2 to 2 are damaged on disk"):
        _read(site, log, 2)
    assert [_read(site, log, offset) for offset in (0, 1, 3, 4, 5)] == [0, 1, 3, 4, 5]
    [report] = _reports(site, "cannot read offsets 2 to 2,")
    assert f"bytes {2 * BATCH_BYTES} to {3 * BATCH_BYTES - 1}" in report
    assert len(_reports(site, "rebuilt the indexes of")) == 1
    assert not log.segments.first.index_is_suspect
    assert site.offline == []


def test_look_up_in_damage_reads_nothing_on_the_reactor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site, log = _damaged_header()
    cold = _look_up(site, log, 3)
    reads: list[int] = []
    pread = SimFile.pread

    def spy(file: SimFile, length: int, position: int) -> bytes:
        reads.append(position)
        return pread(file, length, position)

    monkeypatch.setattr(SimFile, "pread", spy)
    monkeypatch.setattr(SimFile, "pread_nowait", pread)  # Everything is in the page cache.
    assert _look_up(site, log, 3).segment is cold.segment
    done = site.manager.begin_read(log, cold)
    assert reads == []
    site.settle(done)
    scanned = len(reads)
    assert scanned
    with pytest.raises(CorruptMessage):
        _read(site, log, 2)
    assert len(reads) <= scanned + 1, "the last entry of the new index"


def test_lookups_that_meet_the_same_damage_share_one_scan() -> None:
    site, log = _damaged_header()
    waiting = [site.manager.begin_read(log, _look_up(site, log, offset)) for offset in (2, 3, 4)]
    site.ports.settle()
    assert all(later.done for later in waiting)
    assert len(_reports(site, "rebuilt the indexes of")) == 1


def test_check_continues_when_lookups_are_cancelled() -> None:
    site, log = _damaged_header()
    found = _look_up(site, log, 2)
    for _ in range(3):
        site.manager.begin_read(log, found).cancel()
    assert len(site.manager._index_rebuilds._waiters[found.segment]) == 0
    site.ports.settle()
    assert site.manager._index_rebuilds._waiters == {}
    assert len(_reports(site, "rebuilt the indexes of")) == 1


@pytest.mark.parametrize(
    "index",
    [
        pytest.param(struct.pack(">ii", 4, 3 * BATCH_BYTES), id="leads past the batch"),
        pytest.param(struct.pack(">ii", 1, -5), id="leads before the file"),
        pytest.param(struct.pack(">ii", 1, 1 << 30), id="leads past the file"),
        pytest.param(struct.pack(">ii", 1, 77), id="leads into a batch"),
    ],
)
def test_wrong_index_entry_is_replaced(index: bytes) -> None:
    site, log = _restarted()
    site.files.overwrite(site.path(log, 5, ".index"), index)
    expected = list(range(5, 10))
    assert [_read(site, log, offset) for offset in expected] == expected
    assert len(_reports(site, "rebuilt the indexes of")) <= 1
    assert site.offline == []
    again = site.restart()
    assert batch_offsets(again.log()) == list(range(17))


def test_rebuilt_indexes_equal_those_of_the_appends() -> None:
    site, log = _restarted()
    right = site.contents(log)
    site.files.overwrite(site.path(log, 5, ".index"), struct.pack(">ii", 1, 77))
    site.files.overwrite(site.path(log, 5, ".timeindex"), b"\x01" * 24)
    assert [_read(site, log, offset) for offset in range(5, 10)] == list(range(5, 10))
    assert site.contents(log) == right
    assert log.segments.infos(17)[1].max_timestamp_ms == START_MS + 9


def test_records_are_served_while_the_scan_runs() -> None:
    site, log = _damaged_header(5)
    waiting = site.manager.begin_read(log, _look_up(site, log, 7))
    site.append(log, value=b"new")
    assert _read_now(log, 5) == 5
    site.settle(waiting)
    assert _read(site, log, 8) == 8
    assert batch_offsets(log, 8) == list(range(8, 18))


def _read_now(log: Log, offset: int) -> int:
    data = log.read(offset, 1, end_offset=log.high_watermark)
    assert data.region is not None
    base_offset = int.from_bytes(data.region.read()[:8], "big")
    data.region.close()
    return base_offset


def test_active_segment_records_its_damage_and_accepts_appends() -> None:
    site, log = _restarted()
    site.fill(log, 2)
    site.settle()
    site.flip(site.path(log, 15), BATCH_BYTES + 8)
    with pytest.raises(CorruptMessage, match="offsets 16 to 16"):
        _read(site, log, 16)
    assert _read(site, log, 17) == 17
    assert _reports(site, "rebuilt the indexes of") == []
    site.fill(log, 4)
    site.settle()
    assert batch_offsets(log, 17) == list(range(17, 23))


def test_wrong_indexes_of_an_active_segment_are_rebuilt_when_it_is_sealed() -> None:
    site, log = _restarted()
    log.segments.active.index_is_suspect = True
    site.append(log)
    site.settle()
    assert _reports(site, "rebuilt the indexes of") == []
    log.roll()
    site.settle()
    assert len(_reports(site, f"{15:020}.log")) == 1


def test_look_up_by_time_triggers_a_rebuild_of_a_wrong_index() -> None:
    site, log = _restarted()
    site.files.overwrite(site.path(log, 5, ".timeindex"), struct.pack(">qi", START_MS + 1, 4))
    found = finished(offset_for_timestamp(log, START_MS + 7))
    assert found is not None
    assert found.offset == 7
    site.manager.check_suspects(log)
    site.settle()
    assert len(_reports(site, "rebuilt the indexes of")) == 1


def test_segment_is_scanned_again_only_after_a_while() -> None:
    site, log = _damaged_header()
    segment = log.segments.first
    with pytest.raises(CorruptMessage):
        _read(site, log, 2)
    site.flip(site.path(log, 0), 3 * BATCH_BYTES + 8)
    with pytest.raises(CorruptMessage, match=r"is damaged at byte 519: invalid batch header"):
        _read(site, log, 3)
    assert site.ports.jobs.waiting == []
    assert segment.index_is_suspect
    site.ports.advance(RECHECK_MS)
    with pytest.raises(CorruptMessage, match="offsets 2 to 3 are damaged on disk"):
        _read(site, log, 3)
    assert _read(site, log, 4) == 4


def test_full_disk_prevents_new_indexes_but_damage_is_recorded() -> None:
    site, log = _damaged_header()
    site.files.fail_when(lambda operation: operation.name == "sync", errno.ENOSPC)
    with pytest.raises(CorruptMessage, match="offsets 2 to 2 are damaged on disk"):
        _read(site, log, 2)
    assert _read(site, log, 3) == 3
    assert site.offline == []
    assert not [name for name in site.files.listdir(log.directory) if "cleaned" in name]


def test_disk_that_cannot_read_the_segment_goes_offline() -> None:
    site, log = _damaged_header()
    cold = _look_up(site, log, 2)
    site.files.fail_when(lambda operation: operation.name == "rename", errno.EIO)
    site.settle(site.manager.begin_read(log, cold))
    assert site.offline == ["/a"]


def test_bug_in_a_scan_is_reported_and_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    site, log = _damaged_header()
    cold = _look_up(site, log, 2)

    def die(segment: LogSegment) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(LogSegment, "open_for_reading", die)
    site.settle(site.manager.begin_read(log, cold))
    assert "index rebuild of t-0 failed: ValueError('a bug')" in site.reports[-1]
    with pytest.raises(CorruptMessage):
        _read(site, log, 2)


@pytest.mark.parametrize("end", ["deleted", "recreated", "retention"])
@pytest.mark.parametrize("after_jobs", [0, 1])
def test_scan_of_a_deleted_segment_leaves_no_files(end: str, after_jobs: int) -> None:
    site, log = _damaged_header()
    waiting: Later[None] = site.manager.begin_read(log, _look_up(site, log, 2))
    for _ in range(after_jobs):
        site.ports.jobs.run_one("dir:/a")
    if end == "retention":
        log.delete_records_before(5)
    else:
        site.delete("t-0")
    if end == "recreated":
        log = site.create("t-0")
        site.fill(log, 7)
    site.settle(waiting)
    site.ports.advance(10_000)
    assert site.offline == []
    if end == "deleted":
        assert not any(name.startswith("t-0") for name in site.files.listdir("/a"))
    else:
        first = 5 if end == "retention" else 0
        assert batch_offsets(log) == list(range(first, log.log_end_offset))
        found = {name[:20] for name in site.files.listdir(log.directory) if name[0] == "0"}
        assert f"{first:020}" == min(found)
        assert not [name for name in site.files.listdir(log.directory) if "cleaned" in name]


def test_no_crash_while_indexes_are_replaced_misleads_a_reader() -> None:
    """Each rename may be lost or not; lookups check either index."""
    site, log = _damaged_header()
    operations: list[Operation] = []
    site.files.on_operation = operations.append
    with pytest.raises(CorruptMessage):
        _read(site, log, 2)
    renames = [one for one in operations if one.name == "rename"]
    assert [one.path.rpartition("/")[2] for one in renames] == [
        file_names.segment_file_name(0, suffix, ".cleaned") for suffix in (".index", ".timeindex")
    ]
    for seed in range(5):
        again = site.crash(seed)
        with pytest.raises(CorruptMessage):
            _read(again, again.log(), 2)
        assert [_read(again, again.log(), offset) for offset in (0, 1, 3, 4)] == [0, 1, 3, 4]
        site = again


def test_empty_index_of_a_large_segment_is_rebuilt() -> None:
    """Otherwise each fetch would walk far, if only through the page cache."""
    site = LogSite().start()
    log = site.create("t-0", replace(CONFIG, segment_bytes=64 << 20, index_interval_bytes=1 << 20))
    site.fill(log, 36, value_bytes=1_000_000)
    log.roll()
    site.append(log)
    site.settle()
    site = site.restart()
    log = site.log()
    site.files.overwrite(site.path(log, 0, ".index"), b"")
    assert _read(site, log, 35) == 35
    assert len(_reports(site, "rebuilt the indexes of")) == 1
    assert log.segments.first.offset_index.count > 10
