"""The buffer of fetched records that have not been taken yet, in order of arrival.

The engine adds fetches. The consuming thread gets the first fetch from which it may take records,
decodes records outside the lock, and then reports its progress. Data from an older generation of
its partition is dropped. Therefore, records are returned only if the partition's position was moved
past them in the same step.

The buffer uses the lock of `SubscriptionState`.
"""

from __future__ import annotations

import math
from collections import deque

from plog.client.consumer.completed_fetch import CompletedFetch
from plog.client.consumer.partition_state import PartitionState, Phase
from plog.client.consumer.subscription_state import SubscriptionState


class Buffered:
    """The data of one partition from one fetch, in the buffer."""

    __slots__ = ("fetched", "generation", "size_bytes", "state", "taken")

    def __init__(self, state: PartitionState, generation: int, fetched: CompletedFetch) -> None:
        self.state = state
        self.generation = generation
        self.fetched = fetched
        self.size_bytes = fetched.size_bytes
        self.taken = 0
        """The number of records handed out so far."""


class FetchBuffer:
    """The queue of fetches whose records the consuming thread has not taken yet."""

    def __init__(self, positions: SubscriptionState) -> None:
        self._positions = positions
        self._lock = positions.lock
        self._queue: deque[Buffered] = deque()
        self._seen_generation = positions.last_generation
        self.wants_room_notice = False
        """Whether the engine must be notified when there is room. Guarded by the lock."""

    def __len__(self) -> int:
        return len(self._queue)

    def add(
        self,
        state: PartitionState,
        generation: int,
        fetch_offset: int,
        next_offset: int,
        fetched: CompletedFetch,
    ) -> bool:
        """Buffer the records fetched from `fetch_offset` up to `next_offset`.

        Returns False if the partition's position has changed since the request.
        """
        with self._lock:
            if state.generation != generation or state.fetch_offset != fetch_offset:
                return False
            if state.phase is not Phase.FETCHING:
                return False
            self._drop_stale()
            state.fetch_offset = next_offset
            state.buffered_bytes += fetched.size_bytes
            # Corrupt data blocks the partition until the application has received the error.
            state.failures, state.retry_at_s = 0, math.inf if fetched.ends_damaged else 0.0
            self._positions.clear_error_locked(state.partition)
            self._queue.append(Buffered(state, generation, fetched))
            # Move a partition with new data to the end: if responses are full, the brokers return
            # the other partitions first next time.
            states = self._positions.states
            states[state.partition] = states.pop(state.partition)
            return True

    def _drop_stale(self) -> None:
        last_generation = self._positions.last_generation
        # Usually, one comparison is enough: no seek or revocation has happened since the last call.
        if last_generation != self._seen_generation:
            self._seen_generation = last_generation
            fresh = [one for one in self._queue if one.state.generation == one.generation]
            self._queue.clear()
            self._queue.extend(fresh)

    def first(self) -> Buffered | None:
        """Return the first fetch from which records may be taken now, or None."""
        # No lock is needed: if the engine adds a fetch right after this check, it calls `on_data`.
        if not self._queue:
            return None
        with self._lock:
            self._drop_stale()
            # Paused partitions keep their data but must not block the partitions after them.
            for one in self._queue:
                if one.state.is_open:
                    return one
            return None

    def took(self, one: Buffered) -> bool:
        """Move the position to the progress of `one`.

        Returns False if the position has changed in the meantime. The caller must then discard the
        records.
        """
        state, fetched = one.state, one.fetched
        with self._lock:
            # A concurrent seek or revocation takes precedence, so the position must not move.
            if state.generation != one.generation:
                return False
            state.position = fetched.next_offset
            if fetched.leader_epoch >= 0:
                state.position_epoch = fetched.leader_epoch
            if fetched.is_done:
                self._remove(one)
            return True

    def _remove(self, one: Buffered) -> None:
        one.state.buffered_bytes -= one.size_bytes
        # It is usually the first fetch, but fetches of paused partitions may precede it.
        if self._queue and self._queue[0] is one:
            self._queue.popleft()
        else:
            self._queue.remove(one)

    def failed(self, one: Buffered, retry_at_s: float) -> bool:
        """Schedule another fetch, starting at the failed record of `one`, at `retry_at_s`.

        Returns False if the partition's generation has changed: the error no longer applies.
        """
        state = one.state
        with self._lock:
            if state.generation != one.generation:
                return False
            state.position = one.fetched.next_offset
            # The new generation drops the damaged data, so that it is fetched again later.
            self._positions.restart_locked(state)
            state.retry_at_s = retry_at_s
            self._drop_stale()
            return True

    def pop_room_notice(self) -> bool:
        """Return whether the engine must be notified that there is room, and clear the flag."""
        # Every consumed fetch checks the flag, which is usually not set, so first check it without
        # the lock.
        if not self.wants_room_notice:
            return False
        with self._lock:
            was, self.wants_room_notice = self.wants_room_notice, False
            return was
