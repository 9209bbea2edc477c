"""Pending acks: appends to one partition that wait until their records satisfy the acks.

Most produce requests consist of a single batch, and with the default settings each of them waits
for a sync. Such requests wait here instead of in a purgatory. The appends to a partition become
durable in the order of their offsets, so they wait in this order, and when the partition has
changed, only those at the front are checked. An append that waits costs a single object and a few
dictionary entries. All deadlines share a timing wheel (timing_wheel.py).

A request with several partitions waits in the purgatory (delayed_produce.py), as does an append
whose offsets do not follow those of the appends that are already waiting.

`check` is called at the end of a `Turn`, never inside an append. Invariants: in each queue, offsets
increase; an append leaves its queue before its wait completes, so it completes once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from plog.errors import KafkaError
from plog.types import TopicPartition
from plogd.ports import Clock, Later, Timers
from plogd.replica.delayed_produce import PartitionAppend
from plogd.replica.partition import ACKS_ALL
from plogd.replica.timing_wheel import TimingWheel

_ACKS_LEADER = 1


class PendingAck(Later[list[PartitionAppend]]):
    """The wait of one append. Its value is a list of this append, the result of its request."""

    __slots__ = ("_pending_acks", "append", "bucket", "required_acks")

    def __init__(
        self,
        pending_acks: PendingAcks,
        append: PartitionAppend,
        required_acks: int,
    ) -> None:
        super().__init__()
        self._pending_acks = pending_acks
        self.append = append
        self.required_acks = required_acks
        self.bucket = 0
        """The bucket in the timing wheel."""

    def cancel(self) -> None:
        """Stop waiting, because the client has disconnected; the append is not undone."""
        self._pending_acks.remove(self)
        super().cancel()


_Queue = dict[PendingAck, None]
"""Appends in the order of their offsets. A dict, because a client can disconnect at any time."""


class PendingAcks:
    """The pending acks of all partitions.

    Attributes:
        expired: the number of appends that timed out.
    """

    def __init__(
        self, clock: Clock, timers: Timers, *, on_bug: Callable[[str, Exception], None]
    ) -> None:
        self._on_bug = on_bug
        self._deadlines: TimingWheel[PendingAck] = TimingWheel(clock, timers, self._expire)
        # Separate queues, because acks=1 does not wait for followers: it may be satisfied first.
        self._queues: dict[int, dict[TopicPartition, _Queue]] = {_ACKS_LEADER: {}, ACKS_ALL: {}}
        self.expired = 0

    def __len__(self) -> int:
        return sum(
            len(queue) for by_partition in self._queues.values() for queue in by_partition.values()
        )

    def add(
        self, append: PartitionAppend, required_acks: int, timeout_ms: float
    ) -> PendingAck | None:
        """Let `append`, which does not satisfy its acks yet, wait up to `timeout_ms`.

        Returns None if it must wait in the purgatory, because it could complete before the appends
        in its queue: it is a duplicate of an earlier batch, or is not written yet.
        """
        info = append.info
        assert info is not None, "an append without info must not wait"
        by_partition = self._queues.get(required_acks)
        if by_partition is None or info.writing is not None:
            return None
        key = append.topic_partition
        queue = by_partition.get(key)
        if queue:
            last = next(reversed(queue)).append.info
            assert last is not None
            if last.last_offset >= info.last_offset:
                return None
        pending = PendingAck(self, append, required_acks)
        # First, so that the append does not enter its queue if the timer cannot be set.
        pending.bucket = self._deadlines.add(pending, timeout_ms)
        if queue is None:
            by_partition[key] = {pending: None}
        else:
            queue[pending] = None
        return pending

    def check(self, key: TopicPartition) -> None:
        """Complete the appends to partition `key` that satisfy their acks or have failed."""
        for by_partition in self._queues.values():
            queue = by_partition.get(key)
            if queue is None:
                continue
            ended = []
            for pending in queue:
                if self._is_waiting(pending):
                    break
                ended.append(pending)
            if len(ended) == len(queue):
                del by_partition[key]
            else:
                for pending in ended:
                    del queue[pending]
            self._complete(ended)

    def _is_waiting(self, pending: PendingAck) -> bool:
        try:
            return pending.append.is_waiting(pending.required_acks)
        except Exception as error:
            self._on_bug("checking an append that waits for its acks", error)
            # It fails, so that the bug neither recurs in every check nor delays other appends.
            pending.append.error = KafkaError("unexpected error; see the broker log")
            return False

    def _complete(self, ended: Iterable[PendingAck]) -> None:
        for pending in ended:
            self._deadlines.remove(pending, pending.bucket)
            try:
                # Without effect if the completion of an earlier one has cancelled this one.
                pending.succeed([pending.append])
            except Exception as error:
                self._on_bug("completing an append that has waited for its acks", error)

    def remove(self, pending: PendingAck) -> None:
        """Remove `pending`; do nothing if it is not waiting."""
        by_partition = self._queues[pending.required_acks]
        key = pending.append.topic_partition
        self._deadlines.remove(pending, pending.bucket)
        queue = by_partition.get(key)
        if queue is not None:
            queue.pop(pending, None)
            if not queue:
                del by_partition[key]

    def _expire(self, pending: PendingAck) -> None:
        # Completing one append may have cancelled another one of the same bucket.
        if pending.done:
            return
        self.remove(pending)
        # Checked once more: the records may have become durable since the last check.
        if self._is_waiting(pending):
            pending.append.time_out()
            self.expired += 1
        self._complete([pending])
