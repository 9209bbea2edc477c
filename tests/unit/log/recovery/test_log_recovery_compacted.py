"""F2 to F5 for logs that were compacted and truncated: gaps, joined segments, removed records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from plog.errors import CorruptMessage
from plogd.log import file_names
from plogd.log.log import Log
from plogd.log.log_state import LogState
from plogd.log.segment.log_segment import LogSegment
from tests.helpers.log.compaction_site import COMPACT, compact, put, stored
from tests.helpers.log.log_images import LogImage, image_of, whole_batches
from tests.helpers.log.log_site import LogSite, base_offsets
from tests.unit.log.recovery.test_log_recovery_bit_flips import (
    EPOCH_BYTES,
    batches_read,
    flipped,
)
from tests.unit.log.recovery.test_log_recovery_every_byte import (
    check_every_byte,
    damages,
    first_of,
    last_of,
    other_files,
)

BASE_OFFSET_BYTES = range(8)
"""No checksum covers them, and a log that was compacted may have a gap anywhere."""


def _fill(site: LogSite, log: Log, count: int, keys: int) -> None:
    for _ in range(count):
        known = log.producer_state.producers.get(7)
        put(
            site,
            log,
            b"%d" % (log.log_end_offset % keys),
            b"value %d" % log.log_end_offset,
            producer_id=7,
            producer_epoch=0,
            base_sequence=0 if known is None else known.last_sequence + 1,
        )
    site.settle()


def _compacted(site: LogSite, log: Log) -> None:
    assert compact(site)
    assert len(stored(log)) < log.log_end_offset / 2


def _truncated(site: LogSite, log: Log) -> None:
    site.settle(log.truncate_to(log.log_end_offset - 7))
    _fill(site, log, 9, keys=4)


def _compacted_and_truncated(site: LogSite, log: Log) -> None:
    _compacted(site, log)
    _fill(site, log, 12, keys=4)
    _truncated(site, log)


def _truncated_and_compacted(site: LogSite, log: Log) -> None:
    _truncated(site, log)
    _compacted(site, log)


def _compacted_twice(site: LogSite, log: Log) -> None:
    _compacted(site, log)
    _fill(site, log, 24, keys=3)
    _compacted(site, log)


@pytest.fixture(
    params=[
        _compacted,
        _truncated,
        _compacted_and_truncated,
        _truncated_and_compacted,
        _compacted_twice,
    ],
    ids=lambda step: step.__name__.strip("_"),
)
def whole(request: pytest.FixtureRequest) -> LogImage:
    """A log of several segments, with four batches in the last one."""
    step: Callable[[LogSite, Log], None] = request.param
    site = LogSite().start()
    log = site.create("t-0", COMPACT)
    _fill(site, log, 12, keys=4)
    site.epoch = 3
    _fill(site, log, 12, keys=4)
    site.epoch = 7
    step(site, log)
    log.roll()
    _fill(site, log, 4, keys=100)
    assert len(base_offsets(log)) > 2
    return image_of(
        log,
        site.files,
        now_ms=site.ports.clock.now_ms(),
        recovery_point=base_offsets(log)[-1],
        high_watermark=log.log_end_offset - 1,
    )


def test_only_the_last_batch_is_truncated_when_damaged_from_any_byte_on(whole: LogImage) -> None:
    original = whole.content_by_name[last_of(whole)]
    check_every_byte(whole, range(whole_batches(original)[-1][0], len(original)))


def test_damage_in_an_acknowledged_last_batch_affects_only_that_batch(whole: LogImage) -> None:
    whole = replace(whole, high_watermark=whole.high_watermark + 1)
    name = last_of(whole)
    original, old = whole.content_by_name[name], whole.content_by_name[first_of(whole)]
    start = whole_batches(original)[-1][0]
    for position in range(start, len(original)):
        for what, damaged in damages(original, position, old):
            if damaged == original or damaged.startswith(old[start + 8 :], start + 8):
                continue
            state = whole.with_file(name, damaged).load().state
            where = f"{what} from byte {position} on"
            assert state.log_end_offset == state.high_watermark == whole.high_watermark, where
            assert state.segments[-2].records.read(0, start) == original[:start], where


def test_flipped_bit_in_any_segment_damages_at_most_its_batch(whole: LogImage) -> None:
    whole = replace(whole, high_watermark=whole.high_watermark + 1, recovery_point=0)
    for segment in whole.load().state.segments:
        batches = whole_batches(_records(whole, segment))
        for number in range(len(batches)):
            _check_flips(whole, segment.base_offset, batches, number)


def _check_flips(
    whole: LogImage, base_offset: int, batches: list[tuple[int, int, int]], number: int
) -> None:
    name = file_names.segment_file_name(base_offset, file_names.LOG_SUFFIX)
    start, end, offset = batches[number]
    for bit in range(8 * (start + len(BASE_OFFSET_BYTES)), 8 * end, 37):
        state = flipped(whole, name, bit).load().state
        assert state.log_end_offset == whole.high_watermark
        [segment] = [one for one in state.segments if one.base_offset == base_offset]
        for _, _, other in batches:
            if other != offset:
                assert batches_read(segment, other)[0].base_offset == other
        if bit // 8 - start not in EPOCH_BYTES:
            with pytest.raises(CorruptMessage):
                batches_read(segment, offset)


@pytest.mark.parametrize("clean", [False, True])
def test_damage_of_other_files_loses_no_record(whole: LogImage, clean: bool) -> None:
    """F5: after a crash, the files are rebuilt; after a clean stop, they do not mislead readers."""
    if clean:
        whole = replace(whole, recovery_point=whole.high_watermark + 1)
    expected = whole.load(clean=clean)
    for name in other_files(whole):
        original = whole.content_by_name[name]
        contents = [None, b"", original + bytes(40), bytes(len(original)), original[:-3]]
        for content in contents:
            loaded = whole.with_file(name, content).load(clean=clean)
            state, before = loaded.state, expected.state
            assert state.log_end_offset == before.log_end_offset, name
            assert _bases(state.segments) == _bases(before.segments), name
            assert loaded.producers == expected.producers, name
            assert state.leader_epochs.latest_epoch == before.leader_epochs.latest_epoch
            _reads_right(state, before, whole)


def _bases(segments: list[LogSegment]) -> list[int]:
    return [segment.base_offset for segment in segments]


def _reads_right(state: LogState, expected: LogState, whole: LogImage) -> None:
    """Assert that each batch is found, also by the offsets in the gap before it."""
    for segment in state.segments:
        offset = segment.base_offset
        for _, _, first in whole_batches(_records(whole, segment)):
            for wanted in range(offset, first + 1):
                assert batches_read(segment, wanted)[0].base_offset == first
            epoch = expected.leader_epochs.epoch_for_offset(first)
            assert state.leader_epochs.epoch_for_offset(first) == epoch
            offset = first + 1


def _records(whole: LogImage, segment: LogSegment) -> bytes:
    name = file_names.segment_file_name(segment.base_offset, file_names.LOG_SUFFIX)
    return whole.content_by_name[name]


def test_removed_indexes_are_rebuilt_as_they_were(whole: LogImage) -> None:
    expected = whole.load().summary
    bare = whole.without(file_names.INDEX_SUFFIX, file_names.TIME_INDEX_SUFFIX)
    for recovery_point in (whole.recovery_point, 0):
        assert replace(bare, recovery_point=recovery_point).load().summary == expected
