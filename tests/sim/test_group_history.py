"""The checker of groups detects each anomaly, and accepts correct histories; without a broker."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from plog.types import TopicPartition
from tests.sim.assigning import Assignment
from tests.sim.checker import Anomaly
from tests.sim.group_history import GroupView, Membership
from tests.sim.registers import Register

PARTITION = TopicPartition("t", 0)
A, B = Membership("a", None), Membership("b", None)


class Scene:
    """A group, and a clock that advances each time it is read."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.life = 1
        self.view = GroupView("g", self.clock)
        self.register = Register("r", self.clock)

    def clock(self) -> float:
        self.now_ms += 1
        return self.now_ms

    def give(
        self, membership: Membership, generation: int, *, decision: int = 1, member_id: str = ""
    ) -> None:
        """Assign the partition to `membership`."""
        made = Assignment(
            "g", generation, decision, member_id or membership.member_id, (PARTITION,)
        )
        self.view.assigned(membership, generation, made, self.life)

    def commit(self, *, acknowledged: bool, over_ms: float = math.inf) -> int:
        """Send the next value; its response arrives, or its connection ends."""
        value = self.register.next_value()
        attempt = self.register.sending(value, lambda: over_ms)
        if acknowledged:
            self.register.acknowledged(attempt)
        return value

    def join_statically(self, member_id: str) -> Membership:
        """Join a static member without an id; the response contains this one."""
        membership = Membership(member_id, "i")
        join = self.view.sending_static_join("i", lambda: math.inf, self.life)
        self.view.static_join_answered(membership, join, self.life)
        return membership

    def join(
        self,
        membership: Membership,
        generation: int,
        *,
        leads: bool = True,
        held: Sequence[TopicPartition] = (),
    ) -> None:
        """Join a generation; the request was sent now."""
        known = self.view.assigned_generation
        self.view.joined(
            membership, generation, life=self.life, known=known, leads=leads, held=held
        )

    def send(
        self, what: str, membership: Membership, generation: int, *, answered_in: int | None = 1
    ) -> None:
        """Send a request in the present life; it is accepted."""
        standing = self.view.standing(membership, generation, self.life)
        self.view.accepted(standing, what, answered_in)


def commit_older_value(scene: Scene) -> None:
    first = scene.commit(acknowledged=True)
    scene.commit(acknowledged=True)
    scene.register.shown(first, scene.register.floor)


def read_older_value(scene: Scene) -> None:
    first = scene.commit(acknowledged=True)
    second = scene.commit(acknowledged=False)
    scene.register.shown(second, scene.register.floor)
    scene.register.shown(first, scene.register.floor)


def lose_the_offset(scene: Scene) -> None:
    scene.commit(acknowledged=True)
    scene.register.shown(-1, scene.register.floor)


def read_rejected_value(scene: Scene) -> None:
    attempt = scene.register.sending(scene.register.next_value(), lambda: math.inf)
    scene.register.refused(attempt, for_certain=True)
    scene.register.shown(attempt.value, None)


def accept_stale_heartbeat(scene: Scene) -> None:
    scene.join(A, 2)
    scene.send("heartbeat", B, 1)


def accept_commit_of_a_superseded_generation(scene: Scene) -> None:
    scene.give(A, 2)
    scene.send("commit", B, 1, answered_in=None)


def join_older_generation(scene: Scene) -> None:
    scene.give(A, 2)
    scene.life = 2
    scene.join(B, 1)


def two_static_members(scene: Scene) -> None:
    first = scene.join_statically("i-1")
    scene.join_statically("i-2")
    scene.send("heartbeat", first, 1)


def false_fence(scene: Scene) -> None:
    membership = Membership("i-1", "i")
    join = scene.view.sending_static_join("i", lambda: math.inf, scene.life)
    scene.view.static_join_answered(membership, join, scene.life)
    scene.view.fenced(membership, join, scene.life)


def two_leaders(scene: Scene) -> None:
    scene.join(A, 1)
    scene.join(B, 1)


def held_by_another(scene: Scene) -> None:
    scene.join(A, 2, held=[PARTITION])
    scene.give(B, 2)


def two_assignments(scene: Scene) -> None:
    scene.give(A, 1)
    scene.give(A, 1, decision=2)


def two_assignments_of_a_lost_generation(scene: Scene) -> None:
    decision = scene.view.decides(1, 2, ["a"])
    scene.life = 2
    scene.view.assigned(B, 2, None, scene.life)
    scene.give(A, 2, decision=decision + 1)


def leave_out_a_member_of_the_decision(scene: Scene) -> None:
    scene.view.decides(1, 2, ["a", "b"])
    scene.life = 2
    scene.view.assigned(B, 2, None, scene.life)


def leave_out_a_member_after_it_was_assigned(scene: Scene) -> None:
    scene.view.decides(1, 2, ["a"])
    scene.life = 2
    scene.give(A, 2, decision=scene.view.decides(2, 2, ["a", "b"]))
    scene.view.assigned(B, 2, None, scene.life)


def leave_out_the_successor_of_a_static_member(scene: Scene) -> None:
    scene.view.decides(1, 2, ["a", "i-1"])
    scene.life = 2
    scene.view.assigned(Membership("i-2", "i"), 2, None, scene.life)


ANOMALIES: list[tuple[str, Callable[[Scene], object]]] = [
    ("committed-offset-fell", commit_older_value),
    ("committed-offset-fell", read_older_value),
    ("spurious-reset", lose_the_offset),
    ("refused-commit-kept", read_rejected_value),
    ("phantom-commit", lambda scene: scene.register.shown(7, None)),
    ("stale-heartbeat", accept_stale_heartbeat),
    ("stale-commit", accept_commit_of_a_superseded_generation),
    ("generation-fell", join_older_generation),
    ("two-static-members", two_static_members),
    ("false-fence", false_fence),
    ("two-leaders", two_leaders),
    ("two-owners", lambda scene: (scene.give(A, 1), scene.give(B, 1))),
    ("two-owners", held_by_another),
    ("two-assignments", two_assignments),
    ("wrong-assignment", lambda scene: scene.give(A, 1, member_id="b")),
    ("wrong-assignment", lambda scene: scene.view.assigned(A, 1, None, scene.life)),
    ("wrong-assignment", leave_out_a_member_of_the_decision),
    ("wrong-assignment", leave_out_a_member_after_it_was_assigned),
    ("wrong-assignment", leave_out_the_successor_of_a_static_member),
    ("two-assignments", two_assignments_of_a_lost_generation),
]


@pytest.mark.parametrize(("name", "happens"), ANOMALIES)
def test_impossible_group_history_is_an_anomaly(
    name: str, happens: Callable[[Scene], object]
) -> None:
    with pytest.raises(Anomaly) as found:
        happens(Scene())
    assert found.value.name == name


def test_commit_without_response_may_take_effect_later() -> None:
    scene = Scene()
    lost = scene.commit(acknowledged=False)
    scene.commit(acknowledged=True)
    scene.register.shown(lost, scene.register.floor)


def test_commit_may_not_take_effect_after_its_connection_has_ended() -> None:
    scene = Scene()
    lost = scene.commit(acknowledged=False, over_ms=1.5)
    scene.commit(acknowledged=True)
    with pytest.raises(Anomaly, match="after 2 had been"):
        scene.register.shown(lost, scene.register.floor)


def test_read_may_miss_a_commit_that_was_sent_later() -> None:
    scene = Scene()
    first = scene.commit(acknowledged=True)
    floor = scene.register.floor
    scene.commit(acknowledged=True)
    scene.register.shown(first, floor)


def test_static_member_keeps_its_partitions_under_a_new_member_id() -> None:
    scene = Scene()
    scene.give(Membership("i-1", "i"), 1)
    scene.give(Membership("i-2", "i"), 1, member_id="i-1")


def test_static_member_that_leaves_without_its_id_stops_no_client_outside_the_group() -> None:
    scene = Scene()
    scene.view.left(Membership("", "i"), scene.life)
    scene.send("commit", Membership("", None), -1)


def test_unassigned_generation_number_may_be_reused_after_a_crash() -> None:
    scene = Scene()
    scene.join(A, 2, held=[PARTITION])
    scene.life = 2
    scene.send("commit", A, 1, answered_in=2)
    scene.join(B, 2)
    scene.give(B, 2)
    assert scene.view.standing(A, 1, scene.life).why_stale == "generation 2 is known"


def test_late_decision_of_a_lost_generation_leaves_out_new_members() -> None:
    scene = Scene()
    lost = scene.view.decides(1, 2, ["a"])
    scene.life = 2
    scene.view.decides(2, 2, ["a", "b"])
    scene.view.assigned(B, 2, None, scene.life)
    scene.give(A, 2, decision=lost)


def test_late_decision_leaves_out_a_static_member_that_joined_after_the_crash() -> None:
    scene = Scene()
    lost = scene.view.decides(1, 2, ["a", "i-1"])
    scene.life = 2
    scene.view.decides(2, 2, ["a", "i-2"])
    scene.give(A, 2, decision=lost)
    scene.view.assigned(Membership("i-2", "i"), 2, None, scene.life)


@pytest.mark.parametrize("answered_in", [2, None])
def test_broker_that_is_no_longer_the_coordinator_may_accept_a_heartbeat(
    answered_in: int | None,
) -> None:
    scene = Scene()
    scene.give(A, 2)
    scene.send("heartbeat", B, 1, answered_in=answered_in)


def test_broker_that_is_no_longer_the_coordinator_may_let_members_join() -> None:
    scene = Scene()
    scene.give(A, 2)
    scene.view.joined(B, 1, life=None, known=2, leads=True, held=[PARTITION])
    scene.view.assigned(B, 1, None, None)
    scene.give(A, 3)
