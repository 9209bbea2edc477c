"""Pending acks: appends to one partition that wait until their records satisfy the acks.

Most produce requests consist of a single batch, and with the default settings each of them waits
for a sync. Such requests wait here instead of in a purgatory. The appends to a partition become
durable in the order of their offsets, so they wait in this order, and when the partition has
changed, only those at the front are checked. An append that waits costs a single object and a
dictionary entry. All deadlines share one timer, which is set for the earliest of them.

A request with several partitions waits in the purgatory (delayed_produce.py), as does an append
whose offsets do not follow those of the appends that are already waiting.

`check` is called at the end of a `Turn`, never inside an append. Invariants: in each queue, offsets
increase; an append leaves its queue before its wait completes, so it completes once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import ceil, inf

from plog.errors import KafkaError
from plog.types import TopicPartition
from plogd.ports import Clock, Later, Timer, Timers
from plogd.replica.delayed_produce import PartitionAppend
from plogd.replica.partition import ACKS_ALL

TICK_MS = 10
"""Appends time out at most this late, so that different timeouts share a call of the timer."""

_ACKS_LEADER = 1


class PendingAck(Later[list[PartitionAppend]]):
    """The wait of one append. Its value is a list of this append, the result of its request."""

    __slots__ = ("_pending_acks", "append", "deadline_ms", "required_acks")

    def __init__(
        self,
        pending_acks: PendingAcks,
        append: PartitionAppend,
        required_acks: int,
        deadline_ms: float,
    ) -> None:
        super().__init__()
        self._pending_acks = pending_acks
        self.append = append
        self.required_acks = required_acks
        self.deadline_ms = deadline_ms

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
        self._clock = clock
        self._timers = timers
        self._on_bug = on_bug
        # Separate queues, because acks=1 does not wait for followers: it may be satisfied first.
        self._queues: dict[int, dict[TopicPartition, _Queue]] = {_ACKS_LEADER: {}, ACKS_ALL: {}}
        self._timer: Timer | None = None
        self._timer_ms = inf
        """When the timer is due, at most a tick after the earliest deadline; `inf` without one."""
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
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        if deadline_ms < self._timer_ms - TICK_MS:
            # First, so that the append is not added if the timer cannot be set.
            self._set_timer(deadline_ms)
        pending = PendingAck(self, append, required_acks, deadline_ms)
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
            try:
                # Without effect if the completion of an earlier one has cancelled this one.
                pending.succeed([pending.append])
            except Exception as error:
                self._on_bug("completing an append that has waited for its acks", error)

    def remove(self, pending: PendingAck) -> None:
        """Remove `pending`; do nothing if it is not waiting."""
        by_partition = self._queues[pending.required_acks]
        key = pending.append.topic_partition
        queue = by_partition.get(key)
        if queue is not None:
            queue.pop(pending, None)
            if not queue:
                del by_partition[key]

    # -- timeouts -----------------------------------------------------------------------------

    def _set_timer(self, deadline_ms: float) -> None:
        """Set the timer for the end of the tick that contains `deadline_ms`."""
        due_ms = ceil(deadline_ms / TICK_MS) * TICK_MS
        delay_ms = due_ms - self._clock.monotonic_ms()
        timer = self._timers.call_later(max(0.0, delay_ms), self._expire_due)
        if self._timer is not None:
            # Only now, so that the old timer stays in force if the new one cannot be set.
            self._timer.cancel()
        self._timer, self._timer_ms = timer, due_ms

    def _expire_due(self) -> None:
        """Fail the appends whose deadline has passed, and set the timer for the next one."""
        self._timer, self._timer_ms = None, inf
        now_ms = self._clock.monotonic_ms()
        due: list[PendingAck] = []
        next_ms = inf
        # Usually, no append is due, because the one for which the timer was set has completed. The
        # next timer is then set for a new append, so this loop runs once per timeout.
        for by_partition in self._queues.values():
            for queue in by_partition.values():
                for pending in queue:
                    if pending.deadline_ms <= now_ms:
                        due.append(pending)
                    else:
                        next_ms = min(next_ms, pending.deadline_ms)
        for pending in due:
            self.remove(pending)
            # Checked once more: the records may have become durable since the last check.
            if self._is_waiting(pending):
                pending.append.time_out()
                self.expired += 1
        self._complete(due)
        # The completions may have added appends, and set the timer for them.
        if next_ms < self._timer_ms - TICK_MS:
            self._set_timer(next_ms)
