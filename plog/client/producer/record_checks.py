"""What an application gives for a record, checked: each error says what is wrong, and with which.

Pure. The hot path (core.py) calls these only where something is not as it mostly is.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from plog.client.errors import SerializationFailed
from plog.records.codec import Header

Headers: TypeAlias = Mapping[str, bytes | None] | Iterable[Header]

Serializer: TypeAlias = Callable[[Any], bytes | None]
"""Makes the bytes of a key or value; it is not asked about None."""

_LAST_TIMESTAMP = (1 << 63) - 1


def as_bytes(data: object, what: str, topic: str) -> bytes:
    """`data` as bytes. Raises SerializationFailed for what is none; `what` is "key" or "value"."""
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise SerializationFailed(
        f"the {what} of a record for topic {topic} is {type(data).__name__}, not bytes:"
        f" give bytes, or the producer a {what}_serializer that makes them"
    )


def serialized(serializer: Serializer | None, data: Any, what: str, topic: str) -> bytes | None:
    """`data` as its serializer has it. Raises SerializationFailed with what that raised."""
    if serializer is None or data is None:
        return data  # type: ignore[no-any-return]  # What is no bytes is refused later on.
    try:
        return serializer(data)
    except Exception as error:
        raise SerializationFailed(
            f"the {what} serializer failed for a record of topic {topic}: {error!r}"
        ) from error


def header_pairs(headers: Headers) -> tuple[Header, ...]:
    """Names and values, of a mapping or of pairs. Raises ValueError for what is neither."""
    try:
        return tuple(headers.items() if isinstance(headers, Mapping) else headers)
    except TypeError:
        raise ValueError(
            f"headers are a mapping or pairs of a name and bytes, not {headers!r:.80}"
        ) from None


def checked_headers(headers: Headers) -> tuple[Header, ...]:
    """`headers` as pairs, each of a name and bytes or None. Raises ValueError."""
    pairs = header_pairs(headers)
    for header in pairs:
        if not isinstance(header, tuple | list) or len(header) != 2:
            raise ValueError(f"a header is a name and bytes or None, not {header!r:.80}")
        name, value = header
        if not isinstance(name, str) or not (value is None or isinstance(value, bytes)):
            raise ValueError(f"a header is a name and bytes or None, not {header!r:.80}")
    return pairs


def checked_timestamp(timestamp: object) -> int:
    """A time in ms. Raises ValueError for what is none, or lies before 1970."""
    if not isinstance(timestamp, int) or not 0 <= timestamp <= _LAST_TIMESTAMP:
        raise ValueError(f"timestamp {timestamp!r} is no whole number of ms since 1970")
    return timestamp


def checked_partition(partition: object, topic: object) -> int:
    """The number of a partition, which may be another library's integer. Raises ValueError."""
    try:
        number = operator.index(partition)  # type: ignore[arg-type]  # It is what is found out.
    except TypeError:
        raise ValueError(f"partition {partition!r} of topic {topic} is no number") from None
    if number < 0:
        raise ValueError(f"partition {number} is negative")
    return number
