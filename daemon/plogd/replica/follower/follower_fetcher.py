"""Copy partitions from their leader: fetch, append, wait until the records are durable, repeat.

There is one fetcher for each leader and log directory, so that a slow disk delays only its own
partitions. By rule R5, the fetcher appends one response, waits until this replica can acknowledge
all of it, and then sends the next fetch: a fetch offset therefore states what this replica can
acknowledge. The leader's and the follower's syncs overlap, because the leader sends records before
it has synced them.

A partition with an error is fetched again after ``replica.fetch.backoff.ms``; it never delays the
others. A new leader epoch needs a new `add`: responses to requests of an earlier epoch are dropped.

Called on the reactor's thread. Source: Kafka 3.9 AbstractFetcherThread, ReplicaFetcherThread;
KIP-227, KIP-279, KIP-595, KIP-903.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, Protocol, TypeVar, cast

from plog.errors import (
    CorruptMessage,
    ErrorCode,
    FencedLeaderEpoch,
    KafkaError,
    PlogError,
    error_from_code,
)
from plog.types import TopicPartition
from plog.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData, ReplicaState
from plogd.fair_queue import FairQueue, Slices
from plogd.log.log_results import AppendInfo
from plogd.ports import Later, Ports, Timer, spawn
from plogd.replica.cluster.replication_quota import ReplicationQuota
from plogd.replica.follower.divergence_repair import return_to_range, truncate, truncation_offset
from plogd.replica.follower.fetch_failures import FetchFailures
from plogd.replica.follower.fetch_session import FollowerSession, Key, Position
from plogd.replica.follower.followed_partition import FollowedPartition, split_by_quota
from plogd.replica.partition import Partition
from plogd.waiters import Waiters

T = TypeVar("T")

_PARTITIONS_PER_TURN: Final = 8
"""Number of partitions whose records are appended in one turn."""
_POSITIONS_PER_TURN: Final = 1_000
"""Number of partitions whose positions are read in one turn: about a millisecond."""
_SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""After these errors, the next request opens a new session."""


class FetcherSettings(Protocol):
    """The settings of a fetcher, with their Kafka names."""

    @property
    def replica_fetch_max_bytes(self) -> int:
        """Maximum number of bytes of one partition in a response."""
        ...

    @property
    def replica_fetch_response_max_bytes(self) -> int:
        """Maximum number of bytes in a response."""
        ...

    @property
    def replica_fetch_min_bytes(self) -> int:
        """Number of bytes for which a response waits."""
        ...

    @property
    def replica_fetch_wait_max_ms(self) -> int:
        """Maximum time for which a response waits."""
        ...

    @property
    def replica_fetch_backoff_ms(self) -> int:
        """Time before a partition is fetched again after an error."""
        ...


class Leader(Protocol):
    """The requests of a follower to its leader. They fail with KafkaError or PlogError."""

    broker_id: int

    def fetch(self, request: FetchRequest) -> Later[FetchResponse]:
        """Send a Fetch, at least of version 15."""
        ...

    def offsets(self, partition: Partition) -> Later[tuple[int, int]]:
        """Return the start and the end of the leader's log, in the partition's leader epoch."""
        ...


class FollowerFetcher:
    """Follows partitions that have the same leader and are in the same log directory.

    Args:
        leader: the leader's connection.
        broker_id: the id of this broker.
        broker_epoch: returns the epoch of this broker's registration; -1 while it has none, during
            which it does not fetch.
        quota: limits what this broker receives (KIP-73); None without a limit.
        listen: calls the function at the end of each turn in which the partition made progress.
        stop_listening: ends that.
        on_copied: called with the size of the records that were received for a partition.
    """

    def __init__(
        self,
        leader: Leader,
        ports: Ports,
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        settings: Callable[[], FetcherSettings],
        fair_queue: FairQueue,
        quota: ReplicationQuota | None = None,
        listen: Callable[[TopicPartition, Callable[[], None]], None],
        stop_listening: Callable[[TopicPartition], None],
        on_bug: Callable[[str, Exception], None],
        on_copied: Callable[[int], None] = lambda size_bytes: None,
    ) -> None:
        self._leader = leader
        self._clock = ports.clock
        self._timers = ports.timers
        self._turn = ports.turn
        self._report = ports.report
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._settings = settings
        self._queue = fair_queue
        self._quota = quota
        self._listen = listen
        self._stop_listening = stop_listening
        self._on_bug = on_bug
        self._on_copied = on_copied
        self._session = FollowerSession(settings().replica_fetch_max_bytes)
        self._followed: dict[TopicPartition, FollowedPartition] = {}
        self._unacknowledged: dict[TopicPartition, AppendInfo] = {}
        """The appends of the last response that this replica cannot acknowledge yet."""
        self._in_progress: TopicPartition | None = None
        """The partition whose log is being appended to or truncated."""
        self._operation_ended: Waiters[None] = Waiters()
        self._arrivals = 0
        """The number of calls of `_work_arrived`."""
        self._waiting: Later[None] | None = None
        """Completes when all of `_unacknowledged` are settled, or when there is work."""
        self._timer: Timer | None = None
        self._is_running = self._is_closed = False
        self._is_waking = False
        """Whether `_wake` is due at the end of the turn."""
        self._failures = FetchFailures(leader.broker_id, ports.clock, ports.report)

    def __len__(self) -> int:
        return len(self._followed)

    def lags(self) -> Iterator[tuple[TopicPartition, int]]:
        """Yield how many offsets below the leader's high watermark each partition lacks.

        Partitions may be added or removed between two steps.
        """
        for key, one in list(self._followed.items()):
            yield key, max(0, one.leader_high_watermark - one.partition.log.log_end_offset)

    def has_failed(self, key: TopicPartition) -> bool:
        """Return whether the last fetch of a partition has failed."""
        is_failed = self._failures.is_leader_failed or key in self._failures
        return is_failed and key in self._followed

    @property
    def failed_count(self) -> int:
        """Number of partitions whose last fetch has failed."""
        return sum(self.has_failed(key) for key in self._followed)

    # -- partitions ---------------------------------------------------------------------------

    def add(self, partition: Partition) -> None:
        """Follow `partition` in its current leader epoch, unless its log is offline."""
        key = partition.topic_partition
        if partition.log.offline:
            self.remove(key)
            return
        self._followed[key] = FollowedPartition(partition)
        self._listen(key, lambda: self._progress(key))
        # At the end of the turn, because a turn adds many partitions.
        if not self._is_waking:
            self._is_waking = True
            self._turn.defer(self._wake)

    def _wake(self) -> None:
        """Fetch the partitions that were added in this turn."""
        self._is_waking = False
        if self._is_running:
            self._work_arrived()
        elif not self._is_closed:
            self._is_running = True
            spawn(self._run()).then(_ignore, self._stopped)

    def remove(self, key: TopicPartition) -> None:
        """Stop following a partition; do nothing if it is not followed."""
        if self._followed.pop(key, None) is not None:
            self._stop_listening(key)
            self._failures.forget(key)
            self._settle(key)

    async def released(self, key: TopicPartition) -> None:
        """Wait until the fetcher does not use the log of a removed partition any more."""
        while self._in_progress == key:
            await self._operation_ended.wait()

    def close(self) -> None:
        """Stop following all partitions."""
        self._is_closed = True
        for key in list(self._followed):
            self.remove(key)
        self._work_arrived()

    def _stopped(self, error: Exception) -> None:
        self._is_running = False
        self._on_bug(f"replication from broker {self._leader.broker_id}", error)

    # -- the loop -----------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._is_closed:
            now_ms, arrivals = self._clock.monotonic_ms(), self._arrivals
            slices = Slices(self._queue, size=_POSITIONS_PER_TURN)
            ready: list[FollowedPartition] = []
            truncating: list[FollowedPartition] = []
            async for one in slices.over(list(self._followed.values())):
                if one.retry_at_ms <= now_ms and not one.must_sync():
                    (truncating if one.partition.log.is_truncating else ready).append(one)
            for one in truncating:
                await self._complete_truncation(one)
            ready = self._within_quota(ready)
            if ready:
                await self._fetch(ready)
            elif arrivals == self._arrivals and not self._is_closed:
                await self._wait_for_work(now_ms)
        self._is_running = False

    def _within_quota(self, ready: list[FollowedPartition]) -> list[FollowedPartition]:
        """Return the partitions that may be fetched now; delay the others."""
        quota = self._quota
        if quota is None or not quota.is_exceeded:
            return ready
        allowed, withheld = split_by_quota(ready, quota)
        self._delay(withheld, self._settings().replica_fetch_backoff_ms)
        return allowed

    async def _wait_for_work(self, now_ms: float) -> None:
        waiting: Later[None] = Later()
        self._waiting = waiting
        # The others wait for `_progress`.
        retries = [one.retry_at_ms for one in self._followed.values() if not one.is_unsynced]
        if retries:
            next_ms = min(retries)
            self._timer = self._timers.call_later(max(0.0, next_ms - now_ms), self._work_arrived)
        await waiting

    def _work_arrived(self) -> None:
        """End the wait of an idle fetcher, or let it look for work again before it waits."""
        self._arrivals += 1
        if self._waiting is not None and not self._unacknowledged:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            waiting, self._waiting = self._waiting, None
            waiting.succeed(None)

    async def _fetch(self, ready: Sequence[FollowedPartition]) -> None:
        """Send one request, append its records, and wait until they can be acknowledged."""
        by_key: dict[Key, FollowedPartition] = {}
        positions: dict[Key, Position] = {}
        async for one in Slices(self._queue, size=_POSITIONS_PER_TURN).over(ready):
            key = (one.partition.topic_id, one.partition.topic_partition.partition)
            by_key[key], positions[key] = one, one.position()
        if self._is_closed:
            return
        settings = self._settings()
        broker_epoch = self._broker_epoch()
        if broker_epoch < 0:
            # Without a registration, the leader could not tell these fetches from those of an
            # earlier run (KIP-903).
            self._delay(ready, settings.replica_fetch_backoff_ms)
            return
        topics, forgotten = self._session.changes(positions)
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self._broker_id, replica_epoch=broker_epoch),
            max_wait_ms=settings.replica_fetch_wait_max_ms,
            min_bytes=settings.replica_fetch_min_bytes,
            max_bytes=settings.replica_fetch_response_max_bytes,
            session_id=self._session.session_id,
            session_epoch=self._session.epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
        )
        try:
            response = await self._leader.fetch(request)
        except (PlogError, OSError) as error:
            self._session.failed()
            self._delay(ready, settings.replica_fetch_backoff_ms)
            self._failures.leader_failed(error)
            return
        self._session.answered(response)
        if response.error_code and response.error_code not in _SESSION_ERRORS:
            self._delay(ready, settings.replica_fetch_backoff_ms)
            self._failures.leader_failed(_error(response.error_code))
            return
        self._failures.leader_answered()
        await self._append_all(response, by_key)
        if self._unacknowledged:
            waiting: Later[None] = Later()
            self._waiting = waiting
            await waiting

    async def _append_all(
        self, response: FetchResponse, by_key: dict[Key, FollowedPartition]
    ) -> None:
        parts = [(t.topic_id, data) for t in response.responses for data in t.partitions]
        # A slice is small, because a partition may have up to `replica.fetch.max.bytes`.
        slices = Slices(self._queue, size=_PARTITIONS_PER_TURN)
        async for topic_id, data in slices.over(parts):
            followed = by_key.get((topic_id, data.partition_index))
            if followed is None or not self._is_current(followed):
                continue
            try:
                await self._process(followed, data)
            except FencedLeaderEpoch:
                continue  # The role of this replica has changed during the request.
            except (PlogError, OSError) as error:
                self._partition_failed(followed, error)
            else:
                # Otherwise, `_progress` follows.
                key = followed.partition.topic_partition
                if key not in self._unacknowledged:
                    self._failures.succeeded(key)
        self._failures.flush()

    def _is_current(self, followed: FollowedPartition) -> bool:
        key = followed.partition.topic_partition
        return self._followed.get(key) is followed

    def _delay(self, ones: Sequence[FollowedPartition], backoff_ms: float) -> None:
        retry_at_ms = self._clock.monotonic_ms() + backoff_ms
        for one in ones:
            one.retry_at_ms = retry_at_ms

    def _partition_failed(self, followed: FollowedPartition, error: Exception) -> None:
        self._delay([followed], self._settings().replica_fetch_backoff_ms)
        self._failures.failed(followed.partition.topic_partition, error)

    # -- one partition ------------------------------------------------------------------------

    async def _process(self, followed: FollowedPartition, data: PartitionData) -> None:
        """Handle the response for one partition. Raises KafkaError, PlogError."""
        partition = followed.partition
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._return_to_range(followed)
        elif data.error_code == ErrorCode.FENCED_LEADER_EPOCH:
            # There is a newer leader epoch; the controller's next request adds the partition again.
            self.remove(partition.topic_partition)
        elif data.error_code:
            raise _error(data.error_code)
        elif data.diverging_epoch.epoch >= 0 or data.diverging_epoch.end_offset >= 0:
            diverging = data.diverging_epoch
            offset = truncation_offset(partition.log, diverging.epoch, diverging.end_offset)
            await self._using_log(partition, truncate(partition.log, offset, self._report))
        else:
            await self._append(followed, data)

    async def _using_log(self, partition: Partition, operation: Awaitable[T]) -> T:
        """Complete an operation on the log; `released` waits for it."""
        self._in_progress = partition.topic_partition
        try:
            return await operation
        finally:
            self._in_progress = None
            self._operation_ended.succeed(None)

    async def _complete_truncation(self, followed: FollowedPartition) -> None:
        """Complete a truncation that has failed, on a full disk for example.

        Until then, the log accepts no records, and its durable end is not known.
        """
        partition = followed.partition
        if not self._is_current(followed):
            return
        completed = partition.log.truncate_to(partition.log.log_end_offset)
        try:
            await self._using_log(partition, completed)
        except (PlogError, OSError) as error:
            self._partition_failed(followed, error)

    async def _return_to_range(self, followed: FollowedPartition) -> None:
        partition = followed.partition
        start_offset, end_offset = await self._leader.offsets(partition)
        if not self._is_current(followed):
            return
        moved = return_to_range(partition.log, start_offset, end_offset, self._report)
        if not await self._using_log(partition, moved):
            # The leader's range has changed in the meantime. With a delay, so that a leader that
            # contradicts itself does not cause a busy loop.
            self._delay([followed], self._settings().replica_fetch_backoff_ms)

    async def _append(self, followed: FollowedPartition, data: PartitionData) -> None:
        partition, log = followed.partition, followed.partition.log
        # In a response that was received, records are a view of it.
        records = cast(bytes, data.records or b"")
        if self._quota is not None and self._quota.is_limited:
            self._quota.record(partition, len(records))
        appended = partition.append_records_to_follower(
            memoryview(records),
            leader_epoch=followed.leader_epoch,
            leader_high_watermark=data.high_watermark,
            now_ms=self._clock.now_ms(),
        )
        info = await self._using_log(partition, appended)
        self._on_copied(len(records))
        if not self._is_current(followed):
            return  # It was removed meanwhile, so nothing would end a wait for this append.
        if info is not None:
            if not _is_acknowledged(partition, info):
                self._unacknowledged[partition.topic_partition] = info
        elif records:
            raise CorruptMessage(
                f"the first batch after offset {log.log_end_offset} is incomplete in a response of"
                f" {len(records)} bytes"
            )
        if records:
            # As in Kafka: otherwise, the first partitions of a fetch without a session would leave
            # no room for the others until they have caught up.
            self._followed[partition.topic_partition] = self._followed.pop(
                partition.topic_partition
            )
        # In a session, it is sent only when it has changed, so it must be remembered.
        followed.leader_start_offset = data.log_start_offset
        followed.leader_high_watermark = data.high_watermark
        followed.raise_log_start()

    # -- acknowledgement ----------------------------------------------------------------------

    def _progress(self, key: TopicPartition) -> None:
        """Check whether the wait for this partition has ended."""
        followed, info = self._followed[key], self._unacknowledged.get(key)
        partition = followed.partition
        if partition.is_deleted or partition.log.offline:
            # Its fetches would tell the leader that the replica works.
            self.remove(key)
            return
        followed.raise_log_start()
        if followed.is_unsynced and not followed.must_sync():
            self._work_arrived()
        if info is None:
            return
        if info.writing is not None and info.writing.error is not None:
            self._partition_failed(followed, info.writing.error)
            self._settle(key)
        elif _is_acknowledged(partition, info):
            self._failures.succeeded(key)
            self._settle(key)

    def _settle(self, key: TopicPartition) -> None:
        if self._unacknowledged.pop(key, None) is not None and not self._unacknowledged:
            self._failures.flush()
            self._work_arrived()


def _is_acknowledged(partition: Partition, info: AppendInfo) -> bool:
    return partition.log.acknowledged_end_offset > info.last_offset


def _error(code: int) -> KafkaError:
    # A newer version of the leader may have other codes.
    name = ErrorCode(code).name if code in ErrorCode.__members__.values() else f"error {code}"
    return error_from_code(code, f"it returned {name}")


def _ignore(_: None) -> None:
    """Do nothing: the fetcher was closed."""
