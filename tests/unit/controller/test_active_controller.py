"""Operations on topics, on each store, and interrupted between any two writes."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from plog.errors import (
    InvalidPartitions,
    KafkaStorageError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from plog.types import ZERO_UUID
from plog.zookeeper.operations import Create, Delete, SetData
from plogd.controller.partition_creation import NewPartitions
from plogd.metadata.cache import TopicState
from plogd.metadata.store import ABSENT, Change, Key, TopicValue
from plogd.metadata.zookeeper.topic_znodes import encode_topic
from plogd.ports import Later
from plogd.testing.mock_zookeeper import Fault
from tests.helpers.controller_site import (
    ControllerSite,
    Transactions,
    candidate,
    embedded,
    on_zookeeper,
    zookeeper_of,
)
from tests.helpers.metadata_sites import SESSION_TIMEOUT_MS, ZooKeeperSite
from tests.helpers.sim.sim_ports import outcome

TOPIC: Key = ("topic", "t")
Operation = Callable[[ControllerSite], Later[object]]


@pytest.fixture(params=[embedded, on_zookeeper])
def site(request: pytest.FixtureRequest) -> ControllerSite:
    made: ControllerSite = request.param()
    return made


def expand(site: ControllerSite, count: int) -> Later[TopicState]:
    return site.controller.create_partitions(NewPartitions(topic="t", count=count))


def check_complete(site: ControllerSite, topic: TopicState) -> None:
    """Check that store and topic agree, and that no partition lacks a state."""
    value, _ = site.site.store.get(TOPIC)
    assert value.topic_id == topic.topic_id
    assert value.assignments == {one.partition: one.replicas for one in topic.partitions}
    states = site.site.store.load(("partition", "t"))
    assert len(states) == len(topic.partitions)
    for one in topic.partitions:
        state, _ = states["partition", "t", one.partition]
        assert (state.leader, state.isr, state.leader_epoch) == (one.leader, one.isr, 0)


class TestEachStore:
    """What a controller does on every store."""

    @pytest.mark.parametrize("partitions", [1, 63, 64, 300])
    def test_topic_is_created_and_loaded(self, site: ControllerSite, partitions: int) -> None:
        topic = site.created("t", partitions, config={"retention.ms": "5"})
        assert len(topic.partitions) == partitions
        assert topic.config == {"retention.ms": "5"}
        assert site.brokers.hosted == {"t": partitions}
        check_complete(site, topic)
        site.site.restart()
        assert ControllerSite(site.site).topics == [topic]

    def test_topic_is_expanded(self, site: ControllerSite) -> None:
        old = site.created("t", 2)
        topic = site.settle(expand(site, 200))
        assert topic.partitions[:2] == old.partitions
        assert site.brokers.hosted == {"t": 200}
        check_complete(site, topic)
        with pytest.raises(InvalidPartitions, match="already has 200"):
            site.settle(expand(site, 200))

    def test_topic_is_deleted_and_created_again(self, site: ControllerSite) -> None:
        first = site.created("t", 100, config={"retention.ms": "5"})
        site.settle(site.controller.delete_topic("t", first.topic_id))
        assert site.brokers.hosted == {}
        for kind in ("topic", "partition", "config", "delete_topic"):
            assert site.site.store.load((kind,)) == {}
        second = site.created("t", 3)
        assert (second.topic_id != first.topic_id, second.config) == (True, {})
        check_complete(site, second)

    def test_one_of_many_concurrent_creations_succeeds(self, site: ControllerSite) -> None:
        creations = [site.create("t", 70) for _ in range(200)]
        topic = site.settle(creations[0])
        for creation in creations[1:]:
            with pytest.raises(TopicAlreadyExists):
                site.settle(creation)
        check_complete(site, topic)
        assert site.brokers.calls == ["start t"]

    def test_creation_is_rolled_back_when_its_logs_cannot_be_created(
        self, site: ControllerSite
    ) -> None:
        site.brokers.error = KafkaStorageError("no room")
        with pytest.raises(KafkaStorageError, match="no room"):
            site.settle(site.create("t", 100))
        assert site.brokers.calls == ["start t", "stop t"]
        assert site.site.store.load(("topic",)) == site.site.store.load(("partition",)) == {}
        site.brokers.error = None
        check_complete(site, site.created("t", 100))

    def test_expansion_changes_nothing_when_its_logs_cannot_be_created(
        self, site: ControllerSite
    ) -> None:
        topic = site.created("t", 2)
        site.brokers.error = KafkaStorageError("no room")
        with pytest.raises(KafkaStorageError, match="no room"):
            site.settle(expand(site, 100))
        assert site.brokers.calls[1:] == ["create logs of t", "remove logs of t"]
        check_complete(site, topic)

    def test_versions_of_all_partitions_are_known(self, site: ControllerSite) -> None:
        site.created("t", 100)
        site.site.restart()
        again = ControllerSite(site.site)
        active = again.controller._active
        assert active is not None
        known = active._context.get("t")
        assert known is not None
        states = again.site.store.load(("partition", "t"))
        expected = [states["partition", "t", number][1] for number in range(100)]
        assert list(known.partition_versions) == expected


class TestTransactions:
    """ZooKeeper's transactions have at most 64 changes."""

    def test_thousand_partitions_take_sixteen_transactions(self) -> None:
        site = on_zookeeper()
        transactions = Transactions(site)
        check_complete(site, site.created("t", 1000))
        assert len(transactions.sent) == math.ceil(1001 / site.site.store.max_atomic_changes) == 16

    def test_settings_are_in_the_first_transaction(self) -> None:
        site = on_zookeeper()
        transactions = Transactions(site)
        site.created("t", 100, config={"retention.ms": "5"})
        paths = [{one.path for one in each.operations} for each in transactions.sent]
        assert {"/brokers/topics/t", "/config/topics/t"} <= paths[0]
        assert len(paths) == 2

    def test_embedded_store_writes_a_topic_at_once(self) -> None:
        site = embedded()
        creation = site.create("t", 1000)
        site.site.ports.settle()
        assert outcome(creation).name == "t"
        versions = {version for _, version in site.site.store.load(("partition", "t")).values()}
        # The records of one batch have consecutive offsets.
        assert max(versions) - min(versions) == 999


OPERATIONS: list[tuple[str, int, Operation]] = [
    ("create", 0, lambda site: site.create("t", 200)),
    ("expand", 3, lambda site: expand(site, 203)),
    (
        "delete",
        100,
        lambda site: site.controller.delete_topic("t", site.site.store.get(TOPIC)[0].topic_id),
    ),
]
every_operation = pytest.mark.parametrize(
    ("name", "partitions", "operation"), OPERATIONS, ids=lambda x: x if isinstance(x, str) else ""
)


class TestInterruption:
    """The controller dies between any two writes, and another one completes the operation."""

    @every_operation
    def test_next_controller_completes_the_operation(
        self, name: str, partitions: int, operation: Operation
    ) -> None:
        for kill_at in range(1, 20):
            first = on_zookeeper()
            if partitions:
                first.created("t", partitions)
            second = candidate(first)
            transactions = Transactions(first, kill_at)
            work = operation(first)
            zookeeper_of(first).run_for(3 * SESSION_TIMEOUT_MS)
            if work.done:
                zookeeper_of(first).client.kill()
            topics = second.settle(second.loading)
            zookeeper_of(second).run_for(1000)
            self.check(name, partitions, len(transactions.sent), topics, second)
            if work.done:
                # Every write was interrupted.
                assert kill_at == len(transactions.sent) + 1 > 3
                return
        raise AssertionError("the operation takes more transactions than expected")

    def check(
        self,
        name: str,
        partitions: int,
        sent: int,
        topics: list[TopicState],
        second: ControllerSite,
    ) -> None:
        expected = {"create": [0, 200], "expand": [3, 203], "delete": [100, 0]}[name]
        # Before the first transaction, nothing has happened; after it, the operation completes.
        count = expected[0 if sent == 1 else 1]
        if count:
            [topic] = topics
            assert len(topic.partitions) == count
            check_complete(second, topic)
            return
        assert topics == []
        zookeeper = zookeeper_of(second).zookeeper
        for folder in ("/brokers/topics", "/config/topics", "/admin/delete_topics"):
            assert zookeeper.names(folder) == []
        check_complete(second, second.created("t", 5))

    @every_operation
    @pytest.mark.parametrize("fault", [Fault.LOSE_BEFORE, Fault.LOSE_AFTER])
    def test_same_broker_completes_the_operation_after_a_lost_connection(
        self, name: str, partitions: int, operation: Operation, fault: Fault
    ) -> None:
        """Its session survives, so the broker keeps its epoch."""
        for lost_at in range(1, 20):
            site = on_zookeeper()
            if partitions:
                site.created("t", partitions)
            sent = 0

            def lose(client: object, request: object, at: int = lost_at) -> Fault:
                nonlocal sent
                sent += getattr(request, "kind", "") == "multi"
                return fault if sent == at else Fault.NONE

            zookeeper_of(site).zookeeper.on_request = lose
            work = operation(site)
            site.site.ports.advance(100)
            sent = 100
            zookeeper_of(site).run_for(1000)
            if not site.elected:
                outcome(work)
                assert lost_at > 3
                return
            [topics] = site.elected
            with pytest.raises(Exception, match="not the active controller"):
                outcome(work)
            is_applied = lost_at > 1 or fault is Fault.LOSE_AFTER
            self.check(name, partitions, 2 if is_applied else 1, topics, site)
        raise AssertionError("the operation takes more transactions than expected")


class TestOtherPrograms:
    """Programs that write topics to ZooKeeper, such as Kafka's tools of old versions."""

    def assign(self, site: ControllerSite, count: int, topic_id: bytes) -> None:
        """Write a topic as another program, with more partitions."""
        value = TopicValue(topic_id=topic_id, assignments={n: (1,) for n in range(count)})
        data = encode_topic(value)
        zookeeper_of(site).zookeeper.write(SetData(path="/brokers/topics/t", data=data))

    def test_expansion_takes_over_partitions_that_another_program_has_added(self) -> None:
        site = on_zookeeper()
        topic = site.created("t", 2)
        self.assign(site, 70, topic.topic_id)
        with pytest.raises(KafkaStorageError, match="at the same time; try again"):
            site.settle(expand(site, 5))
        assert site.brokers.hosted == {"t": 70}
        assert site.count_states() == 70
        check_complete(site, site.settle(expand(site, 71)))

    def test_expansion_of_a_topic_that_another_program_has_deleted_fails(self) -> None:
        site = on_zookeeper()
        site.created("t", 1)
        paths = ["partitions/0/state", "partitions/0", "partitions"]
        for path in [*(f"/brokers/topics/t/{path}" for path in paths), "/brokers/topics/t"]:
            zookeeper_of(site).zookeeper.write(Delete(path=path))
        with pytest.raises(UnknownTopicOrPartition, match="deleted by another program"):
            site.settle(expand(site, 5))
        assert site.brokers.hosted == {}
        check_complete(site, site.created("t", 3))

    def test_expansion_takes_over_a_topic_that_another_program_has_recreated(self) -> None:
        site = on_zookeeper()
        site.created("t", 1)
        self.assign(site, 2, b"other topic id !")
        with pytest.raises(KafkaStorageError, match="another program has changed it"):
            site.settle(expand(site, 5))
        assert site.brokers.hosted == {"t": 2}

    def test_creation_fails_when_another_program_has_created_the_topic(self) -> None:
        site = on_zookeeper()
        first = site.created("t", 1)
        other = TopicValue(topic_id=b"other topic id !", assignments={0: (1,)})
        create = Create(path="/brokers/topics/u", data=encode_topic(other))
        zookeeper_of(site).zookeeper.write(create)
        with pytest.raises(TopicAlreadyExists):
            site.settle(site.create("u", 1))
        assert site.brokers.hosted == {"t": 1}
        check_complete(site, first)

    def test_settings_of_a_former_topic_are_replaced(self) -> None:
        """A broker may change the settings of a topic while it is being deleted."""
        site = on_zookeeper()
        stale = Create(path="/config/topics/t", data=b'{"version":1,"config":{"retention.ms":"1"}}')
        zookeeper_of(site).zookeeper.write(stale)
        assert site.created("t", 1).config == {}
        assert site.site.store.get(("config", "topic", "t")) == (None, ABSENT)

    def test_settings_written_by_another_broker_are_kept_by_an_expansion(self) -> None:
        site = on_zookeeper()
        site.created("t", 1)
        other = ZooKeeperSite(2, zookeeper_of(site))
        change = Change(key=("config", "topic", "t"), value={"retention.ms": "7"}, expected=ABSENT)
        other.settle(other.store.write([change]))
        zookeeper_of(site).run_for(100)
        assert site.settle(expand(site, 2)).config == {"retention.ms": "7"}

    def test_topic_without_an_id_gets_one(self) -> None:
        """Kafka before 2.8 has created it."""
        first = on_zookeeper()
        first.created("t", 2)
        self.assign(first, 2, ZERO_UUID)
        second = candidate(first)
        zookeeper_of(first).client.close()
        [topic] = second.settle(second.loading)
        assert topic.topic_id != ZERO_UUID
        check_complete(second, topic)


class TestFailedWrites:
    """A later write of an operation fails, but the term goes on."""

    def test_expansion_that_was_written_in_part_is_completed_by_the_next_one(self) -> None:
        site = on_zookeeper()
        site.created("t", 2)
        path = "/brokers/topics/t/partitions/100"
        zookeeper_of(site).zookeeper.write(
            Create(path="/brokers/topics/t/partitions/100"), Create(path=f"{path}/state", data=b"?")
        )
        with pytest.raises(KafkaStorageError, match="cannot decode the znode"):
            site.settle(expand(site, 150))
        assert site.brokers.hosted == {"t": 2}
        zookeeper_of(site).zookeeper.write(Delete(path=f"{path}/state"))
        # The store reads the znode again before it reports a conflict.
        with pytest.raises(InvalidPartitions, match="already has 150"):
            site.settle(expand(site, 150))
        assert site.brokers.hosted == {"t": 150}
        assert site.count_states() == 150


class TestDamage:
    """Znodes that cannot be decoded: their topic is offline, and all others are served."""

    @pytest.mark.parametrize(
        "path", ["/brokers/topics/t/partitions/1/state", "/config/topics/t", "/brokers/topics/t"]
    )
    def test_topic_with_a_damaged_znode_is_offline(self, path: str) -> None:
        first = on_zookeeper()
        first.created("t", 3, config={"retention.ms": "-1"})
        other = first.created("u", 1)
        zookeeper = zookeeper_of(first).zookeeper
        data = zookeeper.data(path) or b""
        zookeeper.write(SetData(path=path, data=b"{"))
        second = candidate(first)
        zookeeper_of(first).client.close()
        assert second.settle(second.loading) == [other]
        with pytest.raises((KafkaStorageError, UnknownTopicOrPartition)):
            second.settle(expand(second, 5))
        with pytest.raises((KafkaStorageError, TopicAlreadyExists)):
            second.settle(second.create("t"))
        assert any(f"cannot decode the znode {path}" in x for x in second.site.ports.reports)
        assert "t" not in second.brokers.hosted
        # The operator corrects it and forces an election.
        zookeeper.write(SetData(path=path, data=data), Delete(path="/controller"))
        zookeeper_of(second).run_for(1000)
        assert [topic.name for topic in second.elected[0]] == ["t", "u"]
        assert second.elected[0][0].config == {"retention.ms": "-1"}

    def test_topic_keeps_its_settings_when_they_are_damaged(self) -> None:
        site = on_zookeeper()
        site.created("t", 1, config={"retention.ms": "-1"})
        zookeeper_of(site).zookeeper.write(
            SetData(path="/config/topics/t", data=b"{"),
            Create(
                path="/config/changes/config_change_",
                data=b'{"version":2,"entity_path":"topics/t"}',
                sequential=True,
            ),
        )
        zookeeper_of(site).run_for(100)
        assert site.site.store.problem(("config", "topic", "t")) is not None
        assert site.controller._active is not None
        known = site.controller._active._context.get("t")
        assert known is not None
        assert known.state.config == {"retention.ms": "-1"}
