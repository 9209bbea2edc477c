"""One segment: reads, lookups by offset and time, also with wrong indexes and damage."""

from __future__ import annotations

import struct

import pytest

from plog.errors import CorruptMessage
from plogd.log import file_names
from plogd.log.segment.file_records import CorruptRange
from plogd.log.segment.log_segment import LogSegment
from tests.helpers.log.log_data import T0, append, client_batch, fill, next_offset
from tests.helpers.log.one_segment import BASE, INDEX, create_segment, open_segment, read_offsets
from tests.helpers.sim.sim_files import SimFiles

# -- read -------------------------------------------------------------------------------------


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


def test_read_begins_with_the_batch_that_holds_the_offset(read_segment: LogSegment) -> None:
    for offset in (BASE, BASE + 4, BASE + 5, BASE + 99, BASE + 197, BASE + 199):
        first = offset - offset % 5
        assert read_offsets(read_segment, offset) == list(range(first, BASE + 200, 5))


def test_read_after_the_last_batch_returns_none(read_segment: LogSegment) -> None:
    assert read_segment.read(BASE + 200, 100, max_position=10**9, at_least_one=True) is None
    assert read_segment.position_of(BASE + 200) == read_segment.size_bytes


def test_read_ends_at_the_given_position(read_segment: LogSegment) -> None:
    end = read_segment.position_of(BASE + 50)
    assert read_offsets(read_segment, BASE + 40, max_position=end) == [BASE + 40, BASE + 45]
    assert read_offsets(read_segment, BASE + 50, max_position=end) == []


def test_first_batch_is_whole_even_if_it_exceeds_max_bytes(
    read_segment: LogSegment,
) -> None:
    assert read_offsets(read_segment, BASE + 7, 10) == [BASE + 5]
    assert read_offsets(read_segment, BASE + 7, 10, at_least_one=False) == []
    assert read_offsets(read_segment, BASE + 7, 0, at_least_one=False) == []


def test_next_offset_follows_the_last_batch(read_segment: LogSegment) -> None:
    assert next_offset(read_segment) == BASE + 200
    assert next_offset(create_segment(SimFiles())) == BASE


@pytest.mark.parametrize("garbage", [b"\0" * 80, b"\x7f" * 80, b"\0\0\0\x05\0\0\x01\0" * 10])
def test_wrong_index_does_not_change_the_result(garbage: bytes) -> None:
    files = SimFiles()
    segment = create_segment(files)
    fill(segment, 40, records=5)
    segment.close()
    files.overwrite(INDEX, garbage)
    segment = open_segment(files)
    for offset in range(BASE, BASE + 200):
        place = segment.find_offset(offset)
        assert place is not None
        assert place.base_offset <= offset <= place.last_offset


def test_index_that_leads_too_far_does_not_change_the_result() -> None:
    files = SimFiles()
    segment = create_segment(files)
    fill(segment, 40)
    place = segment.find_offset(BASE + 20)
    assert place is not None
    segment.close()
    files.overwrite(INDEX, struct.pack(">ii", 5, place.position))
    segment = open_segment(files)
    found = segment.find_offset(BASE + 7)
    assert found is not None
    assert found.base_offset == BASE + 7
    assert segment.index_is_suspect


def test_index_truncated_while_open_does_not_change_the_result() -> None:
    files = SimFiles()
    segment = create_segment(files)
    fill(segment, 40)
    segment.on_become_inactive()
    segment.close()
    segment = open_segment(files)
    assert segment.offset_index.count
    files.overwrite(INDEX, b"")
    found = segment.find_offset(BASE + 7)
    assert found is not None
    assert found.base_offset == BASE + 7
    assert segment.index_is_suspect


def test_look_up_raises_in_a_damaged_log_without_an_index() -> None:
    files = SimFiles()
    create_segment(files)
    files.overwrite(f"/log/{file_names.segment_file_name(BASE, '.log')}", bytes(100))
    with pytest.raises(CorruptMessage):
        open_segment(files).find_offset(BASE)


def test_read_raises_at_damage_and_returns_later_batches() -> None:
    files = SimFiles()
    segment = create_segment(files)
    fill(segment, 40)
    segment.on_become_inactive()
    segment.close()
    path = f"/log/{file_names.segment_file_name(BASE, '.log')}"
    content = bytearray(files.read_file(path))
    place = open_segment(files).find_offset(BASE + 10)
    assert place is not None
    content[place.position + 8 : place.position + 12] = b"\xff\xff\xff\xff"
    files.overwrite(path, bytes(content))
    segment = open_segment(files)
    with pytest.raises(CorruptMessage, match=f"byte {place.position}"):
        segment.read(BASE + 10, 100, max_position=10**9, at_least_one=True)
    assert read_offsets(segment, BASE + 20)[0] == BASE + 20


def test_read_stops_before_known_damage_and_refuses_to_begin_in_it() -> None:
    segment = create_segment(SimFiles())
    fill(segment, 10)
    positions = [place.position for place in segment.records.places_from()]
    segment.records.corrupt_ranges = [CorruptRange(positions[4], positions[6], BASE + 4, BASE + 6)]
    assert read_offsets(segment, BASE) == [BASE, BASE + 1, BASE + 2, BASE + 3]
    for offset in (BASE + 4, BASE + 5):
        with pytest.raises(CorruptMessage, match="damaged on disk"):
            segment.read(offset, 100, max_position=10**9, at_least_one=True)
    assert read_offsets(segment, BASE + 6) == [BASE + 6, BASE + 7, BASE + 8, BASE + 9]


# -- age -------------------------------------------------------------------------------------


def test_segment_without_timestamps_is_as_old_as_its_file() -> None:
    segment = create_segment(SimFiles())
    append(segment, client_batch(timestamp=-1), BASE)
    assert segment.max_timestamp == -1
    assert segment.largest_timestamp == 0
    append(segment, client_batch(timestamp=T0), BASE + 1)
    assert segment.largest_timestamp == T0
