"""What goes to the broker and when, and what faults do to it: a real broker on virtual time."""

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


def test_a_request_holds_no_more_than_max_request_size() -> None:
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
def test_no_more_requests_are_in_flight_than_allowed(most: int) -> None:
    site = ready(max_in_flight_requests_per_connection=most, batch_size=100, linger_ms=0)
    seen = []
    site.sim.on_request = lambda request: seen.append(site.core.metrics()["requests-in-flight"])
    site.sent(*[b"x" * 60] * 20)
    site.flush()
    assert max(seen) == most - 1  # Each is seen before it is counted.
    assert site.values()[1:] == [b"x" * 60] * 20


def test_what_comes_while_the_broker_is_busy_goes_when_it_has_answered() -> None:
    site = ready(max_in_flight_requests_per_connection=1, linger_ms=0)
    more = [b"b"]

    def send_more(request: object) -> None:
        if more and isinstance(request, ProduceRequest):
            assert site.core.metrics()["requests-in-flight"] == 0  # It is counted a moment later.
            site.sim.spawn(later(more.pop()), "a record that comes meanwhile")

    async def later(value: bytes) -> None:
        await site.sim.sleep(0)
        assert site.core.metrics()["requests-in-flight"] == 1
        assert site.core.send(TOPIC, value) is not None

    site.sim.on_request = send_more
    site.sent(b"a")
    site.sim.advance(100)
    assert len(site.produce_requests()) == 2
    assert site.values()[1:] == [b"a", b"b"]


def test_what_comes_after_all_was_answered_goes_at_once() -> None:
    site = ready(max_in_flight_requests_per_connection=1, linger_ms=0)
    for value in (b"a", b"b"):
        site.sent(value)
        site.sim.advance(100)
    assert len(site.produce_requests()) == 2


def test_acks_zero_waits_for_nothing() -> None:
    site = ready(acks="0")
    [handle] = site.sent(b"v")
    site.flush()
    assert handle.metadata().offset == -1
    site.sim.advance(1_000)
    assert site.values() == [b"first", b"v"]
    assert {request.acks for request in site.produce_requests()} == {0}


def test_without_idempotence_there_are_no_numbers() -> None:
    site = ready(acks="1", linger_ms=0)
    site.sent(b"v")
    site.flush()
    assert sequences(site) == [(-1, -1)]
    assert {request.acks for request in site.produce_requests()} == {1}
    assert not [x for x in site.sim.requests if isinstance(x, InitProducerIdRequest)]


def test_a_broker_that_throttles_is_left_alone() -> None:
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
def test_what_lingers_behind_a_full_batch_goes_when_it_is_due(acks: str) -> None:
    site = ready(acks=acks, batch_size=200, linger_ms=100)
    site.sent(b"x" * 120, b"y" * 120)
    site.sim.advance(90)
    assert len(site.produce_requests()) == 1
    site.sim.advance(20)
    assert len(site.produce_requests()) == 2


# -- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["drop", "lose"])
def test_a_lost_connection_loses_and_doubles_nothing(fault: str) -> None:
    site = ready(batch_size=100, linger_ms=0)
    left = faults(site, None, fault, None, fault)
    values = [b"%02d" % number * 30 for number in range(20)]
    handles = site.sent(*values)
    site.flush()
    assert left == []
    assert site.values()[1:] == values
    assert [x.metadata().offset for x in handles] == list(range(1, 21))
    assert site.core.metrics()["record-retry-total"] > 0


def test_a_broker_that_restarts_loses_and_doubles_nothing() -> None:
    site = ready(batch_size=100, linger_ms=0)
    values = [b"%02d" % number * 30 for number in range(20)]
    handles = site.sent(*values)
    site.sim.call_later(0.002, site.sim.restart)
    site.flush()
    assert site.values()[1:] == values
    assert all(handle.error() is None for handle in handles)


def test_a_broker_that_does_not_answer_is_asked_again_after_request_timeout() -> None:
    site = ready(request_timeout_ms=1_000)
    site.sim.deaf = True
    [handle] = site.sent(b"v")
    site.sim.advance(900)
    site.sim.deaf = False
    site.sim.advance(1_000)
    assert handle.metadata().offset == 1


def test_a_broker_that_stays_away_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    site = ready()
    site.sim.refuses = True
    site.sim.drop_all()
    site.sent(b"v")
    site.sim.advance(10_000)
    told = [x for x in caplog.messages if x.startswith("broker 1: cannot connect")]
    assert len(told) == 1


def test_tries_are_further_and_further_apart() -> None:
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


def test_retries_bounds_the_tries() -> None:
    site = ready(retries=2)
    codes(site, *[ErrorCode.NOT_ENOUGH_REPLICAS] * 3)
    [failing] = site.sent(b"v")
    site.flush()
    assert isinstance(failing.error(), NotEnoughReplicas)
    assert len(site.produce_requests()) == 3
    [after] = site.sent(b"w")
    site.flush()
    assert after.metadata().offset == 1


def test_one_partitions_trouble_holds_up_no_other() -> None:
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


def test_metadata_is_asked_for_where_the_leader_is_another() -> None:
    site = ready()
    codes(site, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    [handle] = site.sent(b"v")
    site.flush()
    assert handle.metadata().offset == 1
    names = [type(request).__name__ for request in site.sim.requests]
    assert "MetadataRequest" in names


def test_records_wait_for_a_partition_that_has_no_leader_and_others_do_not() -> None:
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


def test_an_answer_without_a_partition_is_none_for_it() -> None:
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


def test_a_topic_that_is_deleted_fails_its_records_and_no_others() -> None:
    site = ready(delivery_timeout_ms=4_000, request_timeout_ms=1_000, linger_ms=0)
    codes(site, *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 100)
    [handle] = site.sent(b"v")
    site.flush()
    assert isinstance(handle.error(), DeliveryTimedOut)


def test_what_is_tried_again_is_the_same_batch() -> None:
    site = ready()
    codes(site, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    site.sent(b"v")
    site.flush()
    first, second, third = (bytes(data.records or b"") for data in sent_data(site))
    assert first == second == third


# -- an idempotent producer -----------------------------------------------------------------------


def test_a_duplicate_is_a_success_whose_offset_is_not_known() -> None:
    site = ready()
    codes(site, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    [handle] = site.sent(b"v")
    site.flush()
    assert handle.metadata().offset == -1


def test_a_failed_batch_costs_an_epoch_and_those_behind_it_still_arrive() -> None:
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
def test_a_producer_the_broker_lost_track_of_begins_anew(code: ErrorCode) -> None:
    site = ready()
    codes(site, code, log_start_offset=0)
    [handle] = site.sent(b"v")
    site.flush()
    assert handle.metadata().offset == 1
    before, after = sequences(site)
    assert before == (0, 1)
    assert after == ((0, 0) if code == ErrorCode.INVALID_PRODUCER_EPOCH else (1, 0))


def test_an_unknown_producer_of_a_partition_that_moved_is_only_sent_again() -> None:
    site = ready()
    codes(site, ErrorCode.UNKNOWN_PRODUCER_ID, log_start_offset=-1)
    site.sent(b"v")
    site.flush()
    assert sequences(site) == [(0, 1), (0, 1)]


def test_what_may_have_been_written_is_never_sent_under_other_numbers() -> None:
    site = ready()
    codes(site, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    [handle] = site.sent(b"v")
    site.flush()
    assert isinstance(handle.error(), OutOfOrderSequenceNumber)
    assert "whether the record was written is not known" in str(handle.error())
    assert sequences(site) == [(0, 1), (0, 1)]
    [after] = site.sent(b"w")
    site.flush()
    assert after.error() is None
    assert sequences(site)[-1] == (1, 0)


def test_a_broker_that_was_stopped_cleanly_forgets_all_but_the_last_batch() -> None:
    """The others were written, and are told to have been, though not where."""
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


def test_a_producer_id_that_nobody_may_have_fails_what_waits_and_no_more() -> None:
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


def test_a_producer_id_that_nobody_may_have_fails_nothing_that_needs_none() -> None:
    site = ready(partitions=2, retry_backoff_ms=5_000, retry_backoff_max_ms=5_000)
    site.sent(b"first", partition=1)
    site.flush()
    left = {
        0: [ErrorCode.INVALID_PRODUCER_EPOCH],  # There is a newer one with its id.
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


def test_a_partition_goes_on_behind_a_batch_that_failed_while_it_waited() -> None:
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


# -- brokers that are slow ------------------------------------------------------------------------


def test_partitions_of_a_slow_broker_get_no_records_without_a_key() -> None:
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
