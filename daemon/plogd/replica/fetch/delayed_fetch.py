"""Delayed fetches: fetches that found fewer than min_bytes wait in purgatory for more data.

As in Kafka, available bytes are counted per partition, so that after an append, only one partition
of a delayed fetch must be checked, regardless of how many the fetch contains. If the check needs
data that is not in the page cache, a job first reads the data while the fetch continues to wait; no
second check of the partition starts in the meantime. In contrast to Kafka, the end of the wait
reads only the partitions that have changed during it, because a follower's fetches contain all
partitions of its leader, and most of them are idle.

Source: Kafka 3.9 DelayedFetch.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple, Protocol

from plog.errors import UnknownTopicId, UnknownTopicOrPartition
from plog.wire.messages.fetch import ReplicaState
from plogd.ports import Later, MaybeLater
from plogd.replica.fetch.fetch_context import FetchItem
from plogd.replica.fetch.partition_read import PartitionRead
from plogd.replica.partition import Partition

Key = tuple[str, int]
"""Topic and number of a partition."""


class WorkShare(Protocol):
    """A fetch's share of the memory that the broker reserves for large requests."""

    def begin_wait(self) -> bool:
        """Release the share until `end_wait`; return False if the fetch must not wait."""
        ...

    async def end_wait(self) -> None:
        """Wait until the fetch has its share again and can continue."""
        ...


# A named tuple, which takes a third of the time that a frozen dataclass takes to create.
class FetchParams(NamedTuple):
    """Limits of a fetch that apply to all its partitions together.

    `share` is None unless the request has a very large number of elements; `follower` is the broker
    that sent it, None for a consumer. If `any_replica` is set, a consumer may read from followers.
    `rack` is the consumer's rack, or "", and `listener_name` the listener that it uses.
    """

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    share: WorkShare | None = None
    read_committed: bool = False
    follower: ReplicaState | None = None
    any_replica: bool = False
    rack: str = ""
    listener_name: str = ""


class FetchReads(Protocol):
    """The methods of FetchReader that a delayed fetch calls."""

    def partition_of(self, item: FetchItem) -> Partition | None:
        """Return the partition, or None if this broker does not host it."""
        ...

    def withholds(self, partition: Partition, follower: int) -> bool:
        """Return whether a follower gets no records of the partition now."""
        ...

    def read_one(self, item: FetchItem, params: FetchParams) -> MaybeLater[PartitionRead]:
        """Read one partition as if it were the first partition of its fetch.

        Returns a `Later` if the read needs a job.
        """
        ...

    def read_all(
        self, items: Sequence[FetchItem], params: FetchParams
    ) -> MaybeLater[list[PartitionRead]]:
        """Read partitions of a fetch at the end of its wait."""
        ...

    def forget(self, delayed: DelayedFetch) -> None:
        """Remove the fetch from purgatory."""
        ...


class DelayedFetch:
    """A fetch in purgatory; it completes `later` with the reads of all its partitions.

    `items` are the partitions that were readable when the wait started, and `found` contains the
    number of bytes available in each. `requested` are all partitions of the fetch, and `idle` are
    their reads at the start of the wait: those without records and errors are still valid at its
    end, unless the partition has changed. If `idle` is None, all partitions are read again.
    """

    __slots__ = (
        "_changed",
        "_found",
        "_found_bytes",
        "_idle",
        "_items",
        "_params",
        "_pending_checks",
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
        idle: Sequence[PartitionRead] | None,
        params: FetchParams,
    ) -> None:
        self._items = items
        self._found = found
        self._found_bytes = sum(found.values()) if found else 0
        self._reads = reads
        self._requested = requested
        self._idle = idle
        self._changed: set[Hashable] = set()
        """The partitions that have changed since the reads in `idle`."""
        self._params = params
        self._pending_checks: dict[Hashable, Later[PartitionRead]] | None = None
        """Reads of single partitions that wait for a job; None unless there are any."""
        self._reading: Later[list[PartitionRead]] | None = None
        self.later: Later[list[PartitionRead]] = Later(self._cancel)

    def _cancel(self) -> None:
        self._reads.forget(self)
        if self._pending_checks:
            self._cancel_checks(self._pending_checks)
        if self._reading is not None:
            self._reading.cancel()

    @property
    def keys(self) -> list[Key]:
        """The partitions for which this fetch waits."""
        return list(self._items)

    def try_complete(self, key: Hashable) -> bool:
        """Complete the fetch if `key` now has enough data or an error, or is no longer hosted."""
        item = self._items.get(key)  # type: ignore[call-overload]  # other keys are simply absent
        if item is None:
            return False
        partition = self._reads.partition_of(item)
        if partition is not None and self._is_at_end(partition, item):
            if _has_moved(partition, item):
                self._changed.add(key)
            return False
        self._changed.add(key)
        # With min_bytes=1, any new data suffices, so it need not be counted.
        if partition is not None and self._params.min_bytes > 1 and not self._has_enough(key, item):
            return False
        self._complete()
        return True

    def _is_at_end(self, partition: Partition, item: FetchItem) -> bool:
        """Return whether there is nothing to send for a partition: no record and no error."""
        params, request = self._params, item.request
        problem = partition.problem(request.current_leader_epoch, any_replica=params.any_replica)
        if params.follower is not None:
            remote, follower = partition.remote, params.follower.replica_id
            if self._reads.withholds(partition, follower):
                return problem is None
            if remote is not None and remote.owes_high_watermark(
                follower, partition.high_watermark
            ):
                return False
            end_offset = partition.log.log_end_offset
        else:
            end_offset = partition.end_offset_for_consumers(read_committed=params.read_committed)
        # A consumer may be ahead of a follower's high watermark, but not of its log.
        if not end_offset <= request.fetch_offset <= partition.log.log_end_offset:
            return False
        return problem is None

    def _has_enough(self, key: Hashable, item: FetchItem) -> bool:
        """Read partition `key`; return whether all partitions together have enough bytes."""
        pending = self._pending_checks
        if pending and key in pending:
            return False  # The pending check reads again when its job is done.
        read = self._reads.read_one(item, self._params)
        if isinstance(read, Later):
            if pending is None:
                pending = self._pending_checks = {}
            pending[key] = read
            read.then(lambda found: self._checked(key, found), lambda _: self._checked(key, None))
            return False
        return self._count(key, read)

    def _count(self, key: Hashable, read: PartitionRead) -> bool:
        """Count the bytes available in partition `key`; return whether the fetch can complete."""
        read.close()  # Only the size is needed: all partitions are read again after the wait.
        # As in Kafka's DelayedFetch, the client must learn of an error or a truncation at once.
        if read.is_urgent:
            return True
        self._found_bytes += read.nbytes - self._found.get(key, 0)  # type: ignore[call-overload]
        self._found[key] = read.nbytes  # type: ignore[index]  # a key of `_items`
        return self._found_bytes >= self._params.min_bytes

    def _checked(self, key: Hashable, read: PartitionRead | None) -> None:
        """Finish a check for `key` that needed a job; `read` is None if the job failed."""
        if not self._pending_checks or self._pending_checks.pop(key, None) is None:
            return  # The wait has ended.
        # If the check failed, the read of all partitions reports the error.
        if read is None or self._count(key, read):
            self._reads.forget(self)
            self._complete()

    def _cancel_checks(self, checks: dict[Hashable, Later[PartitionRead]]) -> None:
        self._pending_checks = None
        for check in checks.values():
            check.cancel()

    def expire(self) -> None:
        """Complete with the data that is available."""
        self._complete()

    def _complete(self) -> None:
        if self._pending_checks:
            self._cancel_checks(self._pending_checks)
        reads = self._read()
        if isinstance(reads, Later):
            # The client can still disconnect, and `_cancel` then has to stop this read.
            self._reading = reads
            reads.then(self.later.succeed, self.later.fail)
        else:
            self.later.succeed(reads)

    def _read(self) -> MaybeLater[list[PartitionRead]]:
        """Read all partitions, except those that cannot have changed."""
        idle, requested = self._idle, self._requested
        if idle is None:
            return self._reads.read_all(requested, self._params)
        changed = self._changed
        indexes = [
            index
            for index, (item, read) in enumerate(zip(requested, idle, strict=True))
            if read.error is not None
            or read.region is not None
            or (item.topic or "", item.request.partition) in changed
        ]
        reads = self._reads.read_all([requested[index] for index in indexes], self._params)

        def merged(found: list[PartitionRead]) -> list[PartitionRead]:
            result = list(idle)
            for index, read in zip(indexes, found, strict=True):
                result[index] = read
            return result

        return reads.map(merged) if isinstance(reads, Later) else merged(reads)


def _has_moved(partition: Partition, item: FetchItem) -> bool:
    """Return whether the client does not know the partition's offsets."""
    return (
        partition.high_watermark != item.sent_high_watermark
        or partition.log.log_start_offset != item.sent_log_start_offset
    )


class FetchOutcome:
    """The total of a fetch's reads, which determines whether the fetch has to wait."""

    __slots__ = ("_is_urgent", "_nbytes", "_readable")

    def __init__(self) -> None:
        self._nbytes = 0
        self._readable = self._is_urgent = False

    def add(self, reads: Sequence[PartitionRead]) -> None:
        """Include `reads` in the total."""
        for read in reads:
            if read.error is None:
                self._readable = True
                if read.region is not None:
                    self._nbytes += read.region.nbytes
                if read.is_urgent:
                    self._is_urgent = True
            # An unknown partition does not end the wait, because the client would repeat the fetch
            # immediately, in an endless loop.
            elif not isinstance(read.error, UnknownTopicOrPartition | UnknownTopicId):
                self._is_urgent = True

    def is_enough(self, min_bytes: int) -> bool:
        """Return whether there are enough bytes, or a result that must be sent immediately."""
        return self._is_urgent or self._nbytes >= min_bytes or not self._readable


def is_enough(reads: Sequence[PartitionRead], min_bytes: int) -> bool:
    """Return whether a fetch with these reads need not wait; see `FetchOutcome.is_enough`."""
    outcome = FetchOutcome()
    outcome.add(reads)
    return outcome.is_enough(min_bytes)
