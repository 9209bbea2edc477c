"""F41: frames and headers that lie, come in pieces or end in the middle; on a plain and a TLS port.

All of them go to one broker process, whose other clients are served meanwhile, and which has
neither an unexpected error nor a file open in the end that it had not before. What is inside of a
request is the business of tests/unit/apis.
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
    """One broker with two doors."""
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


Knock = Callable[[], Peer]


@pytest.fixture(params=["plain", "tls"])
def knock(
    request: pytest.FixtureRequest, broker: BrokerProcess, authority: Authority, tmp_path: Path
) -> Iterator[Knock]:
    """Opens connections by one of the doors; in the end nothing is left of them."""
    plain, encrypted = broker.addresses
    ca_file = str(authority.truststore(tmp_path / "ca.pem"))
    tls = ssl.create_default_context(cafile=ca_file) if request.param == "tls" else None
    with Peer(plain) as other:
        other.ping()
        files = open_sockets(broker.pid)
        yield lambda: Peer(encrypted if tls else plain, tls)
        other.ping()
        eventually(lambda: open_sockets(broker.pid) <= files, "end of every connection")


def produce_frame(value: bytes, acks: int = 1) -> bytes:
    """A Produce of one message."""
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
    """All that was appended."""
    with SimpleClient(*address_of(broker.addresses[0])) as client:
        end = client.list_offset(TOPIC, 0)
        found: list[bytes] = []
        while len(found) < end:
            found += [bytes(each.value or b"") for each in client.fetch(TOPIC, 0, len(found))]
        return found


@pytest.mark.parametrize("size", [0, -1, -(2**31), 2**31 - 1, MAX_BYTES + 1])
def test_a_size_no_request_may_have_ends_the_connection(knock: Knock, size: int) -> None:
    with knock() as peer:
        peer.ping()
        peer.send(ping_frame() + struct.pack(">i", size) + bytes(100))
        assert peer.until_closed()[4:8] == b"\0\0\0\1", "what came before is answered"


def header(api_key: int, version: int, client_id_length: int = -1, rest: bytes = b"") -> bytes:
    """A request whose header says what it likes."""
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
        pytest.param(header(3, 1, 4, b"\xff\xfe\xfd\xfc"), id="client-id-no-text"),
        pytest.param(header(3, 1, -1, struct.pack(">i", 2**31 - 1)), id="array-of-2^31"),
        pytest.param(header(3, 12, -1, b"\0\xff\xff\xff\xff\x07"), id="compact-array-of-2^31"),
        pytest.param(header(3, 12, -1, b"\xff" * 20), id="tags-without-end"),
        pytest.param(b"\0\0\0\1\0", id="one-byte"),
        pytest.param(b"\0\0\0\7\0\3\0\1\0\0\0", id="half-a-header"),
    ],
)
def test_a_request_that_makes_no_sense_ends_its_connection_alone(knock: Knock, data: bytes) -> None:
    with knock() as neighbour, knock() as peer:
        peer.send(data)
        assert peer.until_closed() == b""
        neighbour.ping()


def test_a_version_of_api_versions_from_the_future_is_answered_in_version_0(knock: Knock) -> None:
    with knock() as peer:
        peer.send(header(18, 99, -1, b"\0whatever"))
        answer = memoryview(peer.answer())
        assert struct.unpack_from(">ih", answer) == (7, UNSUPPORTED_VERSION)
        (count,) = struct.unpack_from(">i", answer, 6)
        assert len(answer) == 10 + 6 * count, "and it is all of version 0"
        peer.ping()


def test_requests_may_come_byte_by_byte_and_all_at_once(knock: Knock) -> None:
    with knock() as peer:
        for byte in ping_frame() + request_frame(MetadataRequest(topics=[]), 9, 2):
            peer.send(bytes([byte]))
        peer.answer_to(ApiVersionsRequest(), 0, 1)
        peer.answer_to(MetadataRequest(), 9, 2)
        numbers = range(3, 203)
        peer.send(b"".join(ping_frame(number) for number in numbers))
        for number in numbers:
            peer.answer_to(ApiVersionsRequest(), 0, number)


@pytest.mark.parametrize("end", ["close", "reset", "stop_sending"])
def test_a_connection_may_end_at_any_byte_and_only_whole_requests_count(
    knock: Knock, broker: BrokerProcess, end: str
) -> None:
    before = len(values(broker))
    data = produce_frame(b"never whole")
    for length in range(len(data)):
        with knock() as peer:
            peer.send(data[:length])
            getattr(peer, end)()
    with knock() as last:
        last.send(data)
        last.answer()
    assert len(values(broker)) == before + 1


@pytest.mark.parametrize("end", ["close", "reset"])
def test_a_client_may_leave_before_its_answer(
    knock: Knock, broker: BrokerProcess, end: str
) -> None:
    """Whatever was appended was appended once; who is not there any more costs nothing."""
    before = len(values(broker))
    for _ in range(50):
        with knock() as peer:
            peer.send(ping_frame() + produce_frame(b"left") + ping_frame())
            getattr(peer, end)()
    assert before <= len(values(broker)) <= before + 50
