"""Records a consumer has taken from its engine in one go and its application has not had yet.

An iterator takes hundreds of records at once and gives them out one by one. The engine's positions
are behind all of them by then, but what is committed, and what `position` says, is how far the
application has come. A seek, or partitions that go to others, drop the records of those partitions
and keep the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from plog.client.values import ConsumerRecord
from plog.types import TopicPartition


class PendingRecords:
    """See the module's text. Used by the consuming thread only.

    >>> first = ConsumerRecord("t", 0, 7, 0, 0, None, b"a", (), -1)
    >>> unread = PendingRecords()
    >>> unread.put([first, first._replace(offset=8)])
    >>> next(unread.records()).offset, unread.offsets()
    (7, {TopicPartition(topic='t', partition=0): 8})
    """

    def __init__(self) -> None:
        self._records: Sequence[ConsumerRecord] = ()
        self._next = 0

    def __len__(self) -> int:
        return len(self._records) - self._next

    def put(self, records: Sequence[ConsumerRecord]) -> None:
        """These come next; there must be none left."""
        assert not len(self), "records would be lost"
        self._records, self._next = records, 0

    def records(self) -> Iterator[ConsumerRecord]:
        """All there are, one by one; changes made on the way count at once."""
        while self._next < len(self._records):
            record = self._records[self._next]
            self._next += 1
            yield record

    def take(self, count: int) -> list[ConsumerRecord]:
        """Up to `count` of them at once."""
        end = min(self._next + count, len(self._records))
        taken = list(self._records[self._next : end])
        self._next = end
        return taken

    def offsets(self) -> dict[TopicPartition, int]:
        """Where the application goes on in each partition that has some left."""
        found: dict[TopicPartition, int] = {}
        for record in self._records[self._next :]:
            found.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        return found

    def drop(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Forget those of `partitions`, of all if None."""
        if partitions is None:
            self._records, self._next = (), 0
            return
        kept = [
            record
            for record in self._records[self._next :]
            if (record.topic, record.partition) not in partitions
        ]
        self._records, self._next = kept, 0
