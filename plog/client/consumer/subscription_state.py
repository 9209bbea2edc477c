"""What a consumer is assigned, and how far it has come in each partition.

A partition has no position at first. One is given to it by a seek or a committed offset, or found
by asking its leader (a reset). A position whose leader epoch is known is validated against each new
leader before more is fetched, for that one may have a shorter log (KIP-320). Then it is fetched
from: `fetch_offset` runs ahead of `position`, what lies between the two is buffered.

Every assignment, seek, reset and validation gives the partition a new generation. Whatever was
asked for an older one is not applied any more when it comes: so a late answer can neither move a
position nor bring records for it.

The engine's thread and the consuming one share this, hence the lock. Methods take it, but those of
`PartitionState` and those whose text says otherwise. Source: Kafka 3.9 SubscriptionState.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from threading import Lock

from plog.client.consumer.offset_reset import EARLIEST, ResetTo
from plog.client.consumer.partition_state import NO_EPOCH, Inquiry, PartitionState, Phase
from plog.client.errors import IllegalState
from plog.client.network.metadata import NO_NODE, ClusterMetadata, PartitionMetadata, TopicMetadata
from plog.client.values import OffsetAndMetadata
from plog.types import ZERO_UUID, TopicPartition

_UNASSIGNED = 0


class SubscriptionState:
    """See the module's text. `default_reset` is auto.offset.reset, None for ``none``."""

    def __init__(
        self, *, default_reset: ResetTo | None = None, read_committed: bool = False
    ) -> None:
        self.lock = Lock()
        self.default_reset = default_reset
        self.states: dict[TopicPartition, PartitionState] = {}
        """In the order in which they are to be fetched. Use under the lock."""
        self._read_committed = read_committed
        self._generation = _UNASSIGNED
        self._errors: dict[TopicPartition | str, Exception] = {}
        self.held_back: Callable[[], Mapping[TopicPartition, int]] = dict
        """Where the application goes on, where it has not had all that was taken."""
        self.on_assign: Callable[[], None] = lambda: None
        """Called when other partitions are assigned, by whoever does it."""

    # -- what the application does ----------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Exactly these from now on; those that stay keep their position."""
        with self.lock:
            before = self.states
            self.states = {
                partition: before.get(partition) or PartitionState(partition, self._next())
                for partition in partitions
            }
            for partition, state in before.items():
                if partition not in self.states:
                    state.generation = _UNASSIGNED
                    self._generation += 1
                    self._errors.pop(partition, None)
        self.on_assign()

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions that are assigned."""
        with self.lock:
            return frozenset(self.states)

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int | None = None) -> None:
        """Go on at `offset`; `leader_epoch` is that of the record before it, if it is known."""
        if offset < 0:
            raise ValueError(f"{partition}: there is no offset {offset}")
        with self.lock:
            self._place(self._state(partition), offset, leader_epoch)

    def request_reset(self, partition: TopicPartition, reset: ResetTo) -> None:
        """Go on where `reset` leads, once the leader has told where that is."""
        with self.lock:
            self._reset(self._state(partition), reset)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Neither fetch these nor hand out what is buffered of them, which is kept."""
        self._set_paused(partitions, True)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Undo `pause`."""
        self._set_paused(partitions, False)

    def _set_paused(self, partitions: Collection[TopicPartition], is_paused: bool) -> None:
        with self.lock:
            for state in [self._state(partition) for partition in partitions]:
                state.is_paused = is_paused

    def withhold(self, partitions: Collection[TopicPartition]) -> None:
        """Neither fetch these nor hand out anything of them: they are about to go. Undone by `()`.

        An application that is asked does not hear of it; `paused` is its own business.
        """
        with self.lock:
            was = [state.is_withheld for state in self.states.values()]
            for partition, state in self.states.items():
                state.is_withheld = partition in partitions
        if any(was):
            self.on_assign()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The assigned partitions that are paused."""
        with self.lock:
            return frozenset(x.partition for x in self.states.values() if x.is_paused)

    def position(self, partition: TopicPartition) -> int | None:
        """The next offset the application gets; None if that is not known yet."""
        with self.lock:
            return self._state(partition).position

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a commit of everything handed out would commit; not what is `held_back`."""
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
                if state.position is not None and state.phase is Phase.FETCHING
            }

    def lag(self, partition: TopicPartition) -> int | None:
        """Records between the position and the end, None while one of the two is not known.

        The end is what isolation.level lets this consumer read up to.
        """
        with self.lock:
            return self._lag(self._state(partition))

    def _lag(self, state: PartitionState) -> int | None:
        end = state.last_stable_offset if self._read_committed else state.high_watermark
        if end is None or state.position is None:
            return None
        return max(0, end - state.position)

    def lags(self) -> dict[TopicPartition, tuple[int | None, int | None]]:
        """Records to the end and from the start of the log, for each partition."""
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
        """The partitions without a position that nobody is looking for."""
        with self.lock:
            return [x.partition for x in self.states.values() if x.phase is Phase.NO_OFFSET]

    def begin_initial(self, now_s: float) -> list[tuple[PartitionState, int]]:
        """Those of `needs_offset` whose turn it is, with their generations; asked for now."""
        with self.lock:
            due = [
                state
                for state in self.states.values()
                if state.phase is Phase.NO_OFFSET and state.retry_at_s <= now_s
            ]
            for state in due:
                state.retry_at_s = math.inf
            return [(state, state.generation) for state in due]

    def begin_inquiries(self, now_s: float) -> list[Inquiry]:
        """What there is to ask leaders now; until it is answered, it is not asked again."""
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
        """Give a partition the position that was found for it, if it still wants that one."""
        with self.lock:
            if state.generation != generation:
                return False
            self._place(state, offset, leader_epoch)
            return True

    def reset_by_default(self, state: PartitionState, generation: int) -> bool:
        """Let auto.offset.reset decide; False if it is ``none``, or nobody wants that any more."""
        with self.lock:
            if self.default_reset is None or state.generation != generation:
                return False
            self._reset(state, self.default_reset)
            return True

    def reset_elsewhere(self, state: PartitionState, generation: int, reset: ResetTo) -> None:
        """There was nothing where a reset was to lead: try `reset`."""
        with self.lock:
            if state.generation == generation:
                self._reset(state, reset)

    def validated(self, state: PartitionState, generation: int) -> None:
        """The leader's log holds what the position follows."""
        with self.lock:
            if state.generation == generation:
                state.phase = Phase.FETCHING
                state.retry_at_s, state.failures = 0.0, 0

    # -- who leads --------------------------------------------------------------------------------

    def update_leaders(self, metadata: ClusterMetadata, now_s: float) -> list[TopicPartition]:
        """Take in who leads what; the partitions that nobody leads.

        A position that was read under another leader epoch has to be validated. A topic that was
        deleted and made again is another log, where an old position means nothing.
        """
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
                if known is None or not _is_online(state.replica, known, metadata):
                    state.replica = NO_NODE
                if state.leader == NO_NODE:
                    leaderless.append(partition)
                if known is not None and known.leader_epoch != state.leader_epoch:
                    state.leader_epoch = known.leader_epoch
                    state.replica = NO_NODE  # This leader has not named it.
                    self._validate(state)
        return leaderless

    def _notice_new_topic(self, state: PartitionState, topic: TopicMetadata) -> None:
        before, state.topic_id = state.topic_id, topic.topic_id
        if ZERO_UUID in (before, topic.topic_id) or before == topic.topic_id:
            return
        state.high_watermark = state.last_stable_offset = state.log_start_offset = None
        state.replica = NO_NODE
        if state.phase in (Phase.NO_OFFSET, Phase.RESETTING):
            return
        state.position, state.position_epoch = None, NO_EPOCH
        state.phase = Phase.NO_OFFSET
        self._restart(state)
        if self.default_reset is not None:
            self._reset(state, EARLIEST)  # All of the new log is new, whatever the policy says.

    def _validate(self, state: PartitionState) -> None:
        if state.phase in (Phase.NO_OFFSET, Phase.RESETTING):
            return
        is_known = state.position_epoch != NO_EPOCH and state.leader_epoch != NO_EPOCH
        state.phase = Phase.VALIDATING if is_known else Phase.FETCHING
        self._restart(state)

    def forget_replica(self, state: PartitionState) -> bool:
        """Go back to the leader; False if it was the leader that was asked."""
        with self.lock:
            had_one = state.replica != NO_NODE
            state.replica = NO_NODE
            return had_one

    def forget_node(self, node_id: int) -> bool:
        """This one does not answer; False if it was nobody's follower to read from."""
        with self.lock:
            had = [state for state in self.states.values() if state.replica == node_id]
            for state in had:
                state.replica = NO_NODE
            return bool(had)

    # -- errors and retries -----------------------------------------------------------------------

    def back_off(
        self, state: PartitionState, generation: int, now_s: float, delay_s: Callable[[int], float]
    ) -> None:
        """Ask nothing of this partition for `delay_s` of the failures up to now."""
        with self.lock:
            if state.generation == generation:
                state.retry_at_s = now_s + delay_s(state.failures)
                state.failures += 1

    def fail(self, state: PartitionState, generation: int, error: Exception) -> bool:
        """Have the application told; False if the partition's generation is another now."""
        with self.lock:
            if state.generation != generation:
                return False
            self._errors[state.partition] = error
            return True

    def fail_all(self, what: TopicPartition | str, error: Exception) -> None:
        """Have the next poll raise an error that is not about the position of a partition.

        One error under several keys is raised once.
        """
        with self.lock:
            self._errors[what] = error

    def clear_error(self, what: str) -> None:
        """What `fail_all` was told of this is no more."""
        with self.lock:
            self._errors.pop(what, None)

    def pop_error(self) -> Exception | None:
        """The first error that the application has not been told yet."""
        if not self._errors:  # Without the lock: nearly always it ends here.
            return None
        with self.lock:
            error = next(iter(self._errors.values()), None)
            # One error may concern several partitions; it is told once.
            self._errors = {x: other for x, other in self._errors.items() if other is not error}
            return error

    def pop_error_of(self, partition: TopicPartition) -> Exception | None:
        """What the application has not been told of this partition; it counts as told then."""
        with self.lock:
            return self._errors.pop(partition, None) or self._errors.pop(partition.topic, None)

    @property
    def has_error(self) -> bool:
        """Whether `pop_error` has one."""
        return bool(self._errors)

    def is_drained(self, state: PartitionState, generation: int) -> bool:
        """Whether all that was fetched of this generation has been taken."""
        with self.lock:
            return state.generation == generation and state.position == state.fetch_offset

    def next_retry_s(self, phases: Collection[Phase], now_s: float) -> float | None:
        """When the first partition in one of these phases may be asked about again."""
        with self.lock:
            times = [
                x.retry_at_s
                for x in self.states.values()
                if x.phase in phases and now_s < x.retry_at_s < math.inf
            ]
        return min(times, default=None)

    def unknown_for(self, patience_s: float, now_s: float) -> list[tuple[PartitionState, int]]:
        """The partitions that nobody has known for so long, and their generations; once each."""
        found = []
        with self.lock:
            for state in self.states.values():
                since_s = state.unknown_since_s
                if since_s is not None and now_s - since_s >= patience_s:
                    state.unknown_since_s = now_s
                    found.append((state, state.generation))
        return found

    def next_unknown_s(self, patience_s: float) -> float | None:
        """When `unknown_for` will have the next one."""
        with self.lock:
            since = [
                x.unknown_since_s for x in self.states.values() if x.unknown_since_s is not None
            ]
        return min(since) + patience_s if since else None

    # -- with the lock held -----------------------------------------------------------------------

    def restart_locked(self, state: PartitionState) -> None:
        """Fetch anew from the position on: what is buffered or asked for is not wanted any more.

        The lock must be held.
        """
        self._restart(state)

    @property
    def last_generation(self) -> int:
        """Changes whenever something fetched before may not be wanted any more."""
        return self._generation

    def clear_error_locked(self, partition: TopicPartition) -> None:
        """What was wrong with this partition is no more. The lock must be held."""
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
        self._validate(state)

    def _reset(self, state: PartitionState, reset: ResetTo) -> None:
        state.phase, state.reset = Phase.RESETTING, reset
        state.position, state.position_epoch = None, NO_EPOCH
        self._restart(state)


def _is_online(node_id: int, partition: PartitionMetadata, metadata: ClusterMetadata) -> bool:
    return node_id in metadata.brokers and node_id not in partition.offline
