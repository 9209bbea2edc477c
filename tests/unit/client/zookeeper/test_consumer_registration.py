"""The registration of a consumer: lost responses, other sessions, and operators."""

from __future__ import annotations

from plog.zookeeper.operations import Create, Delete
from tests.helpers.group.zookeeper_world import MakeWorld, pair


def test_registration_of_an_older_session_is_not_used(make_zookeeper_world: MakeWorld) -> None:
    world = make_zookeeper_world()
    world.create("t", 2)
    a = world.member("a")
    for path in ("/consumers", "/consumers/g", "/consumers/g/ids"):
        world.zookeeper.write(Create(path=path))
    path = f"/consumers/g/ids/{a.consumer_id}"
    older = world.zookeeper.sessions.open(60_000)
    world.zookeeper.apply([Create(path=path, ephemeral=True)], session=older.id)
    a.start("t")
    world.advance(5_000)
    # The znode will end with the older session, so the consumer must not rely on it.
    assert a.owned == frozenset()
    world.zookeeper.expire(older.id)
    world.run_until_calm(t=2)
    stat = world.zookeeper.stat(path)
    assert stat is not None
    assert stat.ephemeral_owner == a.client.session_id


def test_member_registers_again_if_an_operator_deletes_its_registration(
    make_zookeeper_world: MakeWorld,
) -> None:
    world, a, b = pair(make_zookeeper_world)
    world.zookeeper.write(Delete(path=f"/consumers/g/ids/{a.consumer_id}"))
    world.advance(100)
    world.run_until_calm(t=4)
    assert {a.consumer_id, b.consumer_id} == set(world.zookeeper.names("/consumers/g/ids"))
