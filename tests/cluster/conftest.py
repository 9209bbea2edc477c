"""Fixtures for brokers on a real ZooKeeper: the server, brokers, and clusters of three brokers."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from plogd.testing.broker_process import BrokerProcess
from tests.cluster.three_brokers import Cluster, SharedCluster
from tests.helpers.programs.kafka_server import KafkaServer, kafka_jars
from tests.helpers.zookeeper_server import ZooKeeperServer, make_certificates

SESSION_TIMEOUT_MS = 2000
"""The server grants no less than two ticks, which is one second."""
_KAFKA_VERSION = "3.9.1"
_NUMBERS = itertools.count(1)

StartBroker = Callable[..., BrokerProcess]


@pytest.fixture(scope="session")
def zookeeper_certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA, and certificates for the server and a client."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def zookeeper(
    tmp_path_factory: pytest.TempPathFactory, zookeeper_certificates: Path
) -> Iterator[ZooKeeperServer]:
    """The ZooKeeper of all tests; it serves again after each test."""
    folder = tmp_path_factory.mktemp("zookeeper")
    with ZooKeeperServer(folder, zookeeper_certificates) as running:
        yield running


@pytest.fixture
def connect(zookeeper: ZooKeeperServer) -> str:
    """``zookeeper.connect``, with a chroot that does not exist yet."""
    return _new_chroot(zookeeper)


def _new_chroot(zookeeper: ZooKeeperServer) -> str:
    return f"{zookeeper.address}/clusters/c{next(_NUMBERS)}"


@pytest.fixture
def znodes(zookeeper: ZooKeeperServer, connect: str) -> Iterator[KazooClient]:
    """Another client of the cluster's znodes."""
    with _znodes_of(zookeeper, connect) as client:
        yield client


@contextlib.contextmanager
def _znodes_of(zookeeper: ZooKeeperServer, connect: str) -> Iterator[KazooClient]:
    client = KazooClient(hosts=zookeeper.address)
    client.start()
    # Set afterward: kazoo warns of a chroot that does not exist, but the broker creates it.
    client.chroot = connect.removeprefix(zookeeper.address)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@pytest.fixture
def make_broker(tmp_path: Path, connect: str) -> Iterator[StartBroker]:
    """A function that returns a broker of the cluster, which is stopped at the end of the test."""
    with _broker_maker(tmp_path, connect) as make:
        yield make


@contextlib.contextmanager
def _broker_maker(parent: Path, connect: str) -> Iterator[StartBroker]:
    made: list[BrokerProcess] = []

    def make(name: str = "broker", **settings: str) -> BrokerProcess:
        folder = parent / name
        folder.mkdir(exist_ok=True)
        values = {
            "plog.metadata.store": "zookeeper",
            "node.id": "1",
            "zookeeper.connect": connect,
            "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
            # Longer than the session timeout, which is too short for a busy machine.
            "zookeeper.connection.timeout.ms": "60000",
            "offsets.topic.num.partitions": "4",
            "offsets.topic.replication.factor": "1",
        }
        changed = {key.replace("_", "."): value for key, value in settings.items()}
        made.append(BrokerProcess(folder, {**values, **changed}))
        return made[-1]

    try:
        yield make
    finally:
        for each in made:
            if each.is_running:
                each.stop()
    for each in made:
        # A start that a test expects to fail is a critical event, too.
        if "cannot start: " not in each.log_text():
            each.check()


@pytest.fixture
def kafka(tmp_path: Path, connect: str) -> Iterator[KafkaServer]:
    """A Kafka that has not started yet."""
    settings = {"offsets.topic.num.partitions": "4"}
    server = KafkaServer(
        kafka_jars(_KAFKA_VERSION), tmp_path / "kafka", zookeeper=connect, settings=settings
    )
    yield server
    server.kill()


@pytest.fixture(scope="module")
def cluster_type() -> type[Cluster]:
    """The class of `cluster`; a file may override this fixture."""
    return Cluster


@pytest.fixture(scope="module")
def shared_cluster(
    zookeeper: ZooKeeperServer,
    tmp_path_factory: pytest.TempPathFactory,
    cluster_type: type[Cluster],
) -> Iterator[SharedCluster]:
    """The cluster that the tests of a file share."""

    @contextlib.contextmanager
    def started() -> Iterator[Cluster]:
        connect = _new_chroot(zookeeper)
        with (
            _znodes_of(zookeeper, connect) as znodes,
            _broker_maker(tmp_path_factory.mktemp("cluster"), connect) as make,
        ):
            yield cluster_type(make, znodes)

    shared = SharedCluster(started)
    yield shared
    shared.close()


@pytest.fixture
def cluster(shared_cluster: SharedCluster) -> Iterator[Cluster]:
    """Three brokers, whose replicas are all in sync at the start and at the end of a test."""
    yield shared_cluster.get()
    shared_cluster.restore()
