"""F4: recovery meets a flipped bit of an acknowledged batch.

For any bit, the batch is kept but not served, or its records are valid; all other batches can be
read, and the log continues after its end.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from plog.errors import CorruptMessage
from plog.records.batch import BatchHeader, iter_batches
from plogd.log import file_names
from plogd.log.segment.log_segment import LogSegment
from tests.helpers.log.log_images import DIRECTORY, LoadedLog, LogImage, image_of, whole_batches
from tests.helpers.log.log_site import CONFIG, LogSite

EPOCH_BYTES = range(12, 16)
"""Of the leader epoch, which no checksum covers and no record depends on."""


def image(records: int = 2) -> LogImage:
    """One segment of three batches and the active one of five, all acknowledged."""
    site = LogSite().start()
    log = site.create("t-0", replace(CONFIG, segment_bytes=1 << 20))
    for number in range(8):
        if number == 3:
            log.roll()
            site.settle()
        site.append(log, records, value=b"%d" % number * 9)
    site.settle()
    return image_of(log, site.files, high_watermark=8 * records)


def flipped(whole: LogImage, name: str, bit: int) -> LogImage:
    content = bytearray(whole.content_by_name[name])
    content[bit // 8] ^= 1 << bit % 8
    return whole.with_file(name, bytes(content))


def batches_read(segment: LogSegment, offset: int) -> list[BatchHeader]:
    """Return the result of reading the segment from `offset` on."""
    region = segment.read(offset, 1 << 20, max_position=segment.size_bytes, at_least_one=True)
    assert region is not None
    payload = region.read()
    region.close()
    return [header for _, header in iter_batches(payload)]


def check(loaded: LoadedLog, whole: LogImage, bit: int, name: str, number: int) -> None:
    """Flip a bit of batch `number` in the file `name`."""
    state = loaded.state
    assert (state.log_start_offset, state.high_watermark) == (0, whole.high_watermark)
    assert state.log_end_offset == whole.high_watermark
    base = int(name.partition(".")[0])
    [segment] = [one for one in state.segments if one.base_offset == base]
    offsets = [offset for _, _, offset in whole_batches(whole.content_by_name[name])]
    for other, offset in enumerate(offsets):
        if other == number and bit // 8 not in EPOCH_BYTES:
            with pytest.raises(CorruptMessage, match=f"offsets {offset} to {offset + 1} are"):
                segment.read(offset, 100, max_position=segment.size_bytes, at_least_one=True)
        else:
            assert batches_read(segment, offset)[0].base_offset == offset
    if bit // 8 not in EPOCH_BYTES:
        [report] = loaded.reports
        assert f"cannot read offsets {offsets[number]} to {offsets[number] + 1}," in report
        assert f"{DIRECTORY}/{name};" in report


@pytest.mark.parametrize("number", range(5))
def test_flipped_bit_damages_at_most_its_batch(number: int) -> None:
    whole = image()
    name = max(name for name in whole.content_by_name if name.endswith(file_names.LOG_SUFFIX))
    start, end, _ = whole_batches(whole.content_by_name[name])[number]
    for bit in range(8 * start, 8 * end):
        loaded = flipped(whole, name, bit).load()
        check(loaded, whole, bit - 8 * start, name, number)


@pytest.mark.parametrize("number", range(3))
def test_flipped_bit_in_an_older_segment_damages_at_most_its_batch(number: int) -> None:
    whole = image()
    name = min(name for name in whole.content_by_name if name.endswith(file_names.LOG_SUFFIX))
    start, end, _ = whole_batches(whole.content_by_name[name])[number]
    for bit in range(8 * start, 8 * end, 3):
        loaded = flipped(whole, name, bit).load()
        check(loaded, whole, bit - 8 * start, name, number)
