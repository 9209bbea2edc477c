"""The offset map gives the same results as a dict, within its limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plogd.log.compaction import offset_map
from plogd.log.compaction.offset_map import ENTRY_BYTES, OffsetMap, key_digest

KEYS = st.integers(0, 40).map(lambda number: b"key-%d" % number)
PUTS = st.lists(st.tuples(KEYS, st.integers(0, 2**63 - 1)), max_size=80)


def _fill(table: OffsetMap) -> int:
    """Put keys until the map is full; return their number."""
    number = 0
    while table.put(key_digest(b"%d" % number), number):
        number += 1
    return number


@given(puts=PUTS, load_factor=st.floats(0, 1), max_entries=st.integers(2, 200))
def test_map_has_the_last_offset_of_each_key(
    puts: list[tuple[bytes, int]], load_factor: float, max_entries: int
) -> None:
    table = OffsetMap(max_bytes=max_entries * ENTRY_BYTES, load_factor=load_factor)
    expected: dict[bytes, int] = {}
    for key, offset in puts:
        if table.put(key_digest(key), offset):
            expected[key] = offset
        else:
            assert key not in expected, "a known key needs no room"
        assert table.count == len(expected)
        assert table.size_bytes <= max_entries * ENTRY_BYTES
    for number in range(41):
        key = b"key-%d" % number
        assert table.get(key_digest(key)) == expected.get(key, -1)


def test_table_grows_and_keeps_its_entries() -> None:
    table = OffsetMap(max_bytes=1 << 20, load_factor=0.9)
    first_bytes = table.size_bytes
    for number in range(10_000):
        assert table.put(key_digest(b"%d" % number), number)
    assert table.count == 10_000
    assert table.size_bytes > 8 * first_bytes
    for number in range(10_000):
        assert table.get(key_digest(b"%d" % number)) == number
        assert table.get(key_digest(b"missing-%d" % number)) == -1


def test_old_and_new_table_together_stay_below_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    allocate = OffsetMap._allocate

    def note(table: OffsetMap, slots: int) -> None:
        old_bytes = table.size_bytes if sizes else 0
        sizes.append(old_bytes + slots * ENTRY_BYTES)
        allocate(table, slots)

    monkeypatch.setattr(OffsetMap, "_allocate", note)
    for max_entries in (2, 3, 5, 100, 1024, 1025, 3000, 10_000):
        sizes.clear()
        table = OffsetMap(max_bytes=max_entries * ENTRY_BYTES, load_factor=0.9)
        _fill(table)
        assert max(sizes) <= max_entries * ENTRY_BYTES
        assert table.size_bytes == len(table._digests) + 8 * len(table._offsets)


@pytest.mark.parametrize("load_factor", [0.0, 0.5, 0.9, 1.0])
def test_full_map_still_updates_its_keys_and_finds_no_others(load_factor: float) -> None:
    table = OffsetMap(max_bytes=100 * ENTRY_BYTES, load_factor=load_factor)
    count = _fill(table)
    assert 1 <= count < 100
    assert table.count == count
    assert not table.put(key_digest(b"another"), 1)
    assert table.get(key_digest(b"another")) == -1
    for number in range(count):
        assert table.put(key_digest(b"%d" % number), 1000 + number)
        assert table.get(key_digest(b"%d" % number)) == 1000 + number


def test_full_map_uses_half_of_the_limit_or_more() -> None:
    """The other part is for the old table while the table grows."""
    for max_entries in (2_000, 3_000, 4_000, 5_000):
        table = OffsetMap(max_bytes=max_entries * ENTRY_BYTES, load_factor=1.0)
        _fill(table)
        assert 0.49 < table.utilization <= 1


@pytest.mark.parametrize("max_bytes", [0, 1, ENTRY_BYTES, 2 * ENTRY_BYTES])
def test_smallest_map_has_room_for_one_key(max_bytes: int) -> None:
    table = OffsetMap(max_bytes=max(1, max_bytes), load_factor=0.9)
    assert _fill(table) == 1
    assert table.get(key_digest(b"0")) == 0
    assert table.size_bytes == 2 * ENTRY_BYTES


def test_keys_with_the_same_slot_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digests that begin with the same bytes all search from the same slot, around the end."""
    monkeypatch.setattr(offset_map, "_FIRST_SLOTS", 8)
    table = OffsetMap(max_bytes=8 * ENTRY_BYTES, load_factor=1.0)
    start = (7).to_bytes(8, "big")
    digests = [start + bytes([number]) * 8 for number in range(7)]
    for number, digest in enumerate(digests):
        assert table.put(digest, number)
    assert [table.get(digest) for digest in digests] == list(range(7))
    assert table.get(start + b"\xff" * 8) == -1
    assert not table.put(start + b"\xff" * 8, 9)


def test_offset_0_and_empty_keys_are_entries() -> None:
    table = OffsetMap(max_bytes=1 << 12, load_factor=0.9)
    assert table.put(key_digest(b""), 0)
    assert table.get(key_digest(b"")) == 0
    assert table.count == 1


def test_digests_of_keys_differ() -> None:
    keys = [b"", b"\0", b"a", b"a\0", b"b" * (1 << 20), b"b" * (1 << 20) + b"c"]
    digests = {key_digest(key) for key in keys}
    assert len(digests) == len(keys)
    assert {len(digest) for digest in digests} == {16}
