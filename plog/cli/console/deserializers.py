"""Deserializers that convert bytes to text, selected by Java class or Python function.

Source: Kafka 4.3 org.apache.kafka.common.serialization.
"""

from __future__ import annotations

import importlib
import math
import struct
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from plog.cli.options import UsageError
from plog.error_base import PlogError
from plog.wire.as_json import java_double

Deserializer: TypeAlias = Callable[[bytes], str]

_PACKAGE: Final = "org.apache.kafka.common.serialization."


class CannotDeserialize(PlogError):
    """The bytes do not have the format that the deserializer expects."""


def find_deserializer(name: str | None) -> Deserializer | None:
    """Return the deserializer with a name such as ``LongDeserializer`` or ``module:function``.

    Return None for None, and for classes that return the bytes unchanged. Raises UsageError.

    >>> find_deserializer("org.apache.kafka.common.serialization.ShortDeserializer")(bytes([1, 0]))
    '256'
    """
    if not name:
        return None
    if ":" in name:
        return _python_function(name)
    class_name = name.removeprefix(_PACKAGE)
    if class_name in _RAW:
        return None
    if class_name not in _JAVA:
        names = ", ".join([*_JAVA, *_RAW])
        raise UsageError(f"unknown deserializer {name}; use module:function, or one of {names}")
    read = _JAVA[class_name]

    def deserialize(data: bytes) -> str:
        try:
            return read(data)
        # UnicodeDecodeError is a ValueError, too.
        except (struct.error, ValueError) as error:
            raise CannotDeserialize(
                f"{class_name} cannot deserialize {len(data)} bytes: {error}"
            ) from error

    return deserialize


def _python_function(name: str) -> Deserializer:
    module, _, path = name.partition(":")
    try:
        function: Any = importlib.import_module(module)
        for attribute in path.split("."):  # Can also name a method: `module:Class.method`.
            function = getattr(function, attribute)
    # import_module() raises ValueError for an empty module name.
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"cannot load the deserializer {name}: {error}") from None

    def deserialize(data: bytes) -> str:
        try:
            return str(function(data))
        except Exception as error:  # The user's function can raise any exception.
            raise CannotDeserialize(f"the deserializer {name} failed: {error!r}") from error

    return deserialize


def _of_struct(layout: str, text_of: Callable[[Any], str] = str) -> Deserializer:
    # As in Java, another length is an error: unpack() requires the exact size.
    unpack = struct.Struct(layout).unpack
    return lambda data: text_of(unpack(data)[0])


def _java_float(value: float) -> str:
    """Return a number in the format of Java's Float.toString."""
    if math.isfinite(value):
        # As for doubles, the fewest digits that identify the number, but at least two; nine are
        # always enough.
        texts = (f"{value:.{digits}g}" for digits in range(2, 10))
        value = next(float(text) for text in texts if _as_float(float(text)) == value)
    return java_double(value)


def _as_float(value: float) -> float:
    try:
        number: float = struct.unpack(">f", struct.pack(">f", value))[0]
    except OverflowError:  # Rounding up the largest numbers exceeds 32 bits.
        return math.inf
    return number


def _boolean(data: bytes) -> str:
    if data not in (b"\0", b"\1"):
        raise ValueError("neither 0 nor 1")
    return "true" if data == b"\1" else "false"


def _void(data: bytes) -> str:
    raise ValueError("expected no bytes")


_JAVA: Final[Mapping[str, Deserializer]] = {
    # As in Java, invalid UTF-8 is replaced instead of rejected.
    "StringDeserializer": lambda data: data.decode("utf-8", "replace"),
    "ShortDeserializer": _of_struct(">h"),
    "IntegerDeserializer": _of_struct(">i"),
    "LongDeserializer": _of_struct(">q"),
    "FloatDeserializer": _of_struct(">f", _java_float),
    "DoubleDeserializer": _of_struct(">d", java_double),
    "BooleanDeserializer": _boolean,
    # Kafka serializes a UUID as text, not as 16 bytes.
    "UUIDDeserializer": lambda data: str(uuid.UUID(data.decode())),
    "VoidDeserializer": _void,
}
_RAW: Final = ("ByteArrayDeserializer", "ByteBufferDeserializer", "BytesDeserializer")
