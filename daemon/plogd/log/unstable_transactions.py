"""The transactions of one partition whose outcome is not committed yet.

A read_committed consumer reads up to the *last stable offset*, below which every transaction has
ended. A transaction is *ongoing* until the log contains its commit or abort marker. It is then
*completed*, but it remains unstable until the high watermark has passed the marker, because the
marker may still be lost.

Pure. Source: Kafka 3.9 ProducerStateManager.firstUnstableOffset,
ProducerStateManager.lastStableOffset; KIP-98.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from heapq import heappop, heappush


class UnstableTransactions:
    """Transactions by the offset of their first record. A producer has at most one.

    >>> transactions = UnstableTransactions()
    >>> transactions.begin(5)
    >>> transactions.stable_offset(high_watermark=9)
    5
    >>> transactions.complete(5, marker_offset=9)
    >>> transactions.stable_offset(high_watermark=9), transactions.stable_offset(high_watermark=10)
    (5, 10)
    """

    __slots__ = ("_completed", "_first_completed", "_ongoing")

    def __init__(self) -> None:
        # Ordered dictionaries, because the first key of a dict is slow to find after deletions.
        self._ongoing: OrderedDict[int, None] = OrderedDict()
        """The first offsets of ongoing transactions, in ascending order."""
        self._completed: OrderedDict[int, int] = OrderedDict()
        """The marker offsets of completed transactions by first offset, in ascending order."""
        self._first_completed: list[int] = []
        """A heap of the keys of `_completed`, and of keys that have been removed from it."""

    def begin(self, first_offset: int) -> None:
        """Record the first batch of a transaction; offsets ascend."""
        self._ongoing[first_offset] = None

    def complete(self, first_offset: int, marker_offset: int) -> None:
        """Record the marker of a transaction."""
        self._ongoing.pop(first_offset, None)
        self._completed[first_offset] = marker_offset
        heappush(self._first_completed, first_offset)

    def stable_offset_after(self, first_offset: int, marker_offset: int) -> int:
        """Return the last stable offset once this transaction is committed or aborted.

        A later transaction of the transaction index cannot begin below it.
        """
        for other in self._ongoing:
            if other != first_offset:
                return other
        return marker_offset + 1

    def stable_offset(self, high_watermark: int) -> int:
        """Return the last stable offset; `high_watermark` never decreases between two calls."""
        if not self._ongoing and not self._completed:  # The usual case.
            return high_watermark
        stable = high_watermark
        if self._ongoing:
            stable = min(stable, next(iter(self._ongoing)))
        completed, first_completed = self._completed, self._first_completed
        while completed and next(iter(completed.values())) < high_watermark:
            completed.popitem(last=False)
        while first_completed and first_completed[0] not in completed:
            heappop(first_completed)
        return min(stable, first_completed[0]) if first_completed else stable

    def replace(self, ongoing: Iterable[int], end_offset: int = 0) -> None:
        """Replace the state after a load or a truncation; `ongoing` are first offsets.

        Keeps the completed transactions whose markers are below `end_offset`.
        """
        self._ongoing = OrderedDict.fromkeys(sorted(ongoing))
        while self._completed and next(reversed(self._completed.values())) >= end_offset:
            self._completed.popitem()
        self._first_completed = sorted(self._completed)  # A sorted list is a heap.
