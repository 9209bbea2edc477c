"""The store in ZooKeeper with kazoo, on a real ZooKeeper that is killed or loses sessions."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from plog.zookeeper.kazoo_client import InvalidConnectString, KazooZooKeeper
from plog.zookeeper.operations import SessionState
from plog.zookeeper.tls_settings import security_of
from plogd.metadata.store import (
    ABSENT,
    Change,
    Conflict,
    DuplicateBrokerId,
    Fenced,
    Key,
    Written,
)
from plogd.ports import Later
from tests.helpers.metadata_sites import (
    partition_value,
    registration,
    topic_changes,
    topic_value,
)
from tests.helpers.net_parts import Pump
from tests.helpers.real_zookeeper import RealZooKeeperSite
from tests.helpers.sim.sim_ports import outcome
from tests.helpers.zookeeper_server import ZooKeeperServer, make_certificates
from tests.unit.metadata import test_store as conformance

TOPIC: Key = ("topic", "t")
PARTITION: Key = ("partition", "t", 0)
CONFIG: Key = ("config", "topic", "t")

_chroots = (f"/kafka/test-{number}" for number in itertools.count())
Connect = Callable[..., RealZooKeeperSite]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA, and certificates for the server and a client."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, certificates: Path
) -> Iterator[ZooKeeperServer]:
    """The ZooKeeper shared by the tests of this file, which run again after each kill."""
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"), certificates) as running:
        yield running


@pytest.fixture
def hosts(server: ZooKeeperServer) -> str:
    """A chroot that does not exist yet."""
    return server.address + next(_chroots)


@pytest.fixture
def connect(hosts: str) -> Iterator[Connect]:
    """A function that returns one more broker in the same chroot."""
    sites: list[RealZooKeeperSite] = []

    def one(broker_id: int = 1, **options: Any) -> RealZooKeeperSite:
        sites.append(RealZooKeeperSite(hosts, broker_id, **options))
        return sites[-1]

    yield one
    for site in sites:
        site.close()


@pytest.fixture
def site(connect: Connect) -> RealZooKeeperSite:
    """A broker that is connected."""
    return connect()


@pytest.fixture
def shell(hosts: str) -> Iterator[KazooClient]:
    """Another client in the same chroot, which it creates."""
    address, _, chroot = hosts.partition("/")
    client = KazooClient(hosts=address)
    client.start()
    client.ensure_path(chroot)
    client.chroot = f"/{chroot}"
    yield client
    client.stop()
    client.close()


class TestValues(conformance.TestValues):
    """The tests of the other stores."""


class TestWriting(conformance.TestWriting):
    """The tests of the other stores."""

    # The real reactor logs the exception of a watcher instead of raising it.
    test_failing_watcher_does_not_affect_writes = None  # type: ignore[assignment]


class TestTopics(conformance.TestTopics):
    """The tests of the other stores."""


class TestRegistration(conformance.TestRegistration):
    """The tests of the other stores."""


def partition_change(site: RealZooKeeperSite, epoch: int) -> Change:
    value = partition_value(leader_epoch=epoch, partition_epoch=epoch)
    return Change(key=PARTITION, value=value, expected=site.store.get(PARTITION)[1])


class TestConnection:
    """Connecting, and what happens to writes when the connection is lost."""

    def test_connects_with_tls(self, server: ZooKeeperServer, certificates: Path) -> None:
        settings = {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": str(certificates / "ca.pem"),
            "zookeeper.ssl.truststore.type": "PEM",
            "zookeeper.ssl.keystore.location": str(certificates / "client.pem"),
            "zookeeper.ssl.keystore.password": "secret",
            "zookeeper.ssl.keystore.type": "PEM",
        }
        hosts = server.tls_address + next(_chroots)
        site = RealZooKeeperSite(hosts, security=security_of(settings))
        assert site.settle(site.store.cluster_id("first")) == "first"
        assert site.settle(site.store.cluster_id("second")) == "first"
        site.close()

    def test_server_grants_the_session_timeout(self, connect: Connect) -> None:
        # Twice the tick is the least that this server grants.
        assert connect(session_timeout_ms=100).client.session_timeout_ms == 1000

    def test_failed_connection_names_the_address(self) -> None:
        pump = Pump()
        client = KazooZooKeeper(
            "127.0.0.1:1/chroot", reactor=pump.reactor, session_timeout_ms=2000, pending=Later
        )
        client.start()
        pump.until(lambda: "refused" in client.problem)
        assert client.problem.startswith("127.0.0.1:1/chroot: ")
        closing: Later[None] = client.close()
        pump.until(lambda: closing.done)

    @pytest.mark.parametrize("hosts", ["", "::::", "host:port"])
    def test_invalid_address_is_an_error(self, hosts: str) -> None:
        with pytest.raises(InvalidConnectString, match="use HOST:PORT"):
            KazooZooKeeper(hosts, reactor=Pump().reactor, session_timeout_ms=1, pending=Later)

    def test_broker_ids_are_generated_in_order(self, site: RealZooKeeperSite) -> None:
        assert [site.settle(site.store.next_broker_id()) for _ in range(3)] == [1, 2, 3]

    def test_writes_and_registration_survive_a_kill_of_zookeeper(
        self, site: RealZooKeeperSite, server: ZooKeeperServer
    ) -> None:
        site.settle(site.store.register_broker(registration()))
        resigned: list[bool] = []
        site.store.resigned(lambda: resigned.append(True))
        term = site.settle(site.store.campaign())
        site.settle(site.store.write_atomic(topic_changes("t", partitions=3), term))
        session_id = site.client.session_id
        writes = []
        for number in range(200):
            change = Change(
                key=("config", "topic", f"t{number}"), value={"a": str(number)}, expected=ABSENT
            )
            writes.append(site.store.write([change]))
            if number == 100:
                # In the middle of the writes: some have an outcome, one is in flight.
                site.until(lambda: writes[10].done)
                server.stop()
        site.until(lambda: resigned)
        server.start()
        assert all(isinstance(site.settle(write)[0], Written) for write in writes)
        assert len(site.store.load(("config", "topic"))) == 200
        # The session has survived, and so the term.
        assert site.settle(site.store.campaign()) == term
        assert site.client.session_id == session_id
        assert site.store.get(PARTITION)[0] == partition_value()
        assert site.store.lease_end_ms > site.ports.clock.monotonic_ms()

    def test_controller_writes_survive_a_kill_of_zookeeper_or_are_fenced(
        self, site: RealZooKeeperSite, server: ZooKeeperServer
    ) -> None:
        term = site.settle(site.store.campaign())
        site.settle(site.store.write_atomic(topic_changes("t", partitions=100)[:60], term))
        writes = []
        for number in range(59):
            key: Key = ("partition", "t", number)
            value = partition_value(leader_epoch=1)
            writes.append(
                site.store.write(
                    [Change(key=key, value=value, expected=site.store.get(key)[1])], term
                )
            )
        server.stop()
        server.start()
        outcomes = [site.settle(write)[0] for write in writes]
        assert all(isinstance(one, Written | Fenced) for one in outcomes)
        site.settle(site.store.campaign())
        for number, one in enumerate(outcomes):
            found, _ = site.store.get(("partition", "t", number))
            assert found.leader_epoch == isinstance(one, Written)

    def test_lease_and_term_end_while_zookeeper_hangs(
        self, site: RealZooKeeperSite, server: ZooKeeperServer
    ) -> None:
        site.settle(site.store.register_broker(registration()))
        site.settle(site.store.campaign())
        resigned: list[float] = []
        site.store.resigned(lambda: resigned.append(site.ports.clock.monotonic_ms()))
        # Time passes, and the heartbeats renew the lease.
        first_end_ms = site.store.lease_end_ms
        site.until(lambda: site.store.lease_end_ms > first_end_ms + site.client.session_timeout_ms)
        with server.paused():
            stopped_ms = site.ports.clock.monotonic_ms()
            site.until(lambda: resigned)
            lease_end_ms = site.store.lease_end_ms
            assert lease_end_ms <= stopped_ms + site.client.session_timeout_ms
            site.until(lambda: site.ports.clock.monotonic_ms() > lease_end_ms)
            write = site.store.write([Change(key=CONFIG, value={"a": "b"}, expected=ABSENT)])
        assert isinstance(site.settle(write)[0], Written)
        # The session may have survived or not.
        site.settle(site.store.register_broker(registration()))
        site.settle(site.store.campaign())
        assert site.store.lease_end_ms > site.ports.clock.monotonic_ms()

    def test_server_that_hangs_is_noticed_between_two_heartbeats(
        self, connect: Connect, server: ZooKeeperServer
    ) -> None:
        """With this session timeout, kazoo sends no ping between two heartbeats."""
        site = connect(session_timeout_ms=6_000)
        states: list[SessionState] = []
        site.client.listen(states.append)
        site.settle(site.store.register_broker(registration()))
        with server.paused():
            site.until(lambda: SessionState.SUSPENDED in states)
        site.until(lambda: SessionState.CONNECTED in states)

    def test_expired_session_ends_registration_and_term(self, site: RealZooKeeperSite) -> None:
        first = site.settle(site.store.register_broker(registration()))
        term = site.settle(site.store.campaign())
        site.settle(site.store.write_atomic(topic_changes("t"), term))
        ended: list[str] = []
        site.store.resigned(lambda: ended.append("resigned"))
        site.store.unregistered(lambda: ended.append("unregistered"))
        site.expire_session()
        site.until(lambda: len(ended) == 2)
        assert ended == ["resigned", "unregistered"]
        assert site.store.lease_end_ms == -1.0
        change = Change(key=PARTITION, value=partition_value(1, 1), expected=0)
        assert site.settle(site.store.write([change], term)) == [Fenced()]
        second = site.settle(site.store.register_broker(registration()))
        assert second > first
        assert site.settle(site.store.campaign()) == term + 1
        assert site.store.get(PARTITION)[0] == partition_value()


class TestElection:
    """The controller's znode, which several brokers and operators change."""

    def test_deleted_controller_znode_forces_an_election(
        self, site: RealZooKeeperSite, shell: KazooClient
    ) -> None:
        term = site.settle(site.store.campaign())
        resigned: list[bool] = []
        site.store.resigned(lambda: resigned.append(True))
        shell.delete("/controller")
        site.until(lambda: resigned)
        assert site.settle(site.store.campaign()) == term + 1
        data, stat = shell.get("/controller")
        assert json.loads(data)["brokerid"] == 1
        assert shell.get("/controller_epoch")[0] == b"2"
        assert stat.ephemeralOwner == site.client.session_id

    def test_next_controller_fences_the_former(self, connect: Connect, shell: KazooClient) -> None:
        first, second = connect(1), connect(2)
        term = first.settle(first.store.campaign())
        first.settle(first.store.write_atomic(topic_changes("t"), term))
        campaign = second.store.campaign()
        shell.delete("/controller")
        # The reactor of the first broker does not run, so it does not notice.
        assert second.settle(campaign) == term + 1
        stale = first.store.write([partition_change(first, 1)], term)
        [fenced] = first.settle(stale)
        assert fenced == Fenced()
        [written] = second.settle(second.store.write([partition_change(second, 1)], term + 1))
        assert isinstance(written, Written)
        first.until(lambda: first.store.controller_id == 2)

    def test_controller_follows_brokers_and_requests(
        self, connect: Connect, shell: KazooClient
    ) -> None:
        first, second = connect(1), connect(2)
        term = first.settle(first.store.campaign())
        first.settle(first.store.write_atomic(topic_changes("t"), term))
        seen: list[Key] = []
        first.store.watch((), lambda key, value, version: seen.append(key))
        epoch = second.settle(second.store.register_broker(registration(2)))
        first.until(lambda: ("broker", 2) in seen)
        assert first.store.get(("broker", 2))[0].broker_epoch == epoch
        shell.create("/admin/delete_topics/t", b"")
        first.until(lambda: ("delete_topic", "t") in seen)
        second.settle(second.store.report_log_dir_failure())
        first.until(lambda: ("log_dir_failure", 0) in seen)
        assert first.store.get(("log_dir_failure", 0))[0] == 2
        plan = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [2]}]}
        shell.create("/admin/reassign_partitions", json.dumps(plan).encode())
        first.until(lambda: ("reassign_partitions",) in seen)
        seen.clear()
        second.close()
        first.until(lambda: ("broker", 2) in seen)
        assert first.store.get(("broker", 2)) == (None, ABSENT)

    def test_large_topic_is_removed_in_several_transactions(
        self, site: RealZooKeeperSite, shell: KazooClient
    ) -> None:
        term = site.settle(site.store.campaign())
        [topic, *partitions] = topic_changes("t", partitions=200)
        site.settle(site.store.write([topic, *partitions], term))
        assert len(shell.get_children("/brokers/topics/t/partitions")) == 200
        removal = Change(key=TOPIC, value=None, expected=site.store.get(TOPIC)[1])
        assert site.settle(site.store.write([removal], term)) == [Written(version=ABSENT)]
        assert shell.get_children("/brokers/topics") == []
        assert shell.get_children("/config/topics") == []


class TestSeveralBrokers:
    """What one broker writes and another reads."""

    def test_settings_reach_other_brokers(self, connect: Connect) -> None:
        first, second = connect(1), connect(2)
        seen: list[tuple[Key, Any]] = []
        second.store.watch(("config",), lambda key, value, version: seen.append((key, value)))
        change = Change(key=CONFIG, value={"a": "b"}, expected=ABSENT)
        first.settle(first.store.write([change]))
        second.until(lambda: seen)
        assert seen == [(CONFIG, {"a": "b"})]
        # Both know the version, so either can write.
        removal = Change(key=CONFIG, value=None, expected=second.store.get(CONFIG)[1])
        assert isinstance(second.settle(second.store.write([removal]))[0], Written)
        first.until(lambda: first.store.get(CONFIG) == (None, ABSENT))

    def test_concurrent_writers_get_different_outcomes(self, connect: Connect) -> None:
        sites = [connect(1), connect(2)]
        writes = [
            site.store.write([Change(key=CONFIG, value={"by": str(n)}, expected=ABSENT)])
            for n, site in enumerate(sites)
        ]
        outcomes = [site.settle(write)[0] for site, write in zip(sites, writes, strict=True)]
        assert [type(one) for one in outcomes] == [Written, Conflict]

    def test_broker_id_of_another_broker_is_refused(self, connect: Connect) -> None:
        first, second = connect(1), connect(1, session_timeout_ms=1000)
        first.settle(first.store.register_broker(registration()))
        with pytest.raises(DuplicateBrokerId, match="the broker at i:9092"):
            second.settle(second.store.register_broker(registration()))

    def test_broker_id_is_free_after_the_other_broker_stops(self, connect: Connect) -> None:
        first, second = connect(1), connect(1)
        epoch = first.settle(first.store.register_broker(registration()))
        later = second.store.register_broker(registration())
        second.pump.turn()
        first.close()
        assert second.settle(later) > epoch


def test_damaged_topic_is_named_and_the_others_are_served(
    site: RealZooKeeperSite, shell: KazooClient
) -> None:
    term = site.settle(site.store.campaign())
    for name in "tu":
        site.settle(site.store.write_atomic(topic_changes(name, name.encode() * 16), term))
    shell.set("/brokers/topics/t", b'{"version":3,')
    site.restart()
    term = site.settle(site.store.campaign())
    assert list(site.store.load(("topic",))) == [("topic", "u")]
    assert list(site.store.damaged) == ["/brokers/topics/t"]
    assert any("/brokers/topics/t" in report for report in site.reports)
    change = Change(key=TOPIC, value=topic_value(), expected=ABSENT)
    with pytest.raises(Exception, match="cannot decode the znode /brokers/topics/t"):
        site.settle(site.store.write([change], term))
    shell.set("/brokers/topics/t", b'{"version":3,"partitions":{"0":[1]}}')
    site.settle(site.store.refresh([TOPIC]))
    assert outcome(site.store.write([])) == []
    assert site.store.get(TOPIC)[0].assignments == {0: (1,)}
