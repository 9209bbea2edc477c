"""What UpdateMetadata changes in the metadata cache."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from plog.types import ZERO_UUID, Uuid
from plogd.metadata.cache import LiveBroker, PartitionState, TopicState
from plogd.ports import spawn
from plogd.replica.cluster.metadata_updates import TopicUpdate
from tests.helpers.sim.sim_cluster import SimCluster
from tests.helpers.sim.sim_ports import outcome

ID = b"a" * 16


def state(number: int, leader: int = 1) -> PartitionState:
    return PartitionState(
        partition=number,
        leader=leader,
        leader_epoch=0,
        replicas=(1,),
        isr=(1,),
        partition_epoch=0,
    )


class Site:
    """The metadata of broker 1."""

    def __init__(self) -> None:
        self.cluster = SimCluster(1)
        self.cluster.settle()
        self.broker = self.cluster.brokers[1].broker
        self.cache = self.broker.cache
        self.stopped: list[str] = []
        self.broker.replica_manager.topics.on_topic_stopped = lambda topic: self.stopped.append(
            topic.name
        )

    def update(
        self,
        partitions: Mapping[int, PartitionState | None],
        *,
        name: str = "t",
        topic_id: Uuid = ID,
        brokers: tuple[int, ...] = (1,),
        controller: int = 1,
    ) -> None:
        applied = spawn(
            self.cluster.replicas[1].metadata.apply(
                [LiveBroker(broker_id=one, endpoints={}) for one in brokers],
                controller,
                [TopicUpdate(name=name, topic_id=topic_id, partitions=partitions)],
            )
        )
        self.cluster.settle()
        outcome(applied)

    @property
    def topic(self) -> TopicState:
        topic = self.cache.topic("t")
        assert topic is not None
        return topic

    @property
    def leaders(self) -> list[int]:
        return [one.leader for one in self.topic.partitions]


@pytest.fixture
def site() -> Site:
    return Site()


def test_brokers_and_controller_are_replaced(site: Site) -> None:
    site.update({}, brokers=(3, 2), controller=2)
    assert (site.cache.live_broker_ids, site.cache.controller_id) == ({2, 3}, 2)
    site.update({}, brokers=(1,), controller=-1)
    assert (site.cache.live_broker_ids, site.cache.controller_id) == ({1}, -1)


def test_partitions_are_added_and_replaced(site: Site) -> None:
    site.update({1: state(1), 0: state(0)})
    site.update({1: state(1, leader=5)})
    assert site.leaders == [1, 5]
    assert [one.partition for one in site.topic.partitions] == [0, 1]
    assert site.cache.topic_name(ID) == "t"


def test_partitions_after_a_gap_are_shown_when_the_gap_is_filled(site: Site) -> None:
    site.update({0: state(0), 2: state(2, leader=7), 2**31 - 1: state(2**31 - 1)})
    assert site.leaders == [1]
    site.update({1: state(1)})
    assert site.leaders == [1, 1, 7]
    site.update({2: None, 1: None})
    site.update({1: state(1)})
    assert site.leaders == [1, 1]


def test_topic_of_which_only_later_partitions_are_known_is_not_shown(site: Site) -> None:
    site.update({3: state(3)})
    assert site.cache.topic("t") is None
    assert site.stopped == []


def test_deleted_topic_is_removed(site: Site) -> None:
    site.update({0: state(0), 1: state(1)})
    site.update({0: None, 1: None})
    assert site.cache.topic("t") is None
    assert site.cache.topic_name(ID) is None
    assert site.stopped == ["t"]
    site.update({0: None})
    assert site.stopped == ["t"]


def test_recreated_topic_has_none_of_the_old_partitions(site: Site) -> None:
    site.update({0: state(0), 1: state(1), 4: state(4)})
    site.update({0: state(0, leader=3)}, topic_id=b"b" * 16)
    assert (site.leaders, site.cache.topic_name(ID)) == ([3], None)
    site.update({number: state(number) for number in (1, 2, 3)}, topic_id=b"b" * 16)
    assert len(site.leaders) == 4


def test_topics_without_ids_do_not_disturb_each_other(site: Site) -> None:
    for name in ("t", "u", "t"):
        site.update({0: state(0)}, name=name, topic_id=ZERO_UUID)
    site.update({0: None}, name="t", topic_id=ZERO_UUID)
    site.update({0: state(0)}, name="u", topic_id=ZERO_UUID)
    assert (site.cache.topic_count, site.cache.topic_name(ZERO_UUID)) == (1, None)


def test_new_topic_has_the_settings_in_the_store(site: Site) -> None:
    site.cluster.create("t", [1])
    assert site.topic.config == {}
    site.update({0: None}, topic_id=site.topic.topic_id)
    site.cluster.configs["t"] = {"retention.ms": "77"}
    site.update({0: state(0)}, topic_id=site.cluster.topic_ids["t"])
    assert site.topic.config == {"retention.ms": "77"}
    # The broker had already created the log when the settings changed.
    assert site.cluster.partition(1).log.config.retention_ms == 77
    site.broker.replica_manager.topics.update_topic_config("t", {"retention.ms": "78"})
    site.update({0: state(0, leader=-1)}, topic_id=site.topic.topic_id)
    assert site.topic.config == {"retention.ms": "78"}
