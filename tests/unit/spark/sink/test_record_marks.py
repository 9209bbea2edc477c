"""A record of a batch is recognized by its mark, and its row by a digest."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from plog.client.values import ConsumerRecord
from plog.records.batch import TimestampType
from plog.records.codec import Header
from plog.spark.sink.record_marks import (
    MARK_HEADER,
    BatchId,
    TopicMarks,
    row_digest,
    without_mark,
)

BATCH = BatchId("7f0c", 4)
ATTEMPT = b"attempt1"


def record(headers: Sequence[Header], partition: int = 0, topic: str = "t") -> ConsumerRecord:
    return ConsumerRecord(topic, partition, 0, 0, TimestampType.CREATE_TIME, b"k", b"v", headers, 0)


def test_row_of_a_marked_record_is_found() -> None:
    marks = TopicMarks(BATCH, "t")
    headers = (("h", b"x"), *marks.headers(ATTEMPT)[0])
    row = marks.row(record(headers, partition=5))
    assert row == (row_digest("t", b"k", b"v", [("h", b"x")], None), ATTEMPT, None)


def test_partition_that_the_row_names_is_found() -> None:
    marks = TopicMarks(BATCH, "t")
    row = marks.row(record(marks.headers(ATTEMPT)[1], partition=5))
    assert row == (row_digest("t", b"k", b"v", (), 5), ATTEMPT, 5)


def test_mark_is_a_short_header() -> None:
    for [(name, mark)] in TopicMarks(BATCH, "t").headers(ATTEMPT):
        assert name == MARK_HEADER
        assert len(mark or b"") == 21


@pytest.mark.parametrize(
    "other",
    [
        TopicMarks(BATCH._replace(query="7f0d"), "t"),
        TopicMarks(BATCH._replace(batch=5), "t"),
        TopicMarks(BATCH, "u"),
    ],
)
def test_record_of_another_batch_or_topic_is_ignored(other: TopicMarks) -> None:
    assert TopicMarks(BATCH, "t").row(record(other.headers(ATTEMPT)[0])) is None


@pytest.mark.parametrize(
    "headers", [(), (("h", b"x"),), ((MARK_HEADER, None),), ((MARK_HEADER, b""),)]
)
def test_record_without_a_mark_is_ignored(headers: Sequence[Header]) -> None:
    assert TopicMarks(BATCH, "t").row(record(headers)) is None


def test_mark_that_is_not_the_last_header_is_ignored() -> None:
    marks = TopicMarks(BATCH, "t")
    assert marks.row(record((*marks.headers(ATTEMPT)[0], ("h", b"x")))) is None


def test_mark_that_a_row_brings_along_is_removed() -> None:
    headers = [("a", b"1"), *TopicMarks(BATCH, "source").headers(ATTEMPT)[0], ("a", None)]
    assert without_mark(headers) == [("a", b"1"), ("a", None)]
    assert without_mark(()) == ()


DIFFERENT: list[tuple[str, bytes | None, bytes | None, list[Header], int | None]] = [
    ("t", b"k", b"v", [], None),
    ("t", b"k", b"v", [], 0),
    ("t", b"k", b"v", [], 1),
    ("u", b"k", b"v", [], None),
    ("tk", b"", b"v", [], None),
    ("t", None, b"v", [], None),
    ("t", b"", b"v", [], None),
    ("t", b"k", None, [], None),
    ("t", b"k", b"", [], None),
    ("t", b"kv", b"", [], None),
    ("t", b"", b"kv", [], None),
    ("t", b"k", b"v", [("h", None)], None),
    ("t", b"k", b"v", [("h", b"")], None),
    ("t", b"k", b"v", [("", b"h")], None),
    ("t", b"k", b"v", [("h", b""), ("h", b"")], None),
    ("t", b"k", b"v", [("\udcff\ud800é", b"")], None),
]


def test_rows_that_differ_in_any_part_have_different_digests() -> None:
    digests = [row_digest(*row) for row in DIFFERENT]
    assert len(set(digests)) == len(DIFFERENT)
    assert digests == [row_digest(*row) for row in DIFFERENT]
