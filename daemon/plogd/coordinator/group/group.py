"""`Group`: the state machine of a classic consumer group and its members.

The table below lists the valid state transitions. rebalance.py moves a group from one generation to
the next, join_group.py admits members, and group_metadata_manager.py manages all groups of a shard.
The methods here make every change to a group's members, counters or state. They never wait, write
records or send responses.

Theory of operation. A group divides resources, usually partitions, among its members, and does so
again whenever its membership changes. The broker does not compute the assignment. It selects a
protocol that all members support, elects one of them as leader, and distributes the leader's
assignment to the others.

  1. A member joins. The group becomes PREPARING_REBALANCE. Heartbeat responses inform the other
     members, which then send JoinGroup again. The responses to JoinGroup are delayed.
  2. All members have joined, or the rebalance timeout has expired and the missing members are
     removed. The next generation starts, and every JoinGroup receives its response. The leader's
     response contains the metadata of all members. The group becomes COMPLETING_REBALANCE.
  3. All members send SyncGroup; the leader's request contains the assignment. Once the assignment
     is in the log, each member receives its part, and the group becomes STABLE.
  4. When a member leaves, or does not send a request within its session timeout, the group returns
     to step 1. A group without members becomes EMPTY, and remains EMPTY while it has committed
     offsets.

Only the result of step 3 is durable. After a restart, a group is STABLE or EMPTY in the last
generation that was written, and members that are still running continue without a rebalance.

A member id is *pending* between the response that assigns it and the JoinGroup that uses it
(KIP-394). Without this step, a client that never receives the response to its JoinGroup would leave
a dead member in the group. In step 1, the group waits for pending ids as it waits for members.

Source: Kafka 4.0 ClassicGroup; KIP-62, 134, 345, 394, 559.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from enum import Enum
from typing import Final

from plog.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    IllegalGeneration,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMemberId,
)
from plog.wire.internal.consumer_protocol import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from plog.wire.primitives import WireError
from plogd.coordinator.group.group_memory import GroupMemory
from plogd.coordinator.group.member import JoinAnswer, Member, MemberProtocol


class GroupState(Enum):
    """The state of a group; the values are the names used in responses."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY = GroupState.EMPTY
PREPARING_REBALANCE = GroupState.PREPARING_REBALANCE
COMPLETING_REBALANCE = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
DEAD = GroupState.DEAD

VALID_PREVIOUS_STATES: dict[GroupState, frozenset[GroupState]] = {
    # The last member left while the group prepared a rebalance.
    EMPTY: frozenset({PREPARING_REBALANCE}),
    # A member joined, left, or changed its protocols.
    PREPARING_REBALANCE: frozenset({EMPTY, COMPLETING_REBALANCE, STABLE}),
    # All remaining members have joined.
    COMPLETING_REBALANCE: frozenset({PREPARING_REBALANCE}),
    # The leader's assignment is in the log.
    STABLE: frozenset({COMPLETING_REBALANCE}),
    # The group was deleted or its shard unloaded. This state is final.
    DEAD: frozenset(GroupState),
}

_GROUP_BYTES: Final = 1024
"""Estimated memory of a group without members, in addition to its id."""
_PENDING_BYTES: Final = 1024
"""Estimated memory of a pending member id in addition to its text: a set entry and a timer."""

ACTIVE_STATES = frozenset({PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE})
"""The states of a group with members."""


class Group:
    """A consumer group: its state, generation and members. `now_ms` is always wall-clock time."""

    def __init__(
        self,
        group_id: str,
        *,
        state: GroupState = EMPTY,
        state_since_ms: int | None,
        generation_id: int = 0,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        leader_id: str | None = None,
    ) -> None:
        self.group_id = group_id
        self.generation_id = generation_id
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.leader_id = leader_id
        self.members: dict[str, Member] = {}
        self.subscribed_topics: frozenset[str] | None = None
        """Topics to which the members of this generation subscribe; None if unknown."""
        self.has_new_member = False
        """Whether a member has joined since the last extension of the initial rebalance delay."""
        self.pending_joins: set[str] = set()
        """Member ids that have been assigned but not used yet."""
        self.pending_syncs: set[str] = set()
        """Members of this generation that have not sent SyncGroup yet."""
        self.generation_being_written: int | None = None
        """The generation whose assignment is being written, or None."""

        self._state = state
        self._previous_state = DEAD
        self._state_since_ms = state_since_ms
        self.size_bytes = 0
        """Estimated memory of its members and pending member ids."""
        self._unused_bytes = 0
        self._memory: GroupMemory | None = None
        self._static_member_ids: dict[str, str] = {}
        # Both are updated incrementally: counting the members at each JoinGroup would take
        # quadratic time.
        self._waiting_joins = 0
        self._supporters: Counter[str] = Counter()

    def __repr__(self) -> str:
        return (
            f"<Group {self.group_id} {self._state.value} generation {self.generation_id},"
            f" {len(self.members)} members>"
        )

    # -- state --------------------------------------------------------------------------------

    @property
    def state(self) -> GroupState:
        """The current state."""
        return self._state

    @property
    def is_initial_rebalance(self) -> bool:
        """Whether the group was EMPTY before this rebalance, which can then wait for members."""
        return self._state is PREPARING_REBALANCE and self._previous_state is EMPTY

    @property
    def state_since_ms(self) -> int | None:
        """Time of the last transition; None if not recorded (records from before Kafka 2.1)."""
        return self._state_since_ms

    @property
    def is_empty(self) -> bool:
        """Whether the group is EMPTY; it may still have pending member ids."""
        return self._state is EMPTY

    @property
    def empty_since(self) -> int | None:
        """Time when the last member left; None if there are members or the time is unknown."""
        return self._state_since_ms if self.is_empty else None

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether the group's members use the consumer protocol."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance can start; False while one is being prepared."""
        return self._state in VALID_PREVIOUS_STATES[PREPARING_REBALANCE]

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        """Change the state; the transition must be valid."""
        assert self._state in VALID_PREVIOUS_STATES[state], f"{self} cannot become {state.value}"
        self._previous_state, self._state = self._state, state
        self._state_since_ms = now_ms

    # -- members ------------------------------------------------------------------------------

    @property
    def waiting_joins(self) -> int:
        """Number of members awaiting a JoinGroup response."""
        return self._waiting_joins

    @property
    def has_all_joined(self) -> bool:
        """Whether all members have joined and no member id is pending."""
        return self._waiting_joins == len(self.members) and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """Time allowed for all members to join: the longest rebalance timeout of any member."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def static_member_id(self, group_instance_id: str | None) -> str | None:
        """Return the member id that currently has the instance id, or None."""
        if group_instance_id is None:
            return None
        return self._static_member_ids.get(group_instance_id)

    def not_yet_joined(self) -> list[Member]:
        """Return the members without a pending JoinGroup."""
        return [member for member in self.members.values() if member.join is None]

    def supports(self, protocol_type: str, protocol_names: Collection[str]) -> bool:
        """Return whether a member with these protocols is compatible with all members."""
        if self.is_empty:  # The new member determines the group's protocols.
            return bool(protocol_type and protocol_names)
        return protocol_type == self.protocol_type and any(
            self._supporters[name] == len(self.members) for name in protocol_names
        )

    def add(self, member: Member, protocol_type: str) -> None:
        """Add `member`, whose id is then no longer pending. The first member becomes the leader."""
        assert member.member_id not in self.members
        if not self.members:
            self.protocol_type = protocol_type
        assert self.protocol_type == protocol_type
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self._static_member_ids
            self._static_member_ids[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._supporters.update(member.protocol_names)
        self._waiting_joins += member.join is not None
        self._discard_pending(member.member_id)
        self._resize(self._bytes_of(member))

    def update(
        self,
        member: Member,
        *,
        protocols: tuple[MemberProtocol, ...],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        client: tuple[str, str] | None = None,
    ) -> None:
        """Update a member that joins again; `client` is the client id and host of a new process."""
        before_bytes = member.size_bytes
        if client is not None:
            # The texts change here, between the two sizes, because the group counts their bytes.
            member.client_id, member.client_host = client
        self._supporters.subtract(member.protocol_names)
        member.protocols = protocols
        self._supporters.update(member.protocol_names)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self._resize(member.size_bytes - before_bytes)

    def assign(self, member: Member, assignment: bytes) -> None:
        """Store the leader's assignment for `member`."""
        self._resize(len(assignment) - len(member.assignment))
        member.assignment = assignment

    def set_join(self, member: Member, join: JoinAnswer | None) -> JoinAnswer | None:
        """Set or clear the member's pending JoinGroup; return the previous one."""
        before, member.join = member.join, join
        self._waiting_joins += (join is not None) - (before is not None)
        return before

    def remove(self, member_id: str) -> Member | None:
        """Remove a member or a pending id; if it was the leader, the next member becomes leader."""
        self._discard_pending(member_id)
        self.pending_syncs.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._resize(-self._bytes_of(member))
        self._supporters.subtract(member.protocol_names)
        self._waiting_joins -= member.join is not None
        if member.group_instance_id is not None:
            del self._static_member_ids[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def rename_static_member(self, old_id: str, new_id: str) -> Member:
        """Change the id of a static member that has rejoined as `new_id` (KIP-345)."""
        member = self.members.pop(old_id)
        assert member.group_instance_id is not None
        self._resize(-self._bytes_of(member))
        member.member_id = new_id
        self._resize(self._bytes_of(member))
        self.members[new_id] = member
        self._static_member_ids[member.group_instance_id] = new_id
        member.is_new = False  # Its instance has been a member before.
        if self.leader_id == old_id:
            self.leader_id = new_id
        if old_id in self.pending_syncs:
            self.pending_syncs.remove(old_id)
            self.pending_syncs.add(new_id)
        return member

    # -- memory -------------------------------------------------------------------------------

    def track_memory(self, memory: GroupMemory) -> None:
        """Start to count the group's bytes in `memory`."""
        assert self._memory is None
        self._memory = memory
        memory.used_bytes += self.size_bytes

    def count_as_unused(self) -> None:
        """Count the group object itself until its first generation, which may never start.

        A group with a generation lasts as long as its committed offsets, which are not counted.
        """
        self._unused_bytes = self.unused_bytes
        self._resize(self._unused_bytes)

    @property
    def unused_bytes(self) -> int:
        """Estimated memory of a group without members."""
        return _GROUP_BYTES + len(self.group_id)

    def untrack_memory(self) -> None:
        """Stop counting the group's bytes, because the group is removed."""
        if self._memory is not None:
            self._memory.used_bytes -= self.size_bytes
            self._memory = None

    def add_pending(self, member_id: str) -> None:
        """Add a member id that was assigned but not used yet."""
        self.pending_joins.add(member_id)
        self._resize(self.pending_bytes(member_id))

    def pending_bytes(self, member_id: str) -> int:
        """Return the estimated memory of a pending member id."""
        return _PENDING_BYTES + self._key_bytes(member_id)

    def _discard_pending(self, member_id: str) -> None:
        if member_id in self.pending_joins:
            self.pending_joins.remove(member_id)
            self._resize(-self.pending_bytes(member_id))

    def _bytes_of(self, member: Member) -> int:
        return member.size_bytes + self._key_bytes(member.member_id)

    def _key_bytes(self, member_id: str) -> int:
        """Return the memory of the timer keys, which contain both ids."""
        # A member has up to two timers: one for its session and one for a disconnected client.
        return 2 * (len(self.group_id) + len(member_id))

    def _resize(self, growth_bytes: int) -> None:
        self.size_bytes += growth_bytes
        if self._memory is not None:
            self._memory.used_bytes += growth_bytes

    # -- the next generation ------------------------------------------------------------------

    def elect_joined_leader(self) -> bool:
        """Ensure that the leader has joined; return False if no member has joined."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.join is not None:
            return True
        # A static member that is late keeps its membership. As the leader, it would never send an
        # assignment.
        for member in self.members.values():
            if member.join is not None:
                self.leader_id = member.member_id
                return True
        return False

    def select_protocol(self) -> str:
        """Return the protocol that most members prefer among those that all of them support.

        In case of a tie, the protocol that received its first vote earlier wins.
        """
        # Never empty: `supports` rejects members that would leave no protocol common to all.
        candidates = {
            name for name, count in self._supporters.items() if count == len(self.members)
        }
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def begin_generation(self, now_ms: int) -> None:
        """Start the next generation, as COMPLETING_REBALANCE or, without members, as EMPTY."""
        self.generation_id += 1
        self._resize(-self._unused_bytes)
        self._unused_bytes = 0
        self.pending_syncs.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.transition_to(COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.transition_to(EMPTY, now_ms)
        self.find_subscribed_topics()

    def find_subscribed_topics(self) -> None:
        """Derive the subscribed topics from the members' metadata."""
        self.subscribed_topics = self._subscribed_topics()

    def _subscribed_topics(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        try:
            return frozenset().union(
                *(subscribed_topics(m.metadata(self.protocol_name)) for m in self.members.values())
            )
        except WireError:
            # Clients choose the metadata. If it cannot be decoded, offsets are merely kept longer.
            return None

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member subscribes, or may subscribe, to the topic."""
        # Unknown subscriptions of consumers may include the topic, so its offsets are kept. Other
        # protocols do not have subscriptions.
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    # -- validation of requests ---------------------------------------------------------------

    def validate_member(self, member_id: str, group_instance_id: str | None) -> Member:
        """Return the member. Raises UnknownMemberId, FencedInstanceId."""
        # Check the instance id first: a fenced client must stop, but UNKNOWN_MEMBER_ID would make
        # it join again and fence the member that replaced it.
        if group_instance_id is not None:
            current = self._static_member_ids.get(group_instance_id)
            if current is None:
                raise UnknownMemberId(
                    f"group {self.group_id} has no member with group instance id"
                    f" {group_instance_id}; join again"
                )
            if current != member_id:
                raise FencedInstanceId(
                    f"group instance id {group_instance_id} of group {self.group_id} now belongs"
                    " to another member; do not start two consumers with the same id"
                )
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(
                f"group {self.group_id} has no member with id {member_id!r}; join again"
            )
        return member

    def validate_generation(self, generation_id: int) -> None:
        """Raise IllegalGeneration unless this is the current generation."""
        if generation_id != self.generation_id:
            raise IllegalGeneration(
                f"group {self.group_id} is in generation {self.generation_id}, not {generation_id};"
                " join again"
            )

    def validate_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> None:
        """Check that the member, or a client outside any group, may commit offsets.

        Raises UnknownMemberId, FencedInstanceId, IllegalGeneration, RebalanceInProgress,
        CoordinatorNotAvailable.
        """
        if self._state is DEAD:
            raise CoordinatorNotAvailable(
                f"cannot commit offsets for group {self.group_id}: it has just been deleted; retry"
            )
        if generation_id < 0 and self.is_empty:
            return  # A consumer with manual assignment, or an admin client.
        if generation_id < 0 and not member_id and group_instance_id is None:
            raise UnknownMemberId(
                f"cannot commit offsets for group {self.group_id}: while the group has members,"
                " only they may commit; stop them first"
            )
        self.validate_member(member_id, group_instance_id)
        self.validate_generation(generation_id)
        # Commits are allowed in PREPARING_REBALANCE, because members commit before they join again.
        if self._state is COMPLETING_REBALANCE:
            # The member knows the generation but has not received its assignment yet.
            raise RebalanceInProgress(
                f"cannot commit offsets for group {self.group_id}: it is waiting for its leader's"
                " assignment"
            )

    def validate_delete(self) -> None:
        """Raise NonEmptyGroup if the group has members."""
        if self._state in ACTIVE_STATES:
            raise NonEmptyGroup(
                f"cannot delete group {self.group_id}: it still has members; stop them first"
            )

    def validate_offset_delete(self) -> None:
        """Raise NonEmptyGroup if the group has members whose subscriptions are unknown."""
        if self._state in ACTIVE_STATES and not self.uses_consumer_protocol:
            raise NonEmptyGroup(
                f"cannot delete offsets for group {self.group_id}: it still has members; stop them"
                " first"
            )
