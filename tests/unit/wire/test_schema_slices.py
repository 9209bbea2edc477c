"""plog/wire/schema.py: slices have the same results as decoding and encoding in one step."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from plog.wire.decoder import TooManyElements
from plog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from plog.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from plog.wire.schema import WireError


def finish(steps: Generator[Any, Any, Any], value: Any = None) -> tuple[int, Any]:
    """Run a generator; return how often it yielded, and its result."""
    yields = 0
    try:
        next(steps)
        while True:
            yields += 1
            steps.send(value)
    except StopIteration as end:
        return yields, end.value


def request(count: int) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(
        topics=[DeleteTopicState(name=f"t{number}") for number in range(count)]
    )


@pytest.mark.parametrize(("count", "yields"), [(0, 0), (10, 0), (11, 1), (35, 3)])
def test_request_is_decoded_in_slices_from_the_copies_it_is_sent(count: int, yields: int) -> None:
    data = bytearray(request(count).encode(6))
    copy = memoryview(bytes(data))
    decoding = DeleteTopicsRequest.decode_in_slices(data, 6, 1000, 10)
    if yields:
        next(decoding)
        data[:] = b"\xee" * len(data)  # The receive buffer is reused.
        more, message = finish(_rest(decoding, copy), copy)
        assert more == yields - 1
    else:
        _, message = finish(decoding)
    assert message == request(count)


def _rest(decoding: Generator[None, Any, Any], copy: memoryview) -> Generator[None, Any, Any]:
    """Continue `decoding` after its first slice."""
    while True:
        try:
            decoding.send(copy)
        except StopIteration as end:
            return end.value
        yield


def test_too_many_elements_are_found_before_they_are_read() -> None:
    data = request(35).encode(6)
    with pytest.raises(TooManyElements):
        next(DeleteTopicsRequest.decode_in_slices(data, 6, 34, 10))


def test_truncated_request_cannot_be_read_in_any_slice() -> None:
    data = request(35).encode(6)
    for length in range(len(data)):
        decoding = DeleteTopicsRequest.decode_in_slices(data[:length], 6, 1000, 10)
        with pytest.raises(WireError):
            finish(decoding, memoryview(data[:length]))


def test_unknown_tagged_fields_are_skipped_in_slices() -> None:
    fields = b"".join(bytes((number, 1, 0)) for number in range(100))
    data = request(1).encode(6)[:-1] + bytes((100,)) + fields
    yields, message = finish(
        DeleteTopicsRequest.decode_in_slices(data, 6, 1000, 10), memoryview(data)
    )
    assert (yields, message) == (9, request(1))


@pytest.mark.parametrize("version", [0, 8, 9, 13])
def test_response_is_encoded_in_slices_of_nested_arrays(version: int) -> None:
    response = MetadataResponse(
        topics=[
            MetadataResponseTopic(
                name=f"t{topic}",
                partitions=[
                    MetadataResponsePartition(partition_index=number, replica_nodes=[1, 2])
                    for number in range(9)
                ],
            )
            for topic in range(5)
        ]
    )
    yields, parts = finish(response.encode_in_slices(version, 10))
    assert yields == 4  # 5 topics and 45 partitions; the first 10 do not yield.
    assert b"".join(parts) == response.encode(version)


def test_bytes_so_far_are_known_after_each_slice() -> None:
    response = MetadataResponse(
        topics=[MetadataResponseTopic(name=f"topic-{number}") for number in range(35)]
    )
    sizes = list(response.encode_in_slices(9, 10))
    assert len(sizes) == 3
    assert sizes == sorted(sizes)
    assert sizes[-1] < len(response.encode(9))
