"""A fetch that found too little and waits in purgatory for data, or for its time to run out.

Source: Kafka 3.9 DelayedFetch. As there, what has arrived is added up by partition, so an append
costs a waiting fetch a look at one partition, however many it names. Where that look needs data
that is not in the page cache, a job reads it first and the fetch keeps waiting; further appends to
the partition start no second look.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from plog.errors import UnknownTopicId, UnknownTopicOrPartition
from plogd.ports import Later, MaybeLater
from plogd.replica.fetch_sessions import FetchItem
from plogd.replica.partition import Partition, PartitionRead

Key = tuple[str, int]
"""Topic and number of a partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchParams:
    """What a fetch asks of all its partitions together."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int


class FetchReads(Protocol):
    """What a waiting fetch needs of the reader."""

    def partition_of(self, item: FetchItem) -> Partition | None:
        """The partition, if it is hosted here."""
        ...

    def read_one(self, item: FetchItem) -> MaybeLater[PartitionRead]:
        """Read one partition, as if it were the first of its fetch; a Later if a job must read."""
        ...

    def read_all(
        self, items: Sequence[FetchItem], params: FetchParams
    ) -> MaybeLater[list[PartitionRead]]:
        """Read all partitions of a fetch."""
        ...

    def forget(self, delayed: DelayedFetch) -> None:
        """The fetch waits no longer."""
        ...


class DelayedFetch:
    """One waiting fetch; completes `later` with a read of all its partitions.

    `items` are the partitions that were readable when the wait began, `found` the bytes that were
    there; `requested` are all partitions, which are read again when the wait ends.
    """

    __slots__ = (
        "_found",
        "_found_bytes",
        "_items",
        "_looks",
        "_params",
        "_reading",
        "_reads",
        "_requested",
        "later",
    )

    def __init__(
        self,
        items: Mapping[Key, FetchItem],
        found: dict[Key, int],
        *,
        reads: FetchReads,
        requested: Sequence[FetchItem],
        params: FetchParams,
    ) -> None:
        self._items = items
        self._found = found
        self._found_bytes = sum(found.values())
        self._reads = reads
        self._requested = requested
        self._params = params
        self._looks: dict[Hashable, Later[PartitionRead]] = {}
        """Reads of single partitions that wait for a job."""
        self._reading: Later[list[PartitionRead]] | None = None
        self.later: Later[list[PartitionRead]] = Later(self._cancel)

    def _cancel(self) -> None:
        self._reads.forget(self)
        self._cancel_looks()
        if self._reading is not None:
            self._reading.cancel()

    @property
    def keys(self) -> list[Key]:
        """The partitions it waits for."""
        return list(self._items)

    def try_complete(self, key: Hashable) -> bool:
        """The partition `key` has changed: complete if there is enough, or if it is missing."""
        item = self._items.get(key)  # type: ignore[call-overload]  # any other key is not in it
        if item is None:
            return False
        partition = self._reads.partition_of(item)
        if partition is not None:
            at_end = partition.high_watermark == item.request.fetch_offset
            if at_end and partition.problem() is None:
                return False
            if self._params.min_bytes > 1 and not self._has_enough(key, item):
                return False
        self._complete()
        return True

    def _has_enough(self, key: Hashable, item: FetchItem) -> bool:
        """Whether there is enough in all partitions; of the others, their bytes are known."""
        if key in self._looks:
            return False  # It reads once more after its job.
        read = self._reads.read_one(item)
        if isinstance(read, Later):
            self._looks[key] = read
            read.then(lambda found: self._looked(key, found), lambda _: self._looked(key, None))
            return False
        return self._count(key, read)

    def _count(self, key: Hashable, read: PartitionRead) -> bool:
        """Add up what was found in the partition `key`; whether there is enough now."""
        read.close()
        if read.error is not None or read.diverging_epoch is not None:
            return True
        self._found_bytes += read.nbytes - self._found.get(key, 0)  # type: ignore[call-overload]
        self._found[key] = read.nbytes  # type: ignore[index]  # a key of `_items`
        return self._found_bytes >= self._params.min_bytes

    def _looked(self, key: Hashable, read: PartitionRead | None) -> None:
        """A job has read what the look at `key` needed, or has failed: then `read` is None."""
        if self._looks.pop(key, None) is None:
            return  # The wait has ended.
        # If the look has failed, reading all of them finds out why.
        if read is None or self._count(key, read):
            self._reads.forget(self)
            self._complete()

    def _cancel_looks(self) -> None:
        looks, self._looks = self._looks, {}
        for look in looks.values():
            look.cancel()

    def expire(self) -> None:
        """Answer with what there is."""
        self._complete()

    def _complete(self) -> None:
        self._cancel_looks()
        reads = self._reads.read_all(self._requested, self._params)
        if isinstance(reads, Later):
            self._reading = reads
            reads.then(self.later.succeed, self.later.fail)
        else:
            self.later.succeed(reads)


class FetchOutcome:
    """Whether a fetch has to wait, from what was read of its partitions."""

    __slots__ = ("_is_urgent", "_nbytes", "_readable")

    def __init__(self) -> None:
        self._nbytes = 0
        self._readable = self._is_urgent = False

    def add(self, reads: Sequence[PartitionRead]) -> None:
        """Take these reads into account."""
        for read in reads:
            if read.error is None:
                self._readable = True
                self._nbytes += read.nbytes
                if read.diverging_epoch is not None:
                    self._is_urgent = True
            elif not isinstance(read.error, UnknownTopicOrPartition | UnknownTopicId):
                self._is_urgent = True

    def is_enough(self, min_bytes: int) -> bool:
        """Whether there are enough bytes, or something that the client must learn now.

        An unknown partition does not end the wait of the others: its client would ask again at
        once, forever.
        """
        return self._is_urgent or self._nbytes >= min_bytes or not self._readable


def is_enough(reads: Sequence[PartitionRead], min_bytes: int) -> bool:
    """Whether a fetch with these reads need not wait; see `FetchOutcome.is_enough`."""
    outcome = FetchOutcome()
    outcome.add(reads)
    return outcome.is_enough(min_bytes)
