"""A rolling upgrade: brokers of which some support only the lowest version of each API.

For Fetch, this is the lowest version with which brokers replicate.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest

from plog.wire.api_keys import ApiKey
from plog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from plog.wire.messages.delete_topics import DeleteTopicsRequest
from plogd.apis import api_table
from plogd.apis.api_versions import Advertised, handle_api_versions
from plogd.apis.request_context import RequestContext
from plogd.broker import Broker
from tests.helpers.sim.zookeeper_cluster import SESSION_TIMEOUT_MS, ZooKeeperCluster

_ALL = frozenset({1, 2, 3})
_LOWEST_FETCH = 13


def limit_versions(monkeypatch: pytest.MonkeyPatch, old: Collection[int]) -> None:
    """Let only the lowest versions be used between brokers in `old` and all others."""

    def limited(
        request: ApiVersionsRequest,
        context: RequestContext,
        broker: Broker,
        advertised: Sequence[Advertised],
    ) -> ApiVersionsResponse:
        source = context.connection.client_address[1]
        if source in old or broker.config.node_id in old:
            advertised = [_in_lowest_version(one) for one in advertised]
        return handle_api_versions(request, context, broker, advertised)

    monkeypatch.setattr(api_table, "handle_api_versions", limited)


def _in_lowest_version(api: Advertised) -> Advertised:
    is_fetch = api.api_key == ApiKey.FETCH
    return api._replace(max_version=_LOWEST_FETCH if is_fetch else api.min_version)


@pytest.mark.parametrize("old", [{1}, {3}, {1, 2}, _ALL], ids=str)
def test_brokers_replicate_elect_and_hand_over_in_the_lowest_versions(
    monkeypatch: pytest.MonkeyPatch, old: Collection[int]
) -> None:
    limit_versions(monkeypatch, old)
    cluster = ZooKeeperCluster(3)
    cluster.create("t")
    assert cluster.produce("t", b"a") == 0
    assert cluster.commit("g", 1) == 0
    for number, node_id in enumerate(sorted(_ALL)):
        if number % 2:
            cluster.stop(node_id)
        else:
            cluster.kill(node_id)
            cluster.advance(2 * SESSION_TIMEOUT_MS)
        cluster.until(lambda: cluster.has_controller)
        assert cluster.leader("t") != node_id
        cluster.advance(1000)  # If the controller has stopped, the new leader waits for the next.
        assert cluster.produce("t", b"%d" % node_id) == 0
        assert cluster.committed("g") == 1
        cluster.start(node_id)
        cluster.until(lambda: set(cluster.state("t").isr) == _ALL)
    assert cluster.values("t") == [b"a", b"1", b"2", b"3"]
    ends = {cluster.replica(one, "t").log.log_end_offset for one in _ALL}
    assert ends == {4}


def test_topic_is_deleted_and_created_again_in_the_lowest_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit_versions(monkeypatch, {2})
    cluster = ZooKeeperCluster(3)
    for value in (b"a", b"b"):
        cluster.create("t", partitions=3)
        assert cluster.produce("t", value) == 0
        assert cluster.values("t") == [value]
        cluster.ask_controller(DeleteTopicsRequest(topic_names=["t"], timeout_ms=30_000), 5)
        cluster.until(lambda: not any(b.broker.cache.topic("t") for b in cluster.brokers.values()))
        cluster.until(lambda: not any(_has_logs(cluster, one) for one in _ALL))


def _has_logs(cluster: ZooKeeperCluster, node_id: int) -> bool:
    logs = cluster.brokers[node_id].broker.log_manager.logs
    return any(key.topic == "t" for key in logs)
