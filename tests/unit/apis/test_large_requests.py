"""The bound on the elements of large requests in progress."""

from __future__ import annotations

from typing import Any

import pytest

from plog.wire.messages.describe_groups import DescribeGroupsRequest
from plog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from plogd.apis import large_requests
from plogd.fair_queue import SLICE
from tests.helpers.sim.sim_broker import SimBroker, create_topic


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


def fetch_request(partitions: list[int]) -> FetchRequest:
    topic = FetchTopic(topic="t", partitions=[FetchPartition(partition=n) for n in partitions])
    return FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=[topic])


ONE_REPEATED = [0] * 1_000
ONE_AND_MISSING_ONES = list(range(1_000))


def test_waiting_fetch_of_many_partitions_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_requests, "MAX_ELEMENTS", 1_000)
    broker = SimBroker().start()
    create_topic(broker, "t")
    waiting = [broker.begin(fetch_request(ONE_REPEATED), 12) for _ in range(3)]
    broker.settle()
    assert not any(one.is_done for one in waiting)
    assert broker.dispatch.large_requests.elements == 0
    assert len(broker.ask(groups_request(2_500), 5).groups) == 2_500


@pytest.mark.parametrize("partitions", [ONE_REPEATED, ONE_AND_MISSING_ONES])
def test_large_fetch_does_not_wait_for_data_if_waiting_ones_reach_the_limit(
    monkeypatch: pytest.MonkeyPatch, partitions: list[int]
) -> None:
    monkeypatch.setattr(large_requests, "MAX_WAITING_ELEMENTS", 2_100)
    broker = SimBroker().start()
    create_topic(broker, "t")
    fetches = [broker.begin(fetch_request(partitions), 12) for _ in range(4)]
    broker.settle()
    assert [one.is_done for one in fetches] == [False, False, True, True]
    small = broker.begin(fetch_request([0]), 12)
    fetches[0].cancel()
    fetches.append(broker.begin(fetch_request(partitions), 12))
    broker.settle()
    assert not fetches[4].is_done
    assert not small.is_done
    assert broker.produce("t", b"a").error_code == 0
    broker.settle()
    for ended in (fetches[1], fetches[4], small):
        topics = ended.response().responses
        assert topics[0].partitions[0].records
    assert broker.dispatch.large_requests.waiting_elements == 0
    assert broker.dispatch.large_requests.elements == 0
    assert broker.bugs == []


def test_large_fetches_whose_wait_ends_are_read_within_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(large_requests, "MAX_ELEMENTS", 1_500)
    monkeypatch.setattr(large_requests, "_FEW_ELEMENTS", 100)
    broker = SimBroker().start()
    create_topic(broker, "t")
    fetches = [broker.begin(fetch_request(ONE_AND_MISSING_ONES), 12) for _ in range(6)]
    broker.settle()
    assert not any(one.is_done for one in fetches)
    assert broker.dispatch.large_requests.elements == 0
    reader = broker.broker.replica_manager._fetch_reader
    read_wide, reading, most = reader._read_wide, 0, 0

    async def counted(*arguments: Any) -> Any:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        try:
            return await read_wide(*arguments)
        finally:
            reading -= 1

    monkeypatch.setattr(reader, "_read_wide", counted)
    assert broker.produce("t", b"a").error_code == 0
    assert all(one.is_done for one in fetches)
    assert most == 1
    assert broker.dispatch.large_requests.waiting_elements == 0
    assert broker.dispatch.large_requests.elements == 0
    assert broker.bugs == []
