"""Reads of many segments with few descriptors: short parts of a response are copied."""

from __future__ import annotations

from dataclasses import replace

from plog.records.batch import iter_batches
from plogd.log.log import Log
from plogd.log.segment.copied_records import COPIED_MAX_BYTES
from plogd.log.segment.file_records import FileRegion
from plogd.log.segment.uncached_lookup import UncachedLookup
from tests.helpers.log.log_site import CONFIG, LogSite

LIMIT = 64


def _site(value_bytes: int = 100) -> tuple[LogSite, Log]:
    """Return a log of 100 segments after a restart with few descriptors."""
    site = LogSite().start()
    log = site.create(
        "t-0", replace(CONFIG, segment_bytes=value_bytes + 120, max_message_bytes=1 << 20)
    )
    for _ in range(100):
        site.fill(log, 1, value_bytes)
        site.settle()
    site.stop()
    site = site.next_life()
    site.files.descriptors.set_limit(LIMIT, 1 << 31)
    site.start()
    return site, site.log()


def _open_files(regions: list[FileRegion]) -> int:
    return len({id(region.file) for region in regions if hasattr(region.file, "sync")})


def _read(log: Log, offset: int, max_bytes: int = 1 << 20) -> FileRegion:
    while True:
        try:
            region = log.read(offset, max_bytes, end_offset=100, nowait=True).region
        except UncachedLookup as cold:
            cold.warm()
            continue
        assert region is not None
        return region


def test_unsent_parts_of_responses_do_not_use_up_descriptors() -> None:
    site, log = _site()
    regions = [_read(log, offset) for offset in range(100)]
    assert 0 < _open_files(regions) < LIMIT
    for offset, region in enumerate(regions):
        data = region.read()
        assert [header.base_offset for _, header in iter_batches(data)] == [offset]
        assert region.file.pread_nowait(8, region.position) == data[:8]
        assert region.file.cached(region.position, region.nbytes)
        region.close()
    assert len(site.files.descriptors.regions) == 0
    assert _open_files([_read(log, 50)]) == 1


def test_batch_that_is_too_large_to_copy_keeps_its_file_open() -> None:
    _, log = _site(COPIED_MAX_BYTES)
    regions = [_read(log, offset) for offset in range(100)]
    assert _open_files(regions) == 100
    assert regions[99].nbytes > COPIED_MAX_BYTES


def test_copied_part_is_short() -> None:
    site = LogSite().start()
    log = site.create("t-0", replace(CONFIG, segment_bytes=1 << 20))
    site.fill(log, 20, 10_000)
    site.settle()
    site.stop()
    site = site.next_life().start()
    log = site.log()
    whole = _whole(log)
    site.files.descriptors.set_limit(LIMIT, 1 << 31)
    held = [_whole(log) for _ in range(LIMIT)]
    copied = _whole(log)
    assert copied.nbytes == COPIED_MAX_BYTES < whole.nbytes
    assert copied.read() == whole.read()[:COPIED_MAX_BYTES]
    for region in held:
        region.close()


def _whole(log: Log) -> FileRegion:
    region = log.read(0, 1 << 20, end_offset=20).region
    assert region is not None
    return region
