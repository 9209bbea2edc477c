"""Produce and Fetch over and under their quotas: requests and responses as frames."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.fetch import FetchRequest
from plogd.connection_context import ConnectionContext
from tests.helpers.sim.sim_broker import (
    SimBroker,
    connection,
    create_topic,
    fetch_request,
    produce_request,
)
from tests.unit.apis.test_client_quotas import Entity, alter, entry

CLIENT: Entity = {"client-id": "test"}
MB = b"x" * 1_000_000


def make(entity: Entity | None = None, **quotas: float) -> SimBroker:
    broker = SimBroker().start()
    create_topic(broker, "t")
    if quotas:
        assert alter(broker, entry(entity or CLIENT, **quotas)) == [0]
    return broker


def produce(broker: SimBroker, value: bytes = MB, **options: Any) -> Any:
    acks = options.pop("acks", -1)
    return broker.ask(produce_request("t", value, acks=acks), 9, **options)


def fetch(broker: SimBroker, offset: int = 0, **fields: Any) -> Any:
    return broker.ask(fetch_request("t", offset, **fields), 11)


def records(answer: Any) -> bytes:
    return b"".join(bytes(x.records) for topic in answer.responses for x in topic.partitions)


def muted(broker: SimBroker) -> int:
    """Return and reset the connection's mute time, as the request queue does."""
    mute_ms, broker.connection.mute_ms = broker.connection.mute_ms, 0
    return mute_ms


# -- produce --------------------------------------------------------------------------------------


def test_nothing_is_throttled_without_a_quota() -> None:
    broker = make()
    assert produce(broker).throttle_time_ms == 0
    assert fetch(broker).throttle_time_ms == 0
    assert muted(broker) == 0


def test_producer_over_its_quota_is_appended_and_throttled() -> None:
    broker = make(producer_byte_rate=10_000.0)
    answer = produce(broker)
    [partition] = answer.responses[0].partition_responses
    assert (partition.error_code, partition.base_offset) == (0, 0)
    # A megabyte in a window of ten seconds is ten times the quota.
    assert 90_000 <= answer.throttle_time_ms < 91_000
    assert muted(broker) == answer.throttle_time_ms
    assert broker.log("t").log_end_offset == 1


def test_whole_request_counts_when_nothing_is_appended() -> None:
    broker = make(producer_byte_rate=10_000.0)
    answer = broker.ask(produce_request("unknown", MB), 9)
    assert answer.responses[0].partition_responses[0].error_code != 0
    assert answer.throttle_time_ms >= 90_000


def test_acks_0_gets_no_response_and_is_muted() -> None:
    broker = make(producer_byte_rate=10_000.0)
    assert produce(broker, acks=0) is None
    assert muted(broker) >= 90_000


def test_other_clients_are_not_throttled() -> None:
    broker = make(producer_byte_rate=10_000.0)
    assert produce(broker).throttle_time_ms > 0
    assert produce(broker, client_id="other").throttle_time_ms == 0
    assert produce(broker, client_id=None).throttle_time_ms == 0


@pytest.mark.parametrize(
    "entity", [{"user": "ANONYMOUS"}, {"user": None}, {"user": None, "client-id": None}]
)
def test_unauthenticated_client_is_user_anonymous(entity: Entity) -> None:
    broker = make(entity, producer_byte_rate=10_000.0)
    assert produce(broker).throttle_time_ms > 0


def test_user_is_the_principal_of_the_connection() -> None:
    broker = make({"user": "alice"}, producer_byte_rate=10_000.0)
    alice: ConnectionContext = connection()
    alice.principal = "User:alice"
    assert produce(broker).throttle_time_ms == 0
    assert produce(broker, connection=alice).throttle_time_ms > 0
    assert (broker.connection.mute_ms, alice.mute_ms > 0) == (0, True)


def test_next_request_fits_after_the_throttle_time() -> None:
    broker = make(producer_byte_rate=10_000.0)
    broker.ports.advance(produce(broker).throttle_time_ms)
    assert produce(broker, b"small").throttle_time_ms == 0


def test_removed_quota_does_not_apply() -> None:
    broker = make(producer_byte_rate=10_000.0)
    alter(broker, entry(CLIENT, producer_byte_rate=None))
    assert produce(broker).throttle_time_ms == 0


# -- fetch ----------------------------------------------------------------------------------------


def filled(rate: float) -> SimBroker:
    """Return a broker with a quota and a topic of ten batches of a hundred kilobytes."""
    broker = make(consumer_byte_rate=rate)
    for _ in range(10):
        produce(broker, MB[:100_000])
    return broker


def test_consumer_within_its_quota_gets_all_records() -> None:
    answer = fetch(filled(1e9), partition_max_bytes=10_000_000)
    assert len(records(answer)) > 1_000_000
    assert answer.throttle_time_ms == 0


def test_consumer_over_its_quota_gets_no_records_and_is_throttled() -> None:
    broker = filled(20_000.0)
    assert len(records(fetch(broker, partition_max_bytes=150_000))) > 100_000
    answer = fetch(broker, 1, partition_max_bytes=150_000)
    assert (answer.error_code, answer.responses) == (0, [])
    assert answer.throttle_time_ms > 0
    assert muted(broker) == answer.throttle_time_ms
    broker.ports.advance(answer.throttle_time_ms + 11_000)
    assert len(records(fetch(broker, 1, partition_max_bytes=150_000))) > 100_000


def test_fetch_reads_no_more_than_the_quota_allows() -> None:
    answer = fetch(filled(30_000.0), partition_max_bytes=10_000_000)
    assert 200_000 < len(records(answer)) <= 300_000
    assert answer.throttle_time_ms == 0


def test_batch_too_large_for_its_quota_is_returned() -> None:
    """Otherwise the consumer could never make progress."""
    broker = filled(100.0)
    answer = fetch(broker)
    assert len(records(answer)) > 100_000
    assert answer.throttle_time_ms > 900_000
    assert fetch(broker, 1).responses == []
    broker.ports.advance(answer.throttle_time_ms)
    assert len(records(fetch(broker, 1))) > 100_000


def test_empty_response_is_never_throttled() -> None:
    broker = filled(100.0)
    assert fetch(broker).throttle_time_ms > 0
    assert fetch(broker, 10).throttle_time_ms == 0


def test_consumer_that_waited_for_records_is_throttled() -> None:
    broker = filled(20_000.0)
    fetch(broker, partition_max_bytes=150_000)
    muted(broker)
    waiting = broker.begin(fetch_request("t", 10, max_wait_ms=500), 11)
    broker.settle()
    assert not waiting.is_done
    produce(broker, MB[:150_000])
    answer = waiting.response()
    assert answer.responses == []
    assert muted(broker) == answer.throttle_time_ms > 0


def session_fetch(broker: SimBroker, session_id: int, epoch: int, **fields: Any) -> Any:
    full = fetch_request("t", **fields) if fields or not epoch else FetchRequest(min_bytes=1)
    full.session_id, full.session_epoch = session_id, epoch
    return broker.ask(full, 11)


def test_throttled_fetch_leaves_its_session_unchanged() -> None:
    broker = filled(20_000.0)
    opened = session_fetch(broker, 0, 0, partition_max_bytes=150_000)
    assert opened.session_id
    again = session_fetch(broker, opened.session_id, 1)
    assert (again.session_id, again.responses) == (opened.session_id, [])
    assert again.throttle_time_ms > 0
    broker.ports.advance(again.throttle_time_ms + 11_000)
    after = session_fetch(broker, opened.session_id, 2)
    assert after.error_code == 0
    assert len(records(after)) > 100_000


def test_throttled_first_fetch_opens_no_session() -> None:
    broker = filled(20_000.0)
    fetch(broker, partition_max_bytes=150_000)
    throttled = session_fetch(broker, 0, 0, partition_max_bytes=150_000)
    assert (throttled.session_id, throttled.error_code) == (0, 0)
    assert len(broker.broker.fetch_sessions) == 0


def test_throttled_response_closes_its_files() -> None:
    broker = filled(20_000.0)
    fetch(broker, partition_max_bytes=150_000)
    handler = broker.begin(fetch_request("t", 1), 11)
    assert all(isinstance(part, bytes) for part in handler.parts())
    assert broker.bugs == []


def test_session_error_is_reported_when_throttled() -> None:
    broker = filled(20_000.0)
    opened = session_fetch(broker, 0, 0, partition_max_bytes=150_000)
    ahead = fetch_request("t", 10, max_wait_ms=500)
    ahead.session_id, ahead.session_epoch = opened.session_id, 1
    parked = broker.begin(ahead, 11)
    session_fetch(broker, opened.session_id, 2)
    produce(broker, MB[:150_000])
    assert parked.response().error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
