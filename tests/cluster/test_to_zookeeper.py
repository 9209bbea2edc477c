"""`plog storage to-zookeeper`: a single broker with its own metadata changes to ZooKeeper."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kazoo.client import KazooClient

from plogd.testing.broker_process import BrokerProcess
from tests.cluster.clients import admin, consume, create, produce
from tests.cluster.conftest import StartBroker
from tests.helpers.eventually import TIMEOUT_S

EMBEDDED = {"offsets.topic.num.partitions": "4"}


def to_zookeeper(config: Path) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    command = [sys.executable, "-m", "plog.cli", "storage", "to-zookeeper", "--config", str(config)]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)


def write_config(tmp_path: Path, connect: str, data_dir: Path) -> Path:
    config = tmp_path / "server.properties"
    config.write_text(
        f"plog.metadata.store=zookeeper\nzookeeper.connect={connect}\nlog.dirs={data_dir}\n"
        "zookeeper.session.timeout.ms=2000\n"
    )
    return config


def change_settings(broker: BrokerProcess) -> None:
    """Set a setting of the broker, and a password."""
    client = admin(broker)
    entry = ConfigEntry("message.max.bytes", "2000000", incremental_operation=AlterConfigOpType.SET)
    broker_config = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    [changed] = client.incremental_alter_configs([broker_config]).values()
    changed.result(TIMEOUT_S)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    user = UserScramCredentialUpsertion("alice", info, b"secret")
    [stored] = client.alter_user_scram_credentials([user]).values()
    stored.result(TIMEOUT_S)


def test_topics_records_groups_and_settings_survive_the_change(
    tmp_path: Path, connect: str, make_broker: StartBroker, znodes: KazooClient
) -> None:
    with BrokerProcess(tmp_path / "old", EMBEDDED) as old:
        create(old, "clicks", partitions=100, retention_ms="86400000")
        produce(old, "clicks", *(b"%d" % number for number in range(1000)))
        assert len(consume(old, "clicks", "g", 1000)) == 1000
        change_settings(old)
    config = write_config(tmp_path, connect, old.data_dir)
    done = to_zookeeper(config)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        f"copied the metadata of 2 topics to ZooKeeper at {connect}\n"
        f"start the broker with: plog-broker --config {config}\n"
    )
    assert znodes.get_children("/brokers/ids") == []
    assert znodes.exists("/controller") is None
    with make_broker(log_dirs=str(old.data_dir)) as new:
        produce(new, "clicks", b"last")
        assert consume(new, "clicks", "g", 1) == [b"last"]
        assert len(consume(new, "clicks", "all", 1001)) == 1001
        metadata = admin(new).list_topics(timeout=TIMEOUT_S)
        assert len(metadata.topics["clicks"].partitions) == 100
        client = admin(new)
        [users] = [client.describe_user_scram_credentials(["alice"])["alice"].result(TIMEOUT_S)]
        assert [each.iterations for each in users.scram_credential_infos] == [4096]
        [described] = client.describe_configs([ConfigResource(ResourceType.BROKER, "1")]).values()
        assert described.result(TIMEOUT_S)["message.max.bytes"].value == "2000000"


def test_chroot_that_is_not_empty_and_a_second_copy_are_refused(
    tmp_path: Path, connect: str, make_broker: StartBroker
) -> None:
    with make_broker() as other:
        create(other, "theirs")
    with BrokerProcess(tmp_path / "old", EMBEDDED) as old:
        create(old, "ours")
    config = write_config(tmp_path, connect, old.data_dir)
    done = to_zookeeper(config)
    assert done.returncode == 1
    assert "the chroot in zookeeper.connect is not empty: it contains cluster" in done.stderr
    with old:
        produce(old, "ours", b"1")
    config = write_config(tmp_path, f"{connect}/empty", old.data_dir)
    assert to_zookeeper(config).returncode == 0
    again = to_zookeeper(config)
    assert again.returncode == 1
    assert "is the metadata in ZooKeeper already?" in again.stderr


def test_running_broker_and_settings_without_zookeeper_are_refused(
    tmp_path: Path, connect: str
) -> None:
    with BrokerProcess(tmp_path / "old", EMBEDDED) as old:
        done = to_zookeeper(write_config(tmp_path, connect, old.data_dir))
        assert done.returncode == 1
        assert "is in use: a broker is running there" in done.stderr
    config = tmp_path / "embedded.properties"
    config.write_text(f"log.dirs={old.data_dir}\n")
    done = to_zookeeper(config)
    assert done.returncode == 1
    assert "does not contain plog.metadata.store=zookeeper" in done.stderr
