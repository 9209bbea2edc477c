"""Gauges that are evaluated at each scrape."""

from __future__ import annotations

import errno

from plog.wire.messages.fetch import FetchPartition
from plogd.replica.fetch.delayed_fetch import FetchParams
from plogd.replica.fetch.fetch_context import FetchItem
from tests.helpers.sim.sim_broker import SimBroker, create_topic, fetch_request


def lines(broker: SimBroker) -> list[str]:
    return broker.metrics.expose().decode().splitlines()


def test_gauges_show_logs_partitions_and_syncs() -> None:
    broker = SimBroker().start()
    create_topic(broker, "t", 2)
    broker.produce("t", b"a", b"b", partition=1)
    found = lines(broker)
    for line in (
        "kafka_controller_kafkacontroller_globaltopiccount 1",
        "kafka_controller_kafkacontroller_globalpartitioncount 2",
        "kafka_server_replicamanager_partitioncount 2",
        "kafka_server_replicamanager_underreplicatedpartitions 0",
        "kafka_server_replicamanager_leadercount 2",
        "kafka_server_replicamanager_offlinereplicacount 0",
        'kafka_log_log_logendoffset{topic="t",partition="1"} 2',
        'kafka_log_log_numlogsegments{topic="t",partition="0"} 1',
        "kafka_log_logmanager_offlinelogdirectorycount 0",
    ):
        assert line in found
    rounds = [line for line in found if line.startswith("plog_log_sync_rounds_total ")]
    assert float(rounds[0].split()[1]) >= 2


def test_gauges_show_delayed_requests_and_sessions() -> None:
    broker = SimBroker().start()
    create_topic(broker, "t")
    item = FetchItem("t", bytes(16), FetchPartition(partition_max_bytes=100))
    params = FetchParams(max_wait_ms=1000, min_bytes=1, max_bytes=100)
    broker.broker.replica_manager.fetch_records([item], params)
    broker.ask(fetch_request("t", session_epoch=0), 11)
    found = lines(broker)
    name = "kafka_server_delayedoperationpurgatory_purgatorysize"
    assert f'{name}{{delayedoperation="Fetch"}} 1' in found
    assert f'{name}{{delayedoperation="Produce"}} 0' in found
    assert "kafka_server_fetchsessioncache_numincrementalfetchsessions 1" in found
    assert "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached 1" in found


def test_gauges_show_a_failed_log_directory() -> None:
    broker = SimBroker().start()
    create_topic(broker, "t")
    broker.files.fail_when(lambda operation: operation.name == "sync", errno.EIO)
    broker.produce("t", b"a")
    assert "kafka_log_logmanager_offlinelogdirectorycount 1" in lines(broker)
    assert "kafka_server_replicamanager_offlinereplicacount 1" in lines(broker)
