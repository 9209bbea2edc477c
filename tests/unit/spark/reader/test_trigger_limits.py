"""The limits of a batch are shared out in proportion to the backlog of each partition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plog.spark.reader.trigger_limits import TriggerDelay, backlog, limit_bytes, limit_offsets
from plog.types import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))


def test_backlog_is_never_negative() -> None:
    assert backlog({A: 5, B: 9}, {A: 8, B: 7, C: 2}) == {A: 3, B: 0, C: 2}


def test_offsets_are_shared_in_proportion() -> None:
    starts, ends = {A: 100, B: 0, C: 7}, {A: 400, B: 100, C: 7}
    assert limit_offsets(starts, ends, 40) == {A: 130, B: 10, C: 7}


def test_small_backlog_advances_by_at_least_one_offset() -> None:
    assert limit_offsets({A: 0, B: 0}, {A: 1_000_000, B: 3}, 10) == {A: 9, B: 1}


def test_limit_above_the_backlog_has_no_effect() -> None:
    assert limit_offsets({A: 0, B: 5}, {A: 3, B: 5}, 100) == {A: 3, B: 5}
    assert limit_offsets({A: 3}, {A: 3}, 100) == {A: 3}


def test_end_before_the_start_stays() -> None:
    """The caller detects such loss of data, so that the limit must not hide it."""
    assert limit_offsets({A: 9, B: 0}, {A: 5, B: 100}, 10) == {A: 5, B: 10}


@given(
    st.lists(st.tuples(st.integers(0, 2**60), st.integers(0, 10**6)), min_size=1, max_size=6),
    st.integers(1, 10**7),
)
def test_limited_ends_lie_within_the_backlog(sizes: list[tuple[int, int]], most: int) -> None:
    names = [TopicPartition("t", number) for number in range(len(sizes))]
    starts = {name: start for name, (start, _) in zip(names, sizes, strict=True)}
    ends = {name: start + size for name, (start, size) in zip(names, sizes, strict=True)}
    limited = limit_offsets(starts, ends, most)
    for name in names:
        assert starts[name] <= limited[name] <= ends[name]
        assert (limited[name] > starts[name]) == (ends[name] > starts[name])
    taken = sum(backlog(starts, limited).values())
    assert taken <= most + len(names)


def test_bytes_are_shared_in_proportion() -> None:
    starts, ends = {A: 0, B: 0}, {A: 1000, B: 100}
    limited = limit_bytes(starts, ends, 10_000, {A: 10.0, B: 900.0})
    # 10 % of each backlog has 1 000 and 9 000 bytes.
    assert limited == {A: 100, B: 10}


def test_bytes_do_not_limit_partitions_of_unknown_size() -> None:
    assert limit_bytes({A: 0, B: 0}, {A: 1000, B: 100}, 100, {A: 10.0}) == {A: 10, B: 100}
    assert limit_bytes({A: 0}, {A: 1000}, 10_000, {A: 10.0}) == {A: 1000}


def test_delay_waits_for_enough_offsets() -> None:
    delay = TriggerDelay(min_offsets=10, max_delay_ms=1000)
    assert delay.is_due(1, now_ms=50)
    assert not delay.is_due(9, now_ms=60)
    assert delay.is_due(10, now_ms=70)
    assert not delay.is_due(9, now_ms=1069)
    assert delay.is_due(9, now_ms=1070)
