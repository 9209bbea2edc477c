"""A clean start trusts files that are older than the clean stop, and checks all others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.helpers.log.log_site import CONFIG, LogSite, four_segments, values
from tests.helpers.sim.sim_files import SimFile


def _stopped() -> LogSite:
    """Return the life after a clean stop that has changed nothing in the log's directory."""
    site, _ = four_segments()
    site = site.restart()
    # The stop above has written a snapshot in the same millisecond as the clean shutdown file.
    site.ports.advance(1000)
    site.stop()
    site.ports.advance(1000)
    return site


def _count_reads(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[int]]:
    """Return the bytes of ``.log`` files that are read from now on, by path."""
    read: dict[str, set[int]] = {}
    pread = SimFile.pread

    def counting(file: SimFile, length: int, position: int) -> bytes:
        data = pread(file, length, position)
        if file.path.endswith(".log") and data:
            read.setdefault(file.path, set()).update(range(position, position + len(data)))
        return data

    monkeypatch.setattr(SimFile, "pread", counting)
    return read


def test_clean_start_reads_only_the_last_index_interval_of_a_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = replace(CONFIG, segment_bytes=5000, index_interval_bytes=300)
    site = LogSite().start()
    log = site.create("t-0", config)
    site.fill(log, 210)
    site.settle()
    assert len(log.segments) > 5
    assert log.segments.active.size_bytes > 1000
    site = site.restart()
    site.ports.advance(1000)
    site.stop()
    expected = site.files.read_file(site.path(log, log.segments.active.base_offset))
    read = _count_reads(monkeypatch)
    site = site.kill()
    log = site.log()
    active = log.segments.active
    assert read.keys() == {active.records_file.path}
    last_entry = active.indexes.last_offset_entry.position
    assert read[active.records_file.path] == set(range(last_entry, len(expected)))
    assert active.size_bytes - last_entry < 300 + 200
    assert (log.log_end_offset, log.recovery_point) == (210, 210)
    assert site.reports == []


def test_largest_timestamps_are_known_without_reading_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Retention asks for them on the reactor's thread."""
    expected = [segment.max_timestamp for segment in _stopped().log().segments]
    site = _stopped()
    read = _count_reads(monkeypatch)
    site = site.kill()
    assert [segment.max_timestamp for segment in site.log().segments] == expected
    assert read.keys() == {site.path(site.log(), 15)}


@pytest.mark.parametrize("lost", [[5], [5, 10]])
def test_segment_removed_after_the_stop_is_reported(lost: list[int]) -> None:
    site = _stopped()
    for base in lost:
        site.files.unlink(site.path(site.log(), base))
    site = site.kill()
    assert any(f"has lost offsets 5 to {lost[-1] + 4}" in line for line in site.reports)


def test_segment_truncated_after_the_stop_is_reported() -> None:
    site = _stopped()
    path = site.path(site.log(), 5)
    file = site.files.open_existing(path)
    file.truncate(file.size() * 3 // 5)
    file.close()
    site = site.kill()
    assert any("has lost offsets 8 to 9" in line for line in site.reports)
    assert list(values(site.log())) == [*range(8), *range(10, 17)]


def test_damaged_index_of_an_unchanged_segment_is_rebuilt() -> None:
    site = _stopped()
    path = site.path(site.log(), 5, ".index")
    content = site.files.read_file(path)
    site.files.overwrite(path, content + b"\0")
    site = site.kill()
    assert site.files.read_file(path) == content
    assert any("rebuilding an index" in line for line in site.reports)
