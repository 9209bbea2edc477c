"""One log: reads up to a bound."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plog.errors import CorruptMessage, KafkaStorageError, OffsetOutOfRange
from plog.records.batch import iter_batches
from plogd.log.log import Log
from plogd.log.log_results import NO_DATA
from tests.helpers.log.log_site import LogSite, base_offsets, four_segments

END = 1 << 62


def _offsets(log: Log, offset: int, max_bytes: int, **how: int) -> list[int]:
    """Return the base offsets of the whole batches in a read; -1 for a last one that is cut."""
    data = log.read(
        offset,
        max_bytes,
        end_offset=how.get("end_offset", log.high_watermark),
        at_least_one=bool(how.get("at_least_one", True)),
    )
    if data.region is None:
        return []
    payload = data.region.read()
    assert len(payload) == data.nbytes
    data.region.close()
    batches = list(iter_batches(payload))
    whole = sum(header.size_bytes for _, header in batches)
    return [header.base_offset for _, header in batches] + [-1] * (whole < len(payload))


# -- reads ------------------------------------------------------------------------------------


def test_read_returns_batches_from_an_offset_within_one_segment() -> None:
    _, log = four_segments()
    assert _offsets(log, 0, 1 << 20) == [0, 1, 2, 3, 4]
    assert _offsets(log, 3, 1 << 20) == [3, 4]
    assert _offsets(log, 5, 1 << 20) == [5, 6, 7, 8, 9]
    assert _offsets(log, 16, 1 << 20) == [16]


def test_read_ends_at_max_bytes_but_its_first_batch_is_whole() -> None:
    """F39."""
    _, log = four_segments()
    size = log.segments.first.size_bytes // 5
    assert _offsets(log, 0, 2 * size) == [0, 1]
    assert _offsets(log, 0, 2 * size + 1) == [0, 1, -1]
    assert _offsets(log, 0, 1) == [0]
    assert _offsets(log, 0, size - 1, at_least_one=0) == []
    assert _offsets(log, 0, size, at_least_one=0) == [0]
    assert log.read(0, 0, end_offset=17, at_least_one=False).nbytes == 0


def test_read_of_no_bytes_retains_no_file() -> None:
    """Nothing would be sent of such a region, so it would never be closed."""
    _, log = four_segments()
    data = log.read(0, 0, end_offset=log.high_watermark, at_least_one=False)
    assert data is NO_DATA


def test_offset_within_a_batch_returns_the_whole_batch() -> None:
    """F38: clients drop records before the requested offset."""
    site = LogSite().start()
    log = site.create("t-0")
    for _ in range(3):
        site.append(log, 4)
    site.settle()
    assert [_offsets(log, offset, 1) for offset in (3, 4, 7, 11)] == [[0], [4], [4], [8]]


def test_read_at_the_log_end_returns_no_data() -> None:
    _, log = four_segments()
    assert log.read(17, 1000, end_offset=17) is NO_DATA
    assert NO_DATA.nbytes == 0
    assert log.read(9, 1000, end_offset=9) is NO_DATA
    assert log.read(9, 1000, end_offset=4) is NO_DATA


@pytest.mark.parametrize("offset", [-1, 4, 18])
def test_offsets_outside_the_log_are_out_of_range(offset: int) -> None:
    _, log = four_segments()
    log.log_start_offset = 5
    with pytest.raises(OffsetOutOfRange, match=rf"offset {offset} is outside \[5, 17\]"):
        log.read(offset, 1000, end_offset=17)


def test_read_returns_nothing_at_or_above_the_bound() -> None:
    """Neither records that are not durable nor, with a lower bound, durable ones."""
    site, log = four_segments()
    site.fill(log, 2)
    assert _offsets(log, 15, 1 << 20) == [15, 16]
    assert _offsets(log, 15, 1 << 20, end_offset=END) == [15, 16, 17, 18]
    assert _offsets(log, 5, 1 << 20, end_offset=8) == [5, 6, 7]
    site.settle()
    assert _offsets(log, 15, 1 << 20) == [15, 16, 17, 18]


def test_durable_end_of_an_earlier_segment_is_found_too() -> None:
    """The position of the last round's end belongs to one segment; a roll makes it obsolete."""
    site, log = four_segments()
    site.fill(log, 6)
    assert base_offsets(log)[-1] == 20
    assert _offsets(log, 15, 1 << 20) == [15, 16]
    assert _offsets(log, 15, 1 << 20, end_offset=END) == [15, 16, 17, 18, 19]


def test_offset_in_a_gap_returns_the_next_batch() -> None:
    """A file truncated between two batches leaves such a gap."""
    site, log = four_segments()
    site.write_checkpoints()
    content = site.files.read_file(site.path(log, 5))
    site.files.overwrite(site.path(log, 5), content[: 3 * len(content) // 5])
    log.high_watermark = 17
    site = site.kill()
    log = site.log()
    assert _offsets(log, 8, 1 << 20) == [10, 11, 12, 13, 14]


def test_gap_before_the_bound_returns_no_data() -> None:
    site, log = four_segments()
    content = site.files.read_file(site.path(log, 5))
    site.files.overwrite(site.path(log, 5), content[: 3 * len(content) // 5])
    site.write_checkpoints()
    log = site.kill().log()
    assert log.read(8, 1000, end_offset=9).region is None


def test_read_with_a_bound_inside_damage_ends_before_it() -> None:
    site, log = four_segments()
    content = site.files.read_file(site.path(log, 5))
    site.files.overwrite(site.path(log, 5), content[:400])
    site.write_checkpoints()
    log = site.kill().log()
    data = log.read(5, 1 << 20, end_offset=9)
    assert data.region is not None
    assert [header.base_offset for _, header in iter_batches(data.region.read())] == [5, 6]
    with pytest.raises(CorruptMessage, match="offsets 7 to 9 are damaged"):
        log.read(8, 1000, end_offset=9)


@settings(max_examples=40, deadline=None)
@given(
    shapes=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 200)), min_size=1, max_size=25),
    synced=st.integers(0, 25),
    reads=st.lists(
        st.tuples(st.integers(0, 100), st.integers(1, 2000), st.integers(0, 110)), max_size=12
    ),
)
def test_any_read_returns_consecutive_batches_from_the_requested_one(
    shapes: list[tuple[int, int]], synced: int, reads: list[tuple[int, int, int]]
) -> None:
    site = LogSite().start()
    log = site.create("t-0")
    batches: list[tuple[int, int]] = []
    for number, (records, value_bytes) in enumerate(shapes):
        info = site.append(log, records, value=b"v" * value_bytes)
        batches.append((info.first_offset, info.last_offset))
        if number == synced:
            site.settle()
    end = log.log_end_offset
    for offset, max_bytes, bound in [*reads, (0, 500, log.durable_end_offset)]:
        offset %= end
        found = _offsets(log, offset, max_bytes, end_offset=bound)
        expected = [first for first, last in batches if last >= offset and last < bound]
        if found and found[-1] == -1:
            found.pop()
            assert found or offset >= bound
        if not found:
            assert not expected or offset >= bound
        assert found == expected[: len(found)]


@pytest.mark.parametrize(("number", "offline"), [(errno.EIO, ["/a"]), (errno.EMFILE, [])])
def test_failed_read_is_a_storage_error(number: int, offline: list[str]) -> None:
    site, _ = four_segments()
    site = site.kill()
    site.files.fail_when(lambda operation: operation.name in ("pread", "open"), number)
    with pytest.raises(KafkaStorageError, match="cannot read in /a"):
        site.log().read(7, 1000, end_offset=17)
    assert site.offline == offline
