"""The checks of /health and /ready, on a single broker and in a cluster."""

from __future__ import annotations

import pytest

from plogd.http.health import Checks, Status
from plogd.ports import Later, MaybeLater
from tests.helpers.sim.sim_broker import SimBroker
from tests.helpers.sim.sim_ports import outcome
from tests.helpers.sim.zookeeper_cluster import ZooKeeperCluster


def result(cluster: ZooKeeperCluster, status: MaybeLater[Status]) -> Status:
    if not isinstance(status, Later):
        return status
    cluster.until(lambda: status.done)
    return outcome(status)


def test_broker_is_ready_while_it_accepts_connections() -> None:
    broker = SimBroker().start().broker
    assert Checks(broker, lambda: True).ready().ok
    assert not Checks(broker, lambda: False).ready().ok
    broker.is_ready = False
    assert not Checks(broker, lambda: True).ready().ok


@pytest.mark.parametrize("is_serving", [True, False])
def test_single_broker_is_in_sync_when_it_is_ready(is_serving: bool) -> None:
    checks = Checks(SimBroker().start().broker, lambda: is_serving)
    assert checks.in_sync() == checks.ready()
    assert checks.ready().ok is is_serving


def test_offline_log_directories_are_unhealthy() -> None:
    broker = SimBroker().start().broker
    checks = Checks(broker, lambda: True)
    assert checks.health() == Status(ok=True, details={"offlineLogDirs": []})


def test_broker_of_a_cluster_is_not_in_sync_while_a_replica_lags() -> None:
    cluster = ZooKeeperCluster(3)
    names = [f"t{number}" for number in range(12)]
    for name in names:
        leader, follower = cluster.create_away_from_controller(name)
    cluster.advance(1_000)
    checks = Checks(cluster.brokers[follower].broker, lambda: True)
    status = result(cluster, checks.in_sync())
    assert status.ok
    assert status.details == {**checks.ready().details, "outOfSync": 0, "partitions": []}
    cluster.cut(leader, follower)
    for name in names:
        assert cluster.produce(name, b"a", acks=1) == 0
    cluster.until(lambda: result(cluster, checks.in_sync()).details["outOfSync"] == len(names))
    status = result(cluster, checks.in_sync())
    assert not status.ok
    assert status.details["partitions"] == [f"{name}-0" for name in sorted(names)[:10]]
    # The leader is in sync with itself.
    other = Checks(cluster.brokers[leader].broker, lambda: True)
    assert result(cluster, other.in_sync()).ok


def test_broker_that_begins_to_stop_during_the_check_is_not_ready() -> None:
    cluster = ZooKeeperCluster(2)
    cluster.create("t", partitions=300, replication_factor=1)
    is_serving = True
    checks = Checks(cluster.brokers[1].broker, lambda: is_serving)
    status = checks.in_sync()
    assert isinstance(status, Later)
    assert not status.done
    is_serving = False
    assert not result(cluster, status).ok
