"""Joining a generation: the work of a leader, and invalid assignments and subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from plog.client.assignors import (
    Assignment,
    Assignor,
    CooperativeStickyAssignor,
    RangeAssignor,
    RebalanceProtocol,
    Subscription,
)
from plog.client.group.member import GroupMember
from plog.errors import InconsistentGroupProtocol
from plog.types import TopicPartition
from plog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from plog.wire.messages.sync_group import SyncGroupRequest
from plog.wire.primitives import WireError
from tests.helpers.group.group_world import Member, World

MakeWorld = Callable[..., World]


def with_assignors(world: World, name: str, *assignors: Assignor, **settings: Any) -> Member:
    """Return a member with these assignors."""
    member = world.member(name, **settings)
    member.member = GroupMember(
        member.cluster,
        world.sim,
        member.settings,
        member.positions,
        assignors=assignors,
        call_user=member._call_user,
    )
    return member


def poll_on(world: World, member: Member) -> None:
    """Poll as an application does; raises the errors of the polls."""
    for _ in range(100):
        world.advance(200)
        member.member.polled()
        world.sim.run(member.member.attend())


class Swapping(Assignor):
    """Claims to be cooperative, but assigns all partitions to the newest member."""

    name = "swapping"
    protocols = (RebalanceProtocol.COOPERATIVE,)

    def assign(
        self, partition_counts: Mapping[str, int], subscriptions: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        everything = tuple(
            TopicPartition(topic, i) for topic, n in partition_counts.items() for i in range(n)
        )
        new = [member for member, one in subscriptions.items() if not one.owned_partitions]
        chosen = (new or list(subscriptions))[0]
        return {
            member: Assignment(partitions=everything if member == chosen else ())
            for member in subscriptions
        }


def test_custom_assignor_assigns_the_group(make_world: MakeWorld) -> None:
    class Reversed(RangeAssignor):
        name = "reversed"
        reported: list[int] = []

        def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
            self.reported.append(generation_id)

    world = make_world()
    world.create("t", 2)
    member = with_assignors(world, "a", Reversed()).start("t")
    world.run_until_calm(t=2)
    assert member.member.generation.protocol == "reversed"
    assert Reversed.reported == [member.member.generation.generation_id]


def test_cooperative_assignor_that_moves_owned_partitions_is_refused(
    make_world: MakeWorld,
) -> None:
    world = make_world()
    world.create("t", 2)
    a = with_assignors(world, "a", Swapping()).start("t")
    world.run_until_calm(t=2)
    with_assignors(world, "b", Swapping()).start("t")
    a.stop_polling()
    with pytest.raises(ValueError, match="swapping assigns t-0, t-1 to a new owner"):
        poll_on(world, a)


def test_group_uses_an_assignor_that_all_members_support(make_world: MakeWorld) -> None:
    world = make_world()
    world.create("t", 2)
    a = world.member("a", "t", partition_assignment_strategy="roundrobin,range")
    b = world.member("b", "t", partition_assignment_strategy="sticky,range")
    world.run_until_calm(t=2)
    assert {a.member.generation.protocol, b.member.generation.protocol} == {"range"}


def test_join_request_contains_owned_partitions_and_reason(make_world: MakeWorld) -> None:
    world = make_world()
    world.create("t", 2)
    a = with_assignors(world, "a", CooperativeStickyAssignor(), client_rack="r1").start("t")
    world.run_until_calm(t=2)
    world.member("b", "t", partition_assignment_strategy="cooperative-sticky")
    world.run_until_calm(t=2)
    reported = [
        (request.reason, Subscription.decode(request.protocols[0].metadata))
        for request in world.sim.requests
        if isinstance(request, JoinGroupRequest)
        and request.member_id == a.member.generation.member_id
    ]
    reason, subscription = reported[1]
    assert reason == "group is already rebalancing"
    assert subscription.rack_id == "r1"
    assert len(subscription.owned_partitions) == 2
    assert subscription.generation_id == 1


def test_returning_static_leader_keeps_the_assignment(make_world: MakeWorld) -> None:
    world = make_world()
    world.create("t", 2)
    a = world.member("a", "t", group_instance_id="one")
    world.run_until_calm(t=2)
    a.close()
    before = len(world.sim.requests)
    b = world.member("a", "t", group_instance_id="one")
    world.run_until_calm(t=2)
    synced = [x for x in world.sim.requests[before:] if isinstance(x, SyncGroupRequest)]
    assert [len(request.assignments) for request in synced] == [0]
    assert len(b.owned) == 2


def foreign_join(world: World, protocol_type: str, metadata: bytes) -> None:
    """Start to join group "g" as a member of another program."""
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )
    world.sim.broker.begin(request, 3)
    world.sim.settle()


def test_group_of_another_type_is_named_in_the_error(make_world: MakeWorld) -> None:
    world = make_world()
    foreign_join(world, "connect", b"")
    a = world.member("a")
    a.member.subscribe(["t"])
    with pytest.raises(InconsistentGroupProtocol, match=r"group\.id"):
        world.sim.run(a.until_active())


def test_unreadable_subscription_error_names_its_member(make_world: MakeWorld) -> None:
    world = make_world()
    world.create("t")
    a = world.member("a", "t", partition_assignment_strategy="range")
    world.run_until_calm(t=1)
    a.stop_polling()
    world.advance(500)
    foreign_join(world, "consumer", b"\x00")
    with pytest.raises(WireError, match="member test-"):
        poll_on(world, a)
