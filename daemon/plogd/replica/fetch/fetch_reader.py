"""Read the partitions of a Fetch request within its limits, or wait until there is enough data.

Up to `SLICE` partitions are read in one turn, and the result is returned directly if the fetch does
not have to wait. A larger fetch is read in slices (fair_queue.py), both initially and when its wait
ends. Jobs read data that is not in the page cache: for the first read, at the end of a wait, and
when a delayed fetch checks a partition after an append. ReplicaManager finds the partitions;
delayed_fetch.py implements delayed fetches.

Called on the reactor thread. Source: Kafka 3.9 ReplicaManager.fetchMessages, readFromLog.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from plog.errors import (
    InconsistentTopicId,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollower,
    UnknownTopicId,
)
from plog.types import ZERO_UUID
from plog.wire.messages.fetch import FetchPartition, ReplicaState
from plogd.fair_queue import SLICE, FairQueue
from plogd.log.log import Log
from plogd.log.segment.uncached_lookup import UncachedLookup
from plogd.ports import Later, MaybeLater, settle, spawn
from plogd.replica.cluster.replication_quota import ReplicationQuota
from plogd.replica.fetch.delayed_fetch import (
    DelayedFetch,
    FetchOutcome,
    FetchParams,
    is_enough,
)
from plogd.replica.fetch.fetch_context import FetchItem
from plogd.replica.fetch.partition_read import PartitionRead
from plogd.replica.fetch.replica_selector import ReplicaSelector
from plogd.replica.partition import Partition
from plogd.replica.purgatory import Purgatory

# Most fetches need at most three rounds: for the index, its entries and the batches. The kernel may
# evict pages between two rounds.
_MAX_COLD_READS = 8
"""Maximum number of rounds in which jobs read cold (uncached) data for one fetch."""

_COLD = PartitionRead(None)
"""Placeholder for a read that has to wait for the disk."""

Key = tuple[str, int]
"""Topic and number of a partition; equal to the partition's TopicPartition."""

Cold = list[tuple[Log, Later[None]]]
"""Logs in which a lookup needs data from the disk, each with the job that is reading the data."""


class FetchReader:
    """Reads partitions for all fetches.

    `partitions` are the hosted partitions; `look_up` raises the KafkaError for other partitions.
    `begin_read` starts the jobs that read the data for a lookup in a log.
    """

    def __init__(
        self,
        *,
        partitions: Mapping[tuple[str, int], Partition],
        look_up: Callable[[str, int], Partition],
        delayed_fetches: Purgatory,
        fair_queue: FairQueue,
        begin_read: Callable[[Log, UncachedLookup], Later[None]],
        on_bug: Callable[[str, Exception], None],
    ) -> None:
        self._partitions = partitions
        self._look_up = look_up
        self._delayed_fetches = delayed_fetches
        self._queue = fair_queue
        self._begin_read = begin_read
        self._on_bug = on_bug
        self.replica_selector: ReplicaSelector | None = None
        """Selects the followers from which consumers read; None if they read from leaders only."""
        self.leader_quota: ReplicationQuota | None = None
        """The quota for what followers fetch; None without followers."""

    def fetch(
        self, items: Sequence[FetchItem], params: FetchParams
    ) -> MaybeLater[list[PartitionRead]]:
        """Read each partition up to its high watermark; wait for `min_bytes` if necessary.

        The results are in the order of `items`. The caller closes their regions.
        """
        if len(items) > SLICE:
            return spawn(self._fetch_wide(items, params))
        cold: Cold = []
        reads = self._read_all(items, params, cold)
        if cold:
            return spawn(self._fetch_cold(items, params, reads, cold))
        return self._answer_or_wait(items, params, reads)

    async def _fetch_cold(
        self,
        items: Sequence[FetchItem],
        params: FetchParams,
        reads: list[PartitionRead],
        cold: Cold,
    ) -> list[PartitionRead]:
        """Continue `fetch` when jobs have read the data that is missing from `reads`."""
        warm = await self._warmed(items, params, reads, cold)
        return await settle(self._answer_or_wait(items, params, warm))

    async def _warmed(
        self,
        items: Sequence[FetchItem],
        params: FetchParams,
        reads: list[PartitionRead],
        cold: Cold,
    ) -> list[PartitionRead]:
        """Wait for the jobs that read cold data, then read again, until all data is in memory."""
        for left in reversed(range(_MAX_COLD_READS)):
            _close_all(reads)
            jobs, cold = cold, []
            for log, job in jobs:
                try:
                    await job
                except OSError as error:
                    if not log.closed:  # The next read finds the log offline, or retries.
                        log.disk_failed("read", error)
                except Exception:  # Includes Cancelled, but not a simulated process kill.
                    _cancel_all(jobs)
                    raise
            # If memory is short, the kernel may evict the pages in every round. The last round
            # therefore blocks for the disk.
            reads = await settle(self._read(items, params, cold if left else None))
            if not cold:
                break
        return reads

    def _answer_or_wait(
        self, items: Sequence[FetchItem], params: FetchParams, reads: list[PartitionRead]
    ) -> MaybeLater[list[PartitionRead]]:
        if params.max_wait_ms <= 0 or is_enough(reads, params.min_bytes):
            return reads
        if params.share is not None and not params.share.begin_wait():
            return reads
        readable: dict[Key, FetchItem] = {}
        found: dict[Key, int] = {}
        for item, read in zip(items, reads, strict=True):
            if read.error is None:
                key = item.topic or "", item.request.partition
                readable[key] = item
                if read.region is not None:
                    found[key] = read.region.nbytes
                    read.region.close()  # The partition is read again when the wait ends.
        # No append is missed, because `reads` were made in this turn.
        delayed = DelayedFetch(
            readable, found, reads=self, requested=items, idle=reads, params=params
        )
        self._delayed_fetches.watch(delayed, readable, params.max_wait_ms)
        return delayed.later

    # -- delayed fetches ----------------------------------------------------------------------

    def partition_of(self, item: FetchItem) -> Partition | None:
        """Return the partition, or None if this broker does not host it."""
        return self._partitions.get((item.topic or "", item.request.partition))

    def read_one(self, item: FetchItem, params: FetchParams) -> MaybeLater[PartitionRead]:
        """Read one partition as if it were the first partition of its fetch."""
        max_bytes = item.request.partition_max_bytes
        cold: Cold = []
        read = self._read_one(item, max_bytes, True, params, cold)
        if not cold:
            return read
        params = params._replace(max_wait_ms=0, min_bytes=0, max_bytes=max_bytes, share=None)
        return spawn(self._warmed([item], params, [read], cold)).map(lambda reads: reads[0])

    def read_all(
        self, items: Sequence[FetchItem], params: FetchParams
    ) -> MaybeLater[list[PartitionRead]]:
        """Read partitions of a fetch at the end of its wait."""
        if len(items) > SLICE:
            return spawn(self._read_after_wait(items, params))
        cold: Cold = []
        reads = self._read_all(items, params, cold)
        return spawn(self._warmed(items, params, reads, cold)) if cold else reads

    def withholds(self, partition: Partition, follower: int) -> bool:
        """Return whether a follower gets no records now, because it exceeds a quota (KIP-73)."""
        quota = self.leader_quota
        return (
            quota is not None
            and follower not in partition.isr
            and quota.covers(partition)
            and quota.is_exceeded
        )

    def count_sent(self, items: Sequence[FetchItem], reads: Sequence[PartitionRead]) -> None:
        """Count records that a follower gets."""
        quota = self.leader_quota
        if quota is None or not quota.is_limited:
            return
        for item, read in zip(items, reads, strict=True):
            partition = self.partition_of(item)
            if read.region is not None and partition is not None:
                quota.record(partition, read.region.nbytes)

    def forget(self, delayed: DelayedFetch) -> None:
        """Remove the fetch from purgatory."""
        self._delayed_fetches.remove(delayed)

    # -- many partitions ----------------------------------------------------------------------

    async def _fetch_wide(
        self, items: Sequence[FetchItem], params: FetchParams
    ) -> list[PartitionRead]:
        reads = await self._read_wide(items, params)
        readable: dict[Key, FetchItem] = {}
        found: dict[Key, int] = {}
        outcome = FetchOutcome()
        for start in range(0, len(items), SLICE):
            some = reads[start : start + SLICE]
            outcome.add(some)
            for item, read in zip(items[start : start + SLICE], some, strict=True):
                if read.error is None:
                    readable[_key(item)] = item
                    if read.region is not None:
                        found[_key(item)] = read.region.nbytes
            await self._turn_or_close(reads)
        if params.max_wait_ms <= 0 or outcome.is_enough(params.min_bytes):
            return reads
        if params.share is not None and not params.share.begin_wait():
            return reads
        _close_all(reads)
        # While they wait, the fetches of consumers must not need memory for each partition.
        idle = None if params.follower is None else reads
        delayed = DelayedFetch(
            readable, found, reads=self, requested=items, idle=idle, params=params
        )
        return await self._wait_wide(delayed, params)

    async def _read_after_wait(
        self, items: Sequence[FetchItem], params: FetchParams
    ) -> list[PartitionRead]:
        # The wait released the share, so the fetch needs one again before it uses memory.
        if params.share is not None:
            await params.share.end_wait()
        return await self._read_wide(items, params)

    async def _read_wide(
        self, items: Sequence[FetchItem], params: FetchParams
    ) -> list[PartitionRead]:
        """Read in slices; jobs read cold data."""
        cold: Cold = []
        reads = await self._read_in_slices(items, params, cold)
        return await self._warmed(items, params, reads, cold) if cold else reads

    async def _turn_or_close(self, reads: Sequence[PartitionRead]) -> None:
        try:
            await self._queue.turn()
        except BaseException:
            _close_all(reads)
            raise

    async def _wait_wide(self, delayed: DelayedFetch, params: FetchParams) -> list[PartitionRead]:
        # `watch_all` needs one entry in purgatory instead of thousands. The fetch ignores the keys
        # of other partitions.
        self._delayed_fetches.watch_all(delayed, params.max_wait_ms)
        # Unlike in `_answer_or_wait`, other turns have run since the first read, so appends made in
        # these turns must be checked.
        try:
            keys = delayed.keys
            for start in range(0, len(keys), SLICE):
                await self._queue.turn()
                if not self._delayed_fetches.check_one(delayed, keys[start : start + SLICE]):
                    break
        except BaseException:
            delayed.later.cancel()
            delayed.later.then(_close_all, lambda _: None)
            raise
        return await delayed.later

    def _read(
        self, items: Sequence[FetchItem], params: FetchParams, cold: Cold | None
    ) -> MaybeLater[list[PartitionRead]]:
        if len(items) > SLICE:
            return spawn(self._read_in_slices(items, params, cold))
        return self._read_all(items, params, cold)

    async def _read_in_slices(
        self, items: Sequence[FetchItem], params: FetchParams, cold: Cold | None
    ) -> list[PartitionRead]:
        """Read like `_read_all`, but yield to other requests before each slice."""
        reads: list[PartitionRead] = []
        left, at_least_one = params.max_bytes, True
        try:
            for start in range(0, len(items), SLICE):
                await self._queue.turn()
                some = items[start : start + SLICE]
                left, at_least_one = self._read_some(some, reads, left, at_least_one, params, cold)
        except BaseException:
            _close_all(reads)
            _cancel_all(cold or ())
            raise
        return reads

    # -- reading ------------------------------------------------------------------------------

    def _read_all(
        self, items: Sequence[FetchItem], params: FetchParams, cold: Cold | None
    ) -> list[PartitionRead]:
        """Read in order until `max_bytes` is reached. The first batch found is returned whole.

        If `cold` is a list, a lookup that would wait for the disk adds its job to this list.
        """
        if len(items) == 1:  # The usual fetch of a consumer, whose limits need not be counted.
            return [self._read_one(items[0], params.max_bytes, True, params, cold)]
        reads: list[PartitionRead] = []
        self._read_some(items, reads, params.max_bytes, True, params, cold)
        return reads

    def _read_some(
        self,
        items: Sequence[FetchItem],
        reads: list[PartitionRead],
        left: int,
        at_least_one: bool,
        params: FetchParams,
        cold: Cold | None,
    ) -> tuple[int, bool]:
        """Append the reads of `items` to `reads`; return the new `left` and `at_least_one`."""
        for item in items:
            read = self._read_one(item, left, at_least_one, params, cold)
            reads.append(read)
            # Assume that the read will return as many bytes as it may, so that jobs do not read
            # more data than the response can contain.
            if read is _COLD:
                at_least_one = False
                left = max(0, left - item.request.partition_max_bytes)
            if read.region is not None:
                at_least_one = False
                left = max(0, left - read.region.nbytes)
        return left, at_least_one

    def _read_one(
        self,
        item: FetchItem,
        max_bytes: int,
        at_least_one: bool,
        params: FetchParams,
        cold: Cold | None,
    ) -> PartitionRead:
        request = item.request
        partition = self._partitions.get((item.topic or "", request.partition))
        if partition is None:
            return PartitionRead(self._why_unknown(item).bare())
        if item.topic_id != ZERO_UUID and item.topic_id != partition.topic_id:
            return PartitionRead(
                InconsistentTopicId(
                    f"{partition.topic_partition} belongs to a topic with a different id"
                )
            )
        if params.rack and self.replica_selector is not None:
            preferred = self.replica_selector.select(
                partition, request.fetch_offset, params.rack, params.listener_name
            )
            if preferred != partition.broker_id:
                return _redirected(partition, request, preferred)
        try:
            if params.follower is not None:
                is_withheld = self.withholds(partition, params.follower.replica_id)
                read = _read_for_follower(
                    partition,
                    request,
                    params.follower,
                    0 if is_withheld else max_bytes,
                    at_least_one and not is_withheld,
                    cold is not None,
                )
            else:
                read = partition.read(
                    request.fetch_offset,
                    max(0, min(request.partition_max_bytes, max_bytes)),
                    leader_epoch=request.current_leader_epoch,
                    last_fetched_epoch=request.last_fetched_epoch,
                    at_least_one=at_least_one,
                    read_committed=params.read_committed,
                    any_replica=params.any_replica,
                    nowait=cold is not None,
                )
        except UncachedLookup as found:
            assert cold is not None
            cold.append((partition.log, self._begin_read(partition.log, found)))
            return _COLD
        except OSError as error:
            return PartitionRead(KafkaStorageError(f"{partition.topic_partition}: {error}"))
        except Exception as error:  # As in appends, a bug fails only one partition.
            self._on_bug(f"reading {partition.topic_partition}", error)
            return PartitionRead(KafkaError("unexpected error; see the broker log"))
        if read.error is not None:
            read.error.bare()  # A traceback would keep the request in memory.
        return read

    def _why_unknown(self, item: FetchItem) -> KafkaError:
        if item.topic is None:
            return UnknownTopicId()
        try:
            self._look_up(item.topic, item.request.partition)
        except KafkaError as error:
            return error
        return NotLeaderOrFollower()  # The partition has just been created, so the client retries.


def _key(item: FetchItem) -> Key:
    return item.topic or "", item.request.partition


def _read_for_follower(
    partition: Partition,
    request: FetchPartition,
    follower: ReplicaState,
    max_bytes: int,
    at_least_one: bool,
    nowait: bool,
) -> PartitionRead:
    return partition.read_for_follower(
        follower.replica_id,
        request.fetch_offset,
        max(0, min(request.partition_max_bytes, max_bytes)),
        broker_epoch=follower.replica_epoch,
        leader_epoch=request.current_leader_epoch,
        last_fetched_epoch=request.last_fetched_epoch,
        log_start_offset=request.log_start_offset,
        at_least_one=at_least_one,
        nowait=nowait,
    )


def _redirected(partition: Partition, request: FetchPartition, preferred: int) -> PartitionRead:
    """Return the result that makes a consumer read from the replica on broker `preferred`."""
    problem = partition.problem(request.current_leader_epoch)
    if problem is not None:
        return PartitionRead(problem.bare())
    log = partition.log
    return PartitionRead(
        None,
        log.high_watermark,
        log.last_stable_offset,
        log.log_start_offset,
        preferred_replica=preferred,
    )


def _close_all(reads: Sequence[PartitionRead]) -> None:
    for read in reads:
        if read.region is not None:
            read.region.close()


def _cancel_all(cold: Sequence[tuple[Log, Later[None]]]) -> None:
    for _, job in cold:
        job.cancel()
