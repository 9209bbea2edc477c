"""Sender against a real broker in virtual time: times of requests, and faults."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from plog.client.errors import DeliveryTimedOut
from plog.errors import (
    ClusterAuthorizationFailed,
    ErrorCode,
    NotEnoughReplicas,
    OutOfOrderSequenceNumber,
)
from plog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from plog.wire.messages.metadata import MetadataRequest, MetadataResponse
from plog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
)
from plog.wire.schema import ApiMessage
from tests.unit.client.producer.producer_site import TOPIC, ProducerSite
from tests.unit.client.producer.sender_site import (
    answer_with,
    change_answers,
    codes,
    faults,
    ready,
    sent_data,
    sequences,
)

# -- requests -------------------------------------------------------------------------------------


def test_batches_of_several_partitions_share_a_request() -> None:
    site = ready(partitions=4)
    for partition in range(4):
        site.sent(b"v", partition=partition)
    site.flush()
    [request] = site.produce_requests()
    assert [x.index for x in request.topic_data[0].partition_data] == [0, 1, 2, 3]


def test_request_is_limited_to_max_request_size() -> None:
    site = ready(partitions=4, max_request_size=2_500, batch_size=1_000)
    for partition in range(4):
        site.sent(b"x" * 900, partition=partition)
    site.flush()
    sizes = [
        sum(len(data.records or b"") for data in request.topic_data[0].partition_data)
        for request in site.produce_requests()
    ]
    assert len(sizes) == 2
    assert max(sizes) <= 2_500


@pytest.mark.parametrize("most", [1, 3, 5])
def test_requests_in_flight_are_limited(most: int) -> None:
    site = ready(max_in_flight_requests_per_connection=most, batch_size=100, linger_ms=0)
    seen = []
    site.sim.on_request = lambda request: seen.append(site.core.metrics()["requests-in-flight"])
    site.sent(*[b"x" * 60] * 20)
    site.flush()
    assert max(seen) == most - 1  # Each is seen before it is counted.
    assert site.values()[1:] == [b"x" * 60] * 20


def test_records_sent_to_busy_broker_leave_after_its_response() -> None:
    site = ready(max_in_flight_requests_per_connection=1, linger_ms=0)
    more = [b"b"]

    def send_more(request: object) -> None:
        if more and isinstance(request, ProduceRequest):
            assert site.core.metrics()["requests-in-flight"] == 0  # It is counted a moment later.
            site.sim.spawn(later(more.pop()), "a record sent meanwhile")

    async def later(value: bytes) -> None:
        await site.sim.sleep(0)
        assert site.core.metrics()["requests-in-flight"] == 1
        assert site.core.send(TOPIC, value) is not None

    site.sim.on_request = send_more
    site.sent(b"a")
    site.sim.advance(100)
    assert len(site.produce_requests()) == 2
    assert site.values()[1:] == [b"a", b"b"]


def test_record_leaves_immediately_when_no_request_is_in_flight() -> None:
    site = ready(max_in_flight_requests_per_connection=1, linger_ms=0)
    for value in (b"a", b"b"):
        site.sent(value)
        site.sim.advance(100)
    assert len(site.produce_requests()) == 2


def test_acks_zero_does_not_wait_for_responses() -> None:
    site = ready(acks="0")
    [handle] = site.sent(b"v")
    site.flush()
    assert handle.metadata().offset == -1
    site.sim.advance(1_000)
    assert site.values() == [b"first", b"v"]
    assert {request.acks for request in site.produce_requests()} == {0}


def test_batches_have_no_sequence_without_idempotence() -> None:
    site = ready(acks="1", linger_ms=0)
    site.sent(b"v")
    site.flush()
    assert sequences(site) == [(-1, -1)]
    assert {request.acks for request in site.produce_requests()} == {1}
    assert not [x for x in site.sim.requests if isinstance(x, InitProducerIdRequest)]


def test_sender_obeys_throttle_time() -> None:
    site = ready()
    change_answers(site, ProduceRequest, lambda x: setattr(x, "throttle_time_ms", 3_000))
    site.sent(b"a")
    site.flush()
    before_s = site.sim.now_s()
    site.sent(b"b")
    site.flush()
    assert 3 <= site.sim.now_s() - before_s < 3.2
    assert site.core.metrics()["produce-throttle-time-max"] == 3_000


@pytest.mark.parametrize("acks", ["0", "all"])
def test_lingering_batch_after_full_one_leaves_when_due(acks: str) -> None:
    site = ready(acks=acks, batch_size=200, linger_ms=100)
    site.sent(b"x" * 120, b"y" * 120)
    site.sim.advance(90)
    assert len(site.produce_requests()) == 1
    site.sim.advance(20)
    assert len(site.produce_requests()) == 2


# -- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["drop", "lose"])
def test_lost_connection_loses_and_duplicates_nothing(fault: str) -> None:
    site = ready(batch_size=100, linger_ms=0)
    left = faults(site, None, fault, None, fault)
    values = [b"%02d" % number * 30 for number in range(20)]
    handles = site.sent(*values)
    site.flush()
    assert left == []
    assert site.values()[1:] == values
    assert [x.metadata().offset for x in handles] == list(range(1, 21))
    assert site.core.metrics()["record-retry-total"] > 0


def test_broker_restart_loses_and_duplicates_nothing() -> None:
    site = ready(batch_size=100, linger_ms=0)
    values = [b"%02d" % number * 30 for number in range(20)]
    handles = site.sent(*values)
    site.sim.call_later(0.002, site.sim.restart)
    site.flush()
    assert site.values()[1:] == values
    assert all(handle.error() is None for handle in handles)


def test_request_is_retried_after_request_timeout() -> None:
    site = ready(request_timeout_ms=1_000)
    site.sim.deaf = True
    [handle] = site.sent(b"v")
    site.sim.advance(900)
    site.sim.deaf = False
    site.sim.advance(1_000)
    assert handle.metadata().offset == 1


def test_unreachable_broker_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    site = ready()
    site.sim.refuses = True
    site.sim.drop_all()
    site.sent(b"v")
    site.sim.advance(10_000)
    warnings = [x for x in caplog.messages if x.startswith("broker 1: cannot connect")]
    assert len(warnings) == 1


def test_retries_back_off_exponentially() -> None:
    site = ready(retry_backoff_ms=100, retry_backoff_max_ms=1_000)
    codes(site, *[ErrorCode.NOT_ENOUGH_REPLICAS] * 8)
    times: list[float] = []
    interfere = site.sim.interfere

    def timed(request: ApiMessage, ask: Callable[[], Awaitable[Any]]) -> Awaitable[Any]:
        if isinstance(request, ProduceRequest):
            times.append(site.sim.now_s())
        assert interfere is not None
        return interfere(request, ask)

    site.sim.interfere = timed
    site.sent(b"v")
    site.flush()
    waits = [later - sooner for sooner, later in itertools.pairwise(times)]
    assert len(waits) == 8
    for wait, expected in zip(waits, [0.1, 0.2, 0.4, 0.8, 1, 1, 1, 1], strict=True):
        assert expected * 0.8 <= wait <= expected * 1.2 + 0.02


def test_retries_setting_limits_attempts() -> None:
    site = ready(retries=2)
    codes(site, *[ErrorCode.NOT_ENOUGH_REPLICAS] * 3)
    [failing] = site.sent(b"v")
    site.flush()
    assert isinstance(failing.error(), NotEnoughReplicas)
    assert len(site.produce_requests()) == 3
    [after] = site.sent(b"w")
    site.flush()
    assert after.metadata().offset == 1


def test_failing_partition_does_not_delay_others() -> None:
    site = ready(partitions=2, retry_backoff_ms=10_000, retry_backoff_max_ms=10_000)
    answer_with(
        site,
        lambda data: (
            PartitionProduceResponse(
                index=0, error_code=ErrorCode.NOT_ENOUGH_REPLICAS, base_offset=-1
            )
            if data.index == 0
            else None
        ),
    )
    [stuck] = site.sent(b"v", partition=0)
    site.sim.advance(1_000)
    handles = site.sent(*[b"w"] * 10, partition=1)
    site.sim.advance(1_000)
    assert not stuck.done()
    assert all(handle.done() for handle in handles)


def test_metadata_is_requested_when_leader_has_changed() -> None:
    site = ready()
    codes(site, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    [handle] = site.sent(b"v")
    site.flush()
    assert handle.metadata().offset == 1
    names = [type(request).__name__ for request in site.sim.requests]
    assert "MetadataRequest" in names


def test_only_records_of_leaderless_partition_wait() -> None:
    site = ready(partitions=2, linger_ms=0)
    leaderless = [True]

    def take_away(response: MetadataResponse) -> None:
        for topic in response.topics:
            if leaderless:
                topic.partitions[0].leader_id = -1

    change_answers(site, MetadataRequest, take_away)
    site.cluster.request_update()
    site.sim.advance(1_000)
    [waiting] = site.sent(b"v", partition=0)
    [other] = site.sent(b"w", partition=1)
    [anywhere] = site.sent(b"x")
    site.sim.advance(3_000)
    assert not waiting.done()
    assert other.metadata().offset == 0
    assert anywhere.metadata().partition == 1
    leaderless.clear()
    site.flush()
    assert waiting.metadata().offset == 1


def test_batch_is_retried_when_response_lacks_its_partition() -> None:
    site = ready()
    answers = [True]
    answer_with(
        site,
        lambda data: (
            PartitionProduceResponse(index=9, error_code=0, base_offset=0)
            if answers and answers.pop()
            else None
        ),
    )
    [handle] = site.sent(b"v")
    site.flush()
    assert handle.metadata().offset == 1
    assert site.values() == [b"first", b"v"]


def test_deleted_topic_fails_only_its_records() -> None:
    site = ready(delivery_timeout_ms=4_000, request_timeout_ms=1_000, linger_ms=0)
    codes(site, *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 100)
    [handle] = site.sent(b"v")
    site.flush()
    assert isinstance(handle.error(), DeliveryTimedOut)


def test_retry_sends_the_same_batch() -> None:
    site = ready()
    codes(site, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    site.sent(b"v")
    site.flush()
    first, second, third = (bytes(data.records or b"") for data in sent_data(site))
    assert first == second == third


# -- an idempotent producer -----------------------------------------------------------------------


def test_duplicate_batch_succeeds_with_unknown_offset() -> None:
    site = ready()
    codes(site, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    [handle] = site.sent(b"v")
    site.flush()
    assert handle.metadata().offset == -1


def test_failed_batch_raises_epoch_and_later_batches_are_written() -> None:
    site = ready(batch_size=100, linger_ms=0)
    codes(site, ErrorCode.INVALID_RECORD)
    failing, *others = site.sent(*[b"x" * 60] * 4)
    site.flush()
    assert failing.error() is not None
    assert [x.metadata().offset for x in others] == [1, 2, 3]
    assert sequences(site)[-3:] == [(1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    ],
)
def test_sequence_restarts_when_broker_lost_producer_state(code: ErrorCode) -> None:
    site = ready()
    codes(site, code, log_start_offset=0)
    [handle] = site.sent(b"v")
    site.flush()
    assert handle.metadata().offset == 1
    before, after = sequences(site)
    assert before == (0, 1)
    assert after == ((0, 0) if code == ErrorCode.INVALID_PRODUCER_EPOCH else (1, 0))


def test_unknown_producer_after_move_is_only_retried() -> None:
    site = ready()
    codes(site, ErrorCode.UNKNOWN_PRODUCER_ID, log_start_offset=-1)
    site.sent(b"v")
    site.flush()
    assert sequences(site) == [(0, 1), (0, 1)]


def test_batch_in_doubt_is_never_renumbered() -> None:
    site = ready()
    codes(site, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    [handle] = site.sent(b"v")
    site.flush()
    assert isinstance(handle.error(), OutOfOrderSequenceNumber)
    assert "the record may have been written" in str(handle.error())
    assert sequences(site) == [(0, 1), (0, 1)]
    [after] = site.sent(b"w")
    site.flush()
    assert after.error() is None
    assert sequences(site)[-1] == (1, 0)


def test_clean_restart_of_broker_keeps_only_last_batch() -> None:
    """The others were written and succeed, but with unknown offsets."""
    site = ready(batch_size=100, linger_ms=0)
    values = [b"%02d" % number * 30 for number in range(4)]
    handles = site.sent(*values)
    faults(site, *["lose"] * 4)
    site.sim.run_until(lambda: len(site.values()) == 5)
    site.sim.refuses = True
    site.sim.drop_all()
    log = site.sim.broker.log(TOPIC)
    log.roll()
    site.sim.advance(1_000)
    site.sim.restart()
    site.sim.refuses = False
    site.flush()
    assert site.values()[1:] == values
    assert [handle.metadata().offset for handle in handles] == [-1, -1, -1, 4]


def test_refused_producer_id_fails_only_waiting_batches() -> None:
    site = ProducerSite()
    site.know()
    refusals = [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]

    def refuse(response: InitProducerIdResponse) -> None:
        if refusals:
            response.error_code = refusals.pop()

    change_answers(site, InitProducerIdRequest, refuse)
    [handle] = site.sent(b"v")
    site.flush()
    assert isinstance(handle.error(), ClusterAuthorizationFailed)
    [after] = site.sent(b"w")
    site.flush()
    assert after.metadata().offset == 0


def test_refused_producer_id_does_not_fail_batches_with_one() -> None:
    site = ready(partitions=2, retry_backoff_ms=5_000, retry_backoff_max_ms=5_000)
    site.sent(b"first", partition=1)
    site.flush()
    left = {
        0: [ErrorCode.INVALID_PRODUCER_EPOCH],  # A newer producer uses its id.
        1: [ErrorCode.NOT_ENOUGH_REPLICAS],
    }

    def refused(data: PartitionProduceData) -> PartitionProduceResponse | None:
        codes = left[data.index]
        if not codes:
            return None
        return PartitionProduceResponse(
            index=data.index, error_code=codes.pop(), base_offset=-1, log_start_offset=0
        )

    def forbid(response: InitProducerIdResponse) -> None:
        response.error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    answer_with(site, refused)
    produced = site.sim.interfere
    change_answers(site, InitProducerIdRequest, forbid)
    others = site.sim.interfere
    assert produced is not None and others is not None
    site.sim.interfere = lambda request, ask: (
        produced(request, ask) if isinstance(request, ProduceRequest) else others(request, ask)
    )
    [fenced] = site.sent(b"v", partition=0)
    [waiting] = site.sent(b"w", partition=1)
    site.flush()
    assert isinstance(fenced.error(), ClusterAuthorizationFailed)
    assert waiting.metadata().offset == 1


def test_partition_continues_after_queued_batch_failed() -> None:
    site = ready(retry_backoff_ms=60_000, retry_backoff_max_ms=60_000)
    codes(site, ErrorCode.REQUEST_TIMED_OUT)
    [waiting] = site.sent(b"v")
    site.sim.advance(1_000)
    topic = site.core._accumulator.topic(TOPIC)
    assert topic is not None
    site.core._sender._fail_waiting(topic.queues[0], ClusterAuthorizationFailed())
    assert isinstance(waiting.error(), ClusterAuthorizationFailed)
    [after] = site.sent(b"w")
    site.sim.advance(1_000)
    assert after.metadata().offset == 1
    assert sequences(site)[-1] == (1, 0)


# -- slow brokers ---------------------------------------------------------------------------------


def test_slow_brokers_get_no_records_without_key() -> None:
    site = ready(partitions=2, partitioner_availability_timeout_ms=500, linger_ms=0)
    site.sim.deaf = True
    site.sent(*[b"v"] * 20)
    for _ in range(6):
        site.sim.advance(10)
        site.sent(b"v")
    topic = site.core._accumulator.topic(TOPIC)
    assert topic is not None
    assert topic.available == (0, 1)
    site.sim.advance(600)
    assert topic.available == ()
    site.sim.deaf = False
    site.flush()
    assert topic.available == (0, 1)
