"""`decode_spans` finds the same records as `decode_records`, and raises the same errors."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plog.records.batch import LOG_APPEND_TIME_BIT, BatchHeader, CorruptRecords
from plog.records.codec import Record, decode_records, encode_records
from plog.records.record_spans import RecordSpans
from tests.unit.records.test_codec import HOSTILE

records = st.builds(
    Record,
    offset=st.just(-1),
    timestamp=st.integers(-1, 20_000),
    key=st.none() | st.binary(max_size=200),
    value=st.none() | st.binary(max_size=200),
    headers=st.lists(
        st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3
    ).map(tuple),
)


def _header(count: int, **fields: int) -> BatchHeader:
    zeros = BatchHeader(*[0] * 13)
    return zeros._replace(records_count=count, last_offset_delta=1 << 30, **fields)


@given(
    all_records=st.lists(st.lists(records, max_size=20), max_size=3),
    base_offset=st.integers(0, 1 << 40),
    attributes=st.sampled_from([0, LOG_APPEND_TIME_BIT]),
)
def test_spans_contain_the_decoded_records(
    codec: ModuleType, all_records: list[list[Record]], base_offset: int, attributes: int
) -> None:
    spans = RecordSpans()
    for some in all_records:
        data = encode_records(some, base_offset, 50)
        header = _header(
            len(some),
            base_offset=base_offset,
            base_timestamp=50,
            attributes=attributes,
            max_timestamp=7,
        )
        codec.decode_spans(data, header, spans)
        assert spans.count == len(some)
        for row, record in enumerate(decode_records(data, header)):
            key = data[spans.key_starts[row] : spans.key_ends[row]]
            assert (key if spans.key_starts[row] else None) == record.key
            assert spans.has_value[row] == (record.value is not None)
            assert spans.offsets[row] == record.offset
            assert spans.timestamps[row] == record.timestamp
            one = header._replace(records_count=1)
            body = data[spans.starts[row] : spans.starts[row + 1]]
            assert decode_records(body, one) == [record]


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_records_are_rejected(codec: ModuleType, what: str) -> None:
    for count in (1, 2):
        with pytest.raises(CorruptRecords) as found:
            codec.decode_spans(HOSTILE[what], _header(count), RecordSpans())
        with pytest.raises(CorruptRecords) as expected:
            decode_records(HOSTILE[what], _header(count))
        assert str(found.value) == str(expected.value)


def test_number_of_rows_is_limited_by_the_bytes(codec: ModuleType) -> None:
    spans = RecordSpans()
    with pytest.raises(CorruptRecords, match="cannot contain the 1000000000 records"):
        codec.decode_spans(bytes(100), _header(1_000_000_000), spans)
    assert len(spans.offsets) == 0


def test_rows_are_used_again(codec: ModuleType) -> None:
    spans = RecordSpans()
    codec.decode_spans(encode_records([Record()] * 10, 0, 0), _header(10), spans)
    offsets = spans.offsets
    codec.decode_spans(encode_records([Record(key=b"k")], 0, 0), _header(1), spans)
    assert spans.count == 1
    assert spans.offsets is offsets and len(offsets) == 10
