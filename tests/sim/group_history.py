"""Check that one coordinator could have sent all responses that group members received.

`GroupHistory` has a `GroupView` of each group, which records every response to JoinGroup, SyncGroup
and the members' other requests, and raises `Anomaly` where two of them contradict each other.
Committed offsets are in registers.py. Neither module knows anything of the broker.

A crash may lose a generation for which members have only received JoinGroup responses, and its
number is then used again; a generation whose assignment was sent may not be lost. So knowledge of
the first kind is valid for one life of the coordinator. It ends with the broker's life, when the
coordinator reloads and, in a cluster, when another leader epoch of its partition begins. The
SyncGroup of a lost generation's leader may arrive after the crash and is valid for the generation
that has its number now, as in Kafka. Members that only the new one has then receive no assignment.

The life of a response is None if it may come from a broker that is no longer the coordinator. Such
a broker does not know newer generations. It may confirm its own ones, but cannot commit offsets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from plog.types import TopicPartition
from tests.sim.assigning import Assignment
from tests.sim.checker import Anomaly
from tests.sim.registers import Register

_SOME_EARLIER_LIFE = -1


@dataclass(frozen=True, slots=True)
class Membership:
    """A client's identity in a group; a static member keeps its partitions when its id changes."""

    member_id: str
    instance: str | None

    @property
    def place(self) -> str:
        """Return the name under which partitions are owned."""
        return self.member_id if self.instance is None else f"instance {self.instance}"

    def is_or_was(self, member_id: str) -> bool:
        """Return whether `member_id` is its id, or has belonged to its instance (same prefix)."""
        is_instance = self.instance is not None and member_id.startswith(f"{self.instance}-")
        return member_id == self.member_id or is_instance


@dataclass(slots=True, eq=False)
class StaticJoin:
    """A JoinGroup that takes over an instance id; it may take effect until `end_ms`."""

    start_ms: float
    connection_over_ms: Callable[[], float]
    life: int | None
    answered_ms: float = math.inf

    @property
    def end_ms(self) -> float:
        """The time after which the request can no longer take effect."""
        return min(self.answered_ms, self.connection_over_ms())


@dataclass(frozen=True, slots=True)
class Standing:
    """What was known of a member's request when it was sent."""

    membership: Membership
    generation: int
    life: int | None
    """The life of the coordinator to which the request was sent."""
    why_stale: str | None
    """Why the coordinator must reject the request in this life; None if it may accept it."""
    is_superseded: bool = False
    """Whether members have received the assignment of a newer generation: no coordinator may commit
    the request's offsets."""

    def binds(self, life: int | None) -> bool:
        """Whether a coordinator that responds in `life` must reject the request."""
        return self.why_stale is not None and life is not None and life == self.life


@dataclass(frozen=True, slots=True)
class _Decision:
    """A leader's assignment to the members that its JoinGroup response listed in `life`."""

    life: int
    generation: int
    member_ids: frozenset[str]


@dataclass(slots=True)
class _Generation:
    """A generation that was assigned."""

    decisions: set[int]
    """The decisions that explain all responses so far."""
    owners: dict[TopicPartition, str] = field(default_factory=dict)


@dataclass(slots=True)
class GroupView:
    """Everything observed of one group."""

    name: str
    clock_ms: Callable[[], float]
    registers: dict[TopicPartition, Register] = field(default_factory=dict)
    assigned_generation: int = 0
    """The last generation whose assignment a member received."""
    loaded_in: int = 0
    """The last life in which a response showed that the group is loaded."""
    _joined_generation: tuple[int, int] = (0, 0)
    """The last life, and the last generation of which a member was notified in it."""
    _leaders: dict[tuple[int, int], str] = field(default_factory=dict)
    _decisions: list[_Decision] = field(default_factory=list)
    _generations: dict[int, _Generation] = field(default_factory=dict)
    _held: tuple[tuple[int, int], dict[TopicPartition, str]] = ((0, 0), {})
    """The life and number of the last generation, with the partitions that cooperative members
    keep until it has an assignment."""
    _removed: set[tuple[int, str]] = field(default_factory=set)
    """Lives, and the member ids that were removed in them."""
    _static_joins: dict[str, list[StaticJoin]] = field(default_factory=dict)
    _static_ids: dict[str, dict[str, float]] = field(default_factory=dict)

    def register(self, partition: TopicPartition) -> Register:
        """Return the register of a partition's committed offset."""
        if partition not in self.registers:
            self.registers[partition] = Register(f"{self.name} {partition}", self.clock_ms)
        return self.registers[partition]

    # -- JoinGroup ----------------------------------------------------------------------------

    def loaded(self, life: int | None) -> None:
        """Record that a response in this life shows that the group is loaded."""
        if life is not None:
            self.loaded_in = life

    def sending_static_join(
        self, instance: str, connection_over_ms: Callable[[], float], life: int | None
    ) -> StaticJoin:
        """Record that a JoinGroup without a member id is about to be sent."""
        join = StaticJoin(self.clock_ms(), connection_over_ms, life)
        self._static_joins.setdefault(instance, []).append(join)
        return join

    def static_join_answered(
        self, membership: Membership, join: StaticJoin, life: int | None
    ) -> None:
        """Record the new id in the response; earlier ids of the instance are now fenced."""
        assert membership.instance is not None
        join.answered_ms = self.clock_ms()
        ids = self._static_ids.setdefault(membership.instance, {})
        for member_id, given_ms in ids.items():
            is_earlier = given_ms < join.start_ms and member_id != membership.member_id
            if is_earlier and life is not None:
                self._removed.add((life, member_id))
        ids.setdefault(membership.member_id, self.clock_ms())

    def fenced(self, membership: Membership, own: StaticJoin | None, life: int | None) -> None:
        """Check a FENCED_INSTANCE_ID error of a member that joined by `own`."""
        if membership.instance is None or own is None:
            raise Anomaly("false-fence", f"{self.name}: {membership} is fenced")
        if life is None or own.life != life:
            return  # A crash may have restored the previous member of the instance.
        others = [one for one in self._static_joins[membership.instance] if one is not own]
        if all(one.end_ms < own.start_ms for one in others):
            raise Anomaly(
                "false-fence",
                f"{self.name}: {membership} is fenced without a later join",
            )

    def joined(
        self,
        membership: Membership,
        generation: int,
        *,
        life: int | None,
        known: int,
        leads: bool,
        held: Iterable[TopicPartition],
    ) -> None:
        """Record a JoinGroup response; until the next assignment, the member keeps `held`.

        `known` is the last assigned generation when the request was sent.
        """
        if life is None:
            return
        if generation < known:
            raise Anomaly(
                "generation-fell",
                f"{self.name}: {membership} joins generation {generation}, {known} was assigned",
            )
        joined_life, joined_generation = self._joined_generation
        self._joined_generation = (
            life,
            max(generation, joined_generation) if joined_life == life else generation,
        )
        if (
            leads
            and self._leaders.setdefault((life, generation), membership.place) != membership.place
        ):
            raise Anomaly(
                "two-leaders",
                f"{self.name} generation {generation}: {membership} leads, but so does "
                f"{self._leaders[life, generation]}",
            )
        if generation > self.assigned_generation:
            if self._held[0] != (life, generation):
                self._held = ((life, generation), {})
            self._held[1].update((partition, membership.place) for partition in held)

    # -- SyncGroup ----------------------------------------------------------------------------

    def decides(self, life: int | None, generation: int, member_ids: Iterable[str]) -> int:
        """Return the number of a leader's decision for the members listed to it in `life`."""
        known_life = _SOME_EARLIER_LIFE if life is None else life
        self._decisions.append(_Decision(known_life, generation, frozenset(member_ids)))
        return len(self._decisions)

    def assigned(
        self,
        membership: Membership,
        generation: int,
        assignment: Assignment | None,
        life: int | None,
    ) -> None:
        """Record a SyncGroup response."""
        what = f"{self.name} generation {generation}: {membership} receives {assignment}"
        if assignment is None:
            if life is not None:
                self._left_out(membership, generation, what, life)
            return
        is_for_us = (assignment.group, assignment.generation) == (self.name, generation)
        if not is_for_us or not membership.is_or_was(assignment.member_id):
            raise Anomaly("wrong-assignment", what)
        known = self._generations.setdefault(generation, _Generation({assignment.decision}))
        of, held = self._held
        held = held if of == (life, generation) else {}
        for partition in assignment.partitions:
            owner = known.owners.setdefault(partition, membership.place)
            holder = held.get(partition, membership.place)
            if {owner, holder} != {membership.place}:
                raise Anomaly("two-owners", f"{what}; {partition} belongs to {owner}, {holder}")
        if assignment.decision not in known.decisions:
            raise Anomaly("two-assignments", f"{what}, others received {known.decisions}")
        known.decisions = {assignment.decision}
        self.assigned_generation = max(self.assigned_generation, generation)

    def _left_out(self, membership: Membership, generation: int, what: str, life: int) -> None:
        """Record an empty assignment, which only a decision for a lost generation explains."""
        lost = {
            number
            for number, decision in enumerate(self._decisions, 1)
            if decision.generation == generation and self._is_lost_to(decision, membership, life)
        }
        known = self._generations.setdefault(generation, _Generation(lost))
        known.decisions &= lost
        if not known.decisions:
            raise Anomaly("wrong-assignment", f"{what}, but no lost generation explains it")
        self.assigned_generation = max(self.assigned_generation, generation)

    def _is_lost_to(self, decision: _Decision, membership: Membership, life: int) -> bool:
        """Whether `decision` is of an earlier life than a generation with this member."""
        if decision.life >= life or membership.member_id in decision.member_ids:
            return False
        # The share of a static member's former id would be its own, unless it joined after the
        # crash: then a later leader has seen it.
        return not any(map(membership.is_or_was, decision.member_ids)) or any(
            other.generation == decision.generation
            and other.life > decision.life
            and membership.member_id in other.member_ids
            for other in self._decisions
        )

    # -- what members may do ------------------------------------------------------------------

    def standing(
        self, membership: Membership, generation: int, life: int | None, *, if_loaded: bool = False
    ) -> Standing:
        """Return whether the coordinator may still accept a member's request, about to be sent.

        `life` is that of the coordinator to which the request goes. With `if_loaded`, any outcome
        is possible before the group is loaded.
        """
        why = None
        if if_loaded and (life is None or self.loaded_in != life):
            return Standing(membership, generation, life, why)
        joined_life, joined_generation = self._joined_generation
        known = max(self.assigned_generation, joined_generation if joined_life == life else 0)
        if life is not None and (life, membership.member_id) in self._removed:
            why = "it has left, or another member has its instance id"
        elif 0 <= generation < known:
            why = f"generation {known} is known"
        is_superseded = 0 <= generation < self.assigned_generation
        return Standing(membership, generation, life, why, is_superseded)

    def accepted(self, standing: Standing, what: str, life: int | None) -> None:
        """Record that a request was accepted. Raises Anomaly if it had to be rejected."""
        if not (standing.binds(life) or (what == "commit" and standing.is_superseded)):
            return
        assert standing.why_stale is not None
        is_place = standing.membership.instance is not None and "instance id" in standing.why_stale
        raise Anomaly(
            "two-static-members" if is_place else f"stale-{what}",
            f"{self.name}: {standing.membership} in generation {standing.generation}, "
            f"but {standing.why_stale}",
        )

    def left(self, membership: Membership, life: int | None) -> None:
        """Record that a response reported the member as removed."""
        # A static member may leave by its instance id alone. The empty id is also that of clients
        # that commit without being members.
        if membership.member_id and life is not None:
            self._removed.add((life, membership.member_id))


class GroupHistory:
    """The views of all groups of one run."""

    def __init__(self, clock_ms: Callable[[], float]) -> None:
        self.views: dict[str, GroupView] = {}
        self._clock_ms = clock_ms

    def view(self, name: str) -> GroupView:
        """Return the view of a group, which may still be empty."""
        if name not in self.views:
            self.views[name] = GroupView(name, self._clock_ms)
        return self.views[name]

    @property
    def committed_count(self) -> int:
        """How many commits were acknowledged."""
        return sum(
            register.acknowledged_count
            for view in self.views.values()
            for register in view.registers.values()
        )
