"""A member's view of its group: shares, and znodes that cannot be used."""

from __future__ import annotations

import pytest

from plog.client.errors import InvalidZnode
from plog.zookeeper.operations import Create, Delete, SetData
from tests.helpers.group.zookeeper_world import (
    MakeWorld,
    numbers,
)


def test_first_members_read_the_remainder(make_zookeeper_world: MakeWorld) -> None:
    world = make_zookeeper_world()
    world.create("t", 8)
    members = [world.member(name, "t") for name in "abc"]
    world.run_until_calm(t=8)
    members.sort(key=lambda one: one.consumer_id)
    assert [numbers(one) for one in members] == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_more_members_than_partitions_leave_some_without(make_zookeeper_world: MakeWorld) -> None:
    world = make_zookeeper_world()
    world.create("t", 1)
    members = [world.member(name, "t") for name in "abc"]
    world.run_until_calm(t=1)
    assert sorted(len(one.owned) for one in members) == [0, 0, 1]
    next(one for one in members if one.owned).close()
    world.run_until_calm(t=1)


def test_members_of_kafka_with_several_threads_get_their_shares(
    make_zookeeper_world: MakeWorld,
) -> None:
    world = make_zookeeper_world()
    world.create("t", 6)
    a = world.member("a", "t")
    world.run_until_calm(t=6)
    data = b'{"version":1,"subscription":{"t":2},"pattern":"static","timestamp":"1"}'
    # Sorted before the id of the member, which starts with g_.
    world.zookeeper.write(Create(path="/consumers/g/ids/aaa", data=data))
    world.sim.run_until(lambda: numbers(a) == [4, 5])


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"{", r"cannot read /consumers/g/ids/x: its data is not JSON"),
        (b"[]", r"cannot read /consumers/g/ids/x: its data is not a JSON object"),
        (
            b'{"version":1,"pattern":"white_list","subscription":{"t.*":1}}',
            r"its pattern is 'white_list', but only 'static' is supported; stop the consumer",
        ),
        (
            b'{"version":1,"pattern":"static","subscription":{"t":0}}',
            r"its subscription is \{'t': 0\}; stop the consumer that has written it, or delete",
        ),
    ],
)
def test_registration_that_cannot_be_used_is_named(
    make_zookeeper_world: MakeWorld, data: bytes, text: str
) -> None:
    world = make_zookeeper_world()
    world.create("t", 1)
    a = world.member("a", "t")
    world.run_until_calm(t=1)
    path = "/consumers/g/ids/x"
    world.zookeeper.write(Create(path=path, data=data))
    world.sim.run_until(lambda: bool(a.errors))
    assert isinstance(a.errors[0], InvalidZnode)
    with pytest.raises(InvalidZnode, match=text):
        raise a.errors[0]
    # It keeps its partitions meanwhile.
    assert numbers(a) == [0]
    world.zookeeper.write(Delete(path=path))
    world.run_until_calm(t=1)


def test_zookeeper_without_brokers_is_an_error(make_zookeeper_world: MakeWorld) -> None:
    world = make_zookeeper_world()
    world.zookeeper.write(Delete(path="/brokers/topics"))
    a = world.member("a", "t")
    world.sim.run_until(lambda: bool(a.errors))
    assert "/brokers/topics does not exist" in str(a.errors[0])
    assert "set zookeeper.connect as on the brokers" in str(a.errors[0])


def test_damaged_topic_is_named(make_zookeeper_world: MakeWorld) -> None:
    world = make_zookeeper_world()
    world.create("t", 1)
    world.zookeeper.write(SetData(path="/brokers/topics/t", data=b'{"partitions":[]}'))
    a = world.member("a", "t")
    world.sim.run_until(lambda: bool(a.errors))
    assert "cannot read the partitions in /brokers/topics/t" in str(a.errors[0])
