"""`Cluster` against a complete broker in virtual time."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest

from plog.client.errors import ClosedError, ConnectionFailed
from plog.client.network.cluster import Cluster
from plog.client.settings import ClientSettings
from plog.errors import (
    KafkaError,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from plog.types import TopicPartition
from plog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from plog.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from plog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from plog.wire.messages.metadata import MetadataRequest
from plog.wire.messages.produce import NodeEndpoint
from plog.wire.schema import WireError
from tests.helpers.client.client_on_sim_network import HOST, PORT, SimNetwork
from tests.helpers.sim.sim_broker import create_topic


@pytest.fixture
def sim() -> SimNetwork:
    return SimNetwork()


def make_cluster(sim: SimNetwork, **settings: Any) -> Cluster:
    made = ClientSettings(bootstrap_servers=sim.bootstrap_servers)
    return Cluster(sim, dataclasses.replace(made, **settings))


def test_refresh_returns_brokers_and_topics(sim: SimNetwork) -> None:
    create_topic(sim.broker, "page-views", partitions=3)
    metadata = sim.run(make_cluster(sim).refresh(["page-views"]))
    assert metadata.partition_count("page-views") == 3
    assert metadata.leader_of(TopicPartition("page-views", 2)) in metadata.brokers
    assert metadata.leader_of(TopicPartition("page-views", 3)) is None
    assert metadata.controller_id in metadata.brokers
    assert metadata.cluster_id


def test_request_uses_the_highest_common_version(sim: SimNetwork) -> None:
    cluster = make_cluster(sim)
    answer = sim.run(cluster.ask_any(DescribeClusterRequest(), DescribeClusterResponse))
    assert answer.error_code == 0
    assert answer.cluster_id


def test_request_is_retried_after_a_broken_connection(sim: SimNetwork) -> None:
    cluster = make_cluster(sim)
    sim.run(cluster.refresh(()))
    faults = ["lose", "drop", None]
    sim.on_request = lambda request: (
        faults.pop(0) if isinstance(request, MetadataRequest) and faults else None
    )
    sim.run(cluster.refresh(()))
    assert faults == []


def test_requests_are_retried_until_the_deadline(sim: SimNetwork) -> None:
    sim.refuses = True
    cluster = make_cluster(sim, default_api_timeout_ms=5_000)
    before_s = sim.now_s()
    with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:9092.*refused.*tried for 5 s"):
        sim.run(cluster.refresh(()))
    assert 5 <= sim.now_s() - before_s < 7


def test_reconnect_backoff_grows(sim: SimNetwork) -> None:
    sim.refuses = True
    tries: list[float] = []
    connect = sim.connect

    async def counted(*arguments: Any, **options: Any) -> Any:
        tries.append(sim.now_s())
        return await connect(*arguments, **options)

    sim.connect = counted  # type: ignore[method-assign]
    with pytest.raises(ConnectionFailed):
        sim.run(make_cluster(sim, default_api_timeout_ms=10_000).refresh(()))
    gaps = [after - before for before, after in itertools.pairwise(tries)]
    assert gaps[0] < 0.3
    assert max(gaps) < 2.5
    assert 8 <= len(tries) <= 20


def test_topic_is_returned_once_it_has_leaders(sim: SimNetwork) -> None:
    cluster = make_cluster(sim)
    sim.call_later(2, lambda: sim.create_soon("late"))
    topic = sim.run(cluster.topic("late", deadline=cluster.deadline(10)))
    assert topic.has_leaders


def test_missing_topic_is_named_in_the_error(sim: SimNetwork) -> None:
    cluster = make_cluster(sim)
    with pytest.raises(UnknownTopicOrPartition, match="topic nowhere"):
        sim.run(cluster.topic("nowhere", deadline=cluster.deadline(1)))


def test_wanted_topics_are_refreshed_automatically(sim: SimNetwork) -> None:
    create_topic(sim.broker, "page-views")
    cluster = make_cluster(sim)
    seen: list[int | None] = []
    cluster.on_update.append(lambda metadata: seen.append(metadata.partition_count("page-views")))
    cluster.want_topics(["page-views"])
    sim.run_until(lambda: 1 in seen)


def test_metadata_is_refreshed_after_its_maximum_age(sim: SimNetwork) -> None:
    create_topic(sim.broker, "page-views")
    cluster = make_cluster(sim, metadata_max_age_ms=30_000)
    cluster.want_topics(["page-views"])
    updates: list[float] = []
    cluster.on_update.append(lambda _: updates.append(sim.now_s()))
    sim.advance(100_000)
    assert 3 <= len(updates) <= 5


def test_metadata_refresh_continues_after_any_error(sim: SimNetwork) -> None:
    create_topic(sim.broker, "page-views")
    cluster = make_cluster(sim, metadata_max_age_ms=1_000)
    cluster.want_topics(["page-views"])
    sim.advance(500)
    wrong: list[Exception] = [WireError("malformed"), ZeroDivisionError("a listener's bug")]

    def fail(_: object) -> None:
        if wrong:
            raise wrong.pop()

    cluster.on_update.append(fail)
    sim.advance(10_000)
    assert not wrong
    updates: list[object] = []
    cluster.on_update.append(updates.append)
    sim.advance(5_000)
    assert updates


def test_topic_that_is_not_kept_fresh_is_fetched_again(sim: SimNetwork) -> None:
    create_topic(sim.broker, "page-views")
    cluster = make_cluster(sim)
    assert len(sim.run(cluster.topic("page-views")).partitions) == 1
    grown = CreatePartitionsTopic(name="page-views", count=3, assignments=None)
    request = CreatePartitionsRequest(topics=[grown], timeout_ms=1_000)
    [result] = sim.broker.ask(request, 3).results
    assert result.error_code == 0
    assert len(sim.run(cluster.topic("page-views")).partitions) == 3


def test_group_coordinator_is_looked_up_and_cached(sim: SimNetwork) -> None:
    cluster = make_cluster(sim)
    node = sim.run(cluster.coordinator("billing"))
    asked = len(sim.requests)
    assert sim.run(cluster.coordinator("billing")) == node
    assert len(sim.requests) == asked
    cluster.forget_coordinator("billing")
    sim.run(cluster.coordinator("billing"))
    assert len(sim.requests) > asked


def test_the_controller_creates_topics(sim: SimNetwork) -> None:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="made", num_partitions=1, replication_factor=1)]
    )
    cluster = make_cluster(sim)
    answer = sim.run(cluster.ask_controller(request, CreateTopicsResponse))
    assert answer.topics[0].error_code == 0


def test_requests_succeed_after_a_broker_restart(sim: SimNetwork) -> None:
    create_topic(sim.broker, "page-views")
    cluster = make_cluster(sim)
    sim.run(cluster.refresh(["page-views"]))
    sim.restart()
    assert sim.run(cluster.refresh(["page-views"])).partition_count("page-views") == 1


def test_concurrent_calls_share_a_connection(sim: SimNetwork) -> None:
    cluster = make_cluster(sim)
    [node] = sim.run(cluster.refresh(())).brokers
    opened = len(sim.channels)

    async def both() -> list[Any]:
        return await sim.gather([cluster.connection(node), cluster.connection(node)])

    first, second = sim.run(both())
    assert first is second
    assert len(sim.channels) == opened + 1


def test_idle_connection_is_closed(sim: SimNetwork) -> None:
    create_topic(sim.broker, "page-views")
    cluster = make_cluster(sim, connections_max_idle_ms=20_000, metadata_max_age_ms=50_000)
    [node] = sim.run(cluster.refresh(())).brokers
    sim.run(cluster.connection(node))
    cluster.want_topics(["page-views"])
    sim.advance(120_000)
    assert not sim.channels[1].is_open
    assert len(sim.channels) >= 3


def test_idle_connection_call_counts_as_use(sim: SimNetwork) -> None:
    create_topic(sim.broker, "page-views")
    cluster = make_cluster(sim, connections_max_idle_ms=20_000, metadata_max_age_ms=50_000)
    [node] = sim.run(cluster.refresh(())).brokers
    connection = sim.run(cluster.connection(node))
    cluster.want_topics(["page-views"])
    for _ in range(12):
        sim.advance(10_000)
        assert cluster.idle_connection(node) is connection


def test_unneeded_topics_are_not_fetched(sim: SimNetwork) -> None:
    create_topic(sim.broker, "page-views")
    create_topic(sim.broker, "clicks")
    cluster = make_cluster(sim, metadata_max_age_ms=50_000)
    cluster.want_topics(["page-views", "clicks"])
    sim.advance(1_000)
    cluster.forget_topics(["clicks", "no such"])
    sim.requests.clear()
    sim.advance(60_000)
    asked = [request for request in sim.requests if isinstance(request, MetadataRequest)]
    assert [[topic.name for topic in request.topics or ()] for request in asked] == [["page-views"]]


def test_leader_that_a_response_names_is_connected_to_without_new_metadata(
    sim: SimNetwork,
) -> None:
    """KIP-951."""
    create_topic(sim.broker, "t")
    partition = TopicPartition("t", 0)
    cluster = make_cluster(sim)
    sim.run(cluster.refresh(["t"]))
    updates: list[int | None] = []
    cluster.on_update.append(lambda metadata: updates.append(metadata.leader_of(partition)))
    sim.requests.clear()
    # The double has one broker, which has any id.
    endpoint = NodeEndpoint(node_id=77, host=HOST, port=PORT)
    assert cluster.learn_leaders({partition: (77, 1)}, [endpoint]) == {partition}
    assert (cluster.leader_of(partition), updates) == (77, [77])
    assert cluster.idle_connection(77) is None
    assert sim.run(cluster.connection(77)).is_open
    assert not any(isinstance(request, MetadataRequest) for request in sim.requests)
    # It is known already.
    assert cluster.learn_leaders({partition: (77, 1)}, [endpoint]) == frozenset()
    assert updates == [77]


def test_unknown_broker_is_an_error(sim: SimNetwork) -> None:
    with pytest.raises(KafkaError, match="broker 77 is not in the cluster"):
        sim.run(make_cluster(sim).connection(77))


def test_request_to_silent_broker_times_out(sim: SimNetwork) -> None:
    cluster = make_cluster(sim, request_timeout_ms=1_000, default_api_timeout_ms=3_000)
    [node] = sim.run(cluster.refresh(())).brokers
    connection = sim.run(cluster.connection(node))
    sim.deaf = True
    with pytest.raises(RequestTimedOut, match="in time"):
        sim.run(cluster.ask_node(node, DescribeClusterRequest(), DescribeClusterResponse))
    assert not connection.is_open


def test_closed_cluster_raises_closed_error(sim: SimNetwork) -> None:
    cluster = make_cluster(sim)
    sim.run(cluster.refresh(()))
    sim.run(cluster.close())
    with pytest.raises(ClosedError, match="closed"):
        sim.run(cluster.refresh(()))


def test_close_ends_a_coordinator_lookup(sim: SimNetwork) -> None:
    cluster = make_cluster(sim)
    sim.run(cluster.refresh(()))
    sim.refuses = True
    sim.drop_all()
    sim.call_later(1, lambda: sim.spawn(cluster.close(), "closing"))
    with pytest.raises(ClosedError):
        sim.run(cluster.coordinator("g"))
    assert sim.now_s() < 5


def test_trouble_holds_the_last_error_while_no_broker_responds(sim: SimNetwork) -> None:
    cluster = make_cluster(sim)
    sim.run(cluster.refresh(()))
    assert cluster.trouble is None
    sim.refuses = True
    sim.drop_all()
    cluster.want_topics(["page-views"])
    sim.run_until(lambda: "refused" in str(cluster.trouble))
    sim.refuses = False
    sim.run_until(lambda: cluster.trouble is None)


def test_silent_port_error_suggests_tls(sim: SimNetwork) -> None:
    sim.on_request = lambda _: "drop"
    with pytest.raises(ConnectionFailed, match="expects TLS, set security"):
        sim.run(make_cluster(sim, default_api_timeout_ms=500).refresh())


def test_unreachable_broker_is_logged_once(
    sim: SimNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = make_cluster(sim, default_api_timeout_ms=5_000)
    for _ in range(2):  # A warning is logged each time all brokers go away, not at each attempt.
        sim.refuses = True
        with pytest.raises(ConnectionFailed):
            sim.run(cluster.refresh(()))
        [warning] = [record.message for record in caplog.records]
        assert "127.0.0.1:9092" in warning
        assert warning.endswith("; retrying")
        caplog.clear()
        sim.refuses = False
        sim.run(cluster.refresh(()))
