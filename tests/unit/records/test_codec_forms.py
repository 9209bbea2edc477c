"""The compiled codec against the interpreted one: the same results, and the same errors.

The inputs are truncated bytes, wrong lengths, integers at their limits, and records with invalid
fields. tests/fuzz/targets/codec_forms.py tests more.
"""

from __future__ import annotations

import inspect
import re
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plog.records.batch import BatchHeader
from plog.records.codec import Record
from tests.corpus.records import load
from tests.helpers import codec_forms
from tests.helpers.codec_forms import Nine, outcome, read_columns, read_spans
from tests.unit.records.test_codec import HOSTILE, JAVA

INT64_MAX = (1 << 63) - 1
EDGES = [edge + step for edge in (0, 1 << 31, 1 << 32, 1 << 63, 1 << 64) for step in (-1, 0, 1)]
EDGES += [-edge for edge in EDGES]


@pytest.fixture(scope="module")
def compiled() -> ModuleType:
    """Return the compiled codec."""
    return codec_forms.need("compiled")


def assert_same_reading(compiled: ModuleType, data: Any, header: BatchHeader) -> None:
    """Assert that all read functions have the same result in both forms."""
    interpreted = codec_forms.interpreted()
    for name, rest, keywords in (
        ("decode_records", (), {}),
        ("decode_consumer_records", (Nine, "topic", 1), {}),
        ("walk_records", (), {}),
        ("walk_records", (), {"max_headers": 3}),
    ):
        expected = outcome(getattr(interpreted, name), data, header, *rest, **keywords)
        assert outcome(getattr(compiled, name), data, header, *rest, **keywords) == expected
    expected = outcome(read_spans, interpreted, data, header)
    assert outcome(read_spans, compiled, data, header) == expected
    for from_offset in (-(1 << 63), min(header.base_offset + 1, INT64_MAX)):
        for max_rows in (1, 1000):
            given_all = (data, header, from_offset, max_rows)
            expected = outcome(read_columns, interpreted, *given_all)
            assert outcome(read_columns, compiled, *given_all) == expected


def _header(count: int, **fields: int) -> BatchHeader:
    zeros = {"attributes": 0, "base_offset": 0, "base_timestamp": 0, "last_offset_delta": 1 << 30}
    return BatchHeader(*[0] * 13)._replace(**{**zeros, "records_count": count, **fields})


int64s = st.sampled_from([edge for edge in EDGES if -(1 << 63) <= edge < 1 << 63])
int64s |= st.integers(-(1 << 63), INT64_MAX)
headers_of_batches = st.builds(
    _header,
    st.integers(-1, 6),
    attributes=st.sampled_from([0, 8]),
    base_offset=int64s,
    base_timestamp=int64s,
    max_timestamp=int64s,
    last_offset_delta=st.sampled_from([-(1 << 31), -1, 0, 3, 1 << 30, (1 << 31) - 1]),
)
texts = st.text(st.characters()) | st.text(max_size=3)
header_values = st.none() | st.binary(max_size=70)
records = st.builds(
    Record,
    offset=st.just(-1) | st.integers(-3, 300) | st.sampled_from(EDGES),
    timestamp=st.integers(-1, 20_000) | st.sampled_from(EDGES) | int64s,
    key=st.none() | st.binary(max_size=70),
    value=st.none() | st.binary(max_size=9_000),
    headers=st.lists(st.tuples(texts, header_values), max_size=3).map(tuple),
)


@pytest.mark.parametrize("what", HOSTILE)
def test_both_forms_agree_on_hostile_bytes(compiled: ModuleType, what: str) -> None:
    for count in range(4):
        assert_same_reading(compiled, HOSTILE[what], _header(count))


def test_both_forms_agree_on_truncated_bytes(compiled: ModuleType) -> None:
    # A byte read after the end would be the zero that CPython appends to all bytes.
    for end in range(61, len(JAVA)):
        for count in (1, 2, 8):
            assert_same_reading(compiled, JAVA[61:end], _header(count))


@pytest.mark.parametrize("length", range(1, 13))
@pytest.mark.parametrize("last", [0, 1, 3, 0x0F, 0x10, 0x7F, 0x80, 0xFF])
def test_both_forms_agree_on_integers_of_any_length(
    compiled: ModuleType, length: int, last: int
) -> None:
    # Each integer is too long for its place, padded with zeros, or truncated.
    for first in (b"\x80", b"\xff", b"\x81"):
        varint = first * (length - 1) + bytes([last])
        for body in (
            b"\0" + varint + b"\0\x02k\x02v\0",
            b"\0\0" + varint + b"\x02k\x02v\0",
            b"\0\0\0" + varint + b"k\x02v\0",
            b"\0\0\0\x02k" + varint + b"v\0",
            b"\0\0\0\x02k\x02v" + varint,
            b"\0\0\0\x02k\x02v\x02" + varint + b"k\x02v",
            b"\0\0\0\x02k\x02v\x02\x02k" + varint + b"v",
        ):
            for data in (bytes([len(body) << 1]) + body, varint + body):
                assert_same_reading(compiled, data, _header(1))
                assert_same_reading(compiled, data, _header(1, base_timestamp=INT64_MAX))


@given(st.binary(max_size=120), headers_of_batches)
def test_both_forms_agree_on_any_bytes(
    compiled: ModuleType, data: bytes, header: BatchHeader
) -> None:
    assert_same_reading(compiled, data, header)
    assert_same_reading(compiled, memoryview(bytearray(data)), header)


@given(st.integers(0, len(JAVA) - 62), st.integers(0, 255), headers_of_batches)
def test_both_forms_agree_on_batch_with_changed_byte(
    compiled: ModuleType, position: int, byte: int, header: BatchHeader
) -> None:
    payload = bytearray(load("java-4.3.1-none")[61:])
    payload[position] = byte
    assert_same_reading(compiled, payload, header)


@given(st.lists(records, max_size=6), st.sampled_from(EDGES), st.sampled_from(EDGES))
def test_both_forms_encode_records_alike(
    compiled: ModuleType, originals: list[Record], base_offset: int, base_timestamp: int
) -> None:
    for given_records in (originals, tuple(map(tuple, originals)), iter(list(originals))):
        as_list = list(given_records)
        expected = outcome(
            codec_forms.interpreted().encode_records, as_list, base_offset, base_timestamp
        )
        assert outcome(compiled.encode_records, as_list, base_offset, base_timestamp) == expected
        if expected[0] == "value":
            header = _header(len(originals), base_timestamp=base_timestamp & INT64_MAX)
            encoded = compiled.encode_records(as_list, base_offset, base_timestamp)
            assert_same_reading(compiled, encoded, header)


@pytest.mark.parametrize(
    "fields",
    [
        (-1, 1.5, None, None, ()),
        (-1, "1", None, None, ()),
        (-1, None, None, None, ()),
        (1.5, 1, None, None, ()),
        (None, 1, None, None, ()),
        (-1, 0, "key", None, ()),
        (-1, 0, 5, None, ()),
        (-1, 0, None, [1], ()),
        (-1, 0, bytearray(b"k"), memoryview(b"v"), ()),
        (-1, 0, None, None, None),
        (-1, 0, None, None, [("h", b"1")]),
        (-1, 0, None, None, [(b"h", b"1")]),
        (-1, 0, None, None, [("h", "1")]),
        (-1, 0, None, None, [("h",)]),
        (-1, 0, None, None, 5),
        (-1, 0, None, None),
        (-1, 0, None, None, (), ()),
        (True, False, None, None, ()),
        None,
    ],
    # The repr of a memory view contains an address; a test needs the same name in all processes.
    ids=lambda fields: re.sub(r" at 0x\w+", "", repr(fields)),
)
def test_both_forms_reject_invalid_fields_alike(compiled: ModuleType, fields: Any) -> None:
    for given_records in ([fields], [(-1, 0, None, b"v", ()), fields]):
        expected = outcome(codec_forms.interpreted().encode_records, given_records, 0, 0)
        assert outcome(compiled.encode_records, given_records, 0, 0) == expected


@pytest.mark.parametrize("payload", [None, 5, "text", [1, 2]])
def test_both_forms_reject_invalid_payloads_alike(compiled: ModuleType, payload: Any) -> None:
    assert_same_reading(compiled, payload, _header(1))


def test_compiled_codec_accepts_subclass_of_bytes(compiled: ModuleType) -> None:
    class Mine(bytes):
        pass

    assert_same_reading(compiled, Mine(b"\x10\0\0\0\x02k\x02v\0"), _header(1))


def test_both_forms_have_same_parameters(compiled: ModuleType) -> None:
    source = codec_forms.interpreted()
    for name in ("decode_records", "decode_consumer_records", "decode_spans", "encode_records"):
        ours, theirs = getattr(compiled, name), getattr(source, name)
        if not hasattr(ours, "__code__"):
            pytest.skip("Cython 0.29 does not expose parameters")
        assert (
            ours.__code__.co_varnames[: ours.__code__.co_argcount]
            == (theirs.__code__.co_varnames[: theirs.__code__.co_argcount])
        )
        # Python 3.13 removes the indentation from docstrings, Cython does not.
        assert inspect.getdoc(ours) == inspect.getdoc(theirs)
