"""The store on an ensemble of three real ZooKeeper servers, which are killed one by one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from plog.zookeeper.kazoo_client import KazooZooKeeper
from plog.zookeeper.operations import SessionState
from plogd.metadata.store import ABSENT, Change, Fenced, Key, Written
from plogd.ports import Later
from tests.helpers.metadata_sites import partition_value, registration, topic_changes
from tests.helpers.real_zookeeper import RealZooKeeperSite
from tests.helpers.zookeeper_ensemble import ZooKeeperEnsemble

# Longer than an election among the servers.
SESSION_TIMEOUT_MS = 10_000


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    """Three servers, which all run again at the end of each test."""
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("ensemble")) as running:
        yield running


def test_writes_survive_the_kill_of_each_server(ensemble: ZooKeeperEnsemble) -> None:
    site = RealZooKeeperSite(f"{ensemble.hosts}/writes", session_timeout_ms=SESSION_TIMEOUT_MS)
    epoch = site.settle(site.store.register_broker(registration()))
    key: Key = ("config", "topic", "t")
    version, number = ABSENT, 0
    for _ in range(3):
        killed = ensemble.leader
        writes = []
        for _ in range(30):
            number += 1
            change = Change(key=key, value={"n": str(number)}, expected=version)
            writes.append(site.store.write([change]))
            # The versions of a mirror's counter are consecutive.
            version = number
            if len(writes) == 15:
                site.until(lambda writes=writes: writes[5].done)
                ensemble.kill(killed)
        # Each write depends on the one before, so a lost or repeated write would be a conflict.
        assert all(isinstance(site.settle(write)[0], Written) for write in writes)
        ensemble.start(killed)
    assert site.store.get(key)[0] == {"n": "90"}
    # The session has moved between servers.
    assert site.settle(site.store.register_broker(registration())) == epoch
    site.close()


def test_server_that_has_lost_its_leader_answers_reads_and_does_not_renew_the_lease(
    ensemble: ZooKeeperEnsemble,
) -> None:
    """Rule C3: the leader can end the session although the broker still gets responses."""
    leader = ensemble.leader
    follower, other = {0, 1, 2} - {leader}
    hosts = f"127.0.0.1:{ensemble.ports[follower]}/lease"
    site = RealZooKeeperSite(hosts, session_timeout_ms=SESSION_TIMEOUT_MS)
    site.settle(site.store.register_broker(registration()))
    # It sends no heartbeats, for which its reads would wait.
    reader = KazooZooKeeper(
        hosts, reactor=site.pump.reactor, session_timeout_ms=SESSION_TIMEOUT_MS, pending=Later
    )
    states: list[SessionState] = []
    reader.listen(states.append)
    reader.start()
    site.until(lambda: states)
    clock = site.ports.clock
    answered: list[object] = []
    with ensemble.paused(leader, other):
        paused_ms = clock.monotonic_ms()
        # The server closes its connections after `syncLimit` ticks, 2 seconds.
        while states == [SessionState.CONNECTED]:
            # As long as no heartbeat waits, the store's reads are answered, too.
            site.store.exists("/brokers/ids/1").then(_ignore, _ignore)
            read = reader.exists("/brokers/ids/1")
            read.then(answered.append, _ignore)
            site.until(lambda read=read: read.done or len(states) > 1)
        lease_end_ms = site.store.lease_end_ms
    assert answered
    assert lease_end_ms <= paused_ms + SESSION_TIMEOUT_MS
    site.until(lambda: site.store.lease_end_ms > clock.monotonic_ms())
    site.settle(reader.close())
    site.close()


def _ignore(_: object) -> None:
    """Drop the outcome of a read."""


def test_terms_and_state_survive_the_kill_of_each_server(ensemble: ZooKeeperEnsemble) -> None:
    hosts = f"{ensemble.hosts}/terms"
    sites = [
        RealZooKeeperSite(hosts, number, session_timeout_ms=SESSION_TIMEOUT_MS) for number in (1, 2)
    ]
    first, second = sites
    term = first.settle(first.store.campaign())
    first.settle(first.store.write_atomic(topic_changes("t"), term))
    key: Key = ("partition", "t", 0)
    epoch, version = 0, 0
    for _ in range(3):
        killed = ensemble.leader
        writes = []
        for step in range(1, 11):
            value = partition_value(epoch + step)
            change = Change(key=key, value=value, expected=version + step - 1)
            writes.append(first.store.write([change], term))
        first.until(lambda writes=writes: writes[2].done)
        ensemble.kill(killed)
        outcomes = [first.settle(write)[0] for write in writes]
        assert all(isinstance(one, Written | Fenced) for one in outcomes)
        applied = sum(isinstance(one, Written) for one in outcomes)
        # A fenced write was not applied, so neither was any write after it.
        assert [isinstance(one, Written) for one in outcomes] == [
            index < applied for index in range(10)
        ]
        epoch, version = epoch + applied, version + applied
        term = first.settle(first.store.campaign())
        found, found_version = first.store.get(key)
        assert (found.leader_epoch, found_version) == (epoch, version)
        ensemble.start(killed)
    campaign = second.store.campaign()
    first.close()
    assert second.settle(campaign) == term + 1
    assert second.store.get(key)[0].leader_epoch == epoch
    second.close()
