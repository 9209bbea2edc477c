"""A consumer in a group resumes from committed positions and commits them."""

from __future__ import annotations

from typing import Any

import pytest

from plog.client.consumer.core import ConsumerCore
from plog.client.errors import IllegalState
from plog.client.group.group_metadata import GroupMetadata
from plog.client.network.cluster import Cluster
from plog.client.values import ConsumerRecord, OffsetAndMetadata
from plog.errors import InvalidGroupId
from plog.types import TopicPartition
from tests.helpers.client.consumer_site import ConsumerSite

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class GroupSite(ConsumerSite):
    """Consumers of group "g", polled as a face polls them."""

    def __init__(self, seed: int = 0, **options: Any) -> None:
        super().__init__(seed, group_id="g", **options)
        self.members: list[tuple[Cluster, ConsumerCore]] = [(self.cluster, self.core)]
        self.taken: list[list[ConsumerRecord]] = [[]]

    def join(self) -> ConsumerCore:
        """Return another subscribed member."""
        self.members.append(self.another())
        self.taken.append([])
        core = self.members[-1][1]
        core.subscribe(["t"])
        return core

    async def poll(self, number: int) -> None:
        core = self.members[number][1]
        await core.prepare()
        self.taken[number] += core.take(100)

    def poll_all(self, condition: Any) -> None:
        """Let every member poll every 100 ms until `condition` holds."""
        for _ in range(3_000):
            for number in range(len(self.members)):
                self.sim.run(self.poll(number))
            if condition():
                return
            self.sim.advance(100)
        raise AssertionError("the condition never became true")

    def got(self) -> list[tuple[int, int]]:
        """Return partition and offset of all records that the members have taken."""
        return sorted((x.partition, x.offset) for one in self.taken for x in one)


def test_group_of_one_reads_everything_and_resumes_from_commit() -> None:
    site = GroupSite()
    site.create("t", 2)
    for number in (0, 1):
        site.produce("t", b"a", b"b", partition=number)
    site.core.subscribe(["t"])
    site.poll_all(lambda: len(site.got()) == 4)
    assert site.core.subscription == {"t"}
    assert site.core.assignment == {T0, T1}
    site.sim.run(site.core.commit())
    committed = site.sim.run(site.core.committed([T0, T1]))
    assert committed[T0] == OffsetAndMetadata(2, leader_epoch=0)
    site.close()
    site.produce("t", b"c")
    site.members, site.taken = [], []
    site.join()
    site.poll_all(lambda: len(site.got()) == 1)
    assert site.got() == [(0, 2)]


def test_positions_are_committed_automatically() -> None:
    site = GroupSite(auto_commit_interval_ms=1_000)
    site.create("t", 1)
    site.produce("t", b"a", b"b")
    site.core.subscribe(["t"])
    site.poll_all(lambda: len(site.got()) == 2)
    for _ in range(30):
        site.sim.run(site.poll(0))
        site.sim.advance(100)
    found = site.sim.run(site.core.committed([T0]))[T0]
    assert found is not None
    assert found.offset == 2


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_each_record_is_read_once_when_members_join_and_leave(strategy: str) -> None:
    site = GroupSite(partition_assignment_strategy=strategy, session_timeout_ms=6_000)
    site.create("t", 4)
    site.core.subscribe(["t"])
    ends = dict.fromkeys(range(4), 0)

    def produce() -> None:
        for number in range(4):
            site.produce("t", b"x", b"y", b"z", partition=number)
            ends[number] += 3

    def is_complete() -> bool:
        return site.got() == sorted((p, o) for p in range(4) for o in range(ends[p]))

    produce()
    site.poll_all(is_complete)
    site.join()
    produce()
    site.poll_all(lambda: is_complete() and all(len(c.assignment) == 2 for _, c in site.members))
    produce()
    site.poll_all(is_complete)
    assert all(x for x in site.taken)
    gone_cluster, gone = site.members.pop(0)
    before = site.taken.pop(0)
    site.taken[0] += before
    site.sim.run(gone.close())
    site.sim.run(gone_cluster.close())
    produce()
    site.poll_all(is_complete)


def test_group_methods_require_a_group_id() -> None:
    site = ConsumerSite()
    core = site.core
    for what in (core.commit({}), core.committed([T0])):
        with pytest.raises(InvalidGroupId, match=r"set group\.id"):
            site.sim.run(what)
    with pytest.raises(InvalidGroupId):
        core.commit_async()
    with pytest.raises(InvalidGroupId):
        core.group_metadata()
    assert core.subscription == frozenset()
    assert not core.needs_prepare
    site.sim.run(core.prepare())
    site.sim.run(core.unsubscribe())


def test_manual_assignment_and_subscription_exclude_each_other() -> None:
    site = GroupSite()
    site.create("t", 2)
    site.core.assign([T0])
    assert site.core.group_metadata() == GroupMetadata("g")
    with pytest.raises(IllegalState, match="assigned manually"):
        site.core.subscribe(["t"])
    site.sim.run(site.core.unsubscribe())
    site.core.subscribe(["t"])
    with pytest.raises(IllegalState, match="unsubscribe first"):
        site.core.assign([T0])
    site.sim.run(site.core.unsubscribe())
    site.core.assign([T0])
    site.produce("t", b"a")
    assert site.values(1) == [b"a"]


def test_consumer_with_manual_assignment_may_commit_in_a_group() -> None:
    site = GroupSite()
    site.create("t", 2)
    site.produce("t", b"a", b"b", b"c")
    site.core.assign([T0])
    site.take(2)
    site.sim.run(site.core.commit())
    _, other = site.another()
    other.assign([T0])
    assert site.sim.run(other.position(T0)) == 2
    assert "assigned-partitions" in other.metrics()
