"""The fast path for reading a Produce request: it agrees with the general decoder, in both forms.

The input is a frame without its size, as in the target `dispatch`.
"""

from __future__ import annotations

from collections.abc import Iterator

from plog.wire.header import RequestHeader, decode_request_header, encode_request
from plog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from plog.wire.single_produce import FIRST_VERSION, LAST_VERSION, decode_single_produce
from tests.fuzz.target import Target
from tests.helpers.codec_forms import compiled, interpreted

_PRODUCE = b"\0\0"
_MODULE = "plog.wire.single_produce"
_FORMS = [form for form in (compiled(_MODULE), interpreted(_MODULE)) if form is not None]


def fuzz(data: bytes) -> None:
    """Decode the frame in both ways."""
    frame = _PRODUCE + data[2:]
    single = decode_single_produce(memoryview(frame))
    for form in _FORMS:
        other = form.decode_single_produce(memoryview(frame))
        assert (other is None) == (single is None)
        if single is not None:
            assert (other.header, other.as_message()) == (single.header, single.as_message())
            assert other.place == single.place
    if single is None:
        return
    header, position = decode_request_header(frame)
    assert single.header == header
    assert single.as_message() == ProduceRequest.decode(
        memoryview(frame)[position:], header.api_version
    )
    assert single.place in frame


def _seeds() -> Iterator[bytes]:
    for version in range(FIRST_VERSION - 1, LAST_VERSION + 1):
        for client_id in (None, "client"):
            for records in (b"records", b"r" * 200):
                data = PartitionProduceData(index=3, records=records)
                topic = TopicProduceData(name="t", partition_data=[data])
                topic.topic_id = bytes(range(16))
                request = ProduceRequest(acks=-1, timeout_ms=9, topic_data=[topic])
                header = RequestHeader(0, version, 7, client_id)
                yield encode_request(header, request)[4:]


TARGET = Target(name="single_produce", fuzz=fuzz, seeds=_seeds, memory=(100, 50_000))
