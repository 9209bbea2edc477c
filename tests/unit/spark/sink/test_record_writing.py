"""Each row becomes a record, and a task fails if any of its records does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from plog.records.codec import Header
from plog.spark.sink.record_writing import RowError, write_rows

pyarrow = pytest.importorskip("pyarrow")

HEADERS = pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))


class Sender:
    """Records the calls, and reports the outcomes of `outcomes` when it is flushed."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self.sent: list[tuple[Any, ...]] = []
        self.flushes = 0
        self.outcomes = outcomes
        self.fails_at_once = False
        self._callbacks: list[Any] = []

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        on_delivery: Any = None,
    ) -> object:
        self.sent.append((topic, value, key, partition, headers))
        self._callbacks.append(on_delivery)
        if self.fails_at_once:
            self.flush()
        return None

    def flush(self) -> None:
        self.flushes += 1
        for callback, error in zip(self._callbacks, self.outcomes, strict=False):
            callback(None, error)


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
    sender = Sender(None, OSError("first"), OSError("second"))
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
