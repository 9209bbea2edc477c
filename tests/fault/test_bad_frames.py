"""F41: frames and headers that are invalid, arrive in pieces or end early; plaintext and TLS.

All tests use one broker process. It serves other clients meanwhile, logs no unexpected error and
has no additional open files at the end. tests/unit/apis tests invalid contents of requests.
"""

from __future__ import annotations

import ssl
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plog.client.simple import SimpleClient
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.wire.messages.api_versions import ApiVersionsRequest
from plog.wire.messages.metadata import MetadataRequest
from plog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from plogd.testing.broker_process import BrokerProcess
from tests.fault.peers import Peer, address_of, open_sockets, ping_frame, request_frame
from tests.helpers.certificates import Authority
from tests.helpers.eventually import eventually

MAX_BYTES = 1 << 20
UNSUPPORTED_VERSION = 35
TOPIC = "whole"


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[BrokerProcess]:
    """One broker with a plaintext and a TLS listener."""
    folder = tmp_path_factory.mktemp("bad-frames")
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.location": str(authority.server().keystore(folder / "broker.pem")),
        "socket.request.max.bytes": str(MAX_BYTES),
        "queued.max.request.bytes": str(MAX_BYTES),
    }
    with BrokerProcess(folder / "broker", settings) as broker:
        with SimpleClient(*address_of(broker.addresses[0])) as client:
            client.create_topic(TOPIC, 1)
        yield broker
        assert "unexpected" not in broker.log_text()
        assert "Traceback" not in broker.log_text()


Connect = Callable[[], Peer]


@pytest.fixture(params=["plain", "tls"])
def connect(
    request: pytest.FixtureRequest, broker: BrokerProcess, authority: Authority, tmp_path: Path
) -> Iterator[Connect]:
    """A function that opens a connection to one listener; checks that all are closed at the end."""
    plain, encrypted = broker.addresses
    ca_file = str(authority.truststore(tmp_path / "ca.pem"))
    tls = ssl.create_default_context(cafile=ca_file) if request.param == "tls" else None
    with Peer(plain) as other:
        other.ping()
        files = open_sockets(broker.pid)
        yield lambda: Peer(encrypted if tls else plain, tls)
        other.ping()
        eventually(lambda: open_sockets(broker.pid) <= files, "the end of every connection")


def produce_frame(value: bytes, acks: int = 1) -> bytes:
    """Return a Produce request with one record."""
    records = memoryview(bytearray(build_batch([Record(value=value)])))
    data = PartitionProduceData(index=0, records=records)
    request = ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
    )
    return request_frame(request, 9)


def values(broker: BrokerProcess) -> list[bytes]:
    """Return the values of all appended records."""
    with SimpleClient(*address_of(broker.addresses[0])) as client:
        end = client.list_offset(TOPIC, 0)
        found: list[bytes] = []
        while len(found) < end:
            found += [bytes(each.value or b"") for each in client.fetch(TOPIC, 0, len(found))]
        return found


@pytest.mark.parametrize("size", [0, -1, -(2**31), 2**31 - 1, MAX_BYTES + 1])
def test_invalid_request_size_closes_the_connection(connect: Connect, size: int) -> None:
    with connect() as peer:
        peer.ping()
        peer.send(ping_frame() + struct.pack(">i", size) + bytes(100))
        assert peer.read_until_closed()[4:8] == b"\0\0\0\1", (
            "expected the response to the preceding request"
        )


def header(api_key: int, version: int, client_id_length: int = -1, rest: bytes = b"") -> bytes:
    """Return a request with an arbitrary header."""
    data = struct.pack(">hhih", api_key, version, 7, client_id_length) + rest
    return struct.pack(">i", len(data)) + data


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(header(999, 0), id="unknown-api-key"),
        pytest.param(header(-1, 0), id="negative-api-key"),
        pytest.param(header(3, 99), id="unknown-version"),
        pytest.param(header(3, -1), id="negative-version"),
        pytest.param(header(3, 1, 32_767, b"x"), id="client-id-beyond-the-frame"),
        pytest.param(header(3, 1, -32_768), id="body-missing"),
        pytest.param(header(3, 1, 4, b"\xff\xfe\xfd\xfc"), id="client-id-not-text"),
        pytest.param(header(3, 1, -1, struct.pack(">i", 2**31 - 1)), id="array-of-2^31"),
        pytest.param(header(3, 12, -1, b"\0\xff\xff\xff\xff\x07"), id="compact-array-of-2^31"),
        pytest.param(header(3, 12, -1, b"\xff" * 20), id="tags-without-end"),
        pytest.param(b"\0\0\0\1\0", id="one-byte"),
        pytest.param(b"\0\0\0\7\0\3\0\1\0\0\0", id="half-a-header"),
    ],
)
def test_malformed_request_closes_only_its_own_connection(connect: Connect, data: bytes) -> None:
    with connect() as other_peer, connect() as peer:
        peer.send(data)
        assert peer.read_until_closed() == b""
        other_peer.ping()


def test_unsupported_api_versions_version_gets_a_version_0_response(connect: Connect) -> None:
    with connect() as peer:
        peer.send(header(18, 99, -1, b"\0whatever"))
        response = memoryview(peer.response())
        assert struct.unpack_from(">ih", response) == (7, UNSUPPORTED_VERSION)
        (count,) = struct.unpack_from(">i", response, 6)
        assert len(response) == 10 + 6 * count, "expected a response of version 0"
        peer.ping()


def test_requests_are_handled_byte_by_byte_and_pipelined(connect: Connect) -> None:
    with connect() as peer:
        for byte in ping_frame() + request_frame(MetadataRequest(topics=[]), 9, 2):
            peer.send(bytes([byte]))
        peer.response_to(ApiVersionsRequest(), 0, 1)
        peer.response_to(MetadataRequest(), 9, 2)
        numbers = range(3, 203)
        peer.send(b"".join(ping_frame(number) for number in numbers))
        for number in numbers:
            peer.response_to(ApiVersionsRequest(), 0, number)


@pytest.mark.parametrize("end", ["close", "reset", "stop_sending"])
def test_only_complete_requests_take_effect_when_a_connection_ends(
    connect: Connect, broker: BrokerProcess, end: str
) -> None:
    before = len(values(broker))
    data = produce_frame(b"never whole")
    for length in range(len(data)):
        with connect() as peer:
            peer.send(data[:length])
            getattr(peer, end)()
    with connect() as last:
        last.send(data)
        last.response()
    assert len(values(broker)) == before + 1


@pytest.mark.parametrize("end", ["close", "reset"])
def test_client_may_disconnect_before_its_response(
    connect: Connect, broker: BrokerProcess, end: str
) -> None:
    """Each request is appended at most once, and its connection is released."""
    before = len(values(broker))
    for _ in range(50):
        with connect() as peer:
            peer.send(ping_frame() + produce_frame(b"left") + ping_frame())
            getattr(peer, end)()
    assert before <= len(values(broker)) <= before + 50
