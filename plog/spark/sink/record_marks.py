"""Marks in the headers of records, by which a repeated batch finds what it has written. Pure.

The mark of a record depends on the query, the batch and the topic, so a record that is copied to
another topic with its headers has no meaning there. It also has the id of the attempt that wrote
the record, and tells whether the row named its partition: otherwise, the producer may choose
another partition when the row is written again.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from plog.client.values import ConsumerRecord
from plog.records.codec import Header

MARK_HEADER: Final = "plog.spark"
"""The name of the header with the mark, which is the last header of a record."""
ATTEMPT_BYTES: Final = 8
"""The length of the id of an attempt, which is random."""
# A repeated task keeps in memory the digests of all rows that the batch has written.
DIGEST_BYTES: Final = 16
"""The length of the digest of a row."""

# Each record contains a mark, so it is short. 12 bytes of a hash distinguish all batches.
_BATCH_BYTES: Final = 12
_MARK_BYTES: Final = _BATCH_BYTES + ATTEMPT_BYTES + 1
# No length is negative, so null differs from empty.
_NULL: Final = -1
_two_numbers = struct.Struct("<qq").pack
_four_numbers = struct.Struct("<qqqq").pack


class BatchId(NamedTuple):
    """A batch of a query. `query` is Spark's id of the query, which is stored in its checkpoint."""

    query: str
    batch: int


class WrittenRow(NamedTuple):
    """A row of a batch as its record tells: the digest of the row, and who wrote it."""

    digest: bytes
    attempt: bytes
    partition: int | None


class TopicMarks:
    """The marks of a batch in one topic."""

    __slots__ = ("_batch", "_topic")

    def __init__(self, batch: BatchId, topic: str) -> None:
        text = f"{batch.query}/{batch.batch}/{topic}"
        self._topic = topic
        self._batch = hashlib.blake2b(text.encode(), digest_size=_BATCH_BYTES).digest()

    def headers(self, attempt: bytes) -> tuple[tuple[Header], tuple[Header]]:
        """Return the header of an attempt's rows without a partition, and of those with one."""
        without, chosen = (
            ((MARK_HEADER, self._batch + attempt + bytes([is_chosen])),)
            for is_chosen in (False, True)
        )
        return without, chosen

    def row(self, record: ConsumerRecord) -> WrittenRow | None:
        """Return the row of a record, or None if it belongs to another batch."""
        name, mark = record.headers[-1] if record.headers else ("", None)
        # The sink adds its mark last. A mark at another place came with the row.
        if name != MARK_HEADER or mark is None or len(mark) != _MARK_BYTES:
            return None
        if not mark.startswith(self._batch):
            return None
        partition = record.partition if mark[-1] else None
        digest = row_digest(self._topic, record.key, record.value, record.headers[:-1], partition)
        return WrittenRow(digest, mark[_BATCH_BYTES:-1], partition)


def without_mark(headers: Sequence[Header]) -> Sequence[Header]:
    """Return the headers of a row without a mark that it brings along from another topic."""
    return [header for header in headers if header[0] != MARK_HEADER] if headers else ()


def row_digest(
    topic: str,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header],
    partition: int | None,
) -> bytes:
    """Return a digest that only equal rows share; `partition` is None unless the row names it."""
    name = topic.encode()
    # With its length before it, the end of each part is unambiguous.
    parts = [
        _four_numbers(
            _NULL if partition is None else partition,
            len(name),
            _NULL if key is None else len(key),
            _NULL if value is None else len(value),
        ),
        name,
        key or b"",
        value or b"",
    ]
    for header, content in headers:
        # A name that is not UTF-8 has surrogates when it is read (PEP 383).
        text = header.encode("utf-8", "surrogatepass")
        parts.append(_two_numbers(len(text), _NULL if content is None else len(content)))
        parts += text, content or b""
    return hashlib.blake2b(b"".join(parts), digest_size=DIGEST_BYTES).digest()
