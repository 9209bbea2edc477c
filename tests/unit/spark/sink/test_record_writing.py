"""Each row becomes a record, and a task fails if any of its records does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from plog.records.codec import NO_OFFSET, Header, RecordFields
from plog.spark.sink.record_writing import RowError, write_rows

pyarrow = pytest.importorskip("pyarrow")

NOW_S = 1_700_000_000
HEADERS = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))


class Sender:
    """Records the calls; fails with `errors` when it is flushed."""

    def __init__(self, *errors: Exception) -> None:
        self.sent: list[tuple[Any, ...]] = []
        self.calls = self.flushes = 0
        self.errors = errors
        self.fails_at_once = False
        self._on_failure: Any = None

    def send_all(
        self,
        topic: str,
        partition: int | None,
        records: Sequence[RecordFields],
        on_failure: Callable[[Exception], object],
    ) -> None:
        self._on_failure = on_failure
        self.calls += 1
        for offset, timestamp, key, value, headers in records:
            assert offset == NO_OFFSET
            assert timestamp == NOW_S * 1000
            self.sent.append((topic, value, key, partition, headers))
        if self.fails_at_once:
            self.flush()

    def flush(self) -> None:
        self.flushes += 1
        for error in self.errors:
            self._on_failure(error)


@pytest.fixture(autouse=True)
def _time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plog.spark.sink.record_writing.time", lambda: NOW_S)


def batch(**columns: Any) -> Any:
    return pyarrow.RecordBatch.from_pydict(columns)


def test_rows_become_records_in_order() -> None:
    rows = batch(
        topic=["a", "b"],
        partition=pyarrow.array([None, 3], pyarrow.int32()),
        key=pyarrow.array([b"\xff", None], pyarrow.binary()),
        value=["é", None],
        headers=pyarrow.array([[{"key": "h", "value": b"x"}, {"key": "h"}], None], HEADERS),
        other=[1, 2],
    )
    sender = Sender()
    assert write_rows(sender, [rows, rows], None) == 4
    first = ("a", "é".encode(), b"\xff", None, (("h", b"x"), ("h", None)))
    assert sender.sent == [first, ("b", None, None, 3, ())] * 2
    assert sender.flushes == 1


def test_rows_are_sent_by_topic_and_partition() -> None:
    rows = batch(
        topic=["a", "b", "a", "b"],
        partition=pyarrow.array([1, 1, 1, 2], pyarrow.int32()),
        value=["1", "2", "3", "4"],
    )
    sender = Sender()
    write_rows(sender, [rows], None)
    assert [(sent[0], sent[3], sent[1]) for sent in sender.sent] == [
        ("a", 1, b"1"),
        ("a", 1, b"3"),
        ("b", 1, b"2"),
        ("b", 2, b"4"),
    ]
    assert sender.calls == 3


def test_rows_with_and_without_a_partition_keep_their_order() -> None:
    """The key of the second row may select partition 1."""
    rows = batch(
        partition=pyarrow.array([1, None, 1, 1], pyarrow.int32()),
        key=pyarrow.array([None, b"k", None, None], pyarrow.binary()),
        value=["1", "2", "3", "4"],
    )
    sender = Sender()
    write_rows(sender, [rows], "t")
    assert [sent[1] for sent in sender.sent] == [b"1", b"2", b"3", b"4"]
    assert sender.calls == 3


@pytest.mark.parametrize("kind", [pyarrow.large_string(), pyarrow.large_binary()])
def test_large_types_are_written_as_bytes(kind: Any) -> None:
    sender = Sender()
    write_rows(sender, [batch(value=pyarrow.array(["v"]).cast(kind))], "t")
    assert sender.sent == [("t", b"v", None, None, ())]


def test_option_replaces_the_column_topic() -> None:
    sender = Sender()
    write_rows(sender, [batch(topic=["a", None], value=["1", "2"])], "t")
    assert [sent[0] for sent in sender.sent] == ["t", "t"]


def test_no_rows_are_no_records() -> None:
    sender = Sender()
    assert write_rows(sender, [], "t") == 0
    assert write_rows(sender, [batch(value=pyarrow.array([], pyarrow.string()))], "t") == 0
    assert sender.sent == []


def test_null_topic_is_refused() -> None:
    with pytest.raises(RowError, match="its topic is null"):
        write_rows(Sender(), [batch(topic=["a", None], value=["1", "2"])], None)


@pytest.mark.parametrize("headers", [[None], [{"key": None, "value": b"x"}]])
def test_null_header_is_refused(headers: list[Any]) -> None:
    rows = batch(value=["1"], headers=pyarrow.array([headers], HEADERS))
    with pytest.raises(RowError, match="the name of a header is null"):
        write_rows(Sender(), [rows], "t")


def test_first_failed_delivery_fails_the_task() -> None:
    sender = Sender(OSError("first"), OSError("second"))
    with pytest.raises(OSError, match="first"):
        write_rows(sender, [batch(value=["1", "2", "3"])], "t")


def test_failed_delivery_ends_the_task_after_its_batch() -> None:
    sender = Sender(OSError("lost"))
    sender.fails_at_once = True
    with pytest.raises(OSError, match="lost"):
        write_rows(sender, [batch(value=["1", "2"])] * 3, "t")
    assert len(sender.sent) == 2


class Filter:
    """Adds a header to rows, except to those with the value ``old``."""

    def __init__(self, sender: Sender) -> None:
        self.prepared: list[tuple[set[str], int]] = []
        self._sender = sender

    def prepare(self, topics: Iterable[str]) -> None:
        self.prepared.append((set(topics), len(self._sender.sent)))

    def headers_to_write(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        headers: Sequence[Header],
    ) -> Sequence[Header] | None:
        return None if value == b"old" else (*headers, ("mark", topic.encode()))


def test_filter_changes_headers_and_omits_rows() -> None:
    sender = Sender()
    headers = pyarrow.array([[{"key": "h", "value": b"x"}], None, None], HEADERS)
    rows = batch(value=["1", "old", "2"], headers=headers)
    assert write_rows(sender, [rows], "t", Filter(sender)) == 3
    assert [(sent[1], sent[4]) for sent in sender.sent] == [
        (b"1", (("h", b"x"), ("mark", b"t"))),
        (b"2", (("mark", b"t"),)),
    ]


def test_filter_learns_of_topics_before_their_rows() -> None:
    sender = Sender()
    row_filter = Filter(sender)
    rows = batch(topic=["b", "a", "b"], value=["1", "2", "3"])
    write_rows(sender, [rows, rows.slice(1, 1)], None, row_filter)
    assert row_filter.prepared == [({"a", "b"}, 0), ({"a"}, 3)]


def test_filter_does_not_prepare_for_no_rows() -> None:
    sender = Sender()
    row_filter = Filter(sender)
    write_rows(sender, [batch(value=pyarrow.array([], pyarrow.string()))], "t", row_filter)
    assert row_filter.prepared == [(set(), 0)]


def test_null_topic_is_refused_with_a_filter() -> None:
    sender = Sender()
    rows = batch(topic=["a", None], value=["1", "2"])
    with pytest.raises(RowError, match="its topic is null"):
        write_rows(sender, [rows], None, Filter(sender))
