"""Lookups by time, in one segment and in a whole log, also with wrong indexes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plog.errors import KafkaStorageError
from plog.records.batch import HEADER_SIZE, Compression, CorruptBatch
from plogd.log import time_lookup
from plogd.log.segment.log_segment import LogSegment
from plogd.log.segment.time_index import TimestampAndOffset
from plogd.log.time_lookup import find_in_segment, max_timestamp_offset, offset_for_timestamp
from tests.helpers.log.log_data import T0, append, client_batch, fill
from tests.helpers.log.log_site import CONFIG, LogSite, base_offsets, four_segments
from tests.helpers.log.one_segment import BASE, INDEX, TIME_INDEX, create_segment, open_segment
from tests.helpers.sim.sim_files import SimFiles
from tests.helpers.steps import finished


def _find(segment: LogSegment, timestamp: int, offset: int) -> TimestampAndOffset | None:
    return finished(find_in_segment(segment, timestamp, offset))


# -- one segment ------------------------------------------------------------------------------


@pytest.fixture(params=["just appended", "opened", "opened without index"])
def read_segment(request: pytest.FixtureRequest) -> LogSegment:
    """Forty batches of five records."""
    files = SimFiles()
    segment = create_segment(files)
    fill(segment, 40, records=5)
    if request.param != "just appended":
        segment.on_become_inactive()
        segment.close()
        if request.param == "opened without index":
            files.overwrite(INDEX, b"")
        segment = open_segment(files)
    return segment


def test_record_is_found_by_time(read_segment: LogSegment) -> None:
    """Batch n holds offsets 5n to 5n+4, all of them of T0 + 10n."""
    for wanted, number in ((0, 0), (T0, 0), (T0 + 1, 1), (T0 + 10, 1), (T0 + 245, 25)):
        found = _find(read_segment, wanted, BASE)
        assert found == (T0 + 10 * number, BASE + 5 * number, 0)
    assert _find(read_segment, T0 + 391, BASE) is None


def test_search_by_time_begins_at_the_given_offset(read_segment: LogSegment) -> None:
    assert _find(read_segment, T0, BASE + 52) == (T0 + 100, BASE + 52, 0)
    assert _find(read_segment, T0 + 390, BASE + 199) == (T0 + 390, BASE + 199, 0)
    assert _find(read_segment, T0, BASE + 200) is None


@pytest.mark.parametrize("compression", list(Compression))
def test_search_by_time_is_exact_to_the_record(compression: Compression) -> None:
    segment = create_segment(SimFiles())
    times = [T0 + 5, T0 + 1, T0 + 9, T0 + 7]
    append(segment, client_batch(timestamps=times, compression=compression), BASE)
    found = {wanted: _find(segment, wanted, BASE) for wanted in (T0, T0 + 6, T0 + 9, T0 + 10)}
    assert found == {
        T0: (T0 + 5, BASE, 0),
        T0 + 6: (T0 + 9, BASE + 2, 0),
        T0 + 9: (T0 + 9, BASE + 2, 0),
        T0 + 10: None,
    }


def test_search_by_time_handles_timestamps_out_of_order() -> None:
    segment = create_segment(SimFiles())
    times = [T0 + (number * 7919) % 500 for number in range(100)]
    offset = BASE
    for time in times:
        offset = append(segment, client_batch(timestamp=time), offset)
    assert segment.time_index.count >= 2
    for wanted in range(T0, T0 + 500, 3):
        expected = next(((t, BASE + n, 0) for n, t in enumerate(times) if t >= wanted), None)
        assert _find(segment, wanted, BASE) == expected


@pytest.mark.parametrize("garbage", [b"", b"\0\0\0\0\0\0\0\5\0\0\0\x20" * 3, b"\x01" * 36])
def test_wrong_time_index_does_not_change_the_result(garbage: bytes) -> None:
    files = SimFiles()
    segment = create_segment(files)
    fill(segment, 40)
    segment.close()
    files.overwrite(TIME_INDEX, garbage)
    segment = open_segment(files)
    for number in range(40):
        expected = (T0 + 10 * number, BASE + number, 0)
        assert _find(segment, T0 + 10 * number, BASE) == expected


def test_indexes_truncated_while_open_do_not_change_the_result() -> None:
    files = SimFiles()
    segment = create_segment(files)
    fill(segment, 40)
    segment.on_become_inactive()
    segment.close()
    segment = open_segment(files)
    assert segment.time_index.count and segment.offset_index.count
    files.overwrite(INDEX, b"")
    files.overwrite(TIME_INDEX, b"")
    assert _find(segment, T0 + 70, BASE) == (T0 + 70, BASE + 7, 0)
    assert segment.index_is_suspect


# -- lookups by time -------------------------------------------------------------------------


def test_timestamp_finds_the_first_record_that_is_not_older() -> None:
    site = LogSite().start()
    log = site.create("t-0")
    for number in range(12):
        times = [T0 + 100 * number, T0 + 100 * number + 50]
        site.append(log, timestamps=times, value=b"v" * 100)
    assert len(base_offsets(log)) > 2
    assert finished(offset_for_timestamp(log, 0)) == (T0, 0, 0)
    assert finished(offset_for_timestamp(log, T0 + 501)) == (T0 + 550, 11, 0)
    assert finished(offset_for_timestamp(log, T0 + 550)) == (T0 + 550, 11, 0)
    assert finished(offset_for_timestamp(log, T0 + 1150)) == (T0 + 1150, 23, 0)
    assert finished(offset_for_timestamp(log, T0 + 1151)) is None


def test_timestamp_finds_no_record_below_the_log_start() -> None:
    _, log = four_segments()
    log.log_start_offset = 7
    found = finished(offset_for_timestamp(log, 0))
    assert found is not None
    assert found.offset == 7


def test_largest_timestamp_is_found_at_its_first_record() -> None:
    site = LogSite().start()
    log = site.create("t-0")
    assert finished(max_timestamp_offset(log)) is None
    for timestamp in (T0, T0 + 70, T0 + 30, T0 + 70, T0 + 20):
        site.append(log, timestamp=timestamp)
    assert finished(max_timestamp_offset(log)) == (T0 + 70, 1, 0)


def test_records_without_timestamps_are_never_found() -> None:
    site = LogSite().start()
    log = site.create("t-0", replace(CONFIG, segment_bytes=200))
    for _ in range(3):
        site.append(log, timestamp=-1, value=b"v" * 100)
    assert finished(max_timestamp_offset(log)) is None
    assert finished(offset_for_timestamp(log, 0)) is None


def test_search_continues_after_a_segment_with_a_wrong_header() -> None:
    """Its newest record may be below the log start."""
    site = LogSite().start()
    log = site.create("t-0")
    for timestamp in (T0, T0 + 900, T0 + 10, T0 + 20, T0 + 30):
        site.append(log, timestamp=timestamp, value=b"v" * 100)
    log.roll()
    site.append(log, timestamp=T0 + 800)
    log.log_start_offset = 2
    assert finished(offset_for_timestamp(log, T0 + 500)) == (T0 + 800, 5, 0)


def test_look_up_in_a_closed_log_is_a_storage_error() -> None:
    """It is a job, and the topic may be deleted while it waits."""
    _, log = four_segments()
    log.close()
    with pytest.raises(KafkaStorageError, match="closed"):
        finished(offset_for_timestamp(log, 0))


def test_append_during_a_look_up_does_not_suspect_the_index() -> None:
    """The lookup sees the batches of one moment, and only their index entries."""
    site = LogSite().start()
    log = site.create("t-0", replace(CONFIG, index_interval_bytes=1))
    site.fill(log, 3)
    segment = log.segments.active
    view = segment.open_for_reading()
    before = segment.size_bytes
    site.fill(log, 2)
    latest = segment.max_timestamp
    assert _find(view, latest, 0) is None
    assert (view.size_bytes, view.index_is_suspect) == (before, False)
    view.close()
    assert _find(segment, latest, 0) == (latest, 4, 0)


@pytest.mark.parametrize("missing", [INDEX, TIME_INDEX])
def test_missing_index_does_not_change_the_result(missing: str) -> None:
    files = SimFiles()
    segment = create_segment(files)
    fill(segment, 40)
    files.unlink(missing)
    view = segment.open_for_reading()
    assert _find(view, T0 + 70, BASE) == (T0 + 70, BASE + 7, 0)
    assert not files.exists(missing)
    view.close()


def test_timestamp_before_the_first_index_entry_does_not_suspect_the_index() -> None:
    _, log = four_segments()
    for segment in log.segments:
        assert _find(segment, 0, 0) is not None
        assert not segment.index_is_suspect


def test_batch_that_is_too_large_uncompressed_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    segment = create_segment(SimFiles())
    times = [T0 + number for number in range(1000)]
    append(segment, client_batch(timestamps=times, compression=Compression.GZIP), BASE)
    uncompressed_bytes = len(client_batch(timestamps=times)) - HEADER_SIZE
    for max_bytes in (uncompressed_bytes - 1, uncompressed_bytes):
        monkeypatch.setattr(time_lookup, "_BATCH_MAX_BYTES", max_bytes)
        if max_bytes < uncompressed_bytes:
            with pytest.raises(CorruptBatch):
                _find(segment, T0 + 500, BASE)
        else:
            assert _find(segment, T0 + 500, BASE) == (T0 + 500, BASE + 500, 0)
