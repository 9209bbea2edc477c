"""Records that have been taken from the engine but not yet returned to the application.

An iterator takes hundreds of records in one call and yields them one by one. The engine's positions
are then past all of these records, but commits and `position` must reflect the application's
progress. A seek or a revocation drops the records from its partitions and keeps all others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from plog.client.values import ConsumerRecord
from plog.types import TopicPartition


class PendingRecords:
    """Records that have been taken but not yet returned. Use only in the consuming thread.

    >>> first = ConsumerRecord("t", 0, 7, 0, 0, None, b"a", (), -1)
    >>> pending = PendingRecords()
    >>> pending.put([first, first._replace(offset=8)])
    >>> next(pending.records()).offset, pending.offsets()
    (7, {TopicPartition(topic='t', partition=0): 8})
    """

    def __init__(self) -> None:
        self._records: Sequence[ConsumerRecord] = ()
        self._next = 0

    def __len__(self) -> int:
        return len(self._records) - self._next

    def put(self, records: Sequence[ConsumerRecord]) -> None:
        """Store `records`; no earlier records may be left."""
        assert not len(self), "records would be lost"
        self._records, self._next = records, 0

    def records(self) -> Iterator[ConsumerRecord]:
        """Yield the records one by one; changes between two records take effect immediately."""
        # Read the attributes again for each record, because `drop` may replace the list in between.
        while self._next < len(self._records):
            record = self._records[self._next]
            self._next += 1
            yield record

    def take(self, count: int) -> list[ConsumerRecord]:
        """Remove and return up to `count` records."""
        end = min(self._next + count, len(self._records))
        taken = list(self._records[self._next : end])
        self._next = end
        return taken

    def offsets(self) -> dict[TopicPartition, int]:
        """Return the offset of each partition's first pending record."""
        found: dict[TopicPartition, int] = {}
        for record in self._records[self._next :]:
            # A partition's records are in order, so the first record found has the lowest offset.
            found.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        return found

    def drop(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Drop the records from `partitions`, or all records if None."""
        if partitions is None:
            self._records, self._next = (), 0
            return
        kept = [
            record
            for record in self._records[self._next :]
            if (record.topic, record.partition) not in partitions
        ]
        self._records, self._next = kept, 0
