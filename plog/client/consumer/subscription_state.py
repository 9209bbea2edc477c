"""A consumer's assignment, and its position in each partition.

A partition starts without a position. The position is set by a seek, by a committed offset, or by a
reset, for which the leader looks up an offset. After a change of leader, a position with a known
leader epoch is validated before more records are fetched, because the new leader may have a shorter
log (KIP-320). While the partition is fetched, `fetch_offset` is ahead of `position`; the records
between them are buffered.

Every assignment, seek, reset and validation gives the partition a new generation. Responses to
requests from an older generation are ignored, so that a late response cannot move a position or add
records.

The engine's thread and the consuming thread share this state under a lock. Methods acquire the
lock, except methods of `PartitionState` and methods whose docstring says otherwise. Source: Kafka
3.9 SubscriptionState.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from threading import Lock

from plog.client.consumer.partition_state import NO_EPOCH, Inquiry, PartitionState, Phase
from plog.client.consumer.reset_target import EARLIEST, ResetTo
from plog.client.errors import IllegalState
from plog.client.network.metadata import NO_NODE, ClusterMetadata, PartitionMetadata, TopicMetadata
from plog.client.values import OffsetAndMetadata
from plog.types import ZERO_UUID, TopicPartition

# Assigned partitions have greater generations, so no request in flight matches this value.
_UNASSIGNED = 0


class SubscriptionState:
    """The assigned partitions. `default_reset` is auto.offset.reset, or None for ``none``."""

    def __init__(
        self, *, default_reset: ResetTo | None = None, read_committed: bool = False
    ) -> None:
        self.lock = Lock()
        self.default_reset = default_reset
        self.states: dict[TopicPartition, PartitionState] = {}
        """The partitions in fetch order. Guarded by the lock."""
        self._read_committed = read_committed
        self._generation = _UNASSIGNED
        self._errors: dict[TopicPartition | str, Exception] = {}
        self.held_back: Callable[[], Mapping[TopicPartition, int]] = dict
        """Returns the application's position in each partition with pending records."""
        self.on_assign: Callable[[], None] = lambda: None
        """Called when the assignment changes."""

    # -- calls by the application -----------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign exactly these partitions; partitions already assigned keep their positions."""
        with self.lock:
            before = self.states
            self.states = {
                partition: before.get(partition) or PartitionState(partition, self._next())
                for partition in partitions
            }
            for partition, state in before.items():
                if partition not in self.states:
                    # If the partition is assigned again, late responses must not apply to it.
                    state.generation = _UNASSIGNED
                    # The change makes the buffer check for data of removed partitions.
                    self._generation += 1
                    self._errors.pop(partition, None)
        # Release the lock first, because the function calls methods that acquire it.
        self.on_assign()

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The assigned partitions."""
        with self.lock:
            return frozenset(self.states)

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int | None = None) -> None:
        """Set a position; `leader_epoch` is the epoch of the record before it, if known."""
        if offset < 0:
            raise ValueError(f"cannot seek {partition} to offset {offset}: it is negative")
        with self.lock:
            self._place(self._state(partition), offset, leader_epoch)

    def request_reset(self, partition: TopicPartition, reset: ResetTo) -> None:
        """Continue at the target `reset` after the leader has looked up the offset."""
        with self.lock:
            self._reset(self._state(partition), reset)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Stop fetching these partitions and returning their records, but keep buffered records."""
        self._set_paused(partitions, True)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Resume fetching these partitions and returning their records."""
        self._set_paused(partitions, False)

    def _set_paused(self, partitions: Collection[TopicPartition], is_paused: bool) -> None:
        with self.lock:
            for state in [self._state(partition) for partition in partitions]:
                state.is_paused = is_paused

    def withhold(self, partitions: Collection[TopicPartition]) -> None:
        """Stop fetching partitions that are being revoked, and stop returning their records.

        The call replaces the previous set; pass `()` to undo it. It does not affect `paused`.
        """
        with self.lock:
            was = [state.is_withheld for state in self.states.values()]
            for partition, state in self.states.items():
                state.is_withheld = partition in partitions
        # Only the release of a withheld partition makes new fetches possible.
        if any(was):
            self.on_assign()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The assigned partitions that are paused."""
        with self.lock:
            return frozenset(x.partition for x in self.states.values() if x.is_paused)

    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset that the application reads next, or None if it is not known yet."""
        with self.lock:
            return self._state(partition).position

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to commit after all returned records, which excludes `held_back`."""
        # Call this without the lock, because it runs the face's code.
        held_back = self.held_back()
        with self.lock:
            return {
                partition: OffsetAndMetadata(held_back[partition])
                if partition in held_back
                else OffsetAndMetadata(
                    state.position,
                    leader_epoch=None if state.position_epoch < 0 else state.position_epoch,
                )
                for partition, state in self.states.items()
                # Do not commit a position that is being validated: it may be in a part of the log
                # that was truncated (KIP-320).
                if state.position is not None and state.phase is Phase.FETCHING
            }

    def lag(self, partition: TopicPartition) -> int | None:
        """Return the number of records from the position to the end, or None if it is unknown.

        With isolation.level=read_committed, the end is the last stable offset.
        """
        with self.lock:
            return self._lag(self._state(partition))

    def _lag(self, state: PartitionState) -> int | None:
        end = state.last_stable_offset if self._read_committed else state.high_watermark
        if end is None or state.position is None:
            return None
        # A seek may have set a position after the end.
        return max(0, end - state.position)

    def lags(self) -> dict[TopicPartition, tuple[int | None, int | None]]:
        """Return each partition's lag and lead: the distances to the log's end and start."""
        with self.lock:
            return {
                partition: (
                    self._lag(state),
                    None
                    if state.log_start_offset is None or state.position is None
                    else state.position - state.log_start_offset,
                )
                for partition, state in self.states.items()
            }

    # -- finding positions ------------------------------------------------------------------------

    def needs_offset(self) -> list[TopicPartition]:
        """Return the partitions that need an initial position."""
        with self.lock:
            return [x.partition for x in self.states.values() if x.phase is Phase.NO_OFFSET]

    def begin_initial(self, now_s: float) -> list[tuple[PartitionState, int]]:
        """Return the partitions that need an initial position now, with their generations.

        A partition is not returned again until its request has failed.
        """
        with self.lock:
            due = [
                state
                for state in self.states.values()
                if state.phase is Phase.NO_OFFSET and state.retry_at_s <= now_s
            ]
            for state in due:
                # This prevents a second request; `back_off` or a new generation resets the time.
                state.retry_at_s = math.inf
            return [(state, state.generation) for state in due]

    def begin_inquiries(self, now_s: float) -> list[Inquiry]:
        """Return the requests to leaders that are due, each only once unless it fails."""
        with self.lock:
            asked = []
            for state in self.states.values():
                if state.phase not in (Phase.RESETTING, Phase.VALIDATING):
                    continue
                if state.leader == NO_NODE or state.retry_at_s > now_s:
                    continue
                state.retry_at_s = math.inf
                asked.append(
                    Inquiry(
                        state=state,
                        generation=state.generation,
                        leader=state.leader,
                        leader_epoch=state.leader_epoch,
                        reset=state.reset,
                        position=state.position,
                        position_epoch=state.position_epoch,
                    )
                )
            return asked

    def place(
        self, state: PartitionState, generation: int, offset: int, leader_epoch: int | None = None
    ) -> bool:
        """Set the position that was found for a partition, unless its generation has changed."""
        with self.lock:
            if state.generation != generation:
                return False
            self._place(state, offset, leader_epoch)
            return True

    def reset_by_default(self, state: PartitionState, generation: int) -> bool:
        """Reset the position as auto.offset.reset specifies.

        Returns False if the setting is ``none`` or the generation has changed. offset_reset.py
        calls this.
        """
        with self.lock:
            if self.default_reset is None or state.generation != generation:
                return False
            self._reset(state, self.default_reset)
            return True

    def reset_elsewhere(self, state: PartitionState, generation: int, reset: ResetTo) -> None:
        """Reset to another target, because the log has no offset for the previous target."""
        with self.lock:
            if state.generation == generation:
                self._reset(state, reset)

    def validated(self, state: PartitionState, generation: int) -> None:
        """Record that the leader's log contains the position."""
        with self.lock:
            if state.generation == generation:
                state.phase = Phase.FETCHING
                state.retry_at_s, state.failures = 0.0, 0

    # -- leaders ----------------------------------------------------------------------------------

    def update_leaders(self, metadata: ClusterMetadata, now_s: float) -> list[TopicPartition]:
        """Update the leaders from metadata, and return the partitions without a leader."""
        leaderless = []
        with self.lock:
            for partition, state in self.states.items():
                topic = metadata.topics.get(partition.topic)
                known = metadata.partition(partition)
                if topic is not None and known is not None:
                    state.unknown_since_s = None
                    self._notice_new_topic(state, topic)
                elif state.unknown_since_s is None:
                    state.unknown_since_s = now_s
                leader = metadata.leader_of(partition)
                state.leader = NO_NODE if leader is None else leader
                # Do not wait for a follower that has left the cluster or is offline (KIP-392).
                if known is None or not _is_online(state.replica, known, metadata):
                    state.replica = NO_NODE
                if state.leader == NO_NODE:
                    leaderless.append(partition)
                # KIP-320: a new leader may have a shorter log, so validate the position.
                if known is not None and known.leader_epoch != state.leader_epoch:
                    state.leader_epoch = known.leader_epoch
                    # The new leader has not selected this follower.
                    state.replica = NO_NODE
                    self._validate(state)
        return leaderless

    def _notice_new_topic(self, state: PartitionState, topic: TopicMetadata) -> None:
        before, state.topic_id = state.topic_id, topic.topic_id
        # Brokers before KIP-516 do not return topic IDs.
        if ZERO_UUID in (before, topic.topic_id) or before == topic.topic_id:
            return
        # A recreated topic has a new log, for which the old offsets are meaningless.
        state.high_watermark = state.last_stable_offset = state.log_start_offset = None
        state.replica = NO_NODE
        if state.phase in (Phase.NO_OFFSET, Phase.RESETTING):
            return
        state.position, state.position_epoch = None, NO_EPOCH
        state.phase = Phase.NO_OFFSET
        self._restart(state)
        # Regardless of auto.offset.reset, start at the earliest offset: all records of the new log
        # are unread.
        if self.default_reset is not None:
            self._reset(state, EARLIEST)

    def _validate(self, state: PartitionState) -> None:
        if state.phase in (Phase.NO_OFFSET, Phase.RESETTING):
            return
        # Validation compares both epochs. Old brokers do not provide epochs, and neither do seeks
        # to a plain offset.
        is_known = state.position_epoch != NO_EPOCH and state.leader_epoch != NO_EPOCH
        state.phase = Phase.VALIDATING if is_known else Phase.FETCHING
        self._restart(state)

    def forget_replica(self, state: PartitionState) -> bool:
        """Fetch from the leader again; return False if the partition had no follower selected."""
        with self.lock:
            had_one = state.replica != NO_NODE
            state.replica = NO_NODE
            return had_one

    def forget_node(self, node_id: int) -> bool:
        """Stop fetching from this follower; return False if it was not used."""
        with self.lock:
            had = [state for state in self.states.values() if state.replica == node_id]
            for state in had:
                state.replica = NO_NODE
            return bool(had)

    # -- errors and retries -----------------------------------------------------------------------

    def back_off(
        self, state: PartitionState, generation: int, now_s: float, delay_s: Callable[[int], float]
    ) -> None:
        """Postpone requests for this partition; `delay_s` maps its failure count to a delay."""
        with self.lock:
            if state.generation == generation:
                state.retry_at_s = now_s + delay_s(state.failures)
                state.failures += 1

    def fail(self, state: PartitionState, generation: int, error: Exception) -> bool:
        """Record an error for the application; return False if the generation has changed."""
        with self.lock:
            if state.generation != generation:
                return False
            self._errors[state.partition] = error
            return True

    def fail_all(self, what: TopicPartition | str, error: Exception) -> None:
        """Record an error for the next poll that is not about a single partition's position.

        An error that is recorded under several keys is raised only once.
        """
        with self.lock:
            self._errors[what] = error

    def clear_error(self, what: str) -> None:
        """Remove the error that `fail_all` has recorded under this key."""
        with self.lock:
            self._errors.pop(what, None)

    def pop_error(self) -> Exception | None:
        """Remove and return the first recorded error, or None."""
        # Every poll calls this, and there is usually no error, so first check without the lock.
        if not self._errors:
            return None
        with self.lock:
            error = next(iter(self._errors.values()), None)
            # Several partitions may share an error, which must be raised only once.
            self._errors = {x: other for x, other in self._errors.items() if other is not error}
            return error

    def pop_error_of(self, partition: TopicPartition) -> Exception | None:
        """Remove and return the error recorded for a partition or its topic, or None."""
        with self.lock:
            return self._errors.pop(partition, None) or self._errors.pop(partition.topic, None)

    @property
    def has_error(self) -> bool:
        """Whether `pop_error` would return an error."""
        return bool(self._errors)

    def is_drained(self, state: PartitionState, generation: int) -> bool:
        """Return whether all fetched records of this generation have been taken."""
        with self.lock:
            return state.generation == generation and state.position == state.fetch_offset

    def next_retry_s(self, phases: Collection[Phase], now_s: float) -> float | None:
        """Return the time of the next retry among the partitions in these phases, or None."""
        with self.lock:
            times = [
                x.retry_at_s
                for x in self.states.values()
                if x.phase in phases and now_s < x.retry_at_s < math.inf
            ]
        return min(times, default=None)

    def unknown_for(self, patience_s: float, now_s: float) -> list[tuple[PartitionState, int]]:
        """Return partitions missing from the metadata for `patience_s`, with their generations.

        A partition that is still missing is returned again after `patience_s`.
        """
        found = []
        with self.lock:
            for state in self.states.values():
                since_s = state.unknown_since_s
                if since_s is not None and now_s - since_s >= patience_s:
                    # Counted from now, so that the error repeats once per period while the
                    # partition is missing.
                    state.unknown_since_s = now_s
                    found.append((state, state.generation))
        return found

    def next_unknown_s(self, patience_s: float) -> float | None:
        """Return when `unknown_for` will next return a partition, or None."""
        with self.lock:
            since = [
                x.unknown_since_s for x in self.states.values() if x.unknown_since_s is not None
            ]
        return min(since) + patience_s if since else None

    # -- with the lock held -----------------------------------------------------------------------

    def restart_locked(self, state: PartitionState) -> None:
        """Fetch from the position again; discard buffered records and requests in flight.

        The caller must hold the lock.
        """
        self._restart(state)

    @property
    def last_generation(self) -> int:
        """A number that increases whenever buffered data may have become invalid."""
        return self._generation

    def clear_error_locked(self, partition: TopicPartition) -> None:
        """Remove the error for this partition. The caller must hold the lock."""
        if self._errors:
            self._errors.pop(partition, None)

    def _state(self, partition: TopicPartition) -> PartitionState:
        state = self.states.get(partition)
        if state is None:
            raise IllegalState(f"{partition} is not assigned to this consumer")
        return state

    def _next(self) -> int:
        self._generation += 1
        return self._generation

    def _restart(self, state: PartitionState) -> None:
        # Requests in flight and buffered records belong to the old generation, so drop them.
        state.generation = self._next()
        state.fetch_offset = 0 if state.position is None else state.position
        state.buffered_bytes = 0
        state.retry_at_s, state.failures = 0.0, 0
        self._errors.pop(state.partition, None)

    def _place(self, state: PartitionState, offset: int, leader_epoch: int | None) -> None:
        state.position = offset
        state.position_epoch = NO_EPOCH if leader_epoch is None else leader_epoch
        state.reset = None
        state.phase = Phase.FETCHING
        # The leader may have changed since a position was committed.
        self._validate(state)

    def _reset(self, state: PartitionState, reset: ResetTo) -> None:
        state.phase, state.reset = Phase.RESETTING, reset
        state.position, state.position_epoch = None, NO_EPOCH
        self._restart(state)


def _is_online(node_id: int, partition: PartitionMetadata, metadata: ClusterMetadata) -> bool:
    return node_id in metadata.brokers and node_id not in partition.offline
