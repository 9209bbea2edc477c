"""The election of the controller, in which brokers and operators interfere."""

from __future__ import annotations

import json

import pytest

from plog.zookeeper.operations import Create, Delete, SetData
from plogd.metadata.store import (
    Change,
    Fenced,
    Key,
)
from plogd.ports import Later
from plogd.testing.mock_zookeeper import Fault, MockZooKeeperClient, Request
from tests.helpers.metadata_sites import (
    LOST,
    ZooKeeperSite,
    controller_of_topic,
    election_change,
    fault_once,
    partition_value,
    topic_changes,
)
from tests.helpers.sim.sim_ports import outcome

PARTITION: Key = ("partition", "t", 0)


class TestElection:
    """The controller's znode, which several brokers and operators change."""

    def test_second_broker_becomes_controller_when_the_first_stops(self) -> None:
        first = ZooKeeperSite(1)
        second = ZooKeeperSite(2, first)
        term = controller_of_topic(first)
        campaign = second.store.campaign()
        second.run_for(1000)
        assert not campaign.done
        first.client.close()
        assert second.settle(campaign) == term + 1
        assert second.store.get(PARTITION)[0] == partition_value()
        assert second.store.controller_id == 2

    def test_deleted_controller_znode_forces_an_election(self) -> None:
        site = ZooKeeperSite()
        term = controller_of_topic(site)
        resigned: list[bool] = []
        site.store.resigned(lambda: resigned.append(True))
        site.zookeeper.write(Delete(path="/controller"))
        site.run_for(10)
        assert resigned == [True]
        assert site.settle(site.store.campaign()) == term + 1
        assert site.zookeeper.data("/controller_epoch") == b"%d" % (term + 1)

    def test_former_controller_whose_watch_is_late_is_fenced(self) -> None:
        first = ZooKeeperSite(1)
        second = ZooKeeperSite(2, first)
        term = controller_of_topic(first)
        campaign = second.store.campaign()
        first.client.hold()
        first.zookeeper.write(Delete(path="/controller"))
        second.settle(campaign)
        resigned: list[bool] = []
        first.store.resigned(lambda: resigned.append(True))
        [one] = first.settle(first.store.write([election_change(first, 1)], term))
        assert one == Fenced()
        assert resigned == [True]
        second.settle(second.store.write([election_change(second, 1)], term + 1))

    @pytest.mark.parametrize("fault", LOST)
    def test_election_survives_a_lost_connection(self, fault: Fault) -> None:
        site = ZooKeeperSite()
        fault_once(site.zookeeper, fault)
        assert site.settle(site.store.campaign()) == 1
        assert site.settle(site.store.write_atomic(topic_changes("t"), 1))
        site.zookeeper.write(Delete(path="/controller"))
        site.run_for(1)
        fault_once(site.zookeeper, fault)
        assert site.settle(site.store.campaign()) == 2

    def test_epoch_of_another_broker_is_not_mistaken_for_the_own(self) -> None:
        """The controller's znode is deleted between the reads of znode and epoch."""
        first = ZooKeeperSite(1)
        second = ZooKeeperSite(2, first)
        other: list[Later[int]] = []

        def delete(client: MockZooKeeperClient, request: Request) -> Fault:
            if client is first.client and request.path == "/controller_epoch":
                data = first.zookeeper.data("/controller")
                if data is not None and json.loads(data)["brokerid"] == 1 and not other:
                    first.zookeeper.on_request = lambda *_: Fault.NONE
                    first.zookeeper.write(
                        Delete(path="/controller"), SetData(path="/controller_epoch", data=b"7")
                    )
                    other.append(second.store.campaign())
            return Fault.NONE

        first.zookeeper.on_request = delete
        campaign = first.store.campaign()
        first.run_for(1000)
        assert other
        results = [later for later in (campaign, other[0]) if later.done]
        assert [outcome(later) for later in results] == [8]

    def test_writes_of_a_former_term_are_fenced_instead_of_conflicts(self) -> None:
        site = ZooKeeperSite()
        term = controller_of_topic(site)
        site.zookeeper.write(Delete(path="/controller"))
        site.run_for(10)
        for key, value in ((PARTITION, partition_value()), (("topic", "t"), None)):
            for expected in (0, 5):
                change = Change(key=key, value=value, expected=expected)
                assert site.settle(site.store.write([change], term)) == [Fenced()]

    def test_topics_are_unknown_to_a_former_controller(self) -> None:
        site = ZooKeeperSite()
        controller_of_topic(site)
        site.zookeeper.write(Delete(path="/controller"))
        site.run_for(10)
        assert site.store.load(("topic",)) == site.store.load(("partition",)) == {}

    def test_kraft_controller_is_reported(self) -> None:
        site = ZooKeeperSite()
        data = b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":5}'
        site.zookeeper.write(Create(path="/controller", data=data))
        campaign = site.store.campaign()
        site.run_for(1000)
        assert not campaign.done
        assert any("KRaft controller has taken over" in report for report in site.ports.reports)
