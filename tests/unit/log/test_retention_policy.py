"""Which segments retention deletes: by age, by size, below the log start; never above the HW."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plogd.log.retention_policy import RetentionPolicy, SegmentInfo, deletable_segments

NOW = 1_000_000
FOREVER = RetentionPolicy(retention_ms=-1, retention_bytes=-1)


def _segments(*timestamps: int, size_bytes: int = 100) -> list[SegmentInfo]:
    """Segments of ten offsets each, the first at 0."""
    return [
        SegmentInfo(
            base_offset=10 * number,
            end_offset=10 * number + 10,
            size_bytes=size_bytes,
            max_timestamp_ms=timestamp,
        )
        for number, timestamp in enumerate(timestamps)
    ]


def _deletable(
    segments: list[SegmentInfo],
    policy: RetentionPolicy,
    *,
    end_offset: int = 10**9,
    log_start_offset: int = 0,
) -> list[int]:
    found = deletable_segments(
        segments,
        policy,
        now_ms=NOW,
        end_offset=end_offset,
        log_start_offset=log_start_offset,
    )
    return [segment.base_offset for segment in found]


def _keep_ms(retention_ms: int) -> RetentionPolicy:
    return RetentionPolicy(retention_ms=retention_ms, retention_bytes=-1)


def _keep_bytes(retention_bytes: int) -> RetentionPolicy:
    return RetentionPolicy(retention_ms=-1, retention_bytes=retention_bytes)


def test_all_segments_are_kept_without_limits() -> None:
    assert _deletable(_segments(0, 0, 0), FOREVER) == []


def test_segments_older_than_the_limit_are_deleted() -> None:
    segments = _segments(NOW - 102, NOW - 101, NOW - 100, NOW)
    assert _deletable(segments, _keep_ms(100)) == [0, 10]


def test_old_segment_after_a_young_one_is_kept() -> None:
    assert _deletable(_segments(NOW - 200, NOW, NOW - 200, NOW), _keep_ms(100)) == [0]


def test_limit_of_zero_deletes_all_older_segments() -> None:
    assert _deletable(_segments(NOW - 1, NOW, NOW), _keep_ms(0)) == [0]


def test_active_segment_is_kept_whatever_its_age() -> None:
    assert _deletable(_segments(0), _keep_ms(1)) == []
    assert _deletable(_segments(0, 0), _keep_ms(1)) == [0]


def test_segments_are_deleted_while_the_rest_fills_retention_bytes() -> None:
    segments = _segments(0, 0, 0, 0)
    assert _deletable(segments, _keep_bytes(400)) == []
    assert _deletable(segments, _keep_bytes(301)) == []
    assert _deletable(segments, _keep_bytes(300)) == [0]
    assert _deletable(segments, _keep_bytes(100)) == [0, 10, 20]
    assert _deletable(segments, _keep_bytes(0)) == [0, 10, 20]


def test_segments_below_the_log_start_are_deleted() -> None:
    segments = _segments(0, 0, 0, 0)
    assert _deletable(segments, FOREVER, log_start_offset=19) == [0]
    assert _deletable(segments, FOREVER, log_start_offset=20) == [0, 10]


def test_segments_at_or_above_the_stable_end_are_kept() -> None:
    """KAFKA-5634."""
    segments = _segments(0, 0, 0, 0)
    assert _deletable(segments, _keep_ms(1), end_offset=9) == []
    assert _deletable(segments, _keep_ms(1), end_offset=10) == [0]
    assert _deletable(segments, _keep_bytes(0), end_offset=29) == [0, 10]


SEGMENT_LISTS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(NOW - 300, NOW + 100)), min_size=1, max_size=8
).map(
    lambda shapes: [
        SegmentInfo(
            base_offset=10 * number,
            end_offset=10 * number + 10,
            size_bytes=size_bytes,
            max_timestamp_ms=timestamp,
        )
        for number, (size_bytes, timestamp) in enumerate(shapes)
    ]
)


@given(
    segments=SEGMENT_LISTS,
    retention_ms=st.integers(-1, 300),
    retention_bytes=st.integers(-1, 300),
    end_offset=st.integers(0, 90),
    log_start_offset=st.integers(0, 90),
)
def test_retention_deletes_the_longest_allowed_prefix(
    segments: list[SegmentInfo],
    retention_ms: int,
    retention_bytes: int,
    end_offset: int,
    log_start_offset: int,
) -> None:
    def may_go(count: int) -> bool:
        """Return whether the segment at `count` may be deleted after those before it."""
        segment, left = segments[count], segments[count:]
        size_bytes = sum(one.size_bytes for one in left)
        return (
            len(left) > 1
            and segment.end_offset <= end_offset
            and (
                (retention_ms >= 0 and NOW - segment.max_timestamp_ms > retention_ms)
                or (retention_bytes >= 0 and size_bytes - segment.size_bytes >= retention_bytes)
                or segment.end_offset <= log_start_offset
            )
        )

    count = 0
    while may_go(count):
        count += 1
    found = _deletable(
        segments,
        RetentionPolicy(retention_ms=retention_ms, retention_bytes=retention_bytes),
        end_offset=end_offset,
        log_start_offset=log_start_offset,
    )
    assert found == [segment.base_offset for segment in segments[:count]]
