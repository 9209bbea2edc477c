"""The fast path of Produce, whose responses are the same as those of the general path."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.produce import ProduceRequest
from plogd.ports import Cancelled, Later
from tests.helpers.sim.sim_broker import SimBroker, create_topic, produce_request

VERSIONS = range(7, 14)
UNKNOWN_ID = b"\x07" * 16


def make(**config: Any) -> SimBroker:
    broker = SimBroker(**config).start()
    create_topic(broker, "t")
    return broker


def request(broker: SimBroker, *values: bytes, partition: int = 0) -> ProduceRequest:
    message = produce_request("t", *values)
    state = broker.broker.cache.topic("t")
    assert state is not None
    message.topic_data[0].topic_id = state.topic_id
    message.topic_data[0].partition_data[0].index = partition
    return message


def answer_of(broker: SimBroker, message: ProduceRequest, version: int) -> Any:
    [topic] = broker.ask(message, version).responses
    [partition] = topic.partition_responses
    return partition


@pytest.fixture
def short_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a request takes the general path."""
    monkeypatch.setattr("plogd.apis.produce._Produce.__init__", None)


@pytest.mark.usefixtures("short_only")
@pytest.mark.parametrize("version", VERSIONS)
def test_fast_path_handles_a_single_partition(version: int) -> None:
    broker = make()
    assert answer_of(broker, request(broker, b"a", b"b"), version).base_offset == 0
    assert answer_of(broker, request(broker, b"c"), version).base_offset == 2
    lines = broker.metrics.expose().decode()
    counted = f'requests_total{{request="Produce",version="{version}"}} 2'
    assert counted in lines
    assert 'messagesin_total{topic="t"} 3' in lines


@pytest.mark.usefixtures("short_only")
@pytest.mark.parametrize("version", VERSIONS)
def test_refusal_has_a_complete_response(version: int) -> None:
    broker = make()
    message = request(broker, b"a")
    damaged = bytearray(message.topic_data[0].partition_data[0].records)
    damaged[-1] ^= 1
    message.topic_data[0].partition_data[0].records = memoryview(damaged)
    response = answer_of(broker, message, version)
    assert (response.index, response.error_code) == (0, ErrorCode.CORRUPT_MESSAGE)
    assert ("checksum" in (response.error_message or "")) == (version >= 8)
    nowhere = answer_of(broker, request(broker, b"a", partition=9), version)
    assert (nowhere.index, nowhere.error_code) == (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.parametrize("version", VERSIONS)
def test_request_that_needs_more_checks_takes_the_general_path(version: int) -> None:
    broker = make()
    message = request(broker, b"a")
    message.topic_data[0].name = "__consumer_offsets"
    message.topic_data[0].topic_id = UNKNOWN_ID
    code = answer_of(broker, message, version).error_code
    expected = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.INVALID_TOPIC_EXCEPTION
    assert code == expected
    message = request(broker, b"a")
    message.acks = 7
    assert answer_of(broker, message, version).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    message.acks = 0
    assert broker.ask(message, version) is None
    assert broker.log("t").log_end_offset == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_bug_is_reported_and_answered(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = make()
    message = request(broker, b"a")
    for bug in (_raises, _fails_later):
        monkeypatch.setattr(broker.broker.replica_manager, "append_one", bug)
        assert answer_of(broker, message, version).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert [type(error) for _, error in broker.bugs] == [ZeroDivisionError] * 2


def _raises(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError


def _fails_later(*_: Any, **__: Any) -> Later[Any]:
    later: Later[Any] = Later()
    later.fail(ZeroDivisionError())
    return later


def test_disconnect_cancels_the_wait() -> None:
    broker = make()
    asked = broker.begin(request(broker, b"a"), 9)
    replica_manager = broker.broker.replica_manager
    assert replica_manager.waiting_produces == 1
    asked.cancel()
    assert replica_manager.waiting_produces == 0
    with pytest.raises(Cancelled):
        asked.parts()
    broker.settle()
    assert broker.log("t").log_end_offset == 1  # The append is kept.
