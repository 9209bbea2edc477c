"""The store when ZooKeeper, the network or other brokers fail, in virtual time."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from plog.errors import KafkaStorageError
from plog.zookeeper.operations import ClientClosed, Create, Delete, SetData
from plogd.metadata.store import (
    ABSENT,
    Change,
    Conflict,
    DuplicateBrokerId,
    Fenced,
    Key,
    PartitionValue,
    Written,
)
from plogd.metadata.zookeeper.paths import PERSISTENT_PATHS
from plogd.ports import Later
from plogd.quota import QuotaEntity, quota_key
from plogd.security.scram import ScramCredential
from plogd.testing.mock_zookeeper import Fault, MockZooKeeper, MockZooKeeperClient, Request
from tests.helpers.metadata_sites import (
    SESSION_TIMEOUT_MS,
    ZooKeeperSite,
    partition_value,
    registration,
    topic_changes,
    topic_value,
)
from tests.helpers.sim.sim_ports import outcome

TOPIC: Key = ("topic", "t")
PARTITION: Key = ("partition", "t", 0)
CONFIG: Key = ("config", "topic", "t")


def config(value: str, expected: int = ABSENT) -> Change:
    return Change(key=CONFIG, value={"a": value}, expected=expected)


def elected(site: ZooKeeperSite, epoch: int) -> Change:
    value = partition_value(leader_epoch=epoch, partition_epoch=epoch)
    return Change(key=PARTITION, value=value, expected=site.store.get(PARTITION)[1])


def fault_once(zookeeper: MockZooKeeper, fault: Fault, kind: str = "multi") -> list[Request]:
    """Let the next request of this kind fail; return the requests that follow, as they come."""
    requests: list[Request] = []

    def decide(client: MockZooKeeperClient, request: Request) -> Fault:
        if request.kind != kind:
            return Fault.NONE
        requests.append(request)
        return fault if len(requests) == 1 else Fault.NONE

    zookeeper.on_request = decide
    return requests


def controller(site: ZooKeeperSite) -> int:
    """Create the topic t as the controller; return the term."""
    term = site.settle(site.store.campaign())
    site.settle(site.store.write_atomic(topic_changes("t"), term))
    return term


both_faults = pytest.mark.parametrize("fault", [Fault.LOSE_BEFORE, Fault.LOSE_AFTER])


class TestLostConnection:
    """The outcome of a write is unknown when the connection is lost."""

    @both_faults
    def test_write_is_made_exactly_once(self, fault: Fault) -> None:
        site = ZooKeeperSite()
        [first] = site.settle(site.store.write([config("1")]))
        requests = fault_once(site.zookeeper, fault)
        [written] = site.settle(site.store.write([config("2", first.version)]))
        assert isinstance(written, Written)
        assert len(requests) == (2 if fault is Fault.LOSE_BEFORE else 1)
        stat = site.zookeeper.stat("/config/topics/t")
        assert stat is not None
        assert stat.version == 1
        assert len(site.zookeeper.names("/config/changes")) == 2

    @both_faults
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

    @both_faults
    def test_write_of_the_controller_is_made_or_fenced(self, fault: Fault) -> None:
        site = ZooKeeperSite()
        term = controller(site)
        fault_once(site.zookeeper, fault)
        [one] = site.settle(site.store.write([elected(site, 1)], term))
        # After a lost connection, this broker is no longer the controller of that term.
        applied = fault is Fault.LOSE_AFTER
        assert isinstance(one, Written if applied else Fenced)
        assert site.settle(site.store.campaign()) == term
        assert site.store.get(PARTITION)[0].leader_epoch == applied

    def test_write_that_another_broker_followed_is_a_conflict_or_written(self) -> None:
        first = ZooKeeperSite(1)
        second = ZooKeeperSite(2, first)
        [start] = first.settle(first.store.write([config("0")]))
        second.run_for(10)
        fault_once(first.zookeeper, Fault.LOSE_AFTER)
        mine = first.store.write([config("1", start.version)])
        while second.store.get(CONFIG)[0] != {"a": "1"}:
            first.ports.timers.run_next()
        _, version = second.store.get(CONFIG)
        second.settle(second.store.write([config("2", version)]))
        [one] = first.settle(mine)
        # The value of the other broker is there, and must not be overwritten.
        assert isinstance(one, Conflict | Written)
        assert json.loads(first.zookeeper.data("/config/topics/t") or b"")["config"] == {"a": "2"}

    def test_writes_wait_while_the_network_is_cut(self) -> None:
        site = ZooKeeperSite()
        site.client.cut()
        write = site.store.write([config("1")])
        site.run_for(SESSION_TIMEOUT_MS / 2)
        assert not write.done
        site.client.restore()
        assert isinstance(site.settle(write)[0], Written)

    def test_reads_work_while_the_network_is_cut(self) -> None:
        site = ZooKeeperSite()
        site.settle(site.store.write([config("1")]))
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
            writes.append(site.store.write([config(str(number), version)]))
            version = number + 1
        assert all(isinstance(site.settle(write)[0], Written) for write in writes)
        assert seen == ["0", "1", "2", "3", "4"]

    def test_thirty_seconds_without_quorum_end_no_session(self) -> None:
        site = ZooKeeperSite()
        site.settle(site.store.register_broker(registration()))
        term = controller(site)
        ended: list[bool] = []
        site.store.unregistered(lambda: ended.append(True))
        site.zookeeper.lose_quorum()
        write = site.store.write([config("1")])
        site.run_for(30_000)
        site.zookeeper.restore_quorum()
        assert isinstance(site.settle(write)[0], Written)
        assert site.settle(site.store.campaign()) == term
        assert ended == []

    def test_close_fails_pending_writes(self) -> None:
        site = ZooKeeperSite()
        site.client.cut()
        site.run_for(SESSION_TIMEOUT_MS)
        write = site.store.write([config("1")])
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
        term = controller(site)
        ended: list[str] = []
        site.store.resigned(lambda: ended.append("resigned"))
        site.store.unregistered(lambda: ended.append("unregistered"))
        site.zookeeper.expire(site.client.session_id)
        site.run_for(1000)
        assert ended == ["resigned", "unregistered"]
        assert site.store.lease_end_ms < 0
        assert site.settle(site.store.write([elected(site, 1)], term)) == [Fenced()]
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
        term = controller(site)
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
        first.settle(first.store.write([config("1")]))
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

    @both_faults
    def test_registration_survives_a_lost_connection(self, fault: Fault) -> None:
        site = ZooKeeperSite()
        fault_once(site.zookeeper, fault)
        epoch = site.settle(site.store.register_broker(registration()))
        stat = site.zookeeper.stat("/brokers/ids/1")
        assert stat is not None
        assert (stat.czxid, stat.ephemeral_owner) == (epoch, site.client.session_id)
        assert site.store.lease_end_ms > 0


class TestElection:
    """The controller's znode, which several brokers and operators change."""

    def test_second_broker_becomes_controller_when_the_first_stops(self) -> None:
        first = ZooKeeperSite(1)
        second = ZooKeeperSite(2, first)
        term = controller(first)
        campaign = second.store.campaign()
        second.run_for(1000)
        assert not campaign.done
        first.client.close()
        assert second.settle(campaign) == term + 1
        assert second.store.get(PARTITION)[0] == partition_value()
        assert second.store.controller_id == 2

    def test_deleted_controller_znode_forces_an_election(self) -> None:
        site = ZooKeeperSite()
        term = controller(site)
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
        term = controller(first)
        campaign = second.store.campaign()
        first.client.hold()
        first.zookeeper.write(Delete(path="/controller"))
        second.settle(campaign)
        resigned: list[bool] = []
        first.store.resigned(lambda: resigned.append(True))
        [one] = first.settle(first.store.write([elected(first, 1)], term))
        assert one == Fenced()
        assert resigned == [True]
        second.settle(second.store.write([elected(second, 1)], term + 1))

    @both_faults
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

    def test_topics_are_unknown_to_a_former_controller(self) -> None:
        site = ZooKeeperSite()
        controller(site)
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


class TestSharedZnodes:
    """Znodes that several brokers, tools and Kafka change."""

    def test_unknown_fields_are_kept(self) -> None:
        site = ZooKeeperSite()
        term = controller(site)
        for path in ("/brokers/topics/t", "/brokers/topics/t/partitions/0/state"):
            data = json.loads(site.zookeeper.data(path) or b"")
            site.zookeeper.write(SetData(path=path, data=json.dumps({**data, "new": 1}).encode()))
        site.settle(site.store.refresh([TOPIC, PARTITION]))
        site.settle(site.store.write([elected(site, 1)], term))
        change = Change(
            key=TOPIC, value=topic_value(partitions=2), expected=site.store.get(TOPIC)[1]
        )
        site.settle(site.store.write([change], term))
        for path in ("/brokers/topics/t", "/brokers/topics/t/partitions/0/state"):
            assert json.loads(site.zookeeper.data(path) or b"")["new"] == 1

    def test_unknown_settings_of_a_user_are_kept(self) -> None:
        site = ZooKeeperSite()
        data = b'{"version":1,"config":{"future":"x","producer_byte_rate":"5"}}'
        site.zookeeper.write(Create(path="/config/users/u", data=data))
        key = quota_key(QuotaEntity(user="u"))
        site.settle(site.store.refresh([key]))
        assert site.store.get(key)[0] == {"producer_byte_rate": 5.0}
        removal = Change(key=key, value=None, expected=site.store.get(key)[1])
        site.settle(site.store.write([removal]))
        data = site.zookeeper.data("/config/users/u") or b""
        assert json.loads(data)["config"] == {"future": "x"}

    def test_user_with_quotas_for_client_ids_is_kept(self) -> None:
        site = ZooKeeperSite()
        user = quota_key(QuotaEntity(user="u"))
        both = quota_key(QuotaEntity(user="u", client_id="c"))
        for key in (user, both):
            change = Change(key=key, value={"producer_byte_rate": 1.0}, expected=ABSENT)
            site.settle(site.store.write([change]))
        for key in (user, both):
            removal = Change(key=key, value=None, expected=site.store.get(key)[1])
            assert site.settle(site.store.write([removal])) == [Written(version=ABSENT)]
        assert site.zookeeper.names("/config/users") == []

    def test_client_ids_that_the_mirror_does_not_know_are_kept(self) -> None:
        site = ZooKeeperSite()
        both = quota_key(QuotaEntity(user="u", client_id="c"))
        change = Change(key=both, value={"producer_byte_rate": 1.0}, expected=ABSENT)
        site.settle(site.store.write([change]))
        site.zookeeper.write(Create(path="/config/users/u/clients/other"))
        removal = Change(key=both, value=None, expected=site.store.get(both)[1])
        assert site.settle(site.store.write([removal])) == [Written(version=ABSENT)]
        assert site.zookeeper.names("/config/users/u/clients") == ["other"]

    def test_change_of_another_key_in_the_znode_is_no_conflict(self) -> None:
        first = ZooKeeperSite(1)
        second = ZooKeeperSite(2, first)
        key = quota_key(QuotaEntity(user="u"))
        change = Change(key=key, value={"producer_byte_rate": 1.0}, expected=ABSENT)
        [written] = first.settle(first.store.write([change]))
        second.run_for(10)
        # Held, so that it does not notice what the other broker changes.
        first.client.hold()
        scram: Key = ("scram", "u", 1)
        credential = ScramCredential(salt=b"s", stored_key=b"k", server_key=b"e", iterations=4096)
        second.settle(second.store.write([Change(key=scram, value=credential, expected=ABSENT)]))
        again = Change(key=key, value={"producer_byte_rate": 2.0}, expected=written.version)
        [one] = first.settle(first.store.write([again]))
        assert isinstance(one, Written)
        assert first.store.get(scram)[0] == credential

    def test_settings_reach_other_brokers_once(self) -> None:
        first = ZooKeeperSite(1)
        second = ZooKeeperSite(2, first)
        seen: list[tuple[int, Any]] = []
        for site in (first, second):
            number = site.broker_id
            site.store.watch(
                ("config",), lambda key, value, version, number=number: seen.append((number, value))
            )
        first.settle(first.store.write([config("1")]))
        first.run_for(10)
        assert sorted(seen, key=str) == [(1, {"a": "1"}), (2, {"a": "1"})]

    def test_damaged_notification_is_reported_and_skipped(self) -> None:
        first = ZooKeeperSite(1)
        second = ZooKeeperSite(2, first)
        for data in (b"", b"{", b'{"version":2,"entity_path":"../x"}', b'{"version":2}'):
            path = "/config/changes/config_change_"
            first.zookeeper.write(Create(path=path, data=data, sequential=True))
        first.zookeeper.write(Create(path="/config/changes/other"))
        first.settle(first.store.write([config("1")]))
        first.run_for(10)
        assert second.store.get(CONFIG)[0] == {"a": "1"}
        assert sum("cannot decode the notification" in x for x in second.ports.reports) == 4

    def test_old_notifications_are_deleted(self) -> None:
        site = ZooKeeperSite()
        site.settle(site.store.write([config("1")]))
        site.run_for(16 * 60 * 1000)
        [written] = site.settle(site.store.write([config("2", site.store.get(CONFIG)[1])]))
        site.run_for(10)
        assert isinstance(written, Written)
        assert site.zookeeper.names("/config/changes") == ["config_change_0000000001"]

    def test_znodes_of_the_start_are_those_of_kafka(self) -> None:
        site = ZooKeeperSite()
        assert all(site.zookeeper.stat(path) is not None for path in PERSISTENT_PATHS)

    @pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"partitions":{}}', b"\xff", b"null"])
    def test_damaged_topic_cannot_be_written(self, data: bytes) -> None:
        site = ZooKeeperSite()
        controller(site)
        site.zookeeper.write(SetData(path="/brokers/topics/t", data=data))
        site.restart()
        term = site.settle(site.store.campaign())
        assert list(site.store.damaged) == ["/brokers/topics/t"]
        change = Change(key=TOPIC, value=topic_value(), expected=ABSENT)
        with pytest.raises(KafkaStorageError, match=r"cannot decode the znode /brokers/topics/t:"):
            site.settle(site.store.write([change], term))
        other = site.store.write_atomic(topic_changes("u"), term)
        assert all(isinstance(one, Written) for one in site.settle(other))


class TestRemoval:
    """A removal takes several transactions, and can be interrupted between any two."""

    @pytest.mark.parametrize("partitions", [1, 29, 30, 70, 200])
    def test_next_controller_completes_a_removal(self, partitions: int) -> None:
        for kill_at in range(1, 12):
            first = ZooKeeperSite(1)
            second = ZooKeeperSite(2, first)
            term = first.settle(first.store.campaign())
            first.settle(
                first.store.write([*topic_changes("t", partitions=partitions), config("1")], term)
            )
            mark = Change(key=("delete_topic", "t"), value=True, expected=ABSENT)
            first.settle(first.store.write([mark], term))
            removal = Change(key=TOPIC, value=None, expected=first.store.get(TOPIC)[1])
            count = 0

            def kill(client: MockZooKeeperClient, request: Request) -> Fault:
                nonlocal count
                if client is first.client and request.kind == "multi":  # noqa: B023
                    count += 1
                    if count == kill_at:  # noqa: B023
                        first.client.kill()  # noqa: B023
                return Fault.NONE

            first.zookeeper.on_request = kill
            work = first.store.write([removal], term)
            campaign = second.store.campaign()
            first.run_for(3 * SESSION_TIMEOUT_MS)
            if work.done:
                assert outcome(work) == [Written(version=ABSENT)]
                first.client.close()
            term = second.settle(campaign)
            assert second.store.get(("delete_topic", "t"))[0] is (None if work.done else True)
            if not work.done:
                version = second.store.get(TOPIC)[1]
                rest = Change(key=TOPIC, value=None, expected=version)
                assert second.settle(second.store.write([rest], term)) == [Written(version=ABSENT)]
            for folder in ("/brokers/topics", "/config/topics"):
                assert second.zookeeper.names(folder) == []
            if work.done:
                return
        raise AssertionError("the removal takes more transactions than expected")


def test_controller_state_survives_random_faults() -> None:
    """Two brokers write through lost connections, late watches and elections; no write is lost.

    The model is the list of acknowledged epochs: the state must be the last one, or one whose
    outcome was not known.
    """
    for seed in range(30):
        chance = random.Random(seed)
        first = ZooKeeperSite(1)
        sites = [first, ZooKeeperSite(2, first)]
        faults = [Fault.NONE] * 20 + [Fault.LOSE_BEFORE, Fault.LOSE_AFTER]

        def decide(
            client: MockZooKeeperClient,
            request: Request,
            chance: random.Random = chance,
            faults: list[Fault] = faults,
        ) -> Fault:
            if chance.random() < 0.01:
                client.hold()
            if chance.random() < 0.05:
                client.catch_up()
            return chance.choice(faults)

        term = controller(first)
        first.zookeeper.on_request = decide
        leader, acknowledged = first, 0
        for _ in range(40):
            if chance.random() < 0.1:
                leader.zookeeper.expire(leader.client.session_id)
            if chance.random() < 0.1:
                leader = chance.choice(sites)
                first.zookeeper.write(*(
                    [Delete(path="/controller")]
                    if first.zookeeper.stat("/controller") is not None
                    else []
                ))  # fmt: skip
                term = leader.settle(leader.store.campaign())
            value, version = leader.store.get(PARTITION)
            if version == ABSENT:
                term = leader.settle(leader.store.campaign())
                value, version = leader.store.get(PARTITION)
            assert value.leader_epoch == acknowledged, seed
            new = PartitionValue(
                leader=1,
                leader_epoch=value.leader_epoch + 1,
                isr=(1,),
                partition_epoch=version + 1,
            )
            change = Change(key=PARTITION, value=new, expected=version)
            [one] = leader.settle(leader.store.write([change], term))
            if isinstance(one, Written):
                acknowledged += 1
            else:
                # Nothing was applied.
                assert one == Fenced(), seed
                term = leader.settle(leader.store.campaign())
