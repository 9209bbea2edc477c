"""F2 and F3: a log loads after damage of its last batch at every byte.

The batch is truncated, zeroed or garbled; every kind of batch, with and without the other files,
and the same for every byte of those files.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from plog.records.batch import Compression
from plogd.log import file_names
from plogd.log.segment.log_segment import LogSegment
from tests.helpers.log.log_data import next_offset
from tests.helpers.log.log_images import DIRECTORY, LoadedLog, LogImage, image_of, whole_batches
from tests.helpers.log.log_site import CONFIG, LogSite

NOISE = random.Random(1).randbytes(1 << 16)
BESIDE = (file_names.INDEX_SUFFIX, file_names.TIME_INDEX_SUFFIX, file_names.SNAPSHOT_SUFFIX)

KINDS = {
    "plain": {},
    "idempotent": {"idempotent": True},
    "several records": {"records": 3},
    **{
        codec.name.lower(): {"records": 3, "compression": codec, "idempotent": True}
        for codec in Compression
        if codec is not Compression.NONE
    },
}


def image(
    *,
    records: int = 1,
    idempotent: bool = False,
    compression: Compression = Compression.NONE,
    last_value_bytes: int = 20,
) -> LogImage:
    """Two segments, the last one with several batches, just appended."""
    site = LogSite().start()
    log = site.create("t-0", replace(CONFIG, segment_bytes=1 << 20))
    sequence = 0
    for number in range(10):
        if number == 5:
            log.roll()
            site.settle()
        identity = (
            {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence} if idempotent else {}
        )
        site.append(
            log,
            records,
            value=b"%d." % number * (last_value_bytes if number == 9 else 20),
            compression=compression,
            **identity,
        )
        sequence += records
    site.settle()
    assert site.listing(log) == [0, 5 * records]
    return image_of(
        log,
        site.files,
        now_ms=site.ports.clock.now_ms(),
        recovery_point=5 * records,
        high_watermark=9 * records,
    )


def damages(original: bytes, position: int, old: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield possible replacements for the end of `original` from `position` on."""
    rest = len(original) - position
    yield "cut", original[:position]
    yield "zeros", original[:position] + bytes(rest)
    yield "garbage", original[:position] + NOISE[position : position + rest]
    yield "old data", original[:position] + old[position : position + rest].ljust(rest, b"\0")
    yield "old data first", original[:position] + old[:rest].ljust(rest, b"\0")


def last_of(whole: LogImage) -> str:
    """The file name of the active segment's records."""
    return max(name for name in whole.content_by_name if name.endswith(file_names.LOG_SUFFIX))


def first_of(whole: LogImage) -> str:
    return min(name for name in whole.content_by_name if name.endswith(file_names.LOG_SUFFIX))


def goes_on(loaded: LoadedLog) -> None:
    """The last segment accepts a batch after its last one."""
    segment: LogSegment = loaded.state.segments[-1]
    batches = whole_batches(segment.records.read(0, 1 << 20))
    assert next_offset(segment) == loaded.state.log_end_offset
    assert segment.size_bytes == (batches[-1][1] if batches else 0)


def check_every_byte(whole: LogImage, positions: range) -> None:
    name, old = last_of(whole), whole.content_by_name[first_of(whole)]
    original = whole.content_by_name[name]
    start = whole_batches(original)[-1][0]
    bare = whole.without(*BESIDE)
    expected_whole = whole.load().summary
    expected_cut = whole.with_file(name, original[:start]).load().summary
    assert bare.load().summary == expected_whole != expected_cut
    for position in positions:
        for what, damaged in damages(original, position, old):
            if damaged.startswith(old[start + 8 :], start + 8):
                continue  # A new offset before an old batch: the checksum does not cover it.
            expected = expected_whole if damaged == original else expected_cut
            for image_ in (whole, bare):
                loaded = image_.with_file(name, damaged).load()
                assert loaded.summary == expected, f"{what} from byte {position} on"
                goes_on(loaded)
                if damaged not in (original, original[:start]):
                    assert f"truncated {len(damaged) - start} bytes from t-0" in loaded.reports[-1]
                    assert f"{DIRECTORY}/{name}" in loaded.reports[-1]


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_last_batch_is_truncated_when_damaged_from_any_byte_on(kind: str) -> None:
    whole = image(**KINDS[kind])
    original = whole.content_by_name[last_of(whole)]
    check_every_byte(whole, range(whole_batches(original)[-1][0], len(original)))


def test_only_a_large_last_batch_is_truncated_when_damaged_at_some_bytes() -> None:
    whole = image(last_value_bytes=20_000)
    original = whole.content_by_name[last_of(whole)]
    start = whole_batches(original)[-1][0]
    check_every_byte(whole, range(start, start + 100))
    check_every_byte(whole, range(start + 100, len(original), 997))
    check_every_byte(whole, range(len(original) - 20, len(original)))


@pytest.mark.long
def test_only_a_large_last_batch_is_truncated_when_damaged_from_any_byte_on() -> None:
    whole = image(last_value_bytes=20_000, idempotent=True)
    original = whole.content_by_name[last_of(whole)]
    check_every_byte(whole, range(whole_batches(original)[-1][0], len(original)))


@pytest.mark.parametrize("kind", ["plain", "idempotent", "gzip"])
def test_damage_in_an_acknowledged_last_batch_affects_only_that_batch(kind: str) -> None:
    """Below the high watermark: its offsets are never reassigned (G2, R14)."""
    records = KINDS[kind].get("records", 1)
    acknowledged = replace(image(**KINDS[kind]), high_watermark=10 * records)
    name = last_of(acknowledged)
    old = acknowledged.content_by_name[first_of(acknowledged)]
    original = acknowledged.content_by_name[name]
    start = whole_batches(original)[-1][0]
    for position in range(start, len(original)):
        for what, damaged in damages(original, position, old):
            if damaged == original or damaged.startswith(old[start + 8 :], start + 8):
                continue
            loaded = acknowledged.with_file(name, damaged).load()
            state, where = loaded.state, f"{what} from byte {position} on"
            assert state.log_end_offset == state.high_watermark, where
            assert state.log_end_offset >= acknowledged.high_watermark, where
            assert state.segments[-1].size_bytes == 0, where
            active = state.segments[-2]
            assert active.records.read(0, start) == original[:start], where
            gone = f"offsets {9 * records} to {10 * records - 1}"
            assert any(gone in line for line in loaded.reports), where


# -- the files other than the records -----------------------------------------------------------


def reads_right(loaded: LoadedLog, whole: LogImage) -> None:
    """Assert that every offset leads to its batch."""
    for segment in loaded.state.segments:
        name = file_names.segment_file_name(segment.base_offset, file_names.LOG_SUFFIX)
        offset = segment.base_offset
        batches = whole_batches(whole.content_by_name[name])
        for (position, end_position, _), (_, _, end_offset) in zip(
            batches, [*batches[1:], (0, 0, next_offset(segment))], strict=True
        ):
            while offset < end_offset:
                place = segment.find_offset(offset)
                assert place is not None
                assert (place.position, place.size_bytes) == (position, end_position - position)
                offset += 1


def other_files(whole: LogImage) -> list[str]:
    """Return the files without records."""
    return [name for name in whole.content_by_name if not name.endswith(file_names.LOG_SUFFIX)]


@pytest.mark.parametrize("clean", [False, True])
def test_damage_of_other_files_from_any_byte_on_loses_no_record(clean: bool) -> None:
    """After a crash they are rebuilt and equal; after a clean stop they do not mislead readers."""
    whole = replace(image(idempotent=True), recovery_point=10 if clean else 0)
    expected = whole.load(clean=clean)
    for name in other_files(whole):
        original = whole.content_by_name[name]
        olds = [n for n in other_files(whole) if n.endswith(name[-9:]) and n != name]
        old = whole.content_by_name[olds[0]] if olds else NOISE
        for position in range(len(original)):
            for what, damaged in [*damages(original, position, old), ("longer", original + b"?")]:
                where = f"{name}: {what} from byte {position} on"
                loaded = whole.with_file(name, damaged).load(clean=clean)
                assert loaded.state.log_end_offset == expected.state.log_end_offset, where
                assert loaded.producers == expected.producers, where
                assert loaded.state.leader_epochs.entries == expected.state.leader_epochs.entries
                reads_right(loaded, whole)
                if not clean:
                    assert loaded.summary == expected.summary, where
