"""The partitions that a member gives up, and the calls of its listener."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest

from plog.client.assignors import RebalanceProtocol
from plog.client.consumer.rebalance_listener import Listening, RebalanceListener
from plog.client.consumer.topic_selection import TopicSelection
from plog.client.group.member_state import Generation, Membership
from plog.client.group.revocation import Revocation
from plog.client.network.socket_network import run_blocking
from plog.client.settings import ConsumerSettings
from plog.types import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
EAGER, COOPERATIVE = RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE


class Positions:
    """An assignment."""

    def __init__(self, *partitions: TopicPartition) -> None:
        self.assigned = frozenset(partitions)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self.assigned = frozenset(partitions)


class Commit:
    """The commit before a revocation; the test decides when it is over."""

    def __init__(self) -> None:
        self.waits_in: Generation | None = None
        self.done = True
        self.calls: list[tuple[set[TopicPartition], bool]] = []

    def is_over(
        self,
        generation: Generation,
        going: Collection[TopicPartition],
        *,
        only_these: bool,
        longest_s: float,
    ) -> bool:
        self.calls.append((set(going), only_these))
        self.waits_in = None if self.done else generation
        return self.done

    def end(self) -> None:
        self.waits_in = None


class Listener(RebalanceListener):
    """Records its calls, and runs an action of the test in them."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[TopicPartition]]] = []
        self.act: Callable[[], None] = lambda: None

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("revoked", list(partitions)))
        self.act()

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("lost", list(partitions)))
        self.act()


async def _call(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


class Site:
    """A stable member with t-0, t-1 and u-0 that is subscribed to `t`."""

    def __init__(self, protocol: RebalanceProtocol) -> None:
        self.positions = Positions(T0, T1, U0)
        self.commit = Commit()
        self.listener = Listener()
        self.selection: TopicSelection | None = TopicSelection(topics=frozenset({"t"}))
        self.membership = Membership(None, lambda: None)
        self.membership.joined(1, "m", "range")
        self.membership.synced()
        listening = Listening(self.listener, _call)
        self.revocation = Revocation(
            protocol,
            ConsumerSettings.from_options(bootstrap_servers="h:1", group_id="g"),
            self.commit,  # type: ignore[arg-type]
            self.membership,
            self.positions,  # type: ignore[arg-type]
            selection=lambda: self.selection,
            listening=lambda: listening,
        )


@pytest.mark.parametrize(
    ("protocol", "revoked"), [(EAGER, [T0, T1, U0]), (COOPERATIVE, [U0])], ids=["eager", "coop"]
)
def test_partitions_revoked_before_a_join_depend_on_the_protocol(
    protocol: RebalanceProtocol, revoked: list[TopicPartition]
) -> None:
    site = Site(protocol)
    run_blocking(site.revocation.before_join())
    assert site.listener.calls == [("revoked", revoked)]
    assert site.positions.assigned == {T0, T1, U0} - set(revoked)
    assert site.commit.calls == [(set(revoked), False)]
    assert not site.membership.needs_prepare


@pytest.mark.parametrize(
    ("protocol", "calls"), [(EAGER, [("revoked", [])]), (COOPERATIVE, [])], ids=["eager", "coop"]
)
def test_only_an_eager_listener_is_called_when_nothing_is_revoked(
    protocol: RebalanceProtocol, calls: list[tuple[str, list[TopicPartition]]]
) -> None:
    site = Site(protocol)
    site.positions.assign(() if protocol is EAGER else (T0,))
    run_blocking(site.revocation.before_join())
    assert site.listener.calls == calls
    assert not site.membership.needs_prepare


def test_partitions_are_kept_until_their_commit_is_over() -> None:
    site = Site(COOPERATIVE)
    site.commit.done = False
    run_blocking(site.revocation.before_join())
    assert site.revocation.is_waiting
    assert site.listener.calls == []
    assert site.positions.assigned == {T0, T1, U0}
    assert site.membership.needs_prepare
    site.commit.done = True
    run_blocking(site.revocation.before_join())
    assert not site.revocation.is_waiting
    assert site.positions.assigned == {T0, T1}


def test_partitions_of_a_lost_generation_are_lost_without_a_commit() -> None:
    site = Site(COOPERATIVE)
    site.membership.reset("unknown member", keeps_member_id=False)
    run_blocking(site.revocation.before_join())
    assert site.listener.calls == [("lost", [T0, T1, U0])]
    assert site.positions.assigned == frozenset()
    assert site.commit.calls == []


def test_partitions_missing_from_the_assignment_are_revoked() -> None:
    site = Site(COOPERATIVE)
    generation = site.membership.generation
    assert site.revocation.may_revoke(generation, frozenset({T1}))
    assert run_blocking(site.revocation.with_assignment(generation, frozenset({T1})))
    assert site.listener.calls == [("revoked", [T1])]
    assert site.positions.assigned == {T0, U0}
    assert site.commit.calls == [({T1}, True)]


def test_assignment_is_dropped_when_the_generation_ends_during_the_listener() -> None:
    site = Site(COOPERATIVE)
    generation = site.membership.generation
    site.listener.act = lambda: site.membership.reset("fenced", keeps_member_id=False)
    assert not run_blocking(site.revocation.with_assignment(generation, frozenset({T1})))
    assert site.positions.assigned == {T0, U0}


def test_partitions_that_a_listener_assigns_itself_are_kept() -> None:
    site = Site(COOPERATIVE)
    generation = site.membership.generation

    def unsubscribe_and_assign() -> None:
        site.selection = None
        site.membership.reset("left", keeps_member_id=False)
        site.positions.assign((T1,))

    site.listener.act = unsubscribe_and_assign
    assert not run_blocking(site.revocation.with_assignment(generation, frozenset({T1})))
    assert site.positions.assigned == {T1}


@pytest.mark.parametrize(("stable", "call"), [(True, "revoked"), (False, "lost")])
def test_leaving_reports_all_partitions(stable: bool, call: str) -> None:
    site = Site(COOPERATIVE)
    if not stable:
        site.membership.begin_join()
    run_blocking(site.revocation.before_leaving())
    assert site.listener.calls == [(call, [T0, T1, U0])]
    assert site.positions.assigned == frozenset()
    assert site.commit.calls == []


def test_leaving_without_a_subscription_keeps_assigned_partitions() -> None:
    site = Site(COOPERATIVE)
    site.selection = None
    run_blocking(site.revocation.before_leaving())
    assert site.listener.calls == []
    assert site.positions.assigned == {T0, T1, U0}
