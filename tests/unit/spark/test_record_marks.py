"""A record that a task wrote is recognized by its mark, and counts for one equal row."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from plog.client.values import ConsumerRecord
from plog.records.batch import TimestampType
from plog.records.codec import Header
from plog.spark.record_marks import MARK_HEADER, TopicMarks
from plog.spark.sink_notes import TaskId

TASK = TaskId("7f0c", 4, 2)


def marks(task: TaskId = TASK, topic: str = "t") -> TopicMarks:
    return TopicMarks(task, topic)


def written(
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: Sequence[Header] = (),
    partition: int | None = None,
    *,
    by: TopicMarks | None = None,
    lands_in: int = 0,
) -> ConsumerRecord:
    """Return the record of a row, which lands in a partition unless the row names one."""
    marked = (by or marks()).headers_to_write(key, value, headers, partition)
    assert marked is not None
    found = lands_in if partition is None else partition
    return ConsumerRecord("t", found, 0, 0, TimestampType.CREATE_TIME, key, value, marked, 0)


def test_mark_is_the_last_header() -> None:
    headers = written(headers=[("a", b"1"), ("a", None)]).headers
    assert list(headers[:2]) == [("a", b"1"), ("a", None)]
    assert headers[2][0] == MARK_HEADER
    assert len(headers[2][1] or b"") == 12
    assert [name for name, _ in written().headers] == [MARK_HEADER]


def test_earlier_record_omits_one_equal_row() -> None:
    task = marks()
    assert task.add_earlier(written())
    assert task.headers_to_write(b"k", b"v", (), None) is None
    assert task.headers_to_write(b"k", b"v", (), None) is not None


def test_as_many_equal_rows_are_omitted_as_were_written() -> None:
    task = marks()
    for _ in range(3):
        task.add_earlier(written())
    outcomes = [task.headers_to_write(b"k", b"v", (), None) for _ in range(5)]
    assert [outcome is None for outcome in outcomes] == [True] * 3 + [False] * 2


DIFFERENT: list[tuple[bytes | None, bytes | None, list[Header]]] = [
    (None, b"v", []),
    (b"", b"v", []),
    (b"k", None, []),
    (b"k", b"", []),
    (b"kv", b"", []),
    (b"", b"kv", []),
    (b"k", b"v", [("h", None)]),
    (b"k", b"v", [("h", b"")]),
    (b"k", b"v", [("", b"h")]),
    (b"k", b"v", [("h", b""), ("h", b"")]),
]


@pytest.mark.parametrize("number", range(len(DIFFERENT)))
def test_rows_that_differ_in_any_part_are_told_apart(number: int) -> None:
    task = marks()
    task.add_earlier(written(*DIFFERENT[number]))
    outcomes = [task.headers_to_write(*row, None) is None for row in DIFFERENT]
    assert outcomes == [other == number for other in range(len(DIFFERENT))]


def test_row_without_a_partition_is_found_in_any() -> None:
    task = marks()
    task.add_earlier(written(lands_in=5))
    assert task.headers_to_write(b"k", b"v", (), None) is None


def test_row_with_a_partition_is_found_only_there() -> None:
    task = marks()
    task.add_earlier(written(partition=5))
    for other in (None, 4):
        assert task.headers_to_write(b"k", b"v", (), other) is not None
    assert task.headers_to_write(b"k", b"v", (), 5) is None


@pytest.mark.parametrize(
    "other",
    [
        marks(TASK._replace(query="7f0d")),
        marks(TASK._replace(batch=5)),
        marks(TASK._replace(task=3)),
        marks(topic="u"),
    ],
)
def test_record_of_another_task_or_topic_is_ignored(other: TopicMarks) -> None:
    task = marks()
    assert not task.add_earlier(written(by=other))
    assert task.headers_to_write(b"k", b"v", (), None) is not None


@pytest.mark.parametrize("headers", [(), (("h", b"x"),), ((MARK_HEADER, None),)])
def test_record_without_a_mark_is_ignored(headers: Sequence[Header]) -> None:
    assert not marks().add_earlier(written()._replace(headers=headers))


def test_mark_that_a_row_brings_along_is_replaced() -> None:
    old = written(by=marks(topic="source"), headers=[("h", b"x")])
    copy = written(headers=old.headers)
    assert [name for name, _ in copy.headers] == ["h", MARK_HEADER]
    assert copy.headers != old.headers
    task = marks()
    task.add_earlier(copy)
    assert task.headers_to_write(b"k", b"v", old.headers, None) is None


def test_name_of_a_header_may_be_any_text() -> None:
    headers = [("\udcff\ud800é", b"")]
    task = marks()
    task.add_earlier(written(headers=headers))
    assert task.headers_to_write(b"k", b"v", headers, None) is None
