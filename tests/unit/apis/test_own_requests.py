"""Requests that a broker sends to itself."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import ErrorCode, RequestTimedOut
from plog.wire.api_keys import ApiKey
from plog.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from plog.wire.messages.metadata import MetadataRequest
from plogd.apis.api_table import HANDLERS, Row
from plogd.apis.error_responses import refuse_at_top_level
from plogd.apis.own_requests import OwnRequests
from plogd.ports import Later, failed
from tests.helpers.sim.sim_broker import SimBroker, create_topic
from tests.helpers.sim.sim_ports import outcome

REQUEST = ControlledShutdownRequest(broker_id=1)


def make(handle: Any, **settings: Any) -> tuple[SimBroker, OwnRequests]:
    """Return a broker, and its own requests, which `handle` handles."""
    refuse = refuse_at_top_level(ControlledShutdownResponse)
    row = Row(ApiKey.CONTROLLED_SHUTDOWN, 1, 3, handle, refuse, only_between_brokers=True)
    broker = SimBroker(**settings).start()
    return broker, OwnRequests(broker.broker, (*HANDLERS, row))


def test_handler_gets_the_request_as_another_broker_would_send_it() -> None:
    got = []

    def handle(request: object, context: Any, broker: object) -> ControlledShutdownResponse:
        got.append((request, context.version, context.client_id, context.connection.listener_name))
        return ControlledShutdownResponse()

    _, own = make(handle, node_id=4, inter_broker_listener_name="inside")
    assert outcome(own.ask(REQUEST, 3, 1000)) == ControlledShutdownResponse()
    assert got == [(REQUEST, 3, "broker-4", "INSIDE")]


def test_unexpected_error_is_reported_and_answered() -> None:
    def handle(*_: object) -> Any:
        raise RuntimeError("bug")

    broker, own = make(handle)
    answer: Any = outcome(own.ask(REQUEST, 3, 1000))
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    [(where, error)] = broker.bugs
    assert (where, str(error)) == ("ControlledShutdown from this broker itself", "bug")


def test_error_of_a_wait_is_answered() -> None:
    broker, own = make(lambda *_: failed(RequestTimedOut("late")))
    answer: Any = outcome(own.ask(REQUEST, 3, 1000))
    assert (answer.error_code, broker.bugs) == (ErrorCode.REQUEST_TIMED_OUT, [])


def test_late_response_is_a_timeout_and_the_work_goes_on() -> None:
    work: Later[Any] = Later()
    broker, own = make(lambda *_: work)
    asked = own.ask(REQUEST, 3, 1000)
    broker.ports.advance(999)
    assert not asked.done
    broker.ports.advance(1)
    with pytest.raises(RequestTimedOut, match="ControlledShutdown within 1000 ms"):
        outcome(asked)
    assert not work.done
    work.succeed(ControlledShutdownResponse())


def test_shared_response_is_not_encoded() -> None:
    broker, own = make(None)
    for number in range(40):
        create_topic(broker, f"t{number}")
    answer: Any = outcome(own.ask(MetadataRequest(topics=None), 12, 1000))
    assert len(list(answer.topics)) == 40


def test_versions_are_those_of_the_table() -> None:
    _, own = make(None)
    expected = {int(row.api_key): (row.first_version, row.last_version) for row in HANDLERS}
    assert own.versions == expected | {ApiKey.CONTROLLED_SHUTDOWN: (1, 3)}
