"""Shared responses: failed encodings, and clients that disconnect."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.wire.messages.metadata import MetadataRequest, MetadataResponse
from plogd.apis import metadata
from plogd.fair_queue import FairQueue
from tests.helpers.sim.sim_broker import Asked, SimBroker, create_topic


@pytest.fixture
def broker() -> SimBroker:
    broker = SimBroker().start()
    for number in range(40):
        create_topic(broker, f"t{number}", 8)
    return broker


def begin(broker: SimBroker) -> Asked:
    return broker.begin(MetadataRequest(topics=None), 9)


def codes(asked: list[Asked]) -> list[int]:
    return [next(iter(one.response().topics), _REFUSED).error_code for one in asked]


class _Refused:
    error_code = ErrorCode.UNKNOWN_SERVER_ERROR


_REFUSED: Any = _Refused()
"""The error response to a request for all topics has no topics."""


def broken(*_: object) -> Any:
    raise ZeroDivisionError


@pytest.mark.parametrize("step", ["make", "first turn", "first slice"])
def test_failed_encoding_fails_all_waiting_requests_and_is_retried(
    broker: SimBroker, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    with monkeypatch.context() as patch:
        if step == "make":
            patch.setattr(metadata, "_all_topics", broken)
        elif step == "first turn":
            patch.setattr(FairQueue, "turn", broken)
        else:
            patch.setattr(MetadataResponse, "encode_in_slices", broken)
        asked = [begin(broker) for _ in range(3)]
        broker.settle()
        assert all(one.is_done for one in asked)
        assert codes(asked) == [ErrorCode.UNKNOWN_SERVER_ERROR] * 3
    assert broker.dispatch.shared_responses._entries == {}
    assert broker.bugs
    again = begin(broker)
    broker.settle()
    assert codes([again]) == [0]


def test_encoding_stops_when_the_last_client_leaves(
    broker: SimBroker,
) -> None:
    entries = broker.dispatch.shared_responses._entries
    asked = [begin(broker) for _ in range(5)]
    for one in asked[:4]:
        one.cancel()
    [entry] = entries.values()
    assert len(entry.waiters) == 1
    asked[4].cancel()
    assert entries == {}
    assert broker.dispatch.memory.used_bytes == 0
    broker.settle()
    assert broker.bugs == []
    again = begin(broker)
    broker.settle()
    assert codes([again]) == [0]
