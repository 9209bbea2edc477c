"""Controllers on a real ZooKeeper: transactions of many znodes, and an election in between."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient

from plog.errors import NotController
from plogd.controller.partition_creation import NewPartitions
from plogd.metadata.store import Key
from tests.helpers.controller_site import ControllerSite
from tests.helpers.real_zookeeper import RealZooKeeperSite
from tests.helpers.sim.sim_ports import outcome
from tests.helpers.zookeeper_server import ZooKeeperServer, make_certificates

TOPIC: Key = ("topic", "t")

_chroots = (f"/controllers/test-{number}" for number in itertools.count())
MakeSite = Callable[[int], ControllerSite]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    folder = tmp_path_factory.mktemp("zookeeper")
    with ZooKeeperServer(folder, make_certificates(folder)) as running:
        yield running


@pytest.fixture
def hosts(server: ZooKeeperServer) -> str:
    """A chroot that does not exist yet."""
    return server.address + next(_chroots)


@pytest.fixture
def controller(hosts: str) -> Iterator[MakeSite]:
    """A function that returns one more candidate in the same chroot."""
    sites: list[RealZooKeeperSite] = []
    controllers: list[ControllerSite] = []

    def one(broker_id: int) -> ControllerSite:
        sites.append(RealZooKeeperSite(hosts, broker_id))
        controllers.append(ControllerSite(sites[-1], is_elected=not controllers))
        return controllers[-1]

    yield one
    for each in controllers:
        each.controller.stop()
    for site in sites:
        site.close()


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


def real(site: ControllerSite) -> RealZooKeeperSite:
    assert isinstance(site.site, RealZooKeeperSite)
    return site.site


def check_states(shell: KazooClient, partitions: int) -> None:
    folder = "/brokers/topics/t/partitions"
    numbers = shell.get_children(folder)
    assert sorted(map(int, numbers)) == list(range(partitions))
    assert all(shell.exists(f"{folder}/{number}/state") for number in numbers)


def test_large_topic_is_created_expanded_and_deleted(
    controller: MakeSite, shell: KazooClient
) -> None:
    site = controller(1)
    topic = site.created("t", 1000, config={"retention.ms": "5"})
    check_states(shell, 1000)
    expansion = site.controller.create_partitions(NewPartitions(topic="t", count=1200))
    assert len(site.settle(expansion).partitions) == 1200
    check_states(shell, 1200)
    site.settle(site.controller.delete_topic("t", topic.topic_id))
    for folder in ("/brokers/topics", "/config/topics", "/admin/delete_topics"):
        assert shell.get_children(folder) == []
    assert site.created("t", 3).topic_id != topic.topic_id
    check_states(shell, 3)


def test_next_controller_completes_a_topic(controller: MakeSite, shell: KazooClient) -> None:
    first, second = controller(1), controller(2)
    creation = first.create("t", 2000)
    real(first).until(lambda: real(first).store.get(TOPIC)[0] is not None)
    # Between two transactions: the first controller's next one is fenced.
    shell.delete("/controller")
    topics = second.settle(second.loading)
    assert [len(topic.partitions) for topic in topics] == [2000]
    check_states(shell, 2000)
    real(first).until(lambda: creation.done)
    with pytest.raises(NotController):
        outcome(creation)
    assert not first.controller.is_active


def test_topic_that_another_program_marks_is_deleted(
    controller: MakeSite, shell: KazooClient
) -> None:
    site = controller(1)
    site.created("t", 100)
    shell.create("/admin/delete_topics/t")
    real(site).until(lambda: shell.get_children("/admin/delete_topics") == [])
    assert shell.get_children("/brokers/topics") == []
    assert site.brokers.hosted == {}


def test_controller_is_elected_again_after_its_session_has_expired(
    controller: MakeSite, shell: KazooClient
) -> None:
    site = controller(1)
    topic = site.created("t", 100)
    real(site).expire_session()
    real(site).until(lambda: site.elected)
    assert site.elected == [[topic]]
    assert shell.get("/controller_epoch")[0] == b"2"
