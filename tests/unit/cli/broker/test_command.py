"""plog/cli/broker/command.py against a double of a cluster: drain and restore."""

from __future__ import annotations

from collections import Counter

import pytest

from plog.cli.broker.command import configure
from plog.types import TopicPartition
from tests.helpers.client.reassigning_cluster import ReassigningCluster
from tests.unit.cli.conftest import Output, ReassignmentSite


class Broker:
    """The tool, connected to a cluster of three brokers that share 6 partitions of 2 replicas."""

    def __init__(self, site: ReassignmentSite) -> None:
        self._site = site
        self.cluster: ReassigningCluster = site.cluster
        self.cluster.add_topic("t", *[[1, 2], [2, 3], [3, 1]] * 2)

    def __call__(self, *words: object) -> Output:
        return self._site.run(configure, *words)

    def on(self, broker: int) -> int:
        """Return the number of replicas of a broker."""
        return sum(broker in some for some in self.cluster.replicas.values())

    def led(self) -> dict[int, int]:
        """Return the number of partitions that each broker leads."""
        return dict(sorted(Counter(self.cluster.leaders_now.values()).items()))


@pytest.fixture
def broker(reassignment_site: ReassignmentSite) -> Broker:
    return Broker(reassignment_site)


# -- drain ---------------------------------------------------------------------------------------


def test_all_replicas_leave_a_broker(broker: Broker) -> None:
    result = broker("drain", 3)
    assert (result.code, result.err) == (0, "")
    assert [broker.on(one) for one in (1, 2, 3)] == [6, 6, 0]
    assert 3 not in broker.led()
    assert all(len(some) == 2 for some in broker.cluster.replicas.values())


def test_replicas_leave_a_broker_that_has_failed(broker: Broker) -> None:
    broker.cluster.kill(3)
    broker.cluster.racks[4] = None
    result = broker("drain", 3)
    assert (result.code, result.err) == (0, "")
    assert [broker.on(one) for one in (3, 4)] == [0, 4]
    # Replicas that were not on the broker have not moved.
    assert broker.cluster.replicas[TopicPartition("t", 0)] == (1, 2)


def test_drain_needs_enough_brokers(broker: Broker) -> None:
    broker.cluster.add_topic("wide", [1, 2, 3])
    before = broker.cluster.replicas
    result = broker("drain", 3)
    assert result.code == 1
    assert result.err.startswith(
        "plog: cannot move the replicas of wide-0: 3 replicas need 3 brokers, but only 2 can be"
    )
    assert broker.cluster.replicas == before


def test_leaders_leave_a_broker_that_keeps_its_replicas(broker: Broker) -> None:
    result = broker("drain", 3, "--leaders-only")
    assert (result.code, result.err) == (0, "")
    assert broker.led() == {1: 3, 2: 3} or broker.led() == {1: 4, 2: 2}
    assert broker.on(3) == 4
    # It must not become a leader again by an election of preferred leaders.
    assert all(some[0] != 3 for some in broker.cluster.replicas.values())


def test_leader_without_another_replica_in_sync_stays_and_is_named(broker: Broker) -> None:
    broker.cluster.add_topic("alone", [3])
    lagging = broker.cluster.parts[TopicPartition("t", 2)]
    lagging.isr = [3]
    result = broker("drain", 3, "--leaders-only")
    assert result.code == 1
    assert result.err.splitlines() == [
        "plog: alone-0: broker 3 has the only replica that is in sync",
        "plog: t-2: broker 3 has the only replica that is in sync",
    ]
    assert broker.led()[3] == 2


def test_leader_that_is_not_preferred_leaves_by_an_election(broker: Broker) -> None:
    part = broker.cluster.parts[TopicPartition("t", 1)]
    part.leader = 3
    assert broker("drain", 3, "--leaders-only").code == 0
    assert part.leader == 2
    assert part.replicas == (2, 3)


def test_leader_that_is_not_preferred_leaves_if_the_preferred_one_is_not_available(
    broker: Broker,
) -> None:
    wide = TopicPartition("wide", 0)
    broker.cluster.add_topic("wide", [2, 3, 1])
    broker.cluster.kill(2)
    part = broker.cluster.parts[wide]
    part.leader, part.isr = 3, [3, 1]
    result = broker("drain", 3, "--leaders-only")
    assert part.leader == 1
    assert broker.cluster.replicas[wide][0] == 1
    assert "wide" not in result.err


def test_unknown_broker_is_named(broker: Broker) -> None:
    for tool in ("drain", "restore", "may-stop"):
        result = broker(tool, 9)
        assert result.code == 1
        assert result.err == "plog: unknown broker 9: the available brokers are 1, 2, 3\n"


# -- restore -------------------------------------------------------------------------------------


def test_broker_leads_its_share_again(broker: Broker) -> None:
    broker("drain", 3, "--leaders-only")
    result = broker("restore", 3)
    assert (result.code, result.err) == (0, "")
    assert broker.led() == {1: 2, 2: 2, 3: 2}
    replicas = broker.cluster.replicas
    assert "No change" not in result.out
    assert broker("restore", 3).code == 0
    assert broker.cluster.replicas == replicas


def test_broker_that_prefers_to_lead_is_elected(broker: Broker) -> None:
    for part in broker.cluster.parts.values():
        if part.leader == 3:
            part.leader = part.replicas[1]
    assert broker("restore", 3, "--dry-run").code == 0
    assert 3 not in broker.led()
    assert broker("restore", 3).code == 0
    assert broker.led() == {1: 2, 2: 2, 3: 2}


def test_broker_that_is_not_in_sync_is_restored_later(broker: Broker) -> None:
    broker("drain", 3, "--leaders-only")
    for part in broker.cluster.parts.values():
        part.isr = [one for one in part.isr if one != 3]
    result = broker("restore", 3)
    assert result.code == 1
    assert result.err == (
        "plog: broker 3 is not in sync in 4 of its 4 partitions; when it is, run the command"
        " again\n"
    )
    assert 3 not in broker.led()


def test_broker_without_replicas_cannot_be_restored(broker: Broker) -> None:
    broker("drain", 3)
    result = broker("restore", 3)
    assert result.code == 1
    assert result.err == (
        "plog: cannot give leaders to broker 3: it has no replicas; to give it replicas, use plog"
        " rebalance\n"
    )


def test_broker_that_is_not_available_cannot_be_restored(broker: Broker) -> None:
    broker.cluster.kill(3)
    result = broker("restore", 3)
    assert result.code == 1
    assert "cannot give leaders to broker 3: it is not available; start it" in result.err
