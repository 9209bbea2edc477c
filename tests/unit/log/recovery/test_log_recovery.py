"""Loading a log: little is read after a clean stop; after a crash it is truncated and synced."""

from __future__ import annotations

import errno
import random
import struct
from collections.abc import Callable
from dataclasses import replace

import pytest

from plogd.log import file_names
from plogd.log.disk.log_dir import OFFSET_CHECKPOINTS
from plogd.log.log import Log
from tests.helpers.log.log_site import (
    CONFIG,
    LogSite,
    base_offsets,
    batch_offsets,
    four_segments,
    values,
)
from tests.helpers.sim.sim_files import Operation, SimCrash, SimFile

# -- after a clean stop -----------------------------------------------------------------------


def test_clean_stop_leaves_nothing_to_recover() -> None:
    site, log = four_segments()
    before, content = values(log), site.contents(log)
    site.stop()
    after = site.next_life()
    changed: list[str] = []

    def note(operation: Operation) -> None:
        changed.append(operation.path)

    after.files.on_operation = note
    after.start()
    log = after.log()
    assert not any("t-0" in path for path in changed)
    assert values(log) == before
    assert after.contents(log).keys() == content.keys()
    assert (log.durable_end_offset, log.log_end_offset, log.recovery_point) == (17, 17, 17)
    assert after.reports == []


@pytest.mark.parametrize("with_producer", [False, True])
def test_clean_start_reads_as_little_of_a_long_log_as_of_a_short_one(
    monkeypatch: pytest.MonkeyPatch, with_producer: bool
) -> None:
    """With or without producers: a snapshot without any is valid, too."""
    pread = SimFile.pread
    bytes_read: list[int] = []

    def counting(file: SimFile, length: int, position: int) -> bytes:
        data = pread(file, length, position)
        if file.path.endswith(".log"):
            bytes_read[-1] += len(data)
        return data

    monkeypatch.setattr(SimFile, "pread", counting)
    for batches in (20, 400):
        bytes_read.append(0)
        site = LogSite().start()
        log = site.create("t-0", replace(CONFIG, segment_bytes=1 << 20))
        if with_producer:
            site.append(log, producer_id=7, producer_epoch=0, base_sequence=0)
        site.fill(log, batches)
        site.settle()
        site.stop()
        after = site.next_life()
        bytes_read[-1] = 0
        after.start()
        assert after.log().log_end_offset == batches + with_producer
    assert bytes_read[1] < bytes_read[0] + 1000


def test_log_continues_at_its_end_after_a_clean_stop() -> None:
    site, _ = four_segments()
    site = site.restart()
    site.fill(site.log(), 7)
    site.settle()
    site = site.restart()
    assert batch_offsets(site.log()) == list(range(24))


def test_clean_start_with_a_damaged_end_recovers_the_active_segment() -> None:
    """Otherwise new batches would follow bytes that no reader can skip."""
    site, log = four_segments()
    site.stop()
    path = site.path(log, 15)
    site.files.overwrite(path, site.files.read_file(path)[:-1] + b"\0" * 500)
    site = site.kill()
    log = site.log()
    assert any("truncated " in report for report in site.reports)
    site.append(log, value=b"new")
    site.settle()
    assert values(log)[log.log_end_offset - 1] == b"new"
    assert batch_offsets(log) == [*range(16), *batch_offsets(log, 16)]


def test_clean_start_continues_after_an_active_segment_of_garbage() -> None:
    """R14: it was durable when the broker stopped, so the garbage is damage, and kept."""
    site, log = four_segments()
    site.stop()
    site.files.overwrite(site.path(log, 15), b"\x99" * 300)
    site = site.kill()
    assert (site.log().log_end_offset, base_offsets(site.log())) == (17, [0, 5, 10, 15, 17])
    assert site.files.read_file(site.path(log, 15)) == b"\x99" * 300
    assert "cannot read offsets 15 to 16," in site.reports[-1]


# -- after a crash: torn data is truncated ----------------------------------------------------


def test_indexes_rebuilt_after_a_crash_equal_the_original_ones() -> None:
    site, log = four_segments()
    log.roll()
    site.fill(log, 3)
    site.settle()
    log.segments.active.on_become_inactive()
    content = site.contents(log)
    for base in base_offsets(log):
        for suffix in (".index", ".timeindex"):
            site.files.overwrite(site.path(log, base, suffix), b"\x55" * 30)
    site = site.kill()
    assert site.contents(site.log()) == content
    assert batch_offsets(site.log()) == list(range(20))


def test_batch_torn_at_any_byte_is_truncated() -> None:
    site, log = four_segments(3)
    path = site.path(log, 0)
    whole = site.files.read_file(path)
    size = len(whole) // 3
    site = site.next_life()
    for torn in range(size + 1):
        site.files.overwrite(path, whole[: 2 * size + torn])
        site = site.next_life().start()
        log = site.log()
        kept = 3 if torn == size else 2
        assert (log.log_end_offset, log.durable_end_offset) == (kept, kept)
        assert site.files.read_file(path) == whole[: kept * size]
        assert len(site.reports) == (torn not in (0, size))
        site.append(log)
        assert batch_offsets(log, end_offset=kept + 1) == list(range(kept + 1))


TAILS: dict[str, bytes] = {
    "one zero": b"\0",
    "a header of zeros": bytes(61),
    "a page of zeros": bytes(4096),
    "two MiB of zeros": bytes(2 << 20),
    "ones": b"\xff" * 200,
    "noise": random.Random(1).randbytes(5000),
    "a length beyond the end": struct.pack(">qi", 3, 1 << 20) + bytes(100),
    "a negative length": struct.pack(">qi", 3, -5) + bytes(100),
}


@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS.keys())
def test_tail_that_is_not_a_batch_is_truncated(tail: bytes) -> None:
    site, log = four_segments(3)
    path = site.path(log, 0)
    whole = site.files.read_file(path)
    site.files.overwrite(path, whole + tail)
    site = site.kill()
    assert site.files.read_file(path) == whole
    assert site.reports[-1].startswith(
        f"truncated {len(tail)} bytes from t-0 at offset 3, in {path}: "
    )
    assert batch_offsets(site.log()) == [0, 1, 2]


def test_log_is_truncated_at_a_batch_with_a_wrong_checksum() -> None:
    site, log = four_segments(3)
    path = site.path(log, 0)
    size = len(site.files.read_file(path)) // 3
    site.flip(path, 2 * size - 1)
    site = site.kill()
    assert site.log().log_end_offset == 1
    assert "checksum" in site.reports[-1]


def test_stale_batch_of_a_reused_file_is_truncated() -> None:
    """A whole batch with a valid checksum, but not the next offset."""
    site, log = four_segments(3)
    path = site.path(log, 0)
    whole = site.files.read_file(path)
    site.files.overwrite(path, whole + whole[: len(whole) // 3])
    site = site.kill()
    assert site.log().log_end_offset == 3
    assert site.files.read_file(path) == whole


def test_recovered_records_survive_the_next_power_loss() -> None:
    """R13: it may have been in the page cache only, and is served from now on."""
    for seed in range(10):
        site = LogSite().start()
        log = site.create("t-0")
        site.append(log)
        log.roll()
        site.fill(log, 8)  # None of it is synced.
        site.ports.jobs.forget_all()
        site = site.kill()
        kept = values(site.log())
        assert len(kept) == site.log().durable_end_offset == 9
        site = site.crash(seed)
        assert values(site.log()) == kept


def test_unsynced_page_cache_is_not_trusted_after_a_restart() -> None:
    """R13: a failed sync leaves them in the page cache, clean, until it is dropped."""
    site, log = four_segments(3)
    site.fill(log, 2)
    site.files.fail_when(lambda operation: operation.name == "sync", errno.EIO)
    site.settle()
    assert site.offline == ["/a"]
    site.files.fail_no_more()
    site = site.kill()
    assert site.log().log_end_offset == 3


def test_sealed_segments_are_not_read_again() -> None:
    site, log = four_segments()
    site.write_checkpoints()
    after = site.next_life()
    for base in (0, 5, 10):
        after.files.overwrite(site.path(log, base), b"!" * 700)
    after.start()
    assert after.log().log_end_offset == 17
    assert (after.log().recovery_point, after.log().log_start_offset) == (15, 0)


def test_disk_error_is_raised() -> None:
    """The caller takes the directory offline."""
    site, log = four_segments()
    after = site.next_life()
    after.files.fail_when(
        lambda operation: operation.name == "pread" and "t-0" in operation.path, errno.EIO
    )
    after.start()
    assert after.offline == ["/a"]
    assert after.manager.get(log.topic_partition) is None


# -- crashes while recovering -----------------------------------------------------------------


def _crashed_at_random(seed: int) -> LogSite:
    """A power loss during appends, rolls, rounds and seals; not restarted yet."""
    chance = random.Random(seed)
    site = LogSite().start()
    log = site.create("t-0")
    for _ in range(20):
        site.fill(log, 1, producer_id=-1)
        site.ports.timers.run_due()
        while site.ports.jobs.waiting and chance.randrange(2):
            site.ports.jobs.run_one()
    return site._successor(site.files.crash(chance))


@pytest.mark.parametrize("seed", range(4))
def test_recovery_restarts_after_a_crash_at_any_operation(seed: int) -> None:
    total = _crashed_at_random(seed).start()
    expected = values(total.log())
    for number in range(1, total.files.operations + 1):
        site = _crashed_at_random(seed)
        site.files.crash_at(number)
        with pytest.raises(SimCrash):
            site.start()
        after = site._successor(site.files.crash(random.Random(number))).start()
        assert values(after.log()) == expected


def _nothing_at_all(site: LogSite, log: Log) -> None:
    pass


@pytest.mark.parametrize(
    "damage",
    [
        _nothing_at_all,
        lambda site, log: site.files.overwrite(site.path(log, 0), b""),
        lambda site, log: site.files.unlink(site.path(log, 5)),
        lambda site, log: site.files.overwrite(site.path(log, 10, ".index"), b"\1" * 8),
        lambda site, log: site.files.unlink(f"/a/t-0/{file_names.LEADER_EPOCH_CHECKPOINT}"),
        lambda site, log: site.forget(*OFFSET_CHECKPOINTS),
    ],
)
@pytest.mark.parametrize("clean", [True, False])
def test_log_loads_with_any_file_missing(
    damage: Callable[[LogSite, Log], None], clean: bool
) -> None:
    site, log = four_segments()
    if clean:
        site.stop()
    damage(site, log)
    site = site.kill()
    log = site.log()
    site.append(log, value=b"new")
    site.settle()
    assert values(log, log.log_end_offset - 1) == {log.log_end_offset - 1: b"new"}
    assert log.config is CONFIG
