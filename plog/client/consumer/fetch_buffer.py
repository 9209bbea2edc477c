"""What was fetched and not taken yet, in the order it came.

The engine adds; the one consuming thread looks at the first one it may take from, decodes outside
the lock, and then says how far it has come. Whatever belongs to an older generation of its
partition is dropped, however far it had come by then; so records are handed out only if the
partition's position was moved behind them in the same moment.

Shares the lock of `SubscriptionState`.
"""

from __future__ import annotations

import math
from collections import deque

from plog.client.consumer.completed_fetch import CompletedFetch
from plog.client.consumer.partition_state import PartitionState, Phase
from plog.client.consumer.subscription_state import SubscriptionState


class Buffered:
    """A fetched partition in its place in the buffer."""

    __slots__ = ("fetched", "generation", "size_bytes", "state", "taken")

    def __init__(self, state: PartitionState, generation: int, fetched: CompletedFetch) -> None:
        self.state = state
        self.generation = generation
        self.fetched = fetched
        self.size_bytes = fetched.size_bytes
        self.taken = 0
        """Records of it handed out so far."""


class FetchBuffer:
    """See the module's text."""

    def __init__(self, positions: SubscriptionState) -> None:
        self._positions = positions
        self._lock = positions.lock
        self._queue: deque[Buffered] = deque()
        self._seen_generation = positions.last_generation
        self.is_waited_for = False
        """Whether the engine wants to know when there is room again. Use under the lock."""

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
        """Keep what was fetched from `fetch_offset` up to `next_offset`.

        False if nobody wants that any more: the position is another now.
        """
        with self._lock:
            if state.generation != generation or state.fetch_offset != fetch_offset:
                return False
            if state.phase is not Phase.FETCHING:
                return False
            self._drop_stale()
            state.fetch_offset = next_offset
            state.buffered_bytes += fetched.size_bytes
            # Behind damage nothing can be fetched until the application has been told of it.
            state.failures, state.retry_at_s = 0, math.inf if fetched.ends_damaged else 0.0
            self._positions.clear_error_locked(state.partition)
            self._queue.append(Buffered(state, generation, fetched))
            # Who got something goes last, so that a full answer does not starve the others.
            states = self._positions.states
            states[state.partition] = states.pop(state.partition)
            return True

    def _drop_stale(self) -> None:
        last_generation = self._positions.last_generation
        if last_generation != self._seen_generation:
            self._seen_generation = last_generation
            fresh = [one for one in self._queue if one.state.generation == one.generation]
            self._queue.clear()
            self._queue.extend(fresh)

    def first(self) -> Buffered | None:
        """The first one that may be taken from now; None if there is none."""
        if not self._queue:  # Without the lock: what comes now is announced by `on_data`.
            return None
        with self._lock:
            self._drop_stale()
            for one in self._queue:
                if one.state.is_open:
                    return one
            return None

    def took(self, one: Buffered) -> bool:
        """Move the position to where `one` has come; False if nobody wants its records any more.

        Those records must then be forgotten.
        """
        state, fetched = one.state, one.fetched
        with self._lock:
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
        if self._queue and self._queue[0] is one:
            self._queue.popleft()
        else:
            self._queue.remove(one)

    def failed(self, one: Buffered, retry_at_s: float) -> bool:
        """`one` has raised an error: have all behind its records fetched anew, after a while.

        Returns whether that partition's generation was still wanted, so that somebody is told.
        """
        state = one.state
        with self._lock:
            if state.generation != one.generation:
                return False
            state.position = one.fetched.next_offset
            self._positions.restart_locked(state)
            state.retry_at_s = retry_at_s
            self._drop_stale()
            return True

    def pop_wish_for_room(self) -> bool:
        """Whether the engine has to be told that there may be room, once for each time it asks."""
        if not self.is_waited_for:
            return False
        with self._lock:
            was, self.is_waited_for = self.is_waited_for, False
            return was
