"""Three brokers in two racks: consumers read from the replica in their rack (KIP-392)."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Protocol

import confluent_kafka
import pytest
from kazoo.client import KazooClient

import plog
from plogd.config.replication_settings import RACK_AWARE_REPLICA_SELECTOR
from tests.cluster.clients import produce
from tests.cluster.three_brokers import IDS, Cluster, MakeBroker
from tests.helpers.eventually import TIMEOUT_S, eventually
from tests.helpers.zookeeper_server import free_ports

RACKS = {1: "a", 2: "b", 3: "b"}


class RackCluster(Cluster):
    """The brokers, with their racks and metrics."""

    def __init__(self, make_broker: MakeBroker, znodes: KazooClient) -> None:
        self.ports = dict(zip(IDS, free_ports(len(IDS)), strict=True))
        super().__init__(make_broker, znodes)

    def settings(self, one: int) -> dict[str, str]:
        """Return the settings for racks and for the metrics."""
        return {
            "broker_rack": RACKS[one],
            "replica_selector_class": RACK_AWARE_REPLICA_SELECTOR,
            "plog_http_port": str(self.ports[one]),
        }

    def page(self, one: int, path: str) -> tuple[int, str]:
        """Return the status and the text of a page of a broker."""
        url = f"http://127.0.0.1:{self.ports[one]}/{path}"
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def bytes_out(self, one: int, topic: str) -> int:
        """Return the number of bytes that a broker has sent to consumers of a topic."""
        line = rf'kafka_server_brokertopicmetrics_bytesout_total{{topic="{topic}"}} (\d+)'
        # The page is cached for a second.
        found = re.search(line, self.page(one, "metrics")[1])
        return 0 if found is None else int(found[1])

    def other_rack(self, topic: str) -> str:
        """Return the rack in which the leader is not."""
        return "b" if RACKS[self.leader(topic)] == "a" else "a"


class Reader(Protocol):
    """A consumer of partition 0, which begins at offset 0."""

    def read(self, count: int) -> list[bytes]:
        """Return the values of the next records."""
        ...

    def rewind(self) -> None:
        """Continue at offset 0."""
        ...

    def close(self) -> None:
        """Close the consumer."""
        ...


class ConfluentReader:
    """librdkafka's consumer."""

    def __init__(self, cluster: Cluster, topic: str, rack: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "client.rack": rack,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )
        self._start = confluent_kafka.TopicPartition(topic, 0, 0)
        self._consumer.assign([self._start])

    def read(self, count: int) -> list[bytes]:
        values: list[bytes] = []

        def has_all() -> bool:
            for message in self._consumer.consume(count - len(values), 0.1):
                error = message.error()
                assert error is None or error.retriable(), error
                if error is None:
                    values.append(message.value() or b"")
            return len(values) == count

        eventually(has_all, f"{count} records")
        return values

    def rewind(self) -> None:
        self._consumer.seek(self._start)

    def close(self) -> None:
        self._consumer.close()


class PlogReader:
    """plog's consumer."""

    def __init__(self, cluster: Cluster, topic: str, rack: str) -> None:
        self._consumer = plog.Consumer(
            bootstrap_servers=cluster.bootstrap_servers,
            client_rack=rack,
            auto_offset_reset="earliest",
        )
        self._partition = plog.TopicPartition(topic, 0)
        self._consumer.assign([self._partition])

    def read(self, count: int) -> list[bytes]:
        values: list[bytes] = []

        def has_all() -> bool:
            values.extend(
                record.value for record in self._consumer.consume(count - len(values), 0.1)
            )
            return len(values) == count

        eventually(has_all, f"{count} records")
        return values

    def rewind(self) -> None:
        self._consumer.seek(self._partition, 0)

    def close(self) -> None:
        self._consumer.close()


MakeReader = Callable[[Cluster, str, str], Reader]


@pytest.fixture(scope="module")
def cluster_type() -> type[Cluster]:
    return RackCluster


@pytest.fixture
def topic(cluster: RackCluster) -> str:
    """A topic with 1,000 records."""
    topic = cluster.new_topic()
    produce(cluster, topic, *(b"%d" % number for number in range(1000)))
    return topic


@pytest.fixture(params=[ConfluentReader, PlogReader])
def reader(request: pytest.FixtureRequest, cluster: RackCluster, topic: str) -> Iterator[Reader]:
    """A consumer in the rack in which the leader is not."""
    make: MakeReader = request.param
    made = make(cluster, topic, cluster.other_rack(topic))
    yield made
    made.close()


def test_consumer_reads_from_its_rack_until_the_follower_dies(
    cluster: RackCluster, topic: str, reader: Reader
) -> None:
    leader, rack = cluster.leader(topic), cluster.other_rack(topic)
    values = [b"%d" % number for number in range(1000)]
    assert reader.read(1000) == values
    reader.rewind()
    assert reader.read(1000) == values
    followers = [one for one in IDS if RACKS[one] == rack]

    def sent() -> dict[int, int]:
        return {one: cluster.bytes_out(one, topic) for one in IDS}

    eventually(lambda: sum(sent().values()) >= 2 * sum(map(len, values)), "the metrics")
    assert {one for one, count in sent().items() if count} <= set(followers)
    # New records arrive through the follower, too.
    produce(cluster, topic, b"new")
    assert reader.read(1) == [b"new"]
    assert cluster.bytes_out(leader, topic) == 0
    for one in followers:
        cluster.brokers[one].kill()
    produce(cluster, topic, b"newer")
    assert reader.read(1) == [b"newer"]
    eventually(lambda: cluster.bytes_out(leader, topic) > 0, "the leader serves the consumer")


def test_broker_that_was_restarted_is_in_sync_before_the_next_one_stops(
    cluster: RackCluster, topic: str
) -> None:
    for one in IDS:
        cluster.brokers[one].stop()
        cluster.brokers[one].start()
        eventually(lambda one=one: cluster.page(one, "ready?in-sync")[0] == 200, "in sync")
        assert cluster.isr(topic) == set(IDS)
        produce(cluster, topic, b"more")


def test_broker_without_its_leader_is_not_in_sync(cluster: RackCluster, topic: str) -> None:
    leader = cluster.leader(topic)
    followers = [one for one in IDS if one != leader]
    assert [cluster.page(one, "ready?in-sync")[0] for one in IDS] == [200, 200, 200]
    for one in followers:
        cluster.brokers[one].kill()
    eventually(lambda: cluster.isr(topic) == {leader}, "the leader is alone")
    produce(cluster, topic, b"more")
    assert cluster.page(leader, "ready?in-sync")[0] == 200
    for one in followers:
        cluster.brokers[one].start()
    seen = []
    for one in followers:
        eventually(
            lambda one=one: seen.append(cluster.page(one, "ready?in-sync")) or seen[-1][0] == 200,
            "in sync",
        )
    for status, text in seen:
        found = json.loads(text)
        assert (found["status"] == "ok") == (status == 200)
    assert cluster.isr(topic) == set(IDS)
