"""The fast path of Fetch, whose responses are the same as those of the general path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.types import ZERO_UUID
from plog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from plogd.log.segment.file_records import FileRegion
from plogd.ports import Cancelled
from tests.helpers.sim.sim_broker import SimBroker, create_topic

VERSIONS = range(4, 19)
SESSION_VERSIONS = range(7, 19)
UNKNOWN_ID = b"\x07" * 16

Case = Callable[[SimBroker, int], list[bytes]]
"""Sends requests in a version, and returns the responses."""


def make() -> SimBroker:
    broker = SimBroker().start()
    create_topic(broker, "t", 2)
    return broker


def request(broker: SimBroker, version: int, offset: int = 0, **fields: Any) -> FetchRequest:
    state = broker.broker.cache.topic("t")
    assert state is not None
    wanted = FetchPartition(
        partition=fields.pop("partition", 0), fetch_offset=offset, partition_max_bytes=1 << 20
    )
    if version >= 9:
        wanted.current_leader_epoch = fields.pop("epoch", -1)
    if version >= 12:
        wanted.last_fetched_epoch = fields.pop("last_epoch", -1)
    topic = FetchTopic(topic="t", partitions=[wanted])
    if version >= 13:
        topic = FetchTopic(topic_id=state.topic_id, partitions=[wanted])
    limits: dict[str, Any] = {"max_bytes": 1 << 20, "min_bytes": 1}
    return FetchRequest(**(limits | fields), topics=[topic])


def unchanged(session_id: int, epoch: int, **fields: Any) -> FetchRequest:
    return FetchRequest(session_id=session_id, session_epoch=epoch, max_bytes=1 << 20, **fields)


def data_of(broker: SimBroker, message: FetchRequest, version: int) -> bytes:
    """Return the bytes of the response after the correlation id."""
    asked = broker.begin(message, version)
    broker.settle()
    data = b""
    for part in asked.parts():
        if isinstance(part, FileRegion):
            data += part.read()
            part.close()
        else:
            data += bytes(part)
    return data[8:]


def records(broker: SimBroker, version: int) -> list[bytes]:
    broker.produce("t", b"a", b"b")
    broker.produce("t", b"c")
    return [
        data_of(broker, request(broker, version, offset, isolation_level=level), version)
        for offset in (0, 1, 2, 3)
        for level in (0, 1)
    ]


def errors(broker: SimBroker, version: int) -> list[bytes]:
    messages = [
        request(broker, version, 9),
        request(broker, version, partition=7),
        request(broker, version, max_bytes=-1),
    ]
    if version >= 9:
        messages.append(request(broker, version, epoch=5))
    if version >= 12:
        messages.append(request(broker, version, last_epoch=5))
    nowhere = request(broker, version)
    nowhere.topics[0].topic, nowhere.topics[0].topic_id = "nowhere", UNKNOWN_ID
    messages.append(nowhere)
    return [data_of(broker, message, version) for message in messages]


def zstd(broker: SimBroker, version: int) -> list[bytes]:
    create_topic(broker, "z", 1, **{"compression.type": "zstd"})
    message = request(broker, version)
    message.topics[0].topic = "z"
    return [data_of(broker, message, version)]


def sessions(broker: SimBroker, version: int) -> list[bytes]:
    if version < 7:
        return []
    broker.produce("t", b"a")
    opening = request(broker, version, session_epoch=0)
    opening.topics[0].partitions += request(broker, version, partition=1).topics[0].partitions
    opened = broker.ask(opening, version)
    session_id = opened.session_id
    assert session_id != 0
    messages = [
        unchanged(session_id, 1),
        request(broker, version, 1, session_id=session_id, session_epoch=2),
        unchanged(session_id, 3),
        unchanged(session_id, 3),  # The epoch is repeated.
        unchanged(12345, 1),  # There is no such session.
    ]
    found = [data_of(broker, message, version) for message in messages]
    broker.produce("t", b"b")
    messages = [
        unchanged(session_id, 4),
        request(broker, version, 9, session_id=session_id, session_epoch=5),
        request(broker, version, session_id=session_id, session_epoch=-1),
        unchanged(session_id, 6),  # The previous request has closed the session.
    ]
    return found + [data_of(broker, message, version) for message in messages]


def long_poll(broker: SimBroker, version: int) -> list[bytes]:
    found = []
    for isolation_level in (0, 1):
        message = request(broker, version, max_wait_ms=500, isolation_level=isolation_level)
        asked = broker.begin(message, version)
        broker.settle()
        assert not asked.is_done
        broker.ports.advance(510)
        [part] = asked.parts()
        found.append(bytes(part)[8:])
    return found


def _empty(version: int, throttle_ms: int, session_id: int) -> bytes:
    return FetchResponse(throttle_time_ms=throttle_ms, session_id=session_id).encode(version)


@pytest.mark.parametrize("case", [records, errors, zstd, sessions, long_poll])
@pytest.mark.parametrize("version", VERSIONS)
def test_fast_path_sends_the_response_of_the_general_path(
    version: int, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = case(make(), version)
    monkeypatch.setattr("plogd.apis.dispatch.decode_single_fetch", lambda _: None)
    monkeypatch.setattr("plogd.apis.fetch._is_single", lambda *_: False)
    monkeypatch.setattr("plogd.apis.fetch.encode_empty_response", _empty)
    assert case(make(), version) == fast


@pytest.mark.parametrize("version", VERSIONS)
def test_usual_requests_take_the_fast_path(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = make()
    broker.produce("t", b"a")
    message = request(broker, version)
    session_id = 0
    if version >= 7:
        message.session_epoch = 0
        session_id = broker.ask(message, version).session_id
        message = unchanged(session_id, 1)
    # A request fails if it is decoded by the general code, or if its response is encoded by it.
    monkeypatch.setattr("plogd.apis.dispatch.decode_request_header", None)
    monkeypatch.setattr("plogd.apis.fetch.FetchResponse", None)
    assert data_of(broker, message, version)
    assert data_of(broker, request(broker, version, 1), version)
    assert not broker.bugs


@pytest.mark.parametrize("version", VERSIONS)
def test_fast_path_is_counted(version: int) -> None:
    broker = make()
    broker.produce("t", b"a")
    data_of(broker, request(broker, version), version)
    lines = broker.metrics.expose().decode()
    assert f'requests_total{{request="Fetch",version="{version}"}} 1' in lines
    assert 'totalfetchrequests_total{topic="t"} 1' in lines


@pytest.mark.parametrize("version", VERSIONS)
def test_bug_is_reported_and_answered(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = make()
    monkeypatch.setattr(broker.broker.replica_manager, "fetch_records", _raises)
    [topic] = broker.ask(request(broker, version), version).responses
    assert (topic.topic, topic.topic_id == ZERO_UUID) == (
        ("t", True) if version < 13 else ("", False)
    )
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert [type(error) for _, error in broker.bugs] == [ZeroDivisionError]


def _raises(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError


def test_disconnect_cancels_the_wait() -> None:
    broker = make()
    asked = broker.begin(request(broker, 11, max_wait_ms=500), 11)
    fetches = broker.broker.replica_manager.delayed_fetches
    assert len(fetches) == 1
    asked.cancel()
    assert len(fetches) == 0
    with pytest.raises(Cancelled):
        asked.parts()
