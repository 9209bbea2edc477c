"""Encoding a response in slices, and responses that are encoded once for many clients.

A handler returns an `EncodedResponse` where the same bytes answer other requests, too. All others
are encoded by dispatch.py. Both end with ResponseTooLarge if the response has more bytes than
``plog.response.max.bytes``; log files, which are sent from the disk, do not count.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from plog.errors import PolicyViolation
from plog.wire.primitives import Part
from plog.wire.schema import ApiMessage
from plogd.fair_queue import SLICE

if TYPE_CHECKING:
    from plogd.broker import Broker


class ResponseTooLarge(PolicyViolation):
    """The response would have more bytes than ``plog.response.max.bytes``."""


class EncodedResponse:
    """A response as bytes, without its header; may be sent to several clients."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[Part]) -> None:
        self.parts = parts


async def encode_in_slices(response: ApiMessage, version: int, broker: Broker) -> EncodedResponse:
    """Encode `response`, with turns for others. Raises ResponseTooLarge."""
    encoding = response.encode_in_slices(version, SLICE)
    try:
        next(encoding)
    except StopIteration as end:
        return EncodedResponse(end.value)
    return EncodedResponse(
        await encode_rest(encoding, broker, broker.config.plog_response_max_bytes)
    )


async def encode_rest(
    encoding: Generator[int, None, list[Part]], broker: Broker, max_bytes: int
) -> list[Part]:
    """What `encoding` gives after its first slice, each further one in a turn of its own."""
    while True:
        await broker.fair_queue.turn()
        try:
            nbytes = next(encoding)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # a generator's value is untyped
        if nbytes > max_bytes:
            raise ResponseTooLarge(
                f"the response has more than plog.response.max.bytes={max_bytes} bytes: ask for"
                " less in one request"
            )
