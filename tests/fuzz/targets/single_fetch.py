"""The fast path for reading a Fetch request: it agrees with the general decoder.

The input is a frame without its size, as in the target `dispatch`.
"""

from __future__ import annotations

from collections.abc import Iterator

from plog.wire.header import RequestHeader, decode_request_header, encode_request
from plog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from plog.wire.single_fetch import FIRST_VERSION, LAST_VERSION, decode_single_fetch
from tests.fuzz.target import Target

_FETCH = b"\0\x01"


def fuzz(data: bytes) -> None:
    """Decode the frame in both ways."""
    frame = _FETCH + data[2:]
    single = decode_single_fetch(memoryview(frame))
    if single is None:
        return
    header, position = decode_request_header(frame)
    assert single.header == header
    body = memoryview(frame)[position:]
    request, size = FetchRequest.decode_prefix(body, header.api_version)
    assert size == len(body)
    assert single.as_message() == request


def _seeds() -> Iterator[bytes]:
    for version in range(FIRST_VERSION, LAST_VERSION + 1):
        for client_id, rack in ((None, ""), ("client", "rack")):
            wanted = FetchPartition(partition=3, fetch_offset=5, partition_max_bytes=1 << 20)
            topic = FetchTopic(topic="t", topic_id=bytes(range(16)), partitions=[wanted])
            request = FetchRequest(max_wait_ms=9, min_bytes=1, topics=[topic], rack_id=rack)
            header = RequestHeader(1, version, 7, client_id)
            yield encode_request(header, request)[4:]
            if version >= 7:
                request.session_id, request.session_epoch, request.topics = 9, 4, []
                yield encode_request(header, request)[4:]


TARGET = Target(name="single_fetch", fuzz=fuzz, seeds=_seeds, memory=(100, 50_000))
