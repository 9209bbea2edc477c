"""The faults: each begins on a `Site`, and returns the function that ends it.

`FAULTS` contains all of them by name. `random` picks the broker or server if a fault can affect
several. A fault begins while all replicas are in sync, and its end restores everything.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from random import Random
from typing import Final, TypeAlias

from kazoo.exceptions import NoNodeError

from tests.cluster.faults.machines import CLIENT
from tests.cluster.faults.site import (
    IDS,
    PARTITIONS,
    Site,
    broker_machine,
    zookeeper_machine,
)

End: TypeAlias = Callable[[], None]
Fault: TypeAlias = Callable[[Site, Random], End]
Pick: TypeAlias = Callable[[Site, Random], int]


# -- brokers that a fault affects ------------------------------------------------------------------


def leader(site: Site, random: Random) -> int:
    """Return the leader of a partition."""
    return site.leader(random.randrange(PARTITIONS))


def follower(site: Site, random: Random) -> int:
    """Return a follower of a partition."""
    return random.choice(site.followers(random.randrange(PARTITIONS)))


def controller(site: Site, _: Random) -> int:
    """Return the controller."""
    return site.controller


def _zookeeper_leader(site: Site, random: Random) -> int:
    return site.zookeeper_leader or random.choice(IDS)


def _any_zookeeper(_: Site, random: Random) -> int:
    return random.choice(IDS)


# -- processes -------------------------------------------------------------------------------------


def killed(pick: Pick) -> Fault:
    """SIGKILL; the broker starts again at the end."""

    def fault(site: Site, random: Random) -> End:
        broker = site.brokers[pick(site, random)]
        broker.kill()
        return broker.start

    return fault


def paused(pick: Pick) -> Fault:
    """SIGSTOP, and SIGCONT at the end."""

    def fault(site: Site, random: Random) -> End:
        one = pick(site, random)
        site.pause_broker(one)
        return lambda: site.resume_broker(one)

    return fault


def stopped(pick: Pick) -> Fault:
    """SIGTERM, with a controlled shutdown; the broker starts again at the end."""

    def fault(site: Site, random: Random) -> End:
        broker = site.brokers[pick(site, random)]
        broker.stop()
        return broker.start

    return fault


def all_killed(site: Site, random: Random) -> End:
    """SIGKILL all brokers; they start again in any order."""
    order = random.sample(IDS, len(IDS))
    for one in IDS:
        site.brokers[one].kill()

    def end() -> None:
        for one in order:
            site.brokers[one].start()

    return end


def disk_wiped(site: Site, random: Random) -> End:
    """SIGKILL a broker, and remove its data; it starts again with an empty disk."""
    broker = site.brokers[random.choice(IDS)]
    broker.kill()
    shutil.rmtree(broker.data_dir)
    return broker.start


def all_killed_and_disk_wiped(site: Site, random: Random) -> End:
    """SIGKILL all brokers, and remove the data of one; they start again in any order."""
    end = all_killed(site, random)
    shutil.rmtree(site.brokers[random.choice(IDS)].data_dir)
    return end


def rolling_restart(site: Site, random: Random) -> End:
    """Restart the brokers cleanly, each when all replicas are in sync."""
    for one in random.sample(IDS, len(IDS)):
        site.brokers[one].restart()
        site.wait_until_in_sync()
    return lambda: None


def zookeeper_killed(pick: Pick) -> Fault:
    """SIGKILL a ZooKeeper server; it starts again at the end."""

    def fault(site: Site, random: Random) -> End:
        one = pick(site, random)
        site.kill_zookeeper(one)
        return lambda: site.start_zookeeper(one)

    return fault


def zookeeper_paused(pick: Pick) -> Fault:
    """SIGSTOP a ZooKeeper server, and SIGCONT at the end."""

    def fault(site: Site, random: Random) -> End:
        one = pick(site, random)
        site.pause_zookeeper(one)
        return lambda: site.resume_zookeeper(one)

    return fault


def controller_removed(site: Site, random: Random) -> End:
    """Delete ``/controller``, which forces an election."""
    try:
        site.znodes.retry(site.znodes.delete, "/controller")
    except NoNodeError:  # An election is under way.
        pass
    return lambda: None


# -- the network -----------------------------------------------------------------------------------


def _cut(site: Site, pairs: list[tuple[str, str]]) -> End:
    for source, target in pairs:
        site.machines.cut(source, target)
    return site.machines.heal_all


def _both(one: str, others: list[str]) -> list[tuple[str, str]]:
    return [pair for other in others for pair in ((one, other), (other, one))]


def leader_to_follower_cut(site: Site, random: Random) -> End:
    """Packets from a leader to one of its followers are lost."""
    source = leader(site, random)
    target = random.choice([one for one in IDS if one != source])
    return _cut(site, [(broker_machine(source), broker_machine(target))])


def follower_to_leader_cut(site: Site, random: Random) -> End:
    """Packets from a follower to its leader are lost."""
    target = leader(site, random)
    source = random.choice([one for one in IDS if one != target])
    return _cut(site, [(broker_machine(source), broker_machine(target))])


def brokers_cut(site: Site, random: Random) -> End:
    """Two brokers cannot reach each other."""
    one, other = random.sample(IDS, 2)
    return _cut(site, _both(broker_machine(one), [broker_machine(other)]))


def cut_from_brokers(pick: Pick) -> Fault:
    """A broker cannot reach the other brokers, but ZooKeeper and the clients."""

    def fault(site: Site, random: Random) -> End:
        one = pick(site, random)
        others = [broker_machine(other) for other in IDS if other != one]
        return _cut(site, _both(broker_machine(one), others))

    return fault


def cut_from_zookeeper(pick: Pick) -> Fault:
    """A broker cannot reach ZooKeeper, but the other brokers and the clients."""

    def fault(site: Site, random: Random) -> End:
        one = pick(site, random)
        servers = [zookeeper_machine(number) for number in IDS]
        return _cut(site, _both(broker_machine(one), servers))

    return fault


def isolated(pick: Pick) -> Fault:
    """The machine of a broker cannot reach any other machine."""

    def fault(site: Site, random: Random) -> End:
        one = pick(site, random)
        others = [broker_machine(other) for other in IDS if other != one]
        others += [zookeeper_machine(number) for number in IDS]
        return _cut(site, _both(broker_machine(one), [*others, CLIENT]))

    return fault


def zookeeper_isolated(pick: Pick) -> Fault:
    """The machine of a ZooKeeper server cannot reach any other machine."""

    def fault(site: Site, random: Random) -> End:
        one = pick(site, random)
        others = [zookeeper_machine(number) for number in IDS if number != one]
        others += [broker_machine(number) for number in IDS]
        return _cut(site, _both(zookeeper_machine(one), [*others, CLIENT]))

    return fault


def zookeeper_without_quorum(site: Site, random: Random) -> End:
    """SIGSTOP two ZooKeeper servers, and SIGCONT at the end."""
    paused_servers = random.sample(IDS, 2)
    for one in paused_servers:
        site.pause_zookeeper(one)

    def end() -> None:
        for one in paused_servers:
            site.resume_zookeeper(one)

    return end


FAULTS: Final[dict[str, Fault]] = {
    "leader killed": killed(leader),
    "follower killed": killed(follower),
    "controller killed": killed(controller),
    "leader paused": paused(leader),
    "follower paused": paused(follower),
    "controller paused": paused(controller),
    "leader stopped": stopped(leader),
    "all brokers killed": all_killed,
    "disk wiped": disk_wiped,
    "all brokers killed and a disk wiped": all_killed_and_disk_wiped,
    "rolling restart": rolling_restart,
    "controller removed": controller_removed,
    "ZooKeeper's leader killed": zookeeper_killed(_zookeeper_leader),
    "ZooKeeper server killed": zookeeper_killed(_any_zookeeper),
    "ZooKeeper's leader paused": zookeeper_paused(_zookeeper_leader),
    "ZooKeeper without quorum": zookeeper_without_quorum,
    "ZooKeeper's leader isolated": zookeeper_isolated(_zookeeper_leader),
    "leader to follower cut": leader_to_follower_cut,
    "follower to leader cut": follower_to_leader_cut,
    "brokers cut": brokers_cut,
    "leader cut from brokers": cut_from_brokers(leader),
    "controller cut from brokers": cut_from_brokers(controller),
    "leader cut from ZooKeeper": cut_from_zookeeper(leader),
    "controller cut from ZooKeeper": cut_from_zookeeper(controller),
    "leader isolated": isolated(leader),
    "controller isolated": isolated(controller),
}
