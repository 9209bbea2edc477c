"""A complete broker whose metadata is in ZooKeeper: startup, requests, restarts, bad znodes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plog.errors import ErrorCode, PlogError
from plog.records.batch import iter_batches
from plog.wire.api_keys import ApiKey
from plog.wire.messages.api_versions import ApiVersionsRequest
from plog.wire.messages.delete_topics import DeleteTopicsRequest
from plog.wire.messages.describe_cluster import DescribeClusterRequest
from plog.wire.messages.init_producer_id import InitProducerIdRequest
from plog.wire.messages.metadata import MetadataRequest
from plog.zookeeper.operations import Create, Delete, SetData
from plogd.metadata.store import DuplicateBrokerId
from plogd.metadata.zookeeper.store import ZooKeeperUnavailable
from plogd.metadata.zookeeper.zookeeper_metadata import WrongCluster
from plogd.testing.mock_zookeeper import LATENCY_MS, Fault, MockZooKeeperClient, Request
from tests.helpers.sim.sim_broker import LOG_DIR, SimBroker, create_request, create_topic
from tests.helpers.sim.sim_ports import SimPorts
from tests.helpers.sim.zookeeper_sim_broker import SESSION_TIMEOUT_MS, ZooKeeperSimBroker


def names(broker: SimBroker) -> list[str]:
    return [topic.name for topic in broker.ask(MetadataRequest(topics=None), 9).topics]


def znode(broker: ZooKeeperSimBroker, path: str) -> Any:
    data = broker.zookeeper.data(path)
    return None if data is None else json.loads(data)


def meta_properties(broker: SimBroker) -> list[str]:
    return broker.files.read_file(f"{LOG_DIR}/meta.properties").decode().splitlines()[1:]


class TestStart:
    """A broker that starts on an empty chroot."""

    def test_broker_registers_the_ports_that_it_has_opened(self) -> None:
        broker = ZooKeeperSimBroker(broker_rack="r1").start()
        found = znode(broker, "/brokers/ids/1")
        assert found["endpoints"] == ["PLAINTEXT://this.machine:9092"]
        assert (found["host"], found["port"], found["rack"]) == ("this.machine", 9092, "r1")
        assert znode(broker, "/controller")["brokerid"] == 1
        assert broker.bugs == []

    def test_new_cluster_gets_an_id_that_meta_properties_has_in_version_0(self) -> None:
        broker = ZooKeeperSimBroker().start()
        cluster_id = znode(broker, "/cluster/id")["id"]
        assert broker.broker.cluster_id == cluster_id
        assert meta_properties(broker) == ["version=0", f"cluster.id={cluster_id}", "broker.id=1"]
        assert broker.restart().broker.cluster_id == cluster_id

    def test_clients_see_the_broker_and_the_controller(self) -> None:
        broker = ZooKeeperSimBroker(broker_rack="r1").start()
        answer = broker.ask(DescribeClusterRequest(), 0)
        assert answer.controller_id == 1
        assert [(each.broker_id, each.rack) for each in answer.brokers] == [(1, "r1")]

    def test_apis_of_kraft_are_not_served(self) -> None:
        broker = ZooKeeperSimBroker().start()
        request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        answer = broker.ask(request, 3)
        kraft = {ApiKey.DESCRIBE_QUORUM, ApiKey.UPDATE_FEATURES, ApiKey.UNREGISTER_BROKER}
        assert kraft.isdisjoint(api.api_key for api in answer.api_keys)
        assert (answer.supported_features, answer.finalized_features) == ([], [])

    def test_topic_is_created_served_and_deleted(self) -> None:
        broker = ZooKeeperSimBroker().start()
        create_topic(broker, "t", 2, retention_ms="5000")
        assert broker.produce("t", b"a", partition=1).base_offset == 0
        state = znode(broker, "/brokers/topics/t/partitions/1/state")
        assert (state["leader"], state["leader_epoch"], state["isr"]) == (1, 0, [1])
        assert znode(broker, "/config/topics/t")["config"] == {"retention.ms": "5000"}
        assert broker.log("t", 1).config.retention_ms == 5000
        broker.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        assert names(broker) == []
        assert broker.zookeeper.names("/brokers/topics") == []
        assert broker.bugs == []

    def test_producer_ids_are_reserved_in_zookeeper(self) -> None:
        broker = ZooKeeperSimBroker().start()
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
        first = broker.ask(request, 4).producer_id
        assert znode(broker, "/latest_producer_id_block")["broker"] == 1
        again = broker.restart()
        assert again.ask(request, 4).producer_id > first


class TestRestart:
    """Starts on a directory that was used before."""

    @pytest.mark.parametrize("how", ["stop", "kill", "crash"])
    def test_topics_and_acknowledged_records_survive(self, how: str) -> None:
        broker = ZooKeeperSimBroker().start()
        create_topic(broker, "t", 2)
        assert broker.produce("t", b"precious", partition=1).error_code == 0
        if how == "stop":
            broker.stop()
        files = broker.files.crash(broker.ports.random) if how == "crash" else broker.files.kill()
        again = broker.restart(files)
        assert b"precious" in bytes(again.fetch("t", partition=1).records)
        assert again.bugs == []

    def test_clean_stop_ends_the_registration_at_once(self) -> None:
        broker = ZooKeeperSimBroker().start()
        broker.stop()
        assert broker.zookeeper.names("/brokers/ids") == []
        assert broker.zookeeper.data("/controller") is None
        before_ms = broker.ports.clock.monotonic_ms()
        again = broker.restart()
        assert again.ports.clock.monotonic_ms() - before_ms < 1000

    def test_broker_that_was_killed_waits_for_its_former_session(self) -> None:
        broker = ZooKeeperSimBroker().start()
        again = broker.restart()
        assert any("an earlier session of broker 1" in line for line in again.reports)
        assert znode(again, "/controller")["brokerid"] == 1

    def test_each_start_leads_in_a_new_epoch(self) -> None:
        broker = ZooKeeperSimBroker().start()
        create_topic(broker, "t")
        for epoch in range(3):
            broker.produce("t", b"x")
            [*_, (_, header)] = iter_batches(bytes(broker.fetch("t").records))
            assert header.partition_leader_epoch == epoch
            broker = broker.restart()

    def test_settings_survive(self) -> None:
        broker = ZooKeeperSimBroker().start()
        create_topic(broker, "t", retention_ms="123456")
        assert broker.restart().log("t").config.retention_ms == 123456


class TestRefusedStart:
    """Mistakes, each of which has its own message."""

    def refused(self, broker: ZooKeeperSimBroker, kind: type[PlogError]) -> str:
        with pytest.raises(kind) as caught:
            broker.start()
        broker.stop()
        return str(caught.value)

    def test_zookeeper_that_cannot_be_reached_ends_the_start_after_the_timeout(self) -> None:
        broker = ZooKeeperSimBroker(zookeeper_connection_timeout_ms=4000)
        broker.zookeeper.lose_quorum()
        text = self.refused(broker, ZooKeeperUnavailable)
        assert "cannot connect to ZooKeeper at" in text
        assert "start ZooKeeper, or correct zookeeper.connect" in text
        assert any("waiting for ZooKeeper, at most 4000 ms" in line for line in broker.reports)

    def test_zookeeper_that_comes_back_in_time_lets_the_broker_start(self) -> None:
        broker = ZooKeeperSimBroker(zookeeper_connection_timeout_ms=10_000)
        broker.zookeeper.lose_quorum()
        broker.ports.timers.call_later(5000, broker.zookeeper.restore_quorum)
        assert broker.start().broker.is_ready

    def test_directory_of_another_cluster(self) -> None:
        files = ZooKeeperSimBroker().start().kill()
        other = ZooKeeperSimBroker(ports=SimPorts(seed=1)).start()
        other.stop()
        text = self.refused(ZooKeeperSimBroker(other.zookeeper, files=files), WrongCluster)
        assert f"in ZooKeeper at zk:2181/kafka is {other.broker.cluster_id}; correct" in text

    def test_directory_of_a_cluster_that_the_chroot_does_not_contain(self) -> None:
        files = ZooKeeperSimBroker().start().kill()
        fresh = ZooKeeperSimBroker(files=files)
        assert "there is no cluster in ZooKeeper at" in self.refused(fresh, WrongCluster)
        assert fresh.zookeeper.data("/cluster/id") is None

    def test_directory_of_an_embedded_broker(self) -> None:
        embedded = SimBroker().start()
        broker = ZooKeeperSimBroker(files=embedded.files.kill())
        text = self.refused(broker, PlogError)
        assert "whose metadata is not in ZooKeeper" in text
        assert "plog.metadata.store=embedded, or change log.dirs" in text
        assert broker.files.exists(f"{LOG_DIR}/__cluster_metadata-0")

    def test_directory_of_zookeeper_mode_without_zookeeper(self) -> None:
        broker = ZooKeeperSimBroker().start()
        create_topic(broker, "t")
        embedded = SimBroker(files=broker.kill())
        with pytest.raises(PlogError, match=r"whose metadata is in ZooKeeper .*version 0"):
            embedded.start()
        assert meta_properties(embedded)[0] == "version=0"
        assert embedded.files.exists(f"{LOG_DIR}/t-0")

    def test_cluster_that_a_kraft_controller_has_taken_over(self) -> None:
        broker = ZooKeeperSimBroker()
        broker.zookeeper.write(Create(path="/migration", data=b"{}"))
        assert "a KRaft controller has taken over" in self.refused(broker, WrongCluster)

    def test_damaged_cluster_id(self) -> None:
        broker = ZooKeeperSimBroker()
        broker.zookeeper.write(Create(path="/cluster"), Create(path="/cluster/id", data=b"?"))
        assert "cannot decode the znode /cluster/id" in self.refused(broker, WrongCluster)

    def test_broker_id_that_another_broker_has(self) -> None:
        first = ZooKeeperSimBroker(listeners=("PLAINTEXT://first:9092",)).start()
        second = ZooKeeperSimBroker(first.zookeeper)
        before_ms = second.ports.clock.monotonic_ms()
        text = self.refused(second, DuplicateBrokerId)
        assert "cannot register broker 1: the broker at first:9092 is registered" in text
        waited_ms = second.ports.clock.monotonic_ms() - before_ms
        assert waited_ms >= 2 * SESSION_TIMEOUT_MS
        assert first.produce("t", b"a").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert first.stop_reasons == []

    def test_start_survives_a_connection_that_is_lost_with_the_response_to_its_first_writes(
        self,
    ) -> None:
        broker = ZooKeeperSimBroker().start()
        create_topic(broker, "t")
        broker.produce("t", b"precious")
        again = broker.next_life()
        lost: list[str] = []

        def lose_first_write(client: MockZooKeeperClient, request: Request) -> Fault:
            paths = [one.path for one in request.operations if isinstance(one, SetData)]
            if lost or not any(path.endswith("/state") for path in paths):
                return Fault.NONE
            lost.extend(paths)
            return Fault.LOSE_AFTER

        again.zookeeper.on_request = lose_first_write
        again.start()
        assert lost
        again.ports.advance(5000)
        assert b"precious" in bytes(again.fetch("t").records)


class TestDamagedZnodes:
    """Znodes that cannot be decoded, and partitions whose records are elsewhere."""

    @pytest.mark.parametrize(
        "path", ["/brokers/topics/bad", "/brokers/topics/bad/partitions/0/state"]
    )
    def test_topic_with_a_damaged_znode_is_offline_and_keeps_its_records(self, path: str) -> None:
        broker = ZooKeeperSimBroker().start()
        create_topic(broker, "bad")
        create_topic(broker, "good")
        broker.produce("bad", b"precious")
        broker.produce("good", b"served")
        sound = broker.zookeeper.data(path)
        assert sound is not None
        broker.zookeeper.write(SetData(path=path, data=b"{"))
        again = broker.restart()
        again.ports.advance(1000)  # The controller sends the roles after the start.
        assert names(again) == ["good"]
        assert b"served" in bytes(again.fetch("good").records)
        assert any(f"cannot decode the znode {path}:" in line for line in again.reports)
        again.stop()
        again.zookeeper.write(SetData(path=path, data=sound))
        repaired = again.restart()
        repaired.ports.advance(1000)
        assert b"precious" in bytes(repaired.fetch("bad").records)
        assert repaired.bugs == []

    def test_topic_with_damaged_settings_is_offline_and_not_cleaned(self) -> None:
        broker = ZooKeeperSimBroker().start()
        create_topic(broker, "t", retention_ms="-1")
        broker.produce("t", b"precious")
        broker.zookeeper.write(SetData(path="/config/topics/t", data=b"?"))
        again = broker.restart()
        assert names(again) == []
        log = again.log("t")
        assert (log.log_end_offset, log.config.cleanup_policy) == (1, ())

    def test_settings_that_are_damaged_while_the_broker_runs_stay_in_use(self) -> None:
        broker = ZooKeeperSimBroker().start()
        create_topic(broker, "t", retention_ms="-1")
        notification = json.dumps({"version": 2, "entity_path": "topics/t"}).encode()
        broker.zookeeper.write(
            SetData(path="/config/topics/t", data=b"?"),
            Create(path="/config/changes/config_change_", data=notification, sequential=True),
        )
        broker.ports.advance(1000)
        assert any("cannot decode the znode /config/topics/t" in line for line in broker.reports)
        assert broker.log("t").config.retention_ms == -1

    def test_partition_whose_newest_records_are_elsewhere_has_no_leader(self) -> None:
        broker = ZooKeeperSimBroker().start()
        create_topic(broker, "t")
        path = "/brokers/topics/t/partitions/0/state"
        broker.zookeeper.write(
            SetData(path=path, data=json.dumps({**znode(broker, path), "isr": [2]}).encode())
        )
        again = broker.restart()
        again.ports.advance(1000)
        assert (znode(again, path)["leader"], znode(again, path)["isr"]) == (-1, [2])
        assert again.produce("t", b"a").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


class TestSession:
    """Lost connections and expired sessions of a running broker."""

    def test_broker_serves_while_zookeeper_is_away(self) -> None:
        broker = ZooKeeperSimBroker().start()
        create_topic(broker, "t")
        broker.zookeeper.lose_quorum()
        broker.ports.advance(30_000)
        assert broker.produce("t", b"a").error_code == 0
        assert broker.broker.metadata.problem.startswith("no connection to ZooKeeper at ")
        broker.zookeeper.restore_quorum()
        broker.ports.advance(1000)
        assert broker.broker.metadata.problem == ""
        assert broker.zookeeper.names("/brokers/ids") == ["1"]
        texts = [line for line in broker.reports if "ZooKeeper" in line]
        assert texts[-2].startswith("lost the connection to ZooKeeper at")
        assert texts[-1] == "connected to ZooKeeper again"

    def test_broker_registers_again_when_its_session_has_expired(self) -> None:
        broker = ZooKeeperSimBroker().start()
        before = znode(broker, "/brokers/ids/1")
        broker.zookeeper.expire(broker.client.session_id)
        assert broker.zookeeper.names("/brokers/ids") == []
        broker.ports.advance(1000)
        assert znode(broker, "/brokers/ids/1")["endpoints"] == before["endpoints"]
        assert "registered this broker again" in broker.reports
        assert broker.stop_reasons == []

    def test_topics_can_be_changed_after_each_loss(self) -> None:
        broker = ZooKeeperSimBroker().start()
        create_topic(broker, "first")
        broker.zookeeper.lose_quorum()
        broker.ports.advance(1000)
        broker.zookeeper.restore_quorum()
        broker.ports.advance(1000)
        create_topic(broker, "second")
        broker.zookeeper.expire(broker.client.session_id)
        broker.ports.advance(1000)
        create_topic(broker, "third", retention_ms="1000")
        assert [broker.produce(name, b"a").error_code for name in ("first", "third")] == [0, 0]
        broker.ask(DeleteTopicsRequest(topic_names=["second"], timeout_ms=1000), 5)
        assert names(broker) == ["first", "third"]
        assert broker.bugs == []

    def test_creation_that_an_expired_session_has_interrupted_is_completed(self) -> None:
        broker = ZooKeeperSimBroker(num_partitions=100).start()
        paths: list[str] = []

        def lose_session_after_first_write(client: MockZooKeeperClient, request: Request) -> Fault:
            created = [one.path for one in request.operations if isinstance(one, Create)]
            if any(path.startswith("/brokers/topics/t/") for path in created) and not paths:
                paths.extend(created)
                broker.ports.timers.call_later(
                    LATENCY_MS / 2, lambda: broker.zookeeper.expire(client.session_id)
                )
            return Fault.NONE

        broker.zookeeper.on_request = lose_session_after_first_write
        answer = broker.ask(create_request("t", 100), 7)
        assert answer.topics[0].error_code == ErrorCode.NOT_CONTROLLER
        broker.ports.advance(5000)
        assert 0 < len([path for path in paths if path.endswith("/state")]) < 100
        assert all(broker.produce("t", b"a", partition=n).error_code == 0 for n in range(100))
        assert broker.bugs == []

    def test_settings_that_change_while_there_is_no_controller_take_effect(self) -> None:
        broker = ZooKeeperSimBroker().start()
        create_topic(broker, "t")
        other = broker.zookeeper.connect(session_timeout_ms=SESSION_TIMEOUT_MS)
        broker.zookeeper.write(Delete(path="/controller"))
        other.multi([Create(path="/controller", data=b'{"brokerid":9}', ephemeral=True)])
        broker.ports.advance(1000)
        notification = json.dumps({"version": 2, "entity_path": "topics/t"}).encode()
        broker.zookeeper.write(
            SetData(path="/config/topics/t", data=b'{"version":1,"config":{"retention.ms":"7"}}'),
            Create(path="/config/changes/config_change_", data=notification, sequential=True),
        )
        broker.ports.advance(1000)
        assert broker.log("t").config.retention_ms == 7

    def test_broker_stops_when_another_one_has_taken_its_id(self) -> None:
        broker = ZooKeeperSimBroker().start()
        other = broker.zookeeper.connect(session_timeout_ms=SESSION_TIMEOUT_MS)
        broker.client.cut()
        broker.ports.advance(2 * SESSION_TIMEOUT_MS)
        data = json.dumps({"version": 5, "endpoints": ["PLAINTEXT://thief:9092"]}).encode()
        other.multi([Create(path="/brokers/ids/1", data=data, ephemeral=True)])
        broker.ports.advance(10)
        broker.client.restore()
        broker.ports.advance(3 * SESSION_TIMEOUT_MS)
        [reason] = broker.stop_reasons
        assert "the broker at thief:9092 is registered with this id" in reason
