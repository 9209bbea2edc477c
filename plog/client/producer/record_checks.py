"""Check the parts of a record. Each error names the part and the problem.

The hot path (core.py) calls these functions only for unusual arguments.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from plog.client.errors import RecordTooLarge, SerializationFailed
from plog.client.producer.producer_batch import RECORD_OVERHEAD, RECORD_OVERHEAD_MAX
from plog.client.settings import ProducerSettings
from plog.records.batch import HEADER_SIZE
from plog.records.codec import Header

Headers: TypeAlias = Mapping[str, bytes | None] | Iterable[Header]

Serializer: TypeAlias = Callable[[Any], bytes | None]
"""Converts a key or value to bytes; never called with None."""

_LAST_TIMESTAMP = (1 << 63) - 1


def as_bytes(data: object, what: str, topic: str) -> bytes:
    """Return `data` as bytes; `what` is "key" or "value". Raises SerializationFailed."""
    # Copy the data, because the application may change a buffer before the batch is encoded.
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise SerializationFailed(
        f"the {what} of a record for topic {topic} is {type(data).__name__}, not bytes:"
        f" pass bytes, or create the producer with a {what}_serializer"
    )


def serialized(serializer: Serializer | None, data: Any, what: str, topic: str) -> bytes | None:
    """Return `data` after serialization. Raises SerializationFailed if the serializer fails."""
    # In Kafka, null is a distinct value (a tombstone), so serializers never receive None.
    if serializer is None or data is None:
        return data  # type: ignore[no-any-return]  # `as_bytes` checks it later.
    try:
        return serializer(data)
    except Exception as error:
        raise SerializationFailed(
            f"the {what} serializer failed for a record for topic {topic}: {error!r}"
        ) from error


def header_pairs(headers: Headers) -> tuple[Header, ...]:
    """Return a mapping or an iterable of pairs as a tuple of pairs. Raises ValueError."""
    try:
        return tuple(headers.items() if isinstance(headers, Mapping) else headers)
    except TypeError:
        raise ValueError(
            f"headers must be a mapping, or pairs of a name and bytes, not {headers!r:.80}"
        ) from None


def checked_headers(headers: Headers) -> tuple[Header, ...]:
    """Return `headers` as pairs of a name and bytes or None. Raises ValueError."""
    pairs = header_pairs(headers)
    for header in pairs:
        if not isinstance(header, tuple | list) or len(header) != 2:
            raise ValueError(f"a header must be a name with bytes or None, not {header!r:.80}")
        name, value = header
        if not isinstance(name, str) or not (value is None or isinstance(value, bytes)):
            raise ValueError(f"a header must be a name with bytes or None, not {header!r:.80}")
    return pairs


def with_own_headers(headers: Sequence[Header], own: Sequence[Header]) -> tuple[Header, ...]:
    """Return `headers` followed by `own`, without other headers of the same names.

    >>> with_own_headers([("a", b"1"), ("me", b"old")], [("me", b"new")])
    (('a', b'1'), ('me', b'new'))
    """
    names = {name for name, _ in own}
    return (*(header for header in headers if header[0] not in names), *own)


def largest_record_bytes(settings: ProducerSettings) -> int:
    """Return the largest estimated size of a record that fits into a request, in bytes."""
    # Estimates contain the usual overhead, so subtract its difference to the maximum overhead.
    request_bytes = min(settings.max_request_size, settings.buffer_memory)
    return request_bytes - HEADER_SIZE - (RECORD_OVERHEAD_MAX - RECORD_OVERHEAD)


def too_large(settings: ProducerSettings, topic: str, size_bytes: int) -> RecordTooLarge:
    """Return the error for a record of about `size_bytes`."""
    name, limit = "max.request.size", settings.max_request_size
    if settings.buffer_memory < limit:
        name, limit = "buffer.memory", settings.buffer_memory
    return RecordTooLarge(
        f"cannot send a record of about {size_bytes} bytes to topic {topic}: its batch would be"
        f" larger than {name}={limit}; raise {name}, or split the record"
    )


def checked_timestamp(timestamp: object) -> int:
    """Return a timestamp in ms. Raises ValueError if it is not a valid timestamp."""
    if not isinstance(timestamp, int) or not 0 <= timestamp <= _LAST_TIMESTAMP:
        raise ValueError(f"timestamp {timestamp!r} is not a whole number of ms since 1970")
    return timestamp


def checked_partition(partition: object, topic: object) -> int:
    """Return a partition number of any integer type as an int. Raises ValueError."""
    try:
        # `operator.index` also accepts the integers of NumPy and similar libraries.
        number = operator.index(partition)  # type: ignore[arg-type]
    except TypeError:
        raise ValueError(f"partition {partition!r} of topic {topic} is not a number") from None
    if number < 0:
        raise ValueError(f"partition {number} is negative")
    return number
