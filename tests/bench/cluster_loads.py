"""Loads that kill brokers of a cluster or move its controller. Each yields rounds endlessly."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from tests.bench.cluster_peers import NUMBERS, KafkaCluster, PlogCluster
from tests.bench.load import StepFailed
from tests.bench.meter import Meter
from tests.bench.peers import Missing
from tests.bench.rounds import Round

if TYPE_CHECKING:
    from tests.bench.session import Session

AnyCluster: TypeAlias = PlogCluster | KafkaCluster

_TIMEOUT_S: Final = 120.0
_POLL_S: Final = 0.005
_SETTLE_S: Final = 5.0
_IDLE_PARTITIONS: Final = 100
_TOPICS, _PARTITIONS = 20, 100
"""Together 2,000 partitions."""


def _clusters(session: Session, names: tuple[str, ...]) -> dict[str, AnyCluster]:
    found = {}
    for name in names:
        try:
            peer = session.peer(name)
        except Missing:
            continue
        assert isinstance(peer, PlogCluster | KafkaCluster)
        found[name] = peer
    return found


def failover(session: Session) -> Generator[Round]:
    """Kill the leader of a partition; measure the time until a later record is acknowledged."""
    names = ("kafka-cluster", "plog-cluster", "plog-cluster-default")
    number = 0
    while True:
        number += 1
        round_: dict[str, Any] = {}
        for name, cluster in _clusters(session, names).items():
            round_[name] = _fail_over(cluster, f"failover-{number}")
            session.results.say("cluster-failover", name, "", round_[name])
        yield round_


def _fail_over(cluster: AnyCluster, topic: str) -> dict[str, float]:
    _create(cluster, topic, 1)
    with _paced_producer(cluster, topic) as acknowledged:
        _until(lambda: acknowledged, "acknowledged record")
        leader = _leader(cluster, topic)
        killed_s = time.monotonic()
        cluster.kill_broker(leader)
        # Only records that were sent afterward: acknowledgements may still be under way.
        _until(lambda: max(acknowledged) > killed_s, "record after the kill")
        after_s = time.monotonic() - killed_s
    cluster.start_broker(leader)
    _until(lambda: len(_partition(cluster, topic).isrs) == len(NUMBERS), "complete ISR")
    return {"until_acknowledged_s": round(after_s, 3)}


@contextmanager
def _paced_producer(cluster: AnyCluster, topic: str) -> Iterator[list[float]]:
    """Produce 200 records/s; yield the times at which the acknowledged ones were sent."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    acknowledged: list[float] = []
    is_done = threading.Event()

    def produce() -> None:
        while not is_done.is_set():
            sent_s = time.monotonic()

            def delivered(error: KafkaError | None, _: object, sent_s: float = sent_s) -> None:
                if error is None:
                    acknowledged.append(sent_s)

            producer.produce(topic, b"x" * 200, on_delivery=delivered)
            producer.poll(_POLL_S)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield acknowledged
    finally:
        is_done.set()
        thread.join()
        producer.flush(_TIMEOUT_S)


def controller_move(session: Session) -> Generator[Round]:
    """Remove ``/controller``; measure the time until the next controller creates a topic.

    It does this only after it has loaded all 2,000 partitions and has sent them to the brokers.
    """
    cluster = session.start_new("plog-cluster", session.folder / "controller-move")
    assert isinstance(cluster, PlogCluster)
    znodes = KazooClient(hosts=cluster.zookeeper_connect)
    znodes.start()
    try:
        for number in range(1 if session.quick else _TOPICS):
            _create(cluster, f"topic-{number}", _PARTITIONS)
        number = 0
        while True:
            number += 1
            began_s = time.monotonic()
            znodes.delete("/controller")
            _until(lambda number=number: _can_create(cluster, f"new-{number}"), "controller")
            figures = {"served_s": round(time.monotonic() - began_s, 3)}
            session.results.say("cluster-controller", "plog-cluster", "", figures)
            yield {"plog-cluster": figures}
    finally:
        znodes.stop()
        znodes.close()
        cluster.stop()


def idle(session: Session) -> Generator[Round]:
    """Measure the memory of new clusters with a hundred partitions."""
    number = 0
    while True:
        number += 1
        round_: dict[str, Any] = {}
        for name in ("kafka-cluster", "plog-cluster"):
            try:
                cluster = session.start_new(name, session.folder / f"idle-{name}-{number}")
            except Missing:
                continue
            assert isinstance(cluster, PlogCluster | KafkaCluster)
            try:
                _create(cluster, "idle", _IDLE_PARTITIONS)
                time.sleep(_SETTLE_S)
                rss_mb = Meter(*cluster.broker_pids).memory()["broker_rss_mb"]
                round_[name] = {"rss_mb": round(rss_mb, 1)}
            finally:
                cluster.stop()
            session.results.say("cluster-idle", name, "", round_[name])
        yield round_


# -- the clusters ----------------------------------------------------------------------------------


def _admin(cluster: AnyCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})


def _create(cluster: AnyCluster, topic: str, partitions: int) -> None:
    # Kept, because the futures of a client that is garbage fail.
    admin = _admin(cluster)
    [created] = admin.create_topics([NewTopic(topic, partitions, 3)]).values()
    try:
        created.result(_TIMEOUT_S)
    except KafkaException as error:
        raise StepFailed(f"cannot create topic {topic}: {error}") from error
    _until(lambda: _has_leaders(cluster, topic, partitions), f"leaders of {topic}")


def _has_leaders(cluster: AnyCluster, topic: str, partitions: int) -> bool:
    found = _admin(cluster).list_topics(topic, _TIMEOUT_S).topics[topic].partitions
    return len(found) == partitions and all(
        each.leader >= 0 and len(each.isrs) == len(NUMBERS) for each in found.values()
    )


def _can_create(cluster: AnyCluster, topic: str) -> bool:
    admin = _admin(cluster)
    [created] = admin.create_topics([NewTopic(topic, 1, 3)]).values()
    try:
        created.result(_TIMEOUT_S)
    except KafkaException:  # There is no controller, or this broker does not know it yet.
        return False
    return True


def _partition(cluster: AnyCluster, topic: str) -> Any:
    return _admin(cluster).list_topics(topic, _TIMEOUT_S).topics[topic].partitions[0]


def _leader(cluster: AnyCluster, topic: str) -> int:
    leader: int = _partition(cluster, topic).leader
    return leader


def _until(condition: Any, what: str) -> None:
    give_up_s = time.monotonic() + _TIMEOUT_S
    while not condition():
        if time.monotonic() > give_up_s:
            raise StepFailed(f"no {what} within {_TIMEOUT_S:g} s")
        time.sleep(_POLL_S)
