"""The store when ZooKeeper or the network fails, in virtual time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plog.errors import KafkaStorageError
from plog.types import TopicPartition
from plog.zookeeper.operations import ClientClosed, Create, Delete
from plogd.metadata.store import (
    ABSENT,
    Change,
    Conflict,
    DuplicateBrokerId,
    Fenced,
    Key,
    Written,
)
from plogd.metadata.zookeeper.paths import PERSISTENT_PATHS
from plogd.metadata.zookeeper.store import ZooKeeperStore, ZooKeeperUnavailable
from plogd.ports import Later
from plogd.quota import QuotaEntity, quota_key
from plogd.testing.mock_zookeeper import Fault, MockZooKeeper, MockZooKeeperClient, Request
from tests.helpers.metadata_sites import (
    LOST,
    SESSION_TIMEOUT_MS,
    ZooKeeperSite,
    config_change,
    controller_of_topic,
    election_change,
    fault_once,
    registration,
)
from tests.helpers.sim.sim_ports import SimPorts, outcome

PARTITION: Key = ("partition", "t", 0)
CONFIG: Key = ("config", "topic", "t")


class TestOpening:
    """The first connection."""

    def test_unreachable_zookeeper_is_an_error_after_the_timeout(self) -> None:
        ports = SimPorts()
        zookeeper = MockZooKeeper(ports.clock, ports.timers)
        zookeeper.has_quorum = False
        store = ZooKeeperStore(zookeeper.connect(), broker_id=1, ports=ports.bundle())
        opening = store.open(connection_timeout_ms=5000)
        ports.advance(4999)
        assert not opening.done
        ports.advance(1)
        with pytest.raises(ZooKeeperUnavailable, match="cannot connect to ZooKeeper at mock: "):
            outcome(opening)

    def test_open_succeeds_when_zookeeper_starts_in_time(self) -> None:
        ports = SimPorts()
        zookeeper = MockZooKeeper(ports.clock, ports.timers)
        zookeeper.has_quorum = False
        store = ZooKeeperStore(zookeeper.connect(), broker_id=1, ports=ports.bundle())
        opening = store.open(connection_timeout_ms=5000)
        ports.advance(4000)
        zookeeper.restore_quorum()
        ports.advance(1000)
        outcome(opening)

    @pytest.mark.parametrize("fault", LOST)
    @pytest.mark.parametrize("kind", ["multi", "get", "exists", "children", "sync"])
    def test_open_survives_a_lost_connection(self, fault: Fault, kind: str) -> None:
        ports = SimPorts()
        zookeeper = MockZooKeeper(ports.clock, ports.timers)
        fault_once(zookeeper, fault, kind)
        store = ZooKeeperStore(zookeeper.connect(), broker_id=1, ports=ports.bundle())
        opening = store.open()
        ports.advance(1000)
        outcome(opening)
        assert all(zookeeper.stat(path) is not None for path in PERSISTENT_PATHS)


class TestLostConnection:
    """The outcome of a write is unknown when the connection is lost."""

    @pytest.mark.parametrize("fault", LOST)
    def test_write_is_made_exactly_once(self, fault: Fault) -> None:
        site = ZooKeeperSite()
        [first] = site.settle(site.store.write([config_change("1")]))
        requests = fault_once(site.zookeeper, fault)
        [written] = site.settle(site.store.write([config_change("2", first.version)]))
        assert isinstance(written, Written)
        assert len(requests) == (2 if fault is Fault.LOSE_BEFORE else 1)
        stat = site.zookeeper.stat("/config/topics/t")
        assert stat is not None
        assert stat.version == 1
        assert len(site.zookeeper.names("/config/changes")) == 2

    @pytest.mark.parametrize("fault", LOST)
    def test_creation_and_removal_are_made_exactly_once(self, fault: Fault) -> None:
        site = ZooKeeperSite()
        key = quota_key(QuotaEntity(user="u"))
        fault_once(site.zookeeper, fault)
        change = Change(key=key, value={"producer_byte_rate": 1.0}, expected=ABSENT)
        [written] = site.settle(site.store.write([change]))
        assert isinstance(written, Written)
        fault_once(site.zookeeper, fault)
        removal = Change(key=key, value=None, expected=written.version)
        assert site.settle(site.store.write([removal])) == [Written(version=ABSENT)]
        assert site.zookeeper.stat("/config/users/u") is None

    @pytest.mark.parametrize("fault", LOST)
    def test_write_of_the_controller_is_made_or_fenced(self, fault: Fault) -> None:
        site = ZooKeeperSite()
        term = controller_of_topic(site)
        fault_once(site.zookeeper, fault)
        [one] = site.settle(site.store.write([election_change(site, 1)], term))
        # After a lost connection, this broker is no longer the controller of that term.
        applied = fault is Fault.LOSE_AFTER
        assert isinstance(one, Written if applied else Fenced)
        assert site.settle(site.store.campaign()) == term
        assert site.store.get(PARTITION)[0].leader_epoch == applied

    def test_write_that_another_broker_followed_is_a_conflict_or_written(self) -> None:
        first = ZooKeeperSite(1)
        second = ZooKeeperSite(2, first)
        [start] = first.settle(first.store.write([config_change("0")]))
        second.run_for(10)
        fault_once(first.zookeeper, Fault.LOSE_AFTER)
        mine = first.store.write([config_change("1", start.version)])
        while second.store.get(CONFIG)[0] != {"a": "1"}:
            first.ports.timers.run_next()
        _, version = second.store.get(CONFIG)
        second.settle(second.store.write([config_change("2", version)]))
        [one] = first.settle(mine)
        # The value of the other broker is there, and must not be overwritten.
        assert isinstance(one, Conflict | Written)
        assert json.loads(first.zookeeper.data("/config/topics/t") or b"")["config"] == {"a": "2"}

    def test_writes_wait_while_the_network_is_cut(self) -> None:
        site = ZooKeeperSite()
        site.client.cut()
        write = site.store.write([config_change("1")])
        site.run_for(SESSION_TIMEOUT_MS / 2)
        assert not write.done
        site.client.restore()
        assert isinstance(site.settle(write)[0], Written)

    def test_reads_work_while_the_network_is_cut(self) -> None:
        site = ZooKeeperSite()
        site.settle(site.store.write([config_change("1")]))
        site.client.cut()
        site.run_for(10 * SESSION_TIMEOUT_MS)
        assert site.store.get(CONFIG)[0] == {"a": "1"}

    def test_order_of_writes_is_kept(self) -> None:
        site = ZooKeeperSite()
        version = ABSENT
        writes: list[Later[Any]] = []
        fault_once(site.zookeeper, Fault.LOSE_BEFORE)
        seen: list[str] = []
        site.store.watch(CONFIG, lambda key, value, version: seen.append(value["a"]))
        # The versions of a mirror's counter are consecutive.
        for number in range(5):
            writes.append(site.store.write([config_change(str(number), version)]))
            version = number + 1
        assert all(isinstance(site.settle(write)[0], Written) for write in writes)
        assert seen == ["0", "1", "2", "3", "4"]

    def test_thirty_seconds_without_quorum_end_no_session(self) -> None:
        site = ZooKeeperSite()
        site.settle(site.store.register_broker(registration()))
        term = controller_of_topic(site)
        ended: list[bool] = []
        site.store.unregistered(lambda: ended.append(True))
        site.zookeeper.lose_quorum()
        write = site.store.write([config_change("1")])
        site.run_for(30_000)
        site.zookeeper.restore_quorum()
        assert isinstance(site.settle(write)[0], Written)
        assert site.settle(site.store.campaign()) == term
        assert ended == []

    def test_close_fails_pending_writes(self) -> None:
        site = ZooKeeperSite()
        site.client.cut()
        site.run_for(SESSION_TIMEOUT_MS)
        write = site.store.write([config_change("1")])
        site.run_for(1)
        site.store.close()
        site.client.close()
        with pytest.raises(ClientClosed):
            site.settle(write)


class TestSession:
    """Expired sessions, the lease, and the registration."""

    def test_expired_session_ends_registration_and_term(self) -> None:
        site = ZooKeeperSite()
        first = site.settle(site.store.register_broker(registration()))
        term = controller_of_topic(site)
        ended: list[str] = []
        site.store.resigned(lambda: ended.append("resigned"))
        site.store.unregistered(lambda: ended.append("unregistered"))
        site.zookeeper.expire(site.client.session_id)
        site.run_for(1000)
        assert ended == ["resigned", "unregistered"]
        assert site.store.lease_end_ms < 0
        assert site.settle(site.store.write([election_change(site, 1)], term)) == [Fenced()]
        assert site.settle(site.store.register_broker(registration())) > first
        assert site.settle(site.store.campaign()) == term + 1

    def test_lease_ends_before_the_session_when_the_network_is_cut(self) -> None:
        for offset_ms in range(0, SESSION_TIMEOUT_MS, 700):
            site = ZooKeeperSite()
            site.settle(site.store.register_broker(registration()))
            site.run_for(2 * SESSION_TIMEOUT_MS + offset_ms)
            assert site.store.lease_end_ms > site.ports.clock.monotonic_ms()
            site.client.cut()
            while site.zookeeper.stat("/brokers/ids/1") is not None:
                now_ms = site.ports.clock.monotonic_ms()
                site.ports.timers.run_next()
            # Just before the znode was deleted, the lease had ended or was about to.
            assert site.store.lease_end_ms <= site.ports.clock.monotonic_ms()
            assert now_ms <= site.ports.clock.monotonic_ms()

    def test_suspended_connection_ends_the_term_at_once(self) -> None:
        site = ZooKeeperSite()
        term = controller_of_topic(site)
        resigned: list[float] = []
        site.store.resigned(lambda: resigned.append(site.ports.clock.monotonic_ms()))
        start_ms = site.ports.clock.monotonic_ms()
        site.client.cut()
        site.run_for(SESSION_TIMEOUT_MS * 2 / 3)
        assert resigned == [start_ms + SESSION_TIMEOUT_MS * 2 / 3]
        assert site.store.load(("topic",)) == {}
        site.client.restore()
        assert site.settle(site.store.campaign()) == term

    def test_settings_are_read_again_after_the_session_expires(self) -> None:
        first = ZooKeeperSite(1)
        second = ZooKeeperSite(2, first)
        second.client.cut()
        first.settle(first.store.write([config_change("1")]))
        # All notifications are deleted in the meantime.
        first.run_for(20 * 60 * 1000)
        first.settle(first.store.write([Change(
            key=("config", "topic", "u"), value={"a": "b"}, expected=ABSENT
        )]))  # fmt: skip
        first.run_for(10)
        assert len(first.zookeeper.names("/config/changes")) == 1
        second.client.restore()
        second.run_for(1000)
        assert second.store.get(CONFIG)[0] == {"a": "1"}

    def test_broker_id_in_use_is_refused_after_two_session_timeouts(self) -> None:
        first = ZooKeeperSite(1)
        first.settle(first.store.register_broker(registration()))
        second = ZooKeeperSite(1, first)
        start_ms = second.ports.clock.monotonic_ms()
        with pytest.raises(DuplicateBrokerId, match=r"broker 1: the broker at i:9092, ::1:9093"):
            second.settle(second.store.register_broker(registration()))
        waited_ms = second.ports.clock.monotonic_ms() - start_ms
        assert waited_ms == pytest.approx(2 * SESSION_TIMEOUT_MS, abs=10)

    def test_restarted_broker_waits_for_its_former_session(self) -> None:
        site = ZooKeeperSite()
        first = site.settle(site.store.register_broker(registration()))
        site.restart()
        assert site.settle(site.store.register_broker(registration())) > first

    @pytest.mark.parametrize("fault", LOST)
    def test_registration_survives_a_lost_connection(self, fault: Fault) -> None:
        site = ZooKeeperSite()
        fault_once(site.zookeeper, fault)
        epoch = site.settle(site.store.register_broker(registration()))
        stat = site.zookeeper.stat("/brokers/ids/1")
        assert stat is not None
        assert (stat.czxid, stat.ephemeral_owner) == (epoch, site.client.session_id)
        assert site.store.lease_end_ms > 0


class TestControllerRequests:
    """Keys that other brokers and tools create, and the controller removes."""

    def test_failed_log_directory_is_reported_to_the_controller(self) -> None:
        first = ZooKeeperSite(1)
        second = ZooKeeperSite(2, first)
        term = controller_of_topic(first)
        seen: list[Key] = []
        first.store.watch(("log_dir_failure",), lambda key, value, version: seen.append(key))
        second.settle(second.store.report_log_dir_failure())
        first.run_for(10)
        [key] = seen
        value, version = first.store.get(key)
        assert value == 2
        removal = Change(key=key, value=None, expected=version)
        assert first.settle(first.store.write([removal], term)) == [Written(version=ABSENT)]
        assert first.zookeeper.names("/log_dir_event_notification") == []

    def test_requested_reassignment_is_read_and_removed(self) -> None:
        site = ZooKeeperSite()
        term = controller_of_topic(site)
        data = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2]}]}'
        site.zookeeper.write(Create(path="/admin/reassign_partitions", data=data))
        site.run_for(10)
        key: Key = ("reassign_partitions",)
        value, version = site.store.get(key)
        assert value == {TopicPartition("t", 0): (2,)}
        removal = Change(key=key, value=None, expected=version)
        assert site.settle(site.store.write([removal], term)) == [Written(version=ABSENT)]
        assert site.zookeeper.stat("/admin/reassign_partitions") is None
        # A second request is noticed, too.
        site.zookeeper.write(Create(path="/admin/reassign_partitions", data=data))
        site.run_for(10)
        assert site.store.get(key)[0] == value

    def test_broker_that_registers_again_is_noticed(self) -> None:
        first = ZooKeeperSite(1)
        second = ZooKeeperSite(2, first)
        controller_of_topic(first)
        epochs = []
        for _ in range(2):
            epochs.append(second.settle(second.store.register_broker(registration(2))))
            first.run_for(10)
            assert first.store.get(("broker", 2))[1] == epochs[-1]
            second.zookeeper.expire(second.client.session_id)
        assert epochs[0] < epochs[1]


class TestLimits:
    """What ZooKeeper would not accept."""

    def test_too_large_value_is_an_error(self) -> None:
        site = ZooKeeperSite()
        with pytest.raises(KafkaStorageError, match="/config/topics/t: 1000"):
            site.settle(site.store.write([config_change("x" * 1_000_000)]))
        assert isinstance(site.settle(site.store.write([config_change("1")]))[0], Written)

    def test_large_values_are_sent_in_several_transactions(self) -> None:
        site = ZooKeeperSite()
        sizes: list[int] = []

        def measure(client: MockZooKeeperClient, request: Request) -> Fault:
            if request.kind == "multi":
                sizes.append(sum(len(getattr(x, "data", b"")) for x in request.operations))
            return Fault.NONE

        site.zookeeper.on_request = measure
        changes = [
            Change(key=("config", "topic", f"t{n}"), value={"a": "x" * 200_000}, expected=ABSENT)
            for n in range(10)
        ]
        outcomes = site.settle(site.store.write(changes))
        assert all(isinstance(one, Written) for one in outcomes)
        assert len(sizes) == 5
        assert max(sizes) < 1_000_000

    def test_transactions_have_at_most_64_changes(self) -> None:
        site = ZooKeeperSite()
        counts: list[int] = []

        def count(client: MockZooKeeperClient, request: Request) -> Fault:
            if request.kind == "multi":
                counts.append(sum("/config/topics" in x.path for x in request.operations))
            return Fault.NONE

        site.zookeeper.on_request = count
        changes = [
            Change(key=("config", "topic", f"t{n}"), value={"a": "b"}, expected=ABSENT)
            for n in range(130)
        ]
        site.settle(site.store.write(changes))
        assert counts == [64, 64, 2]

    def test_rejected_znode_is_an_error(self) -> None:
        """The folder of the notifications is missing."""
        site = ZooKeeperSite()
        site.zookeeper.write(Delete(path="/config/changes"))
        with pytest.raises(KafkaStorageError, match="cannot write the znode /config/changes/"):
            site.settle(site.store.write([config_change("1")]))
        assert site.zookeeper.stat("/config/topics/t") is None
