"""The compiled codec and the interpreted one: the same results for any bytes and any records.

One byte is the number of records that the header claims, one its attributes, and one determines
which integers of the header are extreme; the rest are the uncompressed records. Records that can be
decoded are then encoded, with an extreme offset and timestamp. Their keys fill the offset map of a
compaction. Checks nothing without a compiled
codec; test_codec_forms.py fails in that case under CI=true.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plog.records.batch import BatchHeader
from plog.records.record_spans import RecordSpans
from tests.fuzz.target import Target
from tests.fuzz.targets import records
from tests.helpers.codec_forms import (
    Nine,
    compiled,
    interpreted,
    outcome,
    read_columns,
    read_spans,
)

_LIMITS = (0, -1, 1 << 31, (1 << 63) - 1, -(1 << 63), (1 << 63) - (1 << 31), 1 << 62, 100)
_LAST_DELTAS = (1 << 20, 0, -1, (1 << 31) - 1)
_ATTRIBUTES = 0x3F

COMPILED, INTERPRETED = compiled(), interpreted()
_OFFSET_MAP = "plog.records.offset_map"


def fuzz(data: bytes) -> None:
    """Decode the records in each way and encode them again, with both codecs."""
    if len(data) < 3 or COMPILED is None:
        return
    header, payload = _header(data[0], data[1] & _ATTRIBUTES, data[2]), data[3:]
    for name, rest, keywords in (
        ("decode_consumer_records", (Nine, "topic", 1), {}),
        ("walk_records", (), {}),
        ("walk_records", (), {"max_headers": 2}),
        ("decode_records", (), {}),
    ):
        read = outcome(getattr(INTERPRETED, name), payload, header, *rest, **keywords)
        assert outcome(getattr(COMPILED, name), payload, header, *rest, **keywords) == read
    spans = outcome(read_spans, INTERPRETED, payload, header)
    assert outcome(read_spans, COMPILED, payload, header) == spans
    kept = outcome(_kept, interpreted(_OFFSET_MAP), payload, header)
    assert outcome(_kept, compiled(_OFFSET_MAP), payload, header) == kept
    for skipped, max_rows in ((0, 1 << 10), (2, 2)):
        from_offset = min(header.base_offset + skipped, (1 << 63) - 1)
        arguments = (payload, header, from_offset, max_rows)
        columns = outcome(read_columns, INTERPRETED, *arguments)
        assert outcome(read_columns, COMPILED, *arguments) == columns
    if read[0] != "value":
        return
    found = INTERPRETED.decode_records(payload, header)
    limit = _LIMITS[data[2] >> 5]
    odd = [record._replace(offset=limit, timestamp=limit) for record in found[:1]]
    for some in (found, [tuple(one) for one in found], odd + found, found + odd):
        for base_offset, base_timestamp in ((0, 0), (header.base_offset, header.base_timestamp)):
            arguments = (some, base_offset, base_timestamp)
            written = outcome(INTERPRETED.encode_records, *arguments)
            assert outcome(COMPILED.encode_records, *arguments) == written


def _kept(offset_map: Any, payload: bytes, header: BatchHeader) -> list[object]:
    """Return what a map of a few keys contains of the records, and which of them it keeps."""
    spans = RecordSpans()
    INTERPRETED.decode_spans(payload, header, spans)
    offsets = offset_map.OffsetMap(max_bytes=120, load_factor=0.9)
    has_room = offsets.put_keys(payload, spans, header.base_offset)
    end_offset = min(header.base_offset + 3, (1 << 63) - 1)
    counts = offsets.mark_kept(payload, spans, end_offset, bool(header.attributes & 1))
    return [has_room, offsets.count, counts, spans.is_kept]


def _header(count: int, attributes: int, limits: int) -> BatchHeader:
    base_offset = _LIMITS[limits & 7]
    base_timestamp, max_timestamp = _LIMITS[limits >> 3 & 7], _LIMITS[limits >> 5]
    last_delta = _LAST_DELTAS[attributes >> 4]
    times = (base_timestamp, max_timestamp)
    return BatchHeader(base_offset, 0, 7, 2, 0, attributes, last_delta, *times, -1, -1, -1, count)


def _seeds() -> Iterator[bytes]:
    for seed in records.TARGET.seeds():
        yield seed[:2] + b"\0" + seed[2:]
        yield seed[:2] + b"\xe3" + seed[2:]


TARGET = Target(name="codec_forms", fuzz=fuzz, seeds=_seeds)
