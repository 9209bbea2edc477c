"""TwistedChannel on a StringTransport and a clock that the test advances."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionRefusedError
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from plog.client.errors import ConnectionFailed
from plog.client.network.ports import Cancelled
from plog.client.network.twisted_channel import ChannelFactory, TwistedChannel
from plog.errors import RequestTimedOut
from plog.wire.header import decode_request_header, encode_response_header
from plog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from plog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from plog.wire.schema import WireError


class _Transport(StringTransport):
    """A transport with a socket's options that records how it was closed."""

    aborted = False

    def setTcpNoDelay(self, enabled: bool) -> None:
        assert enabled

    def setTcpKeepAlive(self, enabled: bool) -> None:
        assert enabled

    def getHandle(self) -> None:
        return None

    def abortConnection(self) -> None:
        self.aborted = True


class _Site:
    """A channel, the bytes it has sent, and the responses to them."""

    def __init__(self, transport: _Transport | None = None) -> None:
        self.clock = Clock()
        self.factory = ChannelFactory(self.clock, "broker:9092", client_id="me")
        self.channel: TwistedChannel = self.factory.buildProtocol(None)
        self.transport = transport or _Transport()
        self.channel.makeConnection(self.transport)

    def ask(self, timeout_s: float = 30, *, heartbeat: bool = False) -> list[Any]:
        """Send a request; return a list that will contain its outcome."""
        answer: Any
        if heartbeat:
            answer = self.channel.ask(HeartbeatRequest(), HeartbeatResponse, 0, timeout_s=timeout_s)
        else:
            answer = self.channel.ask(
                DescribeClusterRequest(), DescribeClusterResponse, 0, timeout_s=timeout_s
            )
        return outcome_of(answer)

    def send(self, timeout_s: float = 30) -> list[Any]:
        """Send a request without a response; return a list that will contain its outcome."""
        sent: Any = self.channel.send(DescribeClusterRequest(), 0, timeout_s=timeout_s)
        return outcome_of(sent)

    def answer(self, number: int, cluster_id: str = "abc") -> bytes:
        """Return a complete response frame for request `number`."""
        message = DescribeClusterResponse(cluster_id=cluster_id)
        body = encode_response_header(60, 0, number) + message.encode(0)
        return len(body).to_bytes(4, "big") + body

    def receive(self, data: bytes) -> None:
        """Deliver `data` as if the broker had sent it."""
        self.channel.dataReceived(data)


def outcome_of(deferred: Deferred[Any]) -> list[Any]:
    outcomes: list[Any] = []
    deferred.addBoth(lambda outcome: outcomes.append(getattr(outcome, "value", outcome)))
    return outcomes


@pytest.fixture
def site() -> _Site:
    return _Site()


def test_channel_is_open_after_connect(site: _Site) -> None:
    assert site.channel.is_open
    assert outcome_of(site.factory.opened) == [site.channel]


def test_ask_sends_the_request_before_it_returns(site: _Site) -> None:
    site.ask()
    sent = site.transport.value()
    header, _ = decode_request_header(sent[4:])
    assert int.from_bytes(sent[:4], "big") == len(sent) - 4
    assert (header.api_key, header.correlation_id, header.client_id) == (60, 1, "me")


def test_ask_writes_to_the_socket_before_it_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    monkeypatch.setattr(
        _Transport, "doWrite", lambda self: written.append(self.value()), raising=False
    )
    site = _Site()
    site.ask()
    assert written == [site.transport.value()] != [b""]


class _Socket(_Transport):
    """A transport whose socket accepts `room` bytes, or has lost the connection."""

    room: int | Exception = 1_000_000
    dataBuffer = b""

    def __init__(self) -> None:
        super().__init__()
        self.at_once: list[bytes] = []

    def writeSomeData(self, data: bytes) -> int | Exception:
        if isinstance(self.room, int):
            self.at_once.append(data[: self.room])
            return len(self.at_once[-1])
        return self.room

    def doWrite(self) -> None:
        self.dataBuffer = self.value()


def test_completely_written_request_needs_no_reactor_poll() -> None:
    transport = _Socket()
    site = _Site(transport)
    site.ask()
    assert len(transport.at_once[0]) > 4 and transport.value() == b""


@pytest.mark.parametrize("room", [0, 7, ConnectionError("lost")])
def test_partially_written_request_is_finished_by_the_reactor(room: int | Exception) -> None:
    transport = _Socket()
    transport.room = room
    site = _Site(transport)
    site.ask()
    whole = b"".join(transport.at_once) + transport.value()
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    transport.room, transport.at_once = 1_000_000, []
    waiting = transport.value()
    site.ask()  # It must not overtake the buffered bytes.
    assert transport.at_once == [] and transport.value().startswith(waiting)


def test_responses_are_matched_in_order(site: _Site) -> None:
    first, second = site.ask(), site.ask()
    assert site.channel.in_flight == 2
    site.receive(site.answer(1, "one") + site.answer(2, "two"))
    assert [answer[0].cluster_id for answer in (first, second)] == ["one", "two"]
    assert site.channel.in_flight == 0


@pytest.mark.parametrize("step", [1, 2, 3, 7, 11, 1000])
def test_frame_may_arrive_in_pieces(site: _Site, step: int) -> None:
    asked = [site.ask() for _ in range(3)]
    data = b"".join(site.answer(number, f"cluster {number}") for number in (1, 2, 3))
    for start in range(0, len(data), step):
        site.receive(data[start : start + step])
    assert [answer[0].cluster_id for answer in asked] == ["cluster 1", "cluster 2", "cluster 3"]


def test_missing_response_closes_the_connection(site: _Site) -> None:
    late, other = site.ask(timeout_s=5), site.ask(timeout_s=60)
    site.clock.advance(4.9)
    assert site.channel.is_open
    site.clock.advance(0.2)
    assert isinstance(late[0], RequestTimedOut)
    assert isinstance(other[0], ConnectionFailed)
    assert site.transport.aborted
    assert not site.clock.getDelayedCalls()


def test_short_timeout_applies_after_a_long_one(site: _Site) -> None:
    long, short = site.ask(timeout_s=60), site.ask(timeout_s=2)
    site.clock.pump([1, 1.1])
    assert isinstance(short[0], RequestTimedOut)
    assert isinstance(long[0], ConnectionFailed)


def test_timely_response_does_not_time_out_the_next_request(site: _Site) -> None:
    site.ask(timeout_s=5)
    site.receive(site.answer(1))
    site.clock.advance(4)
    second = site.ask(timeout_s=5)
    site.clock.advance(4)
    assert second == []
    assert site.channel.is_open


def test_broken_connection_fails_all_pending_requests(site: _Site) -> None:
    asked = [site.ask(), site.ask()]
    site.channel.connectionLost(Failure(ConnectionDone("closed")))
    assert all(isinstance(answer[0], ConnectionFailed) for answer in asked)
    assert "broker:9092 was lost" in str(asked[0][0])
    with pytest.raises(ConnectionFailed, match="closed"):
        site.ask()


def test_response_with_wrong_correlation_id_closes_the_connection(
    site: _Site, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not a WireError, which would reach the application: here a retry may succeed."""
    asked, waiting = site.ask(), site.ask()
    site.receive(site.answer(77) + site.answer(2))
    for outcome in (asked, waiting):
        assert isinstance(outcome[0], ConnectionFailed)
        assert "broker:9092 sent response 77 instead of 1" in str(outcome[0])
    assert site.transport.aborted
    assert "sent response 77" in caplog.text


def test_duplicate_response_is_not_taken_for_the_next(site: _Site) -> None:
    first, second = site.ask(), site.ask()
    site.receive(site.answer(1, "one") * 2 + site.answer(2, "two"))
    assert first[0].cluster_id == "one"
    assert isinstance(second[0], ConnectionFailed)


def test_unrequested_response_closes_the_connection(
    site: _Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.receive(site.answer(1))
    assert site.transport.aborted
    assert "broker:9092 sent a response without a request" in caplog.text


def test_malformed_response_closes_the_connection(site: _Site) -> None:
    asked, waiting = site.ask(), site.ask()
    site.receive(b"\0\0\0\x05" + b"\0\0\0\x01" + b"\0")
    assert isinstance(asked[0], WireError)
    assert isinstance(asked[0], ConnectionFailed)  # So the caller retries.
    assert isinstance(waiting[0], ConnectionFailed)
    assert site.transport.aborted


def test_invalid_response_size_suggests_a_wrong_port(site: _Site) -> None:
    asked = site.ask()
    site.receive(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert "check that this is a Kafka port" in str(asked[0])


def test_response_to_a_cancelled_request_is_dropped(site: _Site) -> None:
    answer: Any = site.channel.ask(
        DescribeClusterRequest(), DescribeClusterResponse, 0, timeout_s=9
    )
    cancelled = outcome_of(answer)
    answer.cancel()
    assert isinstance(cancelled[0], Cancelled)
    second = site.ask()
    site.receive(site.answer(1) + site.answer(2, "two"))
    assert second[0].cluster_id == "two"


def test_close_fails_all_pending_requests(site: _Site) -> None:
    asked = site.ask()
    site.channel.close()
    assert "was closed" in str(asked[0])
    site.channel.close()


def test_request_without_response_completes_when_written(site: _Site) -> None:
    gone = site.send()
    assert site.channel.in_flight == 1
    assert gone == []
    site.transport.producer.resumeProducing()
    assert gone == [None]
    assert site.channel.in_flight == 0


def test_write_timeout_closes_the_connection(site: _Site) -> None:
    gone, asked = site.send(timeout_s=5), site.ask(timeout_s=60)
    site.clock.advance(5.1)
    assert isinstance(gone[0], RequestTimedOut)
    assert isinstance(asked[0], ConnectionFailed)
    assert site.transport.aborted
    assert not site.clock.getDelayedCalls()


def test_close_still_delivers_written_requests(site: _Site) -> None:
    site.send()
    site.transport.producer.resumeProducing()
    late = site.send()
    site.channel.close()
    assert "was closed" in str(late[0])
    assert site.transport.disconnecting
    assert not site.transport.aborted
    site.clock.advance(4.9)
    assert not site.transport.aborted
    site.clock.advance(0.2)
    assert site.transport.aborted


def test_graceful_close_needs_no_abort(site: _Site) -> None:
    site.send()
    site.channel.close()
    site.channel.connectionLost(Failure(ConnectionDone()))
    assert not site.clock.getDelayedCalls()
    with pytest.raises(ConnectionFailed, match="closed"):
        site.send()


def test_unreachable_broker_fails_with_the_reason(site: _Site) -> None:
    factory = ChannelFactory(site.clock, "broker:9092", client_id=None)
    opened = outcome_of(factory.opened)
    nowhere: Any = None
    factory.clientConnectionFailed(nowhere, Failure(ConnectionRefusedError()))
    assert "cannot connect to broker:9092" in str(opened[0])


def test_slow_connect_times_out(site: _Site) -> None:
    factory = ChannelFactory(site.clock, "broker:9092", client_id=None)
    factory.expect_handshake()
    opened = outcome_of(factory.opened)
    factory.give_up_after(3)
    channel = factory.buildProtocol(None)
    transport = _Transport()
    channel.makeConnection(transport)
    assert opened == []
    site.clock.advance(3)
    assert "timed out" in str(opened[0])
    assert transport.aborted


def test_channel_opens_only_after_the_tls_handshake(site: _Site) -> None:
    factory = ChannelFactory(site.clock, "broker:9093", client_id=None)
    factory.expect_handshake()
    opened = outcome_of(factory.opened)
    channel = factory.buildProtocol(None)
    channel.makeConnection(_Transport())
    assert opened == []
    channel.handshakeCompleted()
    assert opened == [channel]
