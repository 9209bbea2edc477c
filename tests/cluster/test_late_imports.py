"""A broker with ZooKeeper imports nothing after READY, nor does one without it import kazoo."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kazoo.client import KazooClient

from tests.helpers.eventually import eventually
from tests.helpers.recording_proxy import RecordingProxy
from tests.helpers.zookeeper_server import ZooKeeperServer
from tests.integration.broker.test_late_imports import (
    call_every_admin_operation,
    late_modules,
    produce_and_consume,
    start_and_note,
)

_LOADED = """
import sys
import plogd.__main__, plogd.service, plogd.tap
print([name for name in sys.modules if "kazoo" in name or "metadata.zookeeper" in name])
"""


def test_nothing_is_imported_by_requests_or_an_expired_session(
    tmp_path: Path, zookeeper: ZooKeeperServer, connect: str, znodes: KazooClient
) -> None:
    chroot = connect.removeprefix(zookeeper.address)
    with RecordingProxy(zookeeper.address) as proxy:
        settings = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(tmp_path / "data"),
            "plog.http.port": "0",
            "offsets.topic.num.partitions": "2",
            "offsets.topic.replication.factor": "1",
            "plog.metadata.store": "zookeeper",
            "node.id": "1",
            "zookeeper.connect": f"localhost:{proxy.bootstrap_servers.rpartition(':')[2]}{chroot}",
            "zookeeper.session.timeout.ms": "2000",
        }
        port = int(proxy.bootstrap_servers.rpartition(":")[2])
        with start_and_note(tmp_path, settings) as broker:
            client = {"bootstrap.servers": broker.addresses()[0]}
            call_every_admin_operation(client)
            produce_and_consume(client)
            proxy.cut()
            eventually(lambda: znodes.exists("/brokers/ids/1") is None, "expiration")
            with RecordingProxy(zookeeper.address, port):
                eventually(
                    lambda: "registered this broker again" in broker.log_text(), "registration"
                )
                call_every_admin_operation(client)
                broker.stop()
    assert late_modules(tmp_path) == []


def test_broker_without_zookeeper_does_not_load_its_client() -> None:
    command = [sys.executable, "-c", _LOADED]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True)
    assert loaded.stdout == "[]\n"
