"""The fetch loops: sessions with a real broker, top-level errors and backoff."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from plog.client.network.connection import Connection
from plog.client.network.metadata import Broker
from plog.errors import ErrorCode, UnsupportedVersion
from plog.records.control import ControlType
from plog.types import TopicPartition
from plog.wire.messages.fetch import (
    AbortedTransaction,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
)
from plog.wire.messages.list_offsets import ListOffsetsRequest
from plog.wire.schema import ApiMessage, WireError
from plogd.metadata.cache import PartitionState
from tests.helpers.client.consumer_site import ConsumerSite
from tests.unit.client.consumer.test_aborted_transactions import data as transactional
from tests.unit.client.consumer.test_aborted_transactions import marker


def fetches(site: ConsumerSite) -> list[FetchRequest]:
    return [x for x in site.sim.requests if isinstance(x, FetchRequest)]


def answering(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[[FetchResponse], FetchResponse]
) -> None:
    """Replace every fetch response by the result of `answer` for the broker's response."""
    ask = Connection.ask

    async def asked(self: Connection, request: ApiMessage, response: Any, **how: Any) -> Any:
        received = await ask(self, request, response, **how)
        return answer(received) if isinstance(received, FetchResponse) else received

    monkeypatch.setattr(Connection, "ask", asked)


def test_session_names_only_changes() -> None:
    site = ConsumerSite(fetch_max_wait_ms=100)
    site.core.assign(site.create("t", 3))
    site.nothing_for(1_000)
    first, second, third, *_ = fetches(site)
    assert (first.session_epoch, len(first.topics[0].partitions)) == (0, 3)
    assert (second.session_epoch, second.topics) == (1, [])
    assert third.session_id == second.session_id != 0
    site.produce("t", b"a", partition=1)
    site.take(1)
    site.sim.advance(50)
    [named] = fetches(site)[-1].topics[0].partitions
    assert (named.partition, named.fetch_offset) == (1, 1)


def test_application_runs_before_next_fetch() -> None:
    site = ConsumerSite(fetch_max_wait_ms=100)
    site.core.assign(site.create("t"))
    site.nothing_for(50)
    asked_by_then: list[int] = []
    received = site.core.on_data

    async def wait_one_turn() -> None:
        await site.sim.sleep(0)
        asked_by_then.append(len(fetches(site)))

    def on_data() -> None:
        site.sim.spawn(wait_one_turn(), "an application on the same loop")
        received()

    site.core.on_data = on_data
    before = len(fetches(site))
    site.produce("t", b"a")
    assert site.values(1) == [b"a"]
    assert asked_by_then == [before]
    site.sim.advance(50)
    assert len(fetches(site)) == before + 1


def test_paused_partition_leaves_session_and_returns() -> None:
    site = ConsumerSite(fetch_max_wait_ms=100)
    partitions = site.create("t", 2)
    site.core.assign(partitions)
    site.nothing_for(1_000)
    site.core.pause([partitions[0]])
    site.nothing_for(150)
    [forgotten] = fetches(site)[-1].forgotten_topics_data or fetches(site)[-2].forgotten_topics_data
    assert forgotten.partitions == [0]
    site.core.resume([partitions[0]])
    site.produce("t", b"a")
    assert site.values(1) == [b"a"]


def test_dropped_session_is_reopened() -> None:
    site = ConsumerSite(fetch_max_wait_ms=100)
    site.core.assign(site.create("t"))
    site.nothing_for(500)
    before = fetches(site)[-1].session_id
    site.sim.broker.broker.fetch_sessions._sessions.clear()
    site.produce("t", b"a")
    assert site.values(1) == [b"a"]
    site.nothing_for(500)
    assert fetches(site)[-1].session_id not in (0, before)


def test_refused_fetch_is_retried_with_backoff(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = True

    def answer(received: FetchResponse) -> FetchResponse:
        if refused:
            received.error_code, received.responses = ErrorCode.UNKNOWN_SERVER_ERROR, []
        return received

    answering(monkeypatch, answer)
    site = ConsumerSite(fetch_max_wait_ms=1)
    site.core.assign(site.create("t"))
    site.produce("t", b"a")
    site.nothing_for(10_000)
    assert 10 <= len(fetches(site)) <= 25
    refused = False
    assert site.values(1) == [b"a"]


def test_leader_that_the_response_names_is_asked_without_new_metadata(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """KIP-951."""
    refusals = [True]

    def answer(received: FetchResponse) -> FetchResponse:
        for topic in received.responses:
            for one in topic.partitions:
                if one.records and refusals and refusals.pop():
                    one.error_code, one.records = ErrorCode.NOT_LEADER_OR_FOLLOWER, None
                    one.current_leader = LeaderIdAndEpoch(leader_id=broker, leader_epoch=1)
                    partition.make_leader(
                        PartitionState(
                            partition=0,
                            leader=broker,
                            leader_epoch=1,
                            replicas=(broker,),
                            isr=(broker,),
                            partition_epoch=1,
                        )
                    )
        return received

    answering(monkeypatch, answer)
    site = ConsumerSite(fetch_max_wait_ms=100, retry_backoff_ms=5_000, retry_backoff_max_ms=5_000)
    site.core.assign(site.create("t"))
    site.nothing_for(500)
    [broker] = site.cluster.metadata.brokers
    partition = site.sim.broker.broker.replica_manager.topics.partitions["t", 0]
    site.sim.requests.clear()
    site.produce("t", b"a")
    site.sim.advance(300)
    assert [record.value for record in site.core.take(1)] == [b"a"]
    assert refusals == []
    names = [type(request).__name__ for request in site.sim.requests]
    assert "MetadataRequest" not in names


def test_throttled_consumer_delays_its_next_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(received: FetchResponse) -> FetchResponse:
        received.throttle_time_ms = 1_000
        return received

    answering(monkeypatch, answer)
    site = ConsumerSite(fetch_max_wait_ms=1)
    site.core.assign(site.create("t"))
    site.nothing_for(10_000)
    assert 9 <= len(fetches(site)) <= 11
    assert site.core.metrics()["fetch-throttle-time-max"] == 1_000


def test_malformed_response_is_reported_and_next_fetch_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = [WireError("nonsense")]

    def answer(received: FetchResponse) -> FetchResponse:
        if wrong:
            raise wrong.pop()
        return received

    answering(monkeypatch, answer)
    site = ConsumerSite()
    site.core.assign(site.create("t"))
    site.produce("t", b"a")
    assert isinstance(site.error(), WireError)
    assert site.values(1) == [b"a"]
    assert [x.session_epoch for x in fetches(site)[:2]] == [0, 0]


def test_unexpected_error_is_reported_and_loop_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: list[Exception] = [ZeroDivisionError(), UnsupportedVersion("too old")]

    def answer(received: FetchResponse) -> FetchResponse:
        if wrong:
            raise wrong.pop(0)
        return received

    answering(monkeypatch, answer)
    site = ConsumerSite()
    site.core.assign(site.create("t"))
    site.produce("t", b"a")
    assert isinstance(site.error(), ZeroDivisionError)
    assert isinstance(site.error(), UnsupportedVersion)
    assert site.values(1) == [b"a"]


def test_preferred_replica_is_read_without_waiting_for_metadata(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = ConsumerSite()
    [partition] = site.create("t")
    site.core.assign([partition])
    site.produce("t", b"a")
    received = iter([7])

    def answer(response: FetchResponse) -> FetchResponse:
        for topic in response.responses:
            topic.partitions[0].preferred_read_replica = next(received, -1)
        return response

    answering(monkeypatch, answer)
    assert site.values(1) == [b"a"]
    began_s = site.sim.now_s()
    site.produce("t", b"b")
    assert site.values(1) == [b"b"]  # There is no broker 7, so the leader serves the fetch.
    assert site.sim.now_s() - began_s < 5


def test_unreachable_follower_is_replaced_by_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Even if the follower is still in the metadata, fetches return to the leader."""
    site = ConsumerSite()
    [partition] = site.create("t")
    site.core.assign([partition])
    site.nothing_for(1_000)
    metadata = site.cluster.metadata
    far = Broker(id=7, host="192.0.2.7", port=9092)
    site.cluster.metadata = dataclasses.replace(metadata, brokers={**metadata.brokers, 7: far})
    site.cluster._place(7, far.host, far.port)
    monkeypatch.setattr(site.cluster, "request_update", lambda: None)
    state = site.core.positions.states[partition]
    state.replica, state.replica_until_s = 7, site.sim.now_s() + 300
    site.core.fetch_more()
    site.nothing_for(1_000)
    site.produce("t", b"a")
    assert site.values(1) == [b"a"]
    assert state.node_at(site.sim.now_s()) == state.leader


def test_wrong_leader_epoch_is_corrected() -> None:
    """A real broker returns FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH."""
    for wrong in (7, 0):
        site = ConsumerSite(metadata_max_age_ms=2_000)
        [partition] = site.create("t")
        site.core.assign([partition])
        site.sim.restart()
        site.nothing_for(1_000)
        site.core.positions.states[partition].leader_epoch = wrong
        site.produce("t", b"a")
        assert site.values(1) == [b"a"]


def test_busy_partition_does_not_starve_others() -> None:
    site = ConsumerSite(max_partition_fetch_bytes=5_000, fetch_max_bytes=6_000)
    partitions = site.create("t", 3)
    for number in range(3):
        for _ in range(30):
            site.produce("t", bytes(1_000), partition=number)
    site.core.assign(partitions)
    first = [x.partition for x in site.take(40)]
    assert {first.count(number) for number in range(3)} <= set(range(8, 20))


def test_many_partitions_are_read() -> None:
    site = ConsumerSite()
    partitions = site.create("t", 60)
    for partition in partitions:
        site.produce("t", b"%d" % partition.partition, partition=partition.partition)
    site.core.assign(partitions)
    assert sorted(int(x.value) for x in site.take(60)) == list(range(60))


def test_close_ends_session_at_broker() -> None:
    site = ConsumerSite()
    site.core.assign([TopicPartition("t", 0)])
    site.create("t")
    site.nothing_for(2_000)
    assert len(site.sim.broker.broker.fetch_sessions) == 1
    site.sim.run(site.core.close())
    site.sim.advance(1_000)
    assert len(site.sim.broker.broker.fetch_sessions) == 0


def test_read_committed_returns_no_aborted_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log is handmade, because this test has no transactional producer."""
    log = [
        transactional(0, 7, count=2),
        transactional(2, 8),
        marker(3, 7, ControlType.ABORT),
        marker(4, 8, ControlType.COMMIT),
    ]

    def answer(received: FetchResponse) -> FetchResponse:
        for topic in received.responses:
            for one in topic.partitions:
                one.error_code, one.high_watermark, one.last_stable_offset = 0, 6, 5
                if one.records is not None and not changed:
                    changed.append(True)
                    one.records = b"".join(log)
                    one.aborted_transactions = [AbortedTransaction(producer_id=7, first_offset=0)]
                else:
                    one.records = b""
        return received

    changed: list[bool] = []
    answering(monkeypatch, answer)
    site = ConsumerSite(isolation_level="read_committed")
    [partition] = site.create("t")
    site.core.assign([partition])
    assert [x.offset for x in site.take(1)] == [2]
    site.nothing_for(2_000)
    assert site.core.positions.position(partition) == 5
    assert site.core.lag(partition) == 0
    assert {x.isolation_level for x in fetches(site)} == {1}
    lookups = [x for x in site.sim.requests if isinstance(x, ListOffsetsRequest)]
    assert {x.isolation_level for x in lookups} == {1}
