"""The offset map gives the same results as a dict, within its limit, in both of its forms."""

from __future__ import annotations

import doctest
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plog.records.batch import BatchHeader
from plog.records.codec import Record, decode_spans, encode_records
from plog.records.offset_map import ENTRY_BYTES
from plog.records.record_spans import RecordSpans
from tests.helpers import codec_forms

MODULE = "plog.records.offset_map"
KEYS = st.integers(0, 40).map(lambda number: b"key-%d" % number)
PUTS = st.lists(st.tuples(KEYS, st.integers(0, 2**63 - 1)), max_size=80)


@pytest.fixture(params=codec_forms.FORMS, scope="module")
def form(request: pytest.FixtureRequest) -> ModuleType:
    """Return the module in one of its forms."""
    return codec_forms.need(request.param, MODULE)


def _fill(table: Any) -> int:
    """Put keys until the map is full; return their number."""
    number = 0
    while table.put(b"%d" % number, number):
        number += 1
    return number


def _spans(*records: Record) -> tuple[bytes, RecordSpans]:
    """Return the encoded records, which have offsets, and their spans."""
    data = encode_records(records, 0, 0)
    count = len(records)
    header = BatchHeader(*[0] * 13)._replace(records_count=count, last_offset_delta=1 << 30)
    spans = RecordSpans()
    decode_spans(data, header, spans)
    return data, spans


# -- keys and offsets -----------------------------------------------------------------------------


@given(puts=PUTS, load_factor=st.floats(0, 1), max_entries=st.integers(2, 200))
def test_map_has_the_last_offset_of_each_key(
    form: ModuleType, puts: list[tuple[bytes, int]], load_factor: float, max_entries: int
) -> None:
    table = form.OffsetMap(max_bytes=max_entries * ENTRY_BYTES, load_factor=load_factor)
    expected: dict[bytes, int] = {}
    for key, offset in puts:
        if table.put(key, offset):
            expected[key] = offset
        else:
            assert key not in expected, "a known key needs no room"
        assert table.count == len(expected)
        assert table.size_bytes <= max_entries * ENTRY_BYTES
    for number in range(41):
        key = b"key-%d" % number
        assert table.get(key) == expected.get(key, -1)


def test_table_grows_and_keeps_its_entries(form: ModuleType) -> None:
    table = form.OffsetMap(max_bytes=1 << 20, load_factor=0.9)
    first_bytes = table.size_bytes
    for number in range(10_000):
        assert table.put(b"%d" % number, number)
    assert table.count == 10_000
    assert table.size_bytes > 8 * first_bytes
    for number in range(10_000):
        assert table.get(b"%d" % number) == number
        assert table.get(b"missing-%d" % number) == -1


def test_old_and_new_table_together_stay_below_the_limit(
    form: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    allocate = form.OffsetMap._allocate

    def note(table: Any, slots: int) -> None:
        old_bytes = table.size_bytes if sizes else 0
        sizes.append(old_bytes + slots * ENTRY_BYTES)
        allocate(table, slots)

    monkeypatch.setattr(form.OffsetMap, "_allocate", note)
    for max_entries in (2, 3, 5, 100, 110, 1024, 1025, 3000, 10_000, 50_000):
        sizes.clear()
        table = form.OffsetMap(max_bytes=max_entries * ENTRY_BYTES, load_factor=0.9)
        _fill(table)
        assert max(sizes) <= max_entries * ENTRY_BYTES
        assert table.size_bytes == 8 * len(table._entries)


@pytest.mark.parametrize("load_factor", [0.0, 0.5, 0.9, 1.0])
def test_full_map_still_updates_its_keys_and_finds_no_others(
    form: ModuleType, load_factor: float
) -> None:
    table = form.OffsetMap(max_bytes=100 * ENTRY_BYTES, load_factor=load_factor)
    count = _fill(table)
    assert 1 <= count < 100
    assert table.count == count
    assert not table.put(b"another", 1)
    assert table.get(b"another") == -1
    for number in range(count):
        assert table.put(b"%d" % number, 1000 + number)
        assert table.get(b"%d" % number) == 1000 + number


@pytest.mark.parametrize("load_factor", [0.5, 0.9])
def test_full_map_uses_nine_tenths_of_what_the_load_factor_allows(
    form: ModuleType, load_factor: float
) -> None:
    """The rest is for the old table while the table grows."""
    for max_entries in (100, 119, 120, 2_000, 3_000, 10_240, 20_480, 20_500, 41_000):
        table = form.OffsetMap(max_bytes=max_entries * ENTRY_BYTES, load_factor=load_factor)
        _fill(table)
        assert 0.89 * load_factor < table.utilization <= load_factor


@pytest.mark.parametrize("load_factor", [0.0, 0.01, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("max_keys", [0, 1, 10, 3000])
def test_table_is_no_larger_than_its_keys_need(
    form: ModuleType, load_factor: float, max_keys: int
) -> None:
    max_bytes = 10_000 * ENTRY_BYTES
    table = form.OffsetMap(max_bytes=max_bytes, load_factor=load_factor, max_keys=max_keys)
    unlimited = form.OffsetMap(max_bytes=max_bytes, load_factor=load_factor)
    for number in range(max_keys):
        assert table.put(b"%d" % number, 5) == unlimited.put(b"%d" % number, 5)
    needed = max_keys / load_factor + 2 if load_factor else 10_000
    assert table.size_bytes <= min(needed, 10_000) * ENTRY_BYTES


@pytest.mark.parametrize("max_bytes", [0, 1, ENTRY_BYTES, 2 * ENTRY_BYTES])
def test_smallest_map_has_room_for_one_key(form: ModuleType, max_bytes: int) -> None:
    table = form.OffsetMap(max_bytes=max_bytes, load_factor=0.9)
    assert _fill(table) == 1
    assert table.get(b"0") == 0
    assert table.size_bytes == 2 * ENTRY_BYTES


def test_digests_with_the_same_slot_are_distinguished(form: ModuleType) -> None:
    """Digests that all search from the last slot continue at the first; both parts count."""
    slots = 8
    entries = memoryview(bytearray(slots * ENTRY_BYTES)).cast("q")
    larger = memoryview(bytearray(2 * slots * ENTRY_BYTES)).cast("q")
    source = codec_forms.interpreted(MODULE)
    digests = [(-1 - 8 * (number // 2), number % 2) for number in range(7)]
    for number, (first, second) in enumerate(digests):
        position = source._find(entries, slots, first, second)
        assert position == 3 * ((7 + number) % slots)
        entries[position], entries[position + 1], entries[position + 2] = first, second, ~number
    for number, digest in enumerate(digests):
        assert entries[source._find(entries, slots, *digest) + 2] == ~number
    assert not entries[source._find(entries, slots, -1, 2) + 2]
    source._move(entries, slots, larger, 2 * slots)
    for number, digest in enumerate(digests):
        assert larger[source._find(larger, 2 * slots, *digest) + 2] == ~number


def test_offset_0_and_empty_keys_are_entries(form: ModuleType) -> None:
    table = form.OffsetMap(max_bytes=1 << 12, load_factor=0.9)
    assert table.put(b"", 0)
    assert table.get(b"") == 0
    assert table.count == 1


def test_similar_keys_are_different(form: ModuleType) -> None:
    keys = [b"", b"\0", b"a", b"a\0", b"b" * (1 << 20), b"b" * (1 << 20) + b"c"]
    keys += [form._SECOND_PREFIX, form._SECOND_PREFIX + b"a"]
    table = form.OffsetMap(max_bytes=1 << 12, load_factor=0.9)
    for number, key in enumerate(keys):
        assert table.put(key, number)
    assert [table.get(key) for key in keys] == list(range(len(keys)))


# -- batches --------------------------------------------------------------------------------------


def _record(offset: int, key: bytes | None, value: bytes | None = b"v") -> Record:
    return Record(offset, 0, key, value)


def test_batch_notes_its_keys_from_an_offset_on(form: ModuleType) -> None:
    table = form.OffsetMap(max_bytes=1 << 12, load_factor=0.9)
    data, spans = _spans(
        _record(3, b"a"), _record(4, b"b"), _record(6, None), _record(8, b"b", None)
    )
    assert table.put_keys(data, spans, 4)
    assert [table.get(key) for key in (b"a", b"b", b"")] == [-1, 8, -1]
    assert table.count == 1


def test_batch_makes_the_table_grow(form: ModuleType) -> None:
    table = form.OffsetMap(max_bytes=1 << 20, load_factor=0.9)
    records = [_record(number, b"%d" % (number % 7000)) for number in range(8000)]
    assert table.put_keys(*_spans(*records), 0)
    assert table.count == 7000
    for number in range(1000, 8000):
        assert table.get(b"%d" % (number % 7000)) == number


def test_batch_with_too_many_keys_fills_the_map(form: ModuleType) -> None:
    table = form.OffsetMap(max_bytes=100 * ENTRY_BYTES, load_factor=0.5)
    data, spans = _spans(*[_record(number, b"%d" % number) for number in range(200)])
    assert not table.put_keys(data, spans, 0)
    assert table.count == 50
    assert table.put_keys(*_spans(_record(500, b"0"), _record(501, b"49")), 0)
    assert [table.get(b"0"), table.get(b"49"), table.get(b"50")] == [500, 501, -1]


def _marked(
    form: ModuleType,
    latest: Mapping[bytes, int],
    records: Sequence[Record],
    *,
    end_offset: int = 1000,
    keeps_tombstones: bool = True,
) -> tuple[list[int], tuple[int, int, int]]:
    """Return the offsets of the records that are kept, and the three counts."""
    table = form.OffsetMap(max_bytes=1 << 16, load_factor=0.9)
    for key, offset in latest.items():
        assert table.put(key, offset)
    data, spans = _spans(*records)
    counts = table.mark_kept(data, spans, end_offset, keeps_tombstones)
    kept = [one.offset for row, one in enumerate(records) if spans.is_kept[row]]
    return kept, counts


def test_last_records_of_their_keys_are_kept(form: ModuleType) -> None:
    records = [_record(3, b"a"), _record(4, b"b"), _record(6, b"a"), _record(7, b"c")]
    assert _marked(form, {b"a": 6, b"b": 90}, records) == ([6, 7], (2, 0, 0))


def test_tombstones_are_counted_or_removed(form: ModuleType) -> None:
    records = [_record(3, b"a", None), _record(4, b"b", None), _record(5, b"c", b"")]
    assert _marked(form, {b"a": 9}, records) == ([4, 5], (2, 1, 0))
    assert _marked(form, {b"a": 9}, records, keeps_tombstones=False) == ([5], (1, 0, 0))


def test_records_without_a_key_are_removed_and_counted(form: ModuleType) -> None:
    records = [_record(3, None), _record(4, b""), _record(5, None, None)]
    assert _marked(form, {}, records) == ([4], (1, 0, 2))


def test_records_after_the_end_are_kept(form: ModuleType) -> None:
    records = [_record(number, b"a", None if number % 2 else b"v") for number in range(4)]
    records += [_record(4, None), _record(5, None, None)]
    kept = _marked(form, {b"a": 9}, records, end_offset=2, keeps_tombstones=False)
    assert kept == ([2, 3, 4, 5], (4, 2, 0))


batches = st.lists(
    st.builds(
        Record,
        offset=st.just(-1),
        timestamp=st.integers(-1, 300),
        key=st.none() | KEYS | st.binary(max_size=3),
        value=st.none() | st.binary(max_size=3),
        headers=st.just(()),
    ),
    max_size=30,
)


@given(
    given_batches=st.lists(batches, max_size=4),
    from_offset=st.integers(0, 30),
    end_offset=st.integers(0, 40),
    keeps_tombstones=st.booleans(),
    max_entries=st.integers(2, 30),
)
def test_batches_have_the_result_of_single_records(
    form: ModuleType,
    given_batches: list[list[Record]],
    from_offset: int,
    end_offset: int,
    keeps_tombstones: bool,
    max_entries: int,
) -> None:
    """Compare with a dict, and thus both forms with each other."""
    table = form.OffsetMap(max_bytes=max_entries * ENTRY_BYTES, load_factor=0.9)
    expected: dict[bytes, int] = {}
    for records in given_batches:
        data, spans = _spans(*records)
        keys = [(key, number) for number, (_, _, key, _, _) in enumerate(records)]
        wanted = {key: number for key, number in keys if key is not None and number >= from_offset}
        if not table.put_keys(data, spans, from_offset):
            assert len(expected | wanted) > table.count
            break
        expected |= wanted
        assert table.count == len(expected)
        counts = table.mark_kept(data, spans, end_offset, keeps_tombstones)
        is_kept = [
            offset >= end_offset
            or (
                key is not None
                and offset >= expected.get(key, -1)
                and (value is not None or keeps_tombstones)
            )
            for offset, (_, _, key, value, _) in enumerate(records)
        ]
        assert [bool(one) for one in spans.is_kept[: spans.count]] == is_kept
        kept = [one for one, keep in zip(records, is_kept, strict=True) if keep]
        keyless = [one for one in records[:end_offset] if one.key is None]
        tombstones = [one for one in kept if one.value is None]
        assert counts == (len(kept), len(tombstones), len(keyless))


def test_doctests_pass() -> None:
    results = doctest.testmod(codec_forms.interpreted(MODULE))
    assert results.attempted and not results.failed
