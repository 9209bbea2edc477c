"""`Group`: the members of a group and the state they are in together.

What may be done in which state stands in the tables below, what happens in group.py's neighbours:
rebalance.py takes a group from one generation to the next, join_group.py lets members in,
group_metadata_manager.py has all the groups of a shard. Everything that changes a group's members,
counts or state goes through the methods here; they wait for nothing, write nothing and answer
nobody.

Theory of operation. A group exists to divide something, usually partitions, among its members,
anew whenever who is in it changes. The broker does not know how: it finds a protocol all members
support, makes one of them the leader, and carries the leader's assignment to the others.

  1. A member joins. The group is PREPARING_REBALANCE, the others learn so by their heartbeats, and
     come back with JoinGroup. Those requests wait.
  2. All members have joined, or the rebalance timeout has passed and who has not is out. The next
     generation begins: everybody's JoinGroup is answered, the leader's with all members and what
     they told. The group is COMPLETING_REBALANCE.
  3. Everybody sends SyncGroup, the leader with the assignment. Once that is in the log, each is
     answered with its part, and the group is STABLE.
  4. A member that leaves, or is not heard of for its session timeout, brings the group back to 1;
     the last one makes it EMPTY, which it stays as long as it has committed offsets.

Only what is in step 3 is durable. After a restart a group is STABLE or EMPTY in the generation that
was written last, and its members, if they are still there, go on as if nothing had been.

A member id the broker has given to nobody's JoinGroup yet is *pending* (KIP-394): a client that is
told its id first does not leave a dead member behind when it does not hear the answer. The group
waits for it in step 1 like for a member.

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
    """Where a group is; the values are what clients are told."""

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
    # The last member of a group that was preparing is gone.
    EMPTY: frozenset({PREPARING_REBALANCE}),
    # A member has come, gone, or changed what it supports.
    PREPARING_REBALANCE: frozenset({EMPTY, COMPLETING_REBALANCE, STABLE}),
    # Everybody who is still there has joined.
    COMPLETING_REBALANCE: frozenset({PREPARING_REBALANCE}),
    # The leader's assignment is in the log.
    STABLE: frozenset({COMPLETING_REBALANCE}),
    # The group was deleted, or its shard unloaded. Nothing happens to it any more.
    DEAD: frozenset(GroupState),
}

_GROUP_BYTES: Final = 1024
_PENDING_BYTES: Final = 1024
"""Of a member id that was given out: the id, and the timer that takes it back."""

ACTIVE_STATES = frozenset({PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE})
"""The states of a group with members."""


class Group:
    """A group and its members; see the module's text. `now_ms` is wall time everywhere."""

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
        """What the members of this generation consume; None if that is not known."""
        self.has_new_member = False
        """Whether somebody has joined since an empty group began to wait for more."""
        self.pending_joins: set[str] = set()
        """Member ids given out, not yet used."""
        self.pending_syncs: set[str] = set()
        """Members of this generation that have not sent SyncGroup yet."""
        self.generation_being_written: int | None = None
        """The generation whose assignment is on its way to the disk."""

        self._state = state
        self._previous_state = DEAD
        self._state_since_ms = state_since_ms
        self.size_bytes = 0
        """About what its members, and the ids it has given out, take in memory."""
        self._unused_bytes = 0
        self._memory: GroupMemory | None = None
        self._static_member_ids: dict[str, str] = {}
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
        """Where the group is."""
        return self._state

    @property
    def is_initial_rebalance(self) -> bool:
        """Whether it was EMPTY before it began to prepare, and may wait for more members."""
        return self._state is PREPARING_REBALANCE and self._previous_state is EMPTY

    @property
    def state_since_ms(self) -> int | None:
        """When it came into its state; None where that was not written down (before Kafka 2.1)."""
        return self._state_since_ms

    @property
    def is_empty(self) -> bool:
        """Whether it has no members; ids may be pending all the same."""
        return self._state is EMPTY

    @property
    def empty_since(self) -> int | None:
        """When the last member left; None if there are members, or if it is not known."""
        return self._state_since_ms if self.is_empty else None

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether its members consume topics."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance can begin; not while one is being prepared."""
        return self._state in VALID_PREVIOUS_STATES[PREPARING_REBALANCE]

    def become(self, state: GroupState, now_ms: int) -> None:
        """Go over into `state`, which has to be allowed."""
        assert self._state in VALID_PREVIOUS_STATES[state], f"{self} cannot become {state.value}"
        self._previous_state, self._state = self._state, state
        self._state_since_ms = now_ms

    # -- members ------------------------------------------------------------------------------

    @property
    def waiting_joins(self) -> int:
        """How many members wait for an answer to JoinGroup."""
        return self._waiting_joins

    @property
    def static_count(self) -> int:
        """How many members have a group instance id."""
        return len(self._static_member_ids)

    @property
    def has_all_joined(self) -> bool:
        """Whether nobody is missing for the next generation."""
        return self._waiting_joins == len(self.members) and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long members may take to join: the longest any of them asked for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def static_member_id(self, group_instance_id: str | None) -> str | None:
        """Who has the instance id now."""
        if group_instance_id is None:
            return None
        return self._static_member_ids.get(group_instance_id)

    def not_yet_joined(self) -> list[Member]:
        """The members that do not wait for an answer to JoinGroup."""
        return [member for member in self.members.values() if member.join is None]

    def supports(self, protocol_type: str, protocol_names: Collection[str]) -> bool:
        """Whether somebody with these protocols can be a member beside those there are."""
        if self.is_empty:
            return bool(protocol_type and protocol_names)
        return protocol_type == self.protocol_type and any(
            self._supporters[name] == len(self.members) for name in protocol_names
        )

    def add(self, member: Member, protocol_type: str) -> None:
        """Take `member` in: its id is not pending any more, and it leads if nobody does."""
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
    ) -> None:
        """Take over what a member says of itself when it joins again."""
        before_bytes = member.size_bytes
        self._supporters.subtract(member.protocol_names)
        member.protocols = protocols
        self._supporters.update(member.protocol_names)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self._resize(member.size_bytes - before_bytes)

    def assign(self, member: Member, assignment: bytes) -> None:
        """Keep what the leader has assigned to `member`."""
        self._resize(len(assignment) - len(member.assignment))
        member.assignment = assignment

    def set_join(self, member: Member, join: JoinAnswer | None) -> JoinAnswer | None:
        """Let the member wait for `join`, or for nothing; what it waited for before."""
        before, member.join = member.join, join
        self._waiting_joins += (join is not None) - (before is not None)
        return before

    def remove(self, member_id: str) -> Member | None:
        """Take a member, or a pending id, out; the next member leads if it led."""
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
        """Give a static member's place to whoever has come back as `new_id` (KIP-345)."""
        member = self.members.pop(old_id)
        assert member.group_instance_id is not None
        self._resize(-self._bytes_of(member))
        member.member_id = new_id
        self._resize(self._bytes_of(member))
        self.members[new_id] = member
        self._static_member_ids[member.group_instance_id] = new_id
        member.is_new = False  # Its place is not.
        if self.leader_id == old_id:
            self.leader_id = new_id
        if old_id in self.pending_syncs:
            self.pending_syncs.remove(old_id)
            self.pending_syncs.add(new_id)
        return member

    # -- memory -------------------------------------------------------------------------------

    def count_in(self, memory: GroupMemory) -> None:
        """Count the group's bytes in `memory` from now on."""
        assert self._memory is None
        self._memory = memory
        memory.used_bytes += self.size_bytes

    def count_as_unused(self) -> None:
        """Count the group itself until its first generation: it may never have any.

        Later it is as durable as its committed offsets, which are not counted here.
        """
        self._unused_bytes = self.unused_bytes
        self._resize(self._unused_bytes)

    @property
    def unused_bytes(self) -> int:
        """What a group takes that has no members."""
        return _GROUP_BYTES + len(self.group_id)

    def count_out(self) -> None:
        """The group is forgotten: its bytes do not count any more."""
        if self._memory is not None:
            self._memory.used_bytes -= self.size_bytes
            self._memory = None

    def add_pending(self, member_id: str) -> None:
        """Note a member id that was given out and is not used yet."""
        self.pending_joins.add(member_id)
        self._resize(self.pending_bytes(member_id))

    def pending_bytes(self, member_id: str) -> int:
        """What a member id takes that was given out."""
        return _PENDING_BYTES + self._key_bytes(member_id)

    def _discard_pending(self, member_id: str) -> None:
        if member_id in self.pending_joins:
            self.pending_joins.remove(member_id)
            self._resize(-self.pending_bytes(member_id))

    def _bytes_of(self, member: Member) -> int:
        return member.size_bytes + self._key_bytes(member.member_id)

    def _key_bytes(self, member_id: str) -> int:
        """Of the timers' keys, which hold both ids."""
        return 2 * (len(self.group_id) + len(member_id))

    def _resize(self, growth_bytes: int) -> None:
        self.size_bytes += growth_bytes
        if self._memory is not None:
            self._memory.used_bytes += growth_bytes

    # -- the next generation ------------------------------------------------------------------

    def elect_joined_leader(self) -> bool:
        """See to it that a member that has joined leads; False if there is none."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.join is not None:
            return True
        for member in self.members.values():
            if member.join is not None:
                self.leader_id = member.member_id
                return True
        return False

    def select_protocol(self) -> str:
        """Of the protocols all members support, the one most of them prefer.

        Where votes are even, the one that was voted for first.
        """
        candidates = {
            name for name, count in self._supporters.items() if count == len(self.members)
        }
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def begin_generation(self, now_ms: int) -> None:
        """All have joined: the next generation, COMPLETING_REBALANCE or, of nobody, EMPTY."""
        self.generation_id += 1
        self._resize(-self._unused_bytes)
        self._unused_bytes = 0
        self.pending_syncs.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.become(COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.become(EMPTY, now_ms)
        self.find_subscribed_topics()

    def find_subscribed_topics(self) -> None:
        """Learn from the members' metadata what they consume."""
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
            return None  # Their own affair: only offsets are kept for longer.

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member consumes the topic, or might."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    # -- what a request has to be -------------------------------------------------------------

    def validate_member(self, member_id: str, group_instance_id: str | None) -> Member:
        """The member. Raises UnknownMemberId, FencedInstanceId."""
        if group_instance_id is not None:
            current = self._static_member_ids.get(group_instance_id)
            if current is None:
                raise UnknownMemberId(
                    f"group {self.group_id} has no member with group instance id"
                    f" {group_instance_id}: join again"
                )
            if current != member_id:
                raise FencedInstanceId(
                    f"group instance id {group_instance_id} of group {self.group_id} belongs to"
                    " another member now: two consumers have been started with it"
                )
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(
                f"group {self.group_id} has no member {member_id or 'without an id'}: join again"
            )
        return member

    def validate_generation(self, generation_id: int) -> None:
        """Raises IllegalGeneration if the group is in another one."""
        if generation_id != self.generation_id:
            raise IllegalGeneration(
                f"group {self.group_id} is in generation {self.generation_id}, not {generation_id}:"
                " join again"
            )

    def validate_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> None:
        """Whether offsets may be committed by this member, or with no member by anybody.

        Raises UnknownMemberId, FencedInstanceId, IllegalGeneration, RebalanceInProgress,
        CoordinatorNotAvailable.
        """
        if self._state is DEAD:
            raise CoordinatorNotAvailable(f"group {self.group_id} has just been deleted")
        if generation_id < 0 and self.is_empty:
            return  # A consumer that assigns its partitions itself, or an administrator.
        if generation_id < 0 and not member_id and group_instance_id is None:
            raise UnknownMemberId(
                f"group {self.group_id} has members: only they may commit offsets"
            )
        self.validate_member(member_id, group_instance_id)
        self.validate_generation(generation_id)
        if self._state is COMPLETING_REBALANCE:
            # The member has heard of the generation, but not yet what it was assigned.
            raise RebalanceInProgress(f"group {self.group_id} waits for its leader's assignment")

    def validate_delete(self) -> None:
        """Raises NonEmptyGroup if it has members."""
        if self._state in ACTIVE_STATES:
            raise NonEmptyGroup(f"group {self.group_id} has members: stop them first")

    def validate_offset_delete(self) -> None:
        """Raises NonEmptyGroup if it has members, unless it can be known what they consume."""
        if self._state in ACTIVE_STATES and not self.uses_consumer_protocol:
            raise NonEmptyGroup(f"group {self.group_id} has members: stop them first")
