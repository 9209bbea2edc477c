"""One broker on a real ZooKeeper: clients, restarts, kills, and a ZooKeeper that is away."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType
from kazoo.client import KazooClient

from plogd.testing.broker_process import BrokerFailed
from tests.cluster.clients import admin, consume, create, listed, produce
from tests.cluster.conftest import SESSION_TIMEOUT_MS, StartBroker
from tests.helpers.eventually import TIMEOUT_S, eventually
from tests.helpers.recording_proxy import RecordingProxy
from tests.helpers.zookeeper_server import ZooKeeperServer, free_ports


def content(znodes: KazooClient, path: str) -> Any:
    return json.loads(znodes.get(path)[0])


def test_topic_records_and_groups_survive_a_restart_and_a_kill(
    make_broker: StartBroker, znodes: KazooClient
) -> None:
    with make_broker() as broker:
        create(broker, "clicks", retention_ms="86400000")
        produce(broker, "clicks", b"1", b"2")
        assert consume(broker, "clicks", "g", 2) == [b"1", b"2"]
        broker.restart()
        produce(broker, "clicks", b"3")
        assert consume(broker, "clicks", "g", 1) == [b"3"]
        broker.kill()
        broker.start()
        produce(broker, "clicks", b"4")
        assert consume(broker, "clicks", "g", 1) == [b"4"]
        assert content(znodes, "/brokers/topics/clicks/partitions/0/state")["leader_epoch"] == 2


def test_znodes_are_those_of_kafka(make_broker: StartBroker, znodes: KazooClient) -> None:
    with make_broker(broker_id="7", broker_rack="r1") as broker:
        create(broker, "clicks", retention_ms="86400000")
        host, _, port = broker.bootstrap_servers.rpartition(":")
        registered = content(znodes, "/brokers/ids/7")
        assert registered.pop("timestamp").isdecimal()
        assert registered == {
            "features": {},
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "endpoints": [f"PLAINTEXT://{host}:{port}"],
            "jmx_port": -1,
            "port": int(port),
            "host": host,
            "version": 5,
            "rack": "r1",
        }
        controller = content(znodes, "/controller")
        assert controller.pop("timestamp").isdecimal()
        assert controller == {"version": 2, "brokerid": 7, "kraftControllerEpoch": -1}
        assert znodes.get("/controller_epoch")[0] == b"1"
        topic = content(znodes, "/brokers/topics/clicks")
        assert len(topic.pop("topic_id")) == 22
        assert topic == {
            "version": 3,
            "partitions": {"0": [7]},
            "adding_replicas": {},
            "removing_replicas": {},
        }
        state, _ = znodes.get("/brokers/topics/clicks/partitions/0/state")
        expected = b'{"controller_epoch":1,"leader":7,"version":1,"leader_epoch":0,"isr":[7]}'
        assert state == expected
        config = content(znodes, "/config/topics/clicks")
        assert config == {"version": 1, "config": {"retention.ms": "86400000"}}
        properties = (broker.data_dir / "meta.properties").read_text().splitlines()[1:]
        cluster_id = content(znodes, "/cluster/id")["id"]
        assert properties == ["version=0", f"cluster.id={cluster_id}", "broker.id=7"]


def test_clients_see_the_registered_broker(make_broker: StartBroker) -> None:
    with make_broker(broker_id="7") as broker:
        metadata = admin(broker).list_topics(timeout=TIMEOUT_S)
        assert list(metadata.brokers) == [7]
        assert metadata.controller_id == 7
        assert f"127.0.0.1:{metadata.brokers[7].port}" == broker.bootstrap_servers


def test_settings_that_another_program_writes_take_effect(
    make_broker: StartBroker, znodes: KazooClient
) -> None:
    with make_broker() as broker:
        create(broker, "clicks")
        client = admin(broker)
        znodes.set("/config/topics/clicks", b'{"version":1,"config":{"retention.ms":"1234"}}')
        notification = b'{"version":2,"entity_path":"topics/clicks"}'
        znodes.create("/config/changes/config_change_", notification, sequence=True)

        def has_changed() -> bool:
            resource = ConfigResource(ResourceType.TOPIC, "clicks")
            [future] = client.describe_configs([resource]).values()
            return bool(future.result(TIMEOUT_S)["retention.ms"].value == "1234")

        eventually(has_changed, "new setting")


def test_broker_serves_while_zookeeper_is_away_and_changes_topics_afterwards(
    make_broker: StartBroker, zookeeper: ZooKeeperServer
) -> None:
    with make_broker() as broker:
        create(broker, "before")
        produce(broker, "before", b"0")
        assert consume(broker, "before", "g", 1) == [b"0"]
        with zookeeper.paused():
            eventually(
                lambda: "lost the connection to ZooKeeper" in broker.log_text(), "lost connection"
            )
            produce(broker, "before", *(b"%d" % number for number in range(1, 1000)))
        eventually(lambda: "connected to ZooKeeper again" in broker.log_text(), "connection")
        assert len(consume(broker, "before", "g", 999)) == 999
        create(broker, "after", partitions=100)
        produce(broker, "after", b"0")


def test_broker_registers_again_when_its_session_has_expired(
    make_broker: StartBroker, zookeeper: ZooKeeperServer, connect: str, znodes: KazooClient
) -> None:
    chroot = connect.removeprefix(zookeeper.address)
    with RecordingProxy(zookeeper.address) as proxy:
        port = int(proxy.bootstrap_servers.rpartition(":")[2])
        broker = make_broker(zookeeper_connect=proxy.bootstrap_servers + chroot)
        broker.start()
        create(broker, "clicks")
        produce(broker, "clicks", b"1")
    eventually(lambda: znodes.exists("/brokers/ids/1") is None, "expiration")
    produce(broker, "clicks", b"2")
    with RecordingProxy(zookeeper.address, port):
        eventually(lambda: "registered this broker again" in broker.log_text(), "registration")
        eventually(lambda: znodes.exists("/controller"), "controller")
        assert consume(broker, "clicks", "g", 2) == [b"1", b"2"]
        create(broker, "more")
        produce(broker, "more", b"3")
        broker.stop()


def test_restart_of_zookeeper_keeps_the_broker_registered(
    make_broker: StartBroker, zookeeper: ZooKeeperServer, znodes: KazooClient
) -> None:
    with make_broker() as broker:
        create(broker, "clicks")
        # Now the broker has a block of producer ids.
        produce(broker, "clicks", b"1")
        zookeeper.stop()
        produce(broker, "clicks", b"2")
        zookeeper.start()
        eventually(lambda: "connected to ZooKeeper again" in broker.log_text(), "connection")
        eventually(lambda: znodes.get_children("/brokers/ids") == ["1"], "registration")


def test_broker_waits_for_zookeeper_and_gives_up_after_the_timeout(
    make_broker: StartBroker, zookeeper: ZooKeeperServer
) -> None:
    broker = make_broker(zookeeper_connection_timeout_ms="1500")
    zookeeper.stop()
    try:
        with pytest.raises(BrokerFailed, match=r"exited with code 1"):
            broker.start()
    finally:
        zookeeper.start()
    [line] = re.findall(r"cannot start: .*", broker.log_text())
    assert line.startswith(f"cannot start: cannot connect to ZooKeeper at {zookeeper.address}")
    assert "Connection refused" in line
    assert line.endswith("start ZooKeeper, or correct zookeeper.connect")
    # The failed start has been examined.
    broker.start()
    broker.stop()


def test_second_broker_with_the_same_id_is_refused_and_names_the_first(
    make_broker: StartBroker,
) -> None:
    with make_broker() as first:
        create(first, "clicks")
        second = make_broker("second")
        with pytest.raises(BrokerFailed):
            second.start()
        [line] = re.findall(r"cannot start: .*", second.log_text())
        assert f"the broker at {first.bootstrap_servers} is registered with this id" in line
        produce(first, "clicks", b"1")


def test_registration_ends_with_a_clean_stop(make_broker: StartBroker, znodes: KazooClient) -> None:
    broker = make_broker()
    broker.start()
    assert znodes.get_children("/brokers/ids") == ["1"]
    broker.stop()
    assert znodes.get_children("/brokers/ids") == []
    assert znodes.exists("/controller") is None


def test_connection_can_use_tls(
    make_broker: StartBroker, zookeeper: ZooKeeperServer, zookeeper_certificates: Path
) -> None:
    certificates = zookeeper_certificates
    broker = make_broker(
        zookeeper_connect=f"{zookeeper.tls_address}/tls",
        zookeeper_ssl_client_enable="true",
        zookeeper_ssl_keystore_location=str(certificates / "client.pem"),
        zookeeper_ssl_keystore_password="secret",
        zookeeper_ssl_truststore_location=str(certificates / "ca.pem"),
    )
    with broker:
        create(broker, "clicks")
        produce(broker, "clicks", b"1")


def test_missing_truststore_is_named(
    make_broker: StartBroker, zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    broker = make_broker(
        zookeeper_connect=f"{zookeeper.tls_address}/tls",
        zookeeper_connection_timeout_ms="500",
        zookeeper_ssl_client_enable="true",
        zookeeper_ssl_truststore_location=str(tmp_path / "missing.pem"),
    )
    with pytest.raises(BrokerFailed):
        broker.start()
    [line] = re.findall(r"cannot start: .*", broker.log_text())
    assert f"cannot read zookeeper.ssl.truststore.location={tmp_path}/missing.pem: No such" in line


@contextlib.contextmanager
def plog_broker(config: Path, znodes: KazooClient, broker_id: int) -> Iterator[Any]:
    """Run ``plog-broker``; the value is its registration."""
    path = f"/brokers/ids/{broker_id}"
    with subprocess.Popen([sys.executable, "-m", "plogd", "--config", str(config)]) as process:
        try:
            eventually(lambda: znodes.exists(path), "registration")
            yield content(znodes, path)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(TIMEOUT_S)
    assert process.returncode == 0


def test_broker_without_an_id_gets_one_and_registers_its_host_and_port(
    tmp_path: Path, connect: str, znodes: KazooClient
) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        "plog.metadata.store=zookeeper\n"
        f"zookeeper.connect={connect}\n"
        f"zookeeper.session.timeout.ms={SESSION_TIMEOUT_MS}\n"
        f"log.dirs={tmp_path}/data\n"
        "listeners=PLAINTEXT://:0\n"
        "plog.http.port=0\n"
    )
    for _ in range(2):
        with plog_broker(config, znodes, 1001) as found:
            assert found["host"] == socket.getfqdn()
            local = {"bootstrap.servers": f"127.0.0.1:{found['port']}"}
            metadata = eventually(lambda local=local: listed(local), "response")
            assert list(metadata.brokers) == [1001]
    shutil.rmtree(tmp_path / "data")
    with plog_broker(config, znodes, 1002):
        pass


def test_broker_without_an_id_reports_that_zookeeper_cannot_be_reached(tmp_path: Path) -> None:
    [port] = free_ports(1)
    settings = {
        "plog.metadata.store": "zookeeper",
        "zookeeper.connect": f"127.0.0.1:{port}/c",
        "zookeeper.connection.timeout.ms": "200",
        "log.dirs": str(tmp_path),
    }
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    done = subprocess.run(
        [sys.executable, "-m", "plogd", *options], capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 1
    assert done.stderr == (
        f"plog-broker: cannot start: cannot connect to ZooKeeper at 127.0.0.1:{port}/c: Connection"
        " refused; start ZooKeeper, or correct zookeeper.connect\n"
    )
