"""Marks that a task leaves in the headers of its records, to find them again. Pure.

The mark of a record depends on query, batch, task and topic. So a record that is copied to another
topic with its headers has no meaning there. The mark also tells whether the row named its
partition: otherwise, the producer may choose another partition when the row is written again.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter
from collections.abc import Sequence
from typing import Final

from plog.client.values import ConsumerRecord
from plog.records.codec import Header
from plog.spark.sink_notes import TaskId

MARK_HEADER: Final = "plog.spark"
"""The name of the header with the mark, which is the last header of a record."""

_MARK_BYTES: Final = 12
_DIGEST_BYTES: Final = 16
_NULL: Final = -1
_two_numbers = struct.Struct("<qq").pack
_three_numbers = struct.Struct("<qqq").pack


class TopicMarks:
    """The marks of a task in one topic, and the records that its earlier attempts wrote there."""

    __slots__ = ("_earlier", "_headers", "_left", "_marks")

    def __init__(self, task: TaskId, topic: str) -> None:
        self._marks = tuple(_mark(task, topic, is_chosen) for is_chosen in (False, True))
        self._headers: tuple[tuple[Header], ...] = tuple(
            ((MARK_HEADER, mark),) for mark in self._marks
        )
        self._earlier: Counter[bytes] = Counter()
        self._left = 0
        """The number of earlier records for which no row has been omitted yet."""

    def add_earlier(self, record: ConsumerRecord) -> bool:
        """Remember a record if it has a mark of this task; return whether it has one."""
        last = record.headers[-1] if record.headers else None
        if last is None or last[0] != MARK_HEADER or last[1] not in self._marks:
            return False
        partition = record.partition if last[1] == self._marks[True] else None
        self._earlier[_digest(record.key, record.value, record.headers[:-1], partition)] += 1
        self._left += 1
        return True

    def headers_to_write(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        partition: int | None,
    ) -> Sequence[Header] | None:
        """Return the headers of a row with the mark, or None if an earlier attempt wrote the row.

        `partition` is None unless the row names it. Headers of the row with the name of the mark
        are replaced: they are marks of the query that wrote the row to another topic.
        """
        mark = self._headers[partition is not None]
        # The usual row.
        if not headers and not self._left:
            return mark
        headers = [header for header in headers if header[0] != MARK_HEADER]
        if self._left:
            digest = _digest(key, value, headers, partition)
            if self._earlier[digest] > 0:
                self._earlier[digest] -= 1
                self._left -= 1
                return None
        return (*headers, *mark)


def _mark(task: TaskId, topic: str, is_chosen: bool) -> bytes:
    text = f"{task.query}/{task.batch}/{task.task}/{int(is_chosen)}/{topic}"
    return hashlib.blake2b(text.encode(), digest_size=_MARK_BYTES).digest()


def _digest(
    key: bytes | None, value: bytes | None, headers: Sequence[Header], partition: int | None
) -> bytes:
    # With its length before it, the end of each part is unambiguous.
    parts = [
        _three_numbers(
            _NULL if partition is None else partition,
            _NULL if key is None else len(key),
            _NULL if value is None else len(value),
        ),
        key or b"",
        value or b"",
    ]
    for name, content in headers:
        text = name.encode("utf-8", "surrogatepass")
        parts.append(_two_numbers(len(text), _NULL if content is None else len(content)))
        parts += text, content or b""
    return hashlib.blake2b(b"".join(parts), digest_size=_DIGEST_BYTES).digest()
