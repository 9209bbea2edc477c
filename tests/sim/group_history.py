"""What the members of groups saw, and whether one coordinator can have told it to them.

`GroupHistory` has a `GroupView` of each group, which is told of every answer to JoinGroup,
SyncGroup and requests of members, and raises `Anomaly` where two of them contradict each other.
Committed offsets are in registers.py. Both know nothing of the broker.

A generation that was told to joining members may be lost by a crash, and its number is then given
out again; one whose assignment was told may not. So what is known of the first kind holds for one
life of the coordinator, which ends with the broker's, or when it has to load anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from plog.types import TopicPartition
from tests.sim.assigning import Assignment
from tests.sim.checker import Anomaly
from tests.sim.registers import Register


@dataclass(frozen=True, slots=True)
class Who:
    """A member as it knows itself: static ones keep their place under other ids."""

    member_id: str
    instance: str | None

    @property
    def place(self) -> str:
        """What owns partitions."""
        return self.member_id if self.instance is None else f"instance {self.instance}"

    def is_or_was(self, member_id: str) -> bool:
        """Whether that is its id, or was its instance's: those begin with the instance id."""
        is_instance = self.instance is not None and member_id.startswith(f"{self.instance}-")
        return member_id == self.member_id or is_instance


@dataclass(slots=True, eq=False)
class StaticJoin:
    """A JoinGroup that takes an instance's place; until `end_ms` it may take effect."""

    start_ms: float
    connection_over_ms: Callable[[], float]
    life: int
    answered_ms: float = math.inf

    @property
    def end_ms(self) -> float:
        """It takes effect before this, or not at all."""
        return min(self.answered_ms, self.connection_over_ms())


@dataclass(frozen=True, slots=True)
class Standing:
    """What was known of a member's request when it was sent."""

    who: Who
    generation: int
    why_stale: str | None
    """Why it must be refused, if it must."""


@dataclass(slots=True)
class _Generation:
    """One that was assigned."""

    decision: int
    owners: dict[TopicPartition, str] = field(default_factory=dict)


@dataclass(slots=True)
class GroupView:
    """Everything observed of one group."""

    name: str
    clock_ms: Callable[[], float]
    life: Callable[[], int]
    registers: dict[TopicPartition, Register] = field(default_factory=dict)
    assigned_generation: int = 0
    """The last one whose assignment somebody was told."""
    loaded_in: int = 0
    """The last life of the broker in which somebody heard that the group is loaded."""
    decisions: int = 0
    """How many assignments its leaders have made; each has a number of its own."""
    _told: tuple[int, int] = (0, 0)
    """The life of the broker, and the last generation somebody was told of in it."""
    _leaders: dict[tuple[int, int], str] = field(default_factory=dict)
    _generations: dict[int, _Generation] = field(default_factory=dict)
    _held: tuple[tuple[int, int], dict[TopicPartition, str]] = ((0, 0), {})
    """What cooperative members go on with while the last generation has no assignment yet, and the
    life and generation that is."""
    _gone: set[tuple[int, str]] = field(default_factory=set)
    """Lives, and the ids that were put out in them."""
    _static_joins: dict[str, list[StaticJoin]] = field(default_factory=dict)
    _static_ids: dict[str, dict[str, float]] = field(default_factory=dict)

    def register(self, partition: TopicPartition) -> Register:
        """The committed offset of a partition."""
        if partition not in self.registers:
            self.registers[partition] = Register(f"{self.name} {partition}", self.clock_ms)
        return self.registers[partition]

    # -- JoinGroup ----------------------------------------------------------------------------

    def joining_statically(
        self, instance: str, connection_over_ms: Callable[[], float]
    ) -> StaticJoin:
        """A JoinGroup without a member id is about to be sent."""
        join = StaticJoin(self.clock_ms(), connection_over_ms, self.life())
        self._static_joins.setdefault(instance, []).append(join)
        return join

    def took_place(self, who: Who, join: StaticJoin) -> None:
        """That JoinGroup was answered with a new id: whoever had the place before is fenced."""
        assert who.instance is not None
        join.answered_ms = self.clock_ms()
        ids = self._static_ids.setdefault(who.instance, {})
        for member_id, told_ms in ids.items():
            if told_ms < join.start_ms and member_id != who.member_id:
                self._gone.add((self.life(), member_id))
        ids.setdefault(who.member_id, self.clock_ms())

    def fenced(self, who: Who, own: StaticJoin | None) -> None:
        """Somebody hears FENCED_INSTANCE_ID, who got its place by `own`."""
        if who.instance is None or own is None:
            raise Anomaly("false-fence", f"{self.name}: {who} is fenced")
        if own.life != self.life():
            return  # A crash may have given the place back to who had it before.
        others = [one for one in self._static_joins[who.instance] if one is not own]
        if all(one.end_ms < own.start_ms for one in others):
            raise Anomaly("false-fence", f"{self.name}: {who} is fenced, nobody came after it")

    def joined(
        self, who: Who, generation: int, *, leads: bool, held: Iterable[TopicPartition]
    ) -> None:
        """A member is told of a generation; until it is assigned it goes on with `held`."""
        life = self.life()
        told_life, told = self._told
        self._told = (life, max(generation, told) if told_life == life else generation)
        if leads and self._leaders.setdefault((life, generation), who.place) != who.place:
            raise Anomaly(
                "two-leaders",
                f"{self.name} generation {generation}: {who} leads, and so does "
                f"{self._leaders[life, generation]}",
            )
        if generation > self.assigned_generation:
            if self._held[0] != (life, generation):
                self._held = ((life, generation), {})
            self._held[1].update((partition, who.place) for partition in held)

    # -- SyncGroup ----------------------------------------------------------------------------

    def assigned(self, who: Who, generation: int, assignment: Assignment | None) -> None:
        """A member is told what is its part of a generation."""
        what = f"{self.name} generation {generation}: {who} is told {assignment}"
        if assignment is None:
            raise Anomaly("wrong-assignment", f"{what}, but every member was given something")
        is_for_us = (assignment.group, assignment.generation) == (self.name, generation)
        if not is_for_us or not who.is_or_was(assignment.member_id):
            raise Anomaly("wrong-assignment", what)
        known = self._generations.setdefault(generation, _Generation(assignment.decision))
        of, held = self._held
        held = held if of == (self.life(), generation) else {}
        for partition in assignment.partitions:
            owner = known.owners.setdefault(partition, who.place)
            holder = held.get(partition, who.place)
            if {owner, holder} != {who.place}:
                raise Anomaly("two-owners", f"{what}; {partition} belongs to {owner}, {holder}")
        if known.decision != assignment.decision:
            raise Anomaly("two-assignments", f"{what}, others were told {known.decision}")
        self.assigned_generation = max(self.assigned_generation, generation)

    # -- what members may do ------------------------------------------------------------------

    def standing(self, who: Who, generation: int, *, if_loaded: bool = False) -> Standing:
        """Whether a request of a member, about to be sent, can still be accepted.

        With `if_loaded` nothing is known of it before the group is loaded.
        """
        why = None
        if if_loaded and self.loaded_in != self.life():
            return Standing(who, generation, why)
        told_life, told = self._told
        known = max(self.assigned_generation, told if told_life == self.life() else 0)
        if (self.life(), who.member_id) in self._gone:
            why = "it has left, or another has its place"
        elif 0 <= generation < known:
            why = f"generation {known} is known"
        return Standing(who, generation, why)

    def accepted(self, standing: Standing, what: str) -> None:
        """The request was accepted. Raises Anomaly if it had to be refused."""
        if standing.why_stale is None:
            return
        is_place = standing.who.instance is not None and "place" in standing.why_stale
        raise Anomaly(
            "two-static-members" if is_place else f"stale-{what}",
            f"{self.name}: {standing.who} in generation {standing.generation}, "
            f"but {standing.why_stale}",
        )

    def left(self, who: Who) -> None:
        """The member was told that it is out."""
        self._gone.add((self.life(), who.member_id))


class GroupHistory:
    """All groups of one run."""

    def __init__(self, clock_ms: Callable[[], float], life: Callable[[], int]) -> None:
        self.views: dict[str, GroupView] = {}
        self._clock_ms = clock_ms
        self._life = life

    def view(self, name: str) -> GroupView:
        """What is known of a group, perhaps nothing yet."""
        if name not in self.views:
            self.views[name] = GroupView(name, self._clock_ms, self._life)
        return self.views[name]

    @property
    def committed_count(self) -> int:
        """How many commits were acknowledged."""
        return sum(
            register.acknowledged_count
            for view in self.views.values()
            for register in view.registers.values()
        )
