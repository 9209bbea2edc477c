"""The bound on the elements of large requests in progress."""

from __future__ import annotations

import pytest

from plog.wire.messages.describe_groups import DescribeGroupsRequest
from plog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from plogd.apis import large_requests
from plogd.fair_queue import SLICE
from tests.helpers.sim_broker import SimBroker, create_topic


def groups_request(count: int) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(groups=[f"group-{number}" for number in range(count)])


@pytest.mark.parametrize("cancelled", [0, 5])
def test_elements_of_large_requests_in_progress_stay_within_the_limit(
    monkeypatch: pytest.MonkeyPatch, cancelled: int
) -> None:
    monkeypatch.setattr(large_requests, "MAX_ELEMENTS", 10_000)
    broker = SimBroker().start()
    asked = [broker.begin(groups_request(8_000), 5) for _ in range(8)]
    most = 0
    while not all(one.is_done for one in asked):
        broker.ports.timers.run_next()
        most = max(most, broker.dispatch.large_requests.elements)
        if most > 10_000:
            asked[cancelled].cancel()
    assert 10_000 < most < 8_000 + 7 * (2_000 + SLICE)
    assert broker.dispatch.large_requests.elements == 0
    del asked[cancelled]
    assert [len(one.response().groups) for one in asked] == [8_000] * 7
    assert broker.bugs == []


def test_request_of_few_elements_does_not_wait_for_large_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(large_requests, "MAX_ELEMENTS", 3_000)
    broker = SimBroker().start()
    large = [broker.begin(groups_request(8_000), 5) for _ in range(3)]
    while broker.dispatch.large_requests.elements <= 3_000:
        broker.ports.timers.run_next()
    few = broker.begin(groups_request(1_000), 5)
    while not few.is_done:
        broker.ports.timers.run_next()
    assert not any(one.is_done for one in large)


def test_waiting_fetch_of_many_partitions_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_requests, "MAX_ELEMENTS", 3_000)
    broker = SimBroker().start()
    create_topic(broker, "t")
    partitions = [FetchPartition(partition=0, fetch_offset=0) for _ in range(3_000)]
    fetch = FetchRequest(
        max_wait_ms=60_000, min_bytes=1, topics=[FetchTopic(topic="t", partitions=partitions)]
    )
    waiting = [broker.begin(fetch, 12) for _ in range(3)]
    broker.settle()
    assert not any(one.is_done for one in waiting)
    assert broker.dispatch.large_requests.elements == 0
    assert len(broker.ask(groups_request(4_000), 5).groups) == 4_000
