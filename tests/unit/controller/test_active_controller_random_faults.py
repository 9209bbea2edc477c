"""Random operations on two controllers of a cluster, with random faults of ZooKeeper.

At the end, the last controller knows exactly what is in ZooKeeper, no topic lacks a state, and no
id was used twice.
"""

from __future__ import annotations

import random

import pytest

from plog.errors import KafkaError
from plog.zookeeper.operations import Create, Delete
from plogd.controller.partition_creation import NewPartitions
from plogd.metadata.cache import TopicState
from plogd.metadata.store import TopicValue
from plogd.metadata.zookeeper.topic_znodes import decode_topic
from plogd.ports import Later
from plogd.testing.mock_zookeeper import Fault, MockZooKeeperClient, Request
from tests.helpers.controller_site import ControllerSite, candidate, on_zookeeper, zookeeper_of
from tests.helpers.metadata_sites import SESSION_TIMEOUT_MS

NAMES = ["a", "b", "c.d", "c_d"]


class Storm:
    """Operations and faults, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.first = on_zookeeper()
        self.sites = [self.first, candidate(self.first)]
        self.zookeeper = zookeeper_of(self.first).zookeeper
        self.zookeeper.on_request = self.fault
        self.ids: dict[bytes, str] = {}
        self.present: set[bytes] = set()
        self.deleted: set[bytes] = set()
        self.done = 0

    def fault(self, client: MockZooKeeperClient, request: Request) -> Fault:
        self.note_ids(request)
        weights = (0, 0, 1) if request.kind != "multi" else (3, 3, 94)
        faults = (Fault.LOSE_BEFORE, Fault.LOSE_AFTER, Fault.NONE)
        [fault] = self.random.choices(faults, weights)
        return fault

    def note_ids(self, request: Request) -> None:
        """Check that a topic's id is never created again for another topic."""
        for one in request.operations:
            is_topic = one.path.startswith("/brokers/topics/") and one.path.count("/") == 3
            if isinstance(one, Create) and is_topic:
                topic_id = decode_topic(one.data).topic_id
                assert self.ids.setdefault(topic_id, one.path) == one.path

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            self.first.site.ports.advance(self.random.choice([0, 0.5, 1, 3, 20, 200]))
            self.check_ids()

    def check_ids(self) -> None:
        """Check that no topic returns that was deleted."""
        present = {
            decode_topic(self.zookeeper.data(f"/brokers/topics/{name}") or b"").topic_id
            for name in self.zookeeper.names("/brokers/topics")
        }
        self.deleted |= self.present - present
        assert not self.deleted & present
        self.present = present

    def step(self) -> None:
        site = self.random.choice(self.sites)
        name = self.random.choice(NAMES)
        match self.random.randrange(20):
            case 0:
                self.zookeeper.write(Delete(path="/controller")) if self.has_controller else None
            case 1:
                self.zookeeper.expire(zookeeper_of(site).client.session_id)
            case 2:
                zookeeper_of(site).client.lose_connection()
            case 3:
                path = f"/admin/delete_topics/{name}"
                if self.zookeeper.data(path) is None:
                    self.zookeeper.write(Create(path=path))
            case 4:
                zookeeper_of(site).client.hold()
            case 5:
                zookeeper_of(site).client.catch_up()
            case n if n < 12:
                self.begin(site.create(name, self.random.choice([1, 3, 64, 150])))
            case n if n < 16:
                count = self.random.randrange(1, 300)
                self.begin(
                    site.controller.create_partitions(NewPartitions(topic=name, count=count))
                )
            case _:
                value: TopicValue | None = zookeeper_of(site).store.get(("topic", name))[0]
                if value is not None:
                    self.begin(site.controller.delete_topic(name, value.topic_id))

    @property
    def has_controller(self) -> bool:
        return self.zookeeper.data("/controller") is not None

    def begin(self, operation: Later[TopicState] | Later[None]) -> None:
        def failed(error: Exception) -> None:
            if not isinstance(error, KafkaError):
                raise error

        def succeeded(_: object) -> None:
            self.done += 1

        operation.then(succeeded, failed)

    def heal(self) -> ControllerSite:
        """Let all faults end; return the controller."""
        self.zookeeper.on_request = lambda client, request: Fault.NONE
        for site in self.sites:
            zookeeper_of(site).client.catch_up()
        self.first.site.ports.advance(3 * SESSION_TIMEOUT_MS)
        [active] = [site for site in self.sites if site.controller.is_active]
        return active


def check(storm: Storm, site: ControllerSite) -> None:
    """Check that the controller knows what is in ZooKeeper, and that nothing is incomplete."""
    zookeeper = storm.zookeeper
    assert zookeeper.names("/admin/delete_topics") == []
    names = zookeeper.names("/brokers/topics")
    active = site.controller._active
    assert active is not None
    served = {topic.name: topic for topic in active._context.served_topics()}
    assert sorted(served) == names == sorted(zookeeper.names("/config/topics"))
    assert not {"c.d", "c_d"} <= set(names)
    for name, topic in served.items():
        value = decode_topic(zookeeper.data(f"/brokers/topics/{name}") or b"")
        assert value.topic_id == topic.topic_id
        numbers = sorted(map(int, zookeeper.names(f"/brokers/topics/{name}/partitions")))
        assert numbers == sorted(value.assignments) == [one.partition for one in topic.partitions]
        for number in numbers:
            path = f"/brokers/topics/{name}/partitions/{number}/state"
            assert zookeeper.data(path) is not None


@pytest.mark.parametrize("seed", range(8))
def test_controllers_and_zookeeper_agree_after_random_faults(seed: int) -> None:
    storm = Storm(seed)
    storm.run(150)
    check(storm, storm.heal())
    assert storm.done > 0
