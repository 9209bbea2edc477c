"""Each anomaly of a group is told from what is right, without a broker."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from plog.types import TopicPartition
from tests.sim.assigning import Assignment
from tests.sim.checker import Anomaly
from tests.sim.group_history import GroupView, Who
from tests.sim.registers import Register

PARTITION = TopicPartition("t", 0)
A, B = Who("a", None), Who("b", None)


class Scene:
    """A group, and a clock that each look moves on."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.life = 1
        self.view = GroupView("g", self.clock, lambda: self.life)
        self.register = Register("r", self.clock)

    def clock(self) -> float:
        self.now_ms += 1
        return self.now_ms

    def give(self, who: Who, generation: int, *, decision: int = 1, member_id: str = "") -> None:
        """`who` is told that the partition is its."""
        made = Assignment("g", generation, decision, member_id or who.member_id, (PARTITION,))
        self.view.assigned(who, generation, made)

    def commit(self, *, acknowledged: bool, over_ms: float = math.inf) -> int:
        """The next value is sent; and its answer is heard, or its connection ends."""
        value = self.register.next_value()
        attempt = self.register.sending(value, lambda: over_ms)
        if acknowledged:
            self.register.acknowledged(attempt)
        return value

    def take_place(self, member_id: str) -> Who:
        """A static member joins without an id, and is given this one."""
        who = Who(member_id, "i")
        self.view.took_place(who, self.view.joining_statically("i", lambda: math.inf))
        return who


def fell(scene: Scene) -> None:
    first = scene.commit(acknowledged=True)
    scene.commit(acknowledged=True)
    scene.register.shown(first, scene.register.floor)


def shown_and_fell(scene: Scene) -> None:
    first = scene.commit(acknowledged=True)
    second = scene.commit(acknowledged=False)
    scene.register.shown(second, scene.register.floor)
    scene.register.shown(first, scene.register.floor)


def reset(scene: Scene) -> None:
    scene.commit(acknowledged=True)
    scene.register.shown(-1, scene.register.floor)


def refused(scene: Scene) -> None:
    attempt = scene.register.sending(scene.register.next_value(), lambda: math.inf)
    scene.register.refused(attempt, for_certain=True)
    scene.register.shown(attempt.value, None)


def stale(scene: Scene) -> None:
    scene.view.joined(A, 2, leads=True, held=())
    scene.view.accepted(scene.view.standing(B, 1), "commit")


def two_static_members(scene: Scene) -> None:
    first = scene.take_place("i-1")
    scene.take_place("i-2")
    scene.view.accepted(scene.view.standing(first, 1), "heartbeat")


def false_fence(scene: Scene) -> None:
    who = Who("i-1", "i")
    join = scene.view.joining_statically("i", lambda: math.inf)
    scene.view.took_place(who, join)
    scene.view.fenced(who, join)


def two_leaders(scene: Scene) -> None:
    scene.view.joined(A, 1, leads=True, held=())
    scene.view.joined(B, 1, leads=True, held=())


def held_by_another(scene: Scene) -> None:
    scene.view.joined(A, 2, leads=True, held=[PARTITION])
    scene.give(B, 2)


def two_assignments(scene: Scene) -> None:
    scene.give(A, 1)
    scene.give(A, 1, decision=2)


ANOMALIES: list[tuple[str, Callable[[Scene], object]]] = [
    ("committed-offset-fell", fell),
    ("committed-offset-fell", shown_and_fell),
    ("spurious-reset", reset),
    ("refused-commit-kept", refused),
    ("phantom-commit", lambda scene: scene.register.shown(7, None)),
    ("stale-commit", stale),
    ("two-static-members", two_static_members),
    ("false-fence", false_fence),
    ("two-leaders", two_leaders),
    ("two-owners", lambda scene: (scene.give(A, 1), scene.give(B, 1))),
    ("two-owners", held_by_another),
    ("two-assignments", two_assignments),
    ("wrong-assignment", lambda scene: scene.give(A, 1, member_id="b")),
    ("wrong-assignment", lambda scene: scene.view.assigned(A, 1, None)),
]


@pytest.mark.parametrize(("name", "happens"), ANOMALIES)
def test_what_a_group_cannot_show(name: str, happens: Callable[[Scene], object]) -> None:
    with pytest.raises(Anomaly) as found:
        happens(Scene())
    assert found.value.name == name


def test_a_commit_that_may_arrive_late_may_show_late() -> None:
    scene = Scene()
    lost = scene.commit(acknowledged=False)
    scene.commit(acknowledged=True)
    scene.register.shown(lost, scene.register.floor)


def test_a_commit_of_a_connection_that_was_over_may_not() -> None:
    scene = Scene()
    lost = scene.commit(acknowledged=False, over_ms=1.5)
    scene.commit(acknowledged=True)
    with pytest.raises(Anomaly, match="after 2 had been"):
        scene.register.shown(lost, scene.register.floor)


def test_a_read_that_was_sent_before_a_commit_may_not_know_it() -> None:
    scene = Scene()
    first = scene.commit(acknowledged=True)
    floor = scene.register.floor
    scene.commit(acknowledged=True)
    scene.register.shown(first, floor)


def test_a_static_member_has_its_place_under_every_id() -> None:
    scene = Scene()
    scene.give(Who("i-1", "i"), 1)
    scene.give(Who("i-2", "i"), 1, member_id="i-1")


def test_a_generation_nobody_was_assigned_in_may_come_again_after_a_crash() -> None:
    scene = Scene()
    scene.view.joined(A, 2, leads=True, held=[PARTITION])
    scene.life = 2
    scene.view.accepted(scene.view.standing(A, 1), "commit")
    scene.view.joined(B, 2, leads=True, held=())
    scene.give(B, 2)
    assert scene.view.standing(A, 1).why_stale == "generation 2 is known"
