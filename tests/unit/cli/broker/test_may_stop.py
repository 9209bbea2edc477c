"""plog/cli/broker/may_stop.py against a double of a cluster."""

from __future__ import annotations

import json

import pytest

from plog.cli.broker.command import configure
from plog.types import TopicPartition
from tests.unit.cli.conftest import ReassignmentSite


@pytest.fixture
def site(reassignment_site: ReassignmentSite) -> ReassignmentSite:
    reassignment_site.cluster.add_topic("t", [1, 2, 3], [2, 3, 1])
    reassignment_site.cluster.min_isr["t"] = 2
    return reassignment_site


def test_broker_may_stop_if_enough_replicas_remain(site: ReassignmentSite) -> None:
    result = site.run(configure, "may-stop", 1)
    assert (result.code, result.lines) == (
        0,
        ["broker 1 may stop: none of its 2 partitions would be affected"],
    )


def test_broker_that_has_stopped_already_is_named(site: ReassignmentSite) -> None:
    site.cluster.kill(3)
    result = site.run(configure, "may-stop", 3)
    assert result.lines[-1] == "broker 3 is not available: it has stopped already"


def test_partition_that_would_fall_below_its_minimum_is_named(site: ReassignmentSite) -> None:
    site.cluster.parts[TopicPartition("t", 1)].isr = [2, 1]
    result = site.run(configure, "may-stop", 1)
    assert result.code == 1
    assert result.lines == [
        "t-1: would have 1 in-sync replica, and min.insync.replicas=2",
        "broker 1 must not stop: 1 of its 2 partitions would be affected",
    ]
    # Broker 3 is not in sync there, so that its stop changes nothing.
    assert site.run(configure, "may-stop", 3).code == 0


def test_partition_that_would_lose_its_leader_is_named(site: ReassignmentSite) -> None:
    site.cluster.add_topic("alone", [2])
    result = site.run(configure, "may-stop", 2)
    assert result.code == 1
    assert result.lines[0] == (
        "alone-0: would have no leader: the broker has the only in-sync replica"
    )
    assert site.run(configure, "may-stop", 1).code == 0


def test_minimum_is_at_most_the_number_of_replicas(site: ReassignmentSite) -> None:
    site.cluster.add_topic("pair", [1, 2])
    site.cluster.min_isr["pair"] = 3
    document = json.loads(site.run(configure, "may-stop", 1, "--json").out)
    assert not document["may_stop"]
    assert document["partitions"] == [
        {
            "topic": "pair",
            "partition": 0,
            "other_in_sync_replicas": 1,
            "min_insync_replicas": 2,
        }
    ]


def test_broker_without_partitions_may_stop(site: ReassignmentSite) -> None:
    site.cluster.racks[4] = None
    result = site.run(configure, "may-stop", 4)
    assert (result.code, result.out) == (
        0,
        "broker 4 may stop: none of its 0 partitions would be affected\n",
    )
