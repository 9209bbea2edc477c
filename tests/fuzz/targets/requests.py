"""The decoder of every served request, in every version.

The first byte chooses the API, the second the version. A decoded request can be encoded and decoded
again; the bounded decoder agrees with the other one; the only error is WireError.
"""

from __future__ import annotations

from collections.abc import Iterator

from plog.wire.schema import TooManyElements, WireError
from plogd.apis.api_table import HANDLERS
from tests.fuzz.target import Target
from tests.unit.wire.filled import filled


def fuzz(data: bytes) -> None:
    """Decode the request with both decoders and encode it again."""
    if len(data) < 2:
        return
    row = HANDLERS[data[0] % len(HANDLERS)]
    version = row.first_version + data[1] % (row.last_version - row.first_version + 1)
    body = memoryview(data)[2:]
    try:
        message = row.request.decode(body, version)
    except WireError:
        try:
            row.request.decode_bounded(body, version, len(body))
        except WireError:
            return
        raise AssertionError(
            "the bounded decoder accepts a request that the other one refuses"
        ) from None
    encoded = message.encode(version)
    assert row.request.decode(encoded, version).encode(version) == encoded
    try:
        bounded = row.request.decode_bounded(body, version, len(body))
    except TooManyElements:
        raise AssertionError("the request has more elements than bytes") from None
    assert bounded.encode(version) == encoded


def _seeds() -> Iterator[bytes]:
    for index, row in enumerate(HANDLERS):
        for number in range(row.last_version - row.first_version + 1):
            version = row.first_version + number
            for nulls in (False, True):
                message = filled(row.request, version, index, nulls=nulls, long=False)
                yield bytes([index, number]) + message.encode(version)


# A struct with its fields takes some hundred bytes, but may be one byte on the wire.
TARGET = Target(name="requests", fuzz=fuzz, seeds=_seeds, memory=(1_500, 50_000))
