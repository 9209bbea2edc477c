"""The cluster as the clients of a listener see it."""

from __future__ import annotations

import errno

import pytest

from plog.errors import ErrorCode
from plogd.apis.listener_view import NO_LEADER, ListenerView, Node
from tests.helpers.sim.several_brokers import add_brokers, live_broker, set_partition
from tests.helpers.sim.sim_broker import LOG_DIR, SimBroker, connection, create_topic


def make() -> SimBroker:
    """Return broker 1 of a cluster in which brokers 2 and 3 have different listeners."""
    broker = SimBroker(broker_rack="r1").start()
    create_topic(broker, "t")
    add_brokers(broker, live_broker(2, "PLAINTEXT", "INSIDE", rack="r2"), live_broker(3, "INSIDE"))
    return broker


def view(broker: SimBroker, listener_name: str = "PLAINTEXT") -> ListenerView:
    return ListenerView(connection(listener_name), broker.broker)


def partition(broker: SimBroker, listener_name: str = "PLAINTEXT") -> tuple[int, int, list[int]]:
    state = broker.broker.cache.topic("t")
    assert state is not None
    return view(broker, listener_name).partition("t", state.partitions[0])


def test_nodes_are_the_brokers_with_the_listener() -> None:
    broker = make()
    own = Node(1, "192.0.2.1", 9092, "r1")
    assert view(broker).nodes() == [own, Node(2, "b2", 9092, "r2")]
    # A client has reached broker 1 through this listener, even if it is not registered.
    inside = [own, Node(2, "b2", 9093, "r2"), Node(3, "b3", 9092, None)]
    assert view(broker, "INSIDE").nodes() == inside


def test_node_is_found_by_id() -> None:
    broker = make()
    assert view(broker).node(2) == Node(2, "b2", 9092, "r2")
    assert (view(broker).node(3), view(broker).node(4), view(broker).node(-1)) == (None, None, None)


@pytest.mark.parametrize(
    ("leader", "listener_name", "expected"),
    [
        (1, "PLAINTEXT", (1, 0)),
        (2, "PLAINTEXT", (2, 0)),
        (3, "PLAINTEXT", (NO_LEADER, ErrorCode.LISTENER_NOT_FOUND)),
        (3, "INSIDE", (3, 0)),
        (4, "INSIDE", (NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE)),
        (-1, "INSIDE", (NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE)),
    ],
)
def test_leader_must_be_live_and_have_the_listener(
    leader: int, listener_name: str, expected: tuple[int, int]
) -> None:
    broker = make()
    set_partition(broker, "t", leader=leader)
    assert partition(broker, listener_name)[:2] == expected


def test_replicas_on_dead_brokers_and_in_failed_directories_are_offline() -> None:
    broker = make()
    set_partition(broker, "t", leader=2, replicas=(4, 3, 2, 1), offline_replicas=(2,))
    assert partition(broker) == (2, 0, [4, 2])


def test_own_replica_in_a_failed_directory_is_offline() -> None:
    broker = make()
    set_partition(broker, "t", leader=1, replicas=(1, 2))
    broker.broker.log_manager.storage_failed(LOG_DIR, OSError(errno.EIO, "broken"))
    assert partition(broker) == (NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE, [1])
    # Another broker may have taken over already.
    set_partition(broker, "t", leader=2)
    assert partition(broker) == (2, 0, [1])
