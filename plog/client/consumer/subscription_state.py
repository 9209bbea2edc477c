"""The assignment of a consumer and its position in each partition.

A partition starts without a position. A seek or a committed offset sets it, or the leader looks it
up (a reset). A position whose leader epoch is known is validated with each new leader before more
records are fetched, because that leader may have a shorter log (KIP-320). Then the partition
is fetched: `fetch_offset` runs ahead of `position`, and the records between the two are buffered.

Every assignment, seek, reset and validation gives the partition a new generation. A response to a
request of an older generation is ignored, so that a late response can neither move a position nor
add records.

The engine's thread and the consuming thread share this state under a lock. Methods acquire it,
except those of `PartitionState` and those whose docstring says otherwise. Source: Kafka 3.9
SubscriptionState.
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

# Smaller than any generation of an assigned partition, so nothing in flight matches it.
_UNASSIGNED = 0


class SubscriptionState:
    """The assigned partitions; `default_reset` is auto.offset.reset, or None for ``none``."""

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

    # -- calls of the application -----------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign exactly these partitions; those already assigned keep their position."""
        with self.lock:
            before = self.states
            self.states = {
                partition: before.get(partition) or PartitionState(partition, self._next())
                for partition in partitions
            }
            for partition, state in before.items():
                if partition not in self.states:
                    # Late responses must not apply to a partition that was removed and assigned
                    # again.
                    state.generation = _UNASSIGNED
                    # Shows the buffer that it may hold data of a removed partition.
                    self._generation += 1
                    self._errors.pop(partition, None)
        # Outside the lock, because listeners call methods that acquire it.
        self.on_assign()

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The assigned partitions."""
        with self.lock:
            return frozenset(self.states)

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int | None = None) -> None:
        """Set the position; `leader_epoch` is the epoch of the record before it, if known."""
        if offset < 0:
            raise ValueError(f"cannot seek {partition} to offset {offset}: it is negative")
        with self.lock:
            self._place(self._state(partition), offset, leader_epoch)

    def request_reset(self, partition: TopicPartition, reset: ResetTo) -> None:
        """Continue at the target `reset`, once the leader has looked up its offset."""
        with self.lock:
            self._reset(self._state(partition), reset)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Stop fetching these partitions and handing out their buffered records, which are kept."""
        self._set_paused(partitions, True)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Fetch these partitions and hand out their records again."""
        self._set_paused(partitions, False)

    def _set_paused(self, partitions: Collection[TopicPartition], is_paused: bool) -> None:
        with self.lock:
            for state in [self._state(partition) for partition in partitions]:
                state.is_paused = is_paused

    def withhold(self, partitions: Collection[TopicPartition]) -> None:
        """Stop fetching `partitions`, which are being revoked, and handing out their records.

        Replaces the previous set; pass `()` to undo. Independent of the application's `paused`.
        """
        with self.lock:
            was = [state.is_withheld for state in self.states.values()]
            for partition, state in self.states.items():
                state.is_withheld = partition in partitions
        # New fetches are possible only if a partition was withheld before.
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
        """Return the offsets to commit for all records handed out, without those `held_back`."""
        # Outside the lock, because it calls the face.
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
                # A position that is being validated is not committed: it may be in a part of the
                # log that was truncated (KIP-320).
                if state.position is not None and state.phase is Phase.FETCHING
            }

    def lag(self, partition: TopicPartition) -> int | None:
        """Return the number of records from the position to the end, or None if it is unknown.

        The end depends on isolation.level.
        """
        with self.lock:
            return self._lag(self._state(partition))

    def _lag(self, state: PartitionState) -> int | None:
        end = state.last_stable_offset if self._read_committed else state.high_watermark
        if end is None or state.position is None:
            return None
        # A seek may have set a position beyond the end.
        return max(0, end - state.position)

    def lags(self) -> dict[TopicPartition, tuple[int | None, int | None]]:
        """Return the lag and lead of each partition: the distances to its log's end and start."""
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
        """Return the partitions without a position for which no lookup has started."""
        with self.lock:
            return [x.partition for x in self.states.values() if x.phase is Phase.NO_OFFSET]

    def begin_initial(self, now_s: float) -> list[tuple[PartitionState, int]]:
        """Return the partitions of `needs_offset` that are due, with their generations.

        They are not returned again until their request has failed.
        """
        with self.lock:
            due = [
                state
                for state in self.states.values()
                if state.phase is Phase.NO_OFFSET and state.retry_at_s <= now_s
            ]
            for state in due:
                # Not due again until `back_off` or a new generation.
                state.retry_at_s = math.inf
            return [(state, state.generation) for state in due]

    def begin_inquiries(self, now_s: float) -> list[Inquiry]:
        """Return the requests to leaders that are due, each only once until it is answered."""
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
        """Set the position found for a partition, unless its generation has changed."""
        with self.lock:
            if state.generation != generation:
                return False
            self._place(state, offset, leader_epoch)
            return True

    def reset_by_default(self, state: PartitionState, generation: int) -> bool:
        """Reset by auto.offset.reset; False if that is ``none`` or the generation has changed.

        offset_reset.py calls this.
        """
        with self.lock:
            if self.default_reset is None or state.generation != generation:
                return False
            self._reset(state, self.default_reset)
            return True

    def reset_elsewhere(self, state: PartitionState, generation: int, reset: ResetTo) -> None:
        """Reset to `reset` instead, because the previous target has no offset."""
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
        """Update the leaders from metadata, and return the partitions without one."""
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
                # A follower that left the cluster or whose disk failed does not respond (KIP-392).
                if known is None or not _is_online(state.replica, known, metadata):
                    state.replica = NO_NODE
                if state.leader == NO_NODE:
                    leaderless.append(partition)
                # KIP-320: a new leader may have a shorter log, so a position read under another
                # epoch is validated.
                if known is not None and known.leader_epoch != state.leader_epoch:
                    state.leader_epoch = known.leader_epoch
                    state.replica = NO_NODE  # The new leader has not selected this follower.
                    self._validate(state)
        return leaderless

    def _notice_new_topic(self, state: PartitionState, topic: TopicMetadata) -> None:
        before, state.topic_id = state.topic_id, topic.topic_id
        # Brokers older than KIP-516 return no topic ID.
        if ZERO_UUID in (before, topic.topic_id) or before == topic.topic_id:
            return
        # A topic that was deleted and recreated has a new log, in which old bounds and positions
        # are meaningless.
        state.high_watermark = state.last_stable_offset = state.log_start_offset = None
        state.replica = NO_NODE
        if state.phase in (Phase.NO_OFFSET, Phase.RESETTING):
            return
        state.position, state.position_epoch = None, NO_EPOCH
        state.phase = Phase.NO_OFFSET
        self._restart(state)
        # All records of the new log are unread.
        if self.default_reset is not None:
            self._reset(state, EARLIEST)

    def _validate(self, state: PartitionState) -> None:
        if state.phase in (Phase.NO_OFFSET, Phase.RESETTING):
            return
        # Without both epochs there is nothing to compare: old brokers and seeks to a plain offset
        # provide none.
        is_known = state.position_epoch != NO_EPOCH and state.leader_epoch != NO_EPOCH
        state.phase = Phase.VALIDATING if is_known else Phase.FETCHING
        self._restart(state)

    def forget_replica(self, state: PartitionState) -> bool:
        """Fetch from the leader again; return False if it was not read from a follower."""
        with self.lock:
            had_one = state.replica != NO_NODE
            state.replica = NO_NODE
            return had_one

    def forget_node(self, node_id: int) -> bool:
        """Stop reading from this follower; return False if no partition was read from it."""
        with self.lock:
            had = [state for state in self.states.values() if state.replica == node_id]
            for state in had:
                state.replica = NO_NODE
            return bool(had)

    # -- errors and retries -----------------------------------------------------------------------

    def back_off(
        self, state: PartitionState, generation: int, now_s: float, delay_s: Callable[[int], float]
    ) -> None:
        """Postpone requests for this partition; `delay_s` maps its failures so far to a delay."""
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
        """For the next poll, record an error that does not concern a partition's position.

        An error recorded under several keys is raised once.
        """
        with self.lock:
            self._errors[what] = error

    def clear_error(self, what: str) -> None:
        """Remove the error recorded by `fail_all` under this key."""
        with self.lock:
            self._errors.pop(what, None)

    def pop_error(self) -> Exception | None:
        """Remove and return the first recorded error, or None."""
        # Without the lock, because every poll calls this and there is usually no error.
        if not self._errors:
            return None
        with self.lock:
            error = next(iter(self._errors.values()), None)
            # An error that concerns several partitions is raised once.
            self._errors = {x: other for x, other in self._errors.items() if other is not error}
            return error

    def pop_error_of(self, partition: TopicPartition) -> Exception | None:
        """Remove and return the recorded error of a partition or its topic, or None."""
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
        """Return the time of the next retry for a partition in one of these phases."""
        with self.lock:
            times = [
                x.retry_at_s
                for x in self.states.values()
                if x.phase in phases and now_s < x.retry_at_s < math.inf
            ]
        return min(times, default=None)

    def unknown_for(self, patience_s: float, now_s: float) -> list[tuple[PartitionState, int]]:
        """Return partitions missing from the metadata for `patience_s`, once per period.

        Each comes with its generation.
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
        """Return when `unknown_for` will next return a partition."""
        with self.lock:
            since = [
                x.unknown_since_s for x in self.states.values() if x.unknown_since_s is not None
            ]
        return min(since) + patience_s if since else None

    # -- with the lock held -----------------------------------------------------------------------

    def restart_locked(self, state: PartitionState) -> None:
        """Fetch again from the position, discarding buffered records and requests in flight.

        The caller holds the lock.
        """
        self._restart(state)

    @property
    def last_generation(self) -> int:
        """A number that increases whenever buffered data may have become stale."""
        return self._generation

    def clear_error_locked(self, partition: TopicPartition) -> None:
        """Remove the error of this partition. The caller holds the lock."""
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
        # Requests in flight and buffered records belong to the old generation, and are dropped.
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
        # The leader may have changed since the position was committed.
        self._validate(state)

    def _reset(self, state: PartitionState, reset: ResetTo) -> None:
        state.phase, state.reset = Phase.RESETTING, reset
        state.position, state.position_epoch = None, NO_EPOCH
        self._restart(state)


def _is_online(node_id: int, partition: PartitionMetadata, metadata: ClusterMetadata) -> bool:
    return node_id in metadata.brokers and node_id not in partition.offline
