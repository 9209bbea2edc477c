"""Convert messages to the JSON that Kafka's tools print.

Names are in camelCase, bytes in base64, and UUIDs in Kafka's text form. Fields appear in the order
of the message's definition. As on the wire, fields that the version lacks are omitted, and so are
tagged fields with their default value. `compact_json` formats numbers and escapes like Java, so
that scripts and tests can compare the text byte for byte.
Source: Kafka 4.3 JsonConverterGenerator; Jackson's JsonNode.toString.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any, TypeAlias

from plog.types import uuid_to_text
from plog.wire.structs import Array, Blob, Field, Fixed, Nested, Struct

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

# The second alternative skips other escapes: the text \\u001f is a backslash and plain characters.
_ESCAPE = re.compile(r"\\u00([01][0-9a-f])|\\.")
# Outside this range, Java's Double.toString uses scientific notation.
_SCIENTIFIC_FROM, _SCIENTIFIC_BELOW = 1e7, 1e-3


def as_json(message: Struct, version: int) -> dict[str, Json]:
    """Return the fields of `message` that exist in this version, by their names in Kafka."""
    return {
        camel_case(item.name): _value(item.type, getattr(message, item.name), version)
        for item in type(message).fields
        if item.versions.has(version) and not _is_left_out(item, message)
    }


def _is_left_out(item: Field, message: Struct) -> bool:
    return item.tag is not None and getattr(message, item.name) == item.default


def _value(wire_type: Any, value: Any, version: int) -> Json:
    if value is None:
        return None
    match wire_type:
        case Nested():
            return as_json(value, version)
        case Array():
            return [_value(wire_type.element, each, version) for each in value]
        case Blob():
            return base64.b64encode(value).decode()
        # UUIDs are the only type of constant size whose values are bytes.
        case Fixed() if isinstance(value, bytes):
            return uuid_to_text(value)
    plain: Json = value
    return plain


def camel_case(name: str) -> str:
    """Return a field's name in Kafka's spelling.

    >>> camel_case("is_migrating_zk_broker"), camel_case("k_raft_version")
    ('isMigratingZkBroker', 'kRaftVersion')
    """
    first, *others = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in others)


def compact_json(value: Json) -> str:
    """Return JSON without white space, as Jackson writes it.

    >>> compact_json({"a": [1, None, True, 2.5], "b": "\\u001f\\n"})
    '{"a":[1,null,true,2.5],"b":"\\\\u001F\\\\n"}'
    """
    # json.dumps converts only the other values, because Jackson formats floats and escapes
    # differently.
    match value:
        case dict():
            pairs = (f"{_quoted(key)}:{compact_json(each)}" for key, each in value.items())
            return "{" + ",".join(pairs) + "}"
        case list():
            return "[" + ",".join(map(compact_json, value)) + "]"
        case str():
            return _quoted(value)
        case float():
            return java_double(value)
    return json.dumps(value)


def _quoted(text: str) -> str:
    # Jackson writes the hexadecimal digits of an escape in upper case.
    return _ESCAPE.sub(
        lambda found: f"\\u00{found[1].upper()}" if found[1] else found[0],
        # Jackson writes characters outside ASCII unchanged.
        json.dumps(text, ensure_ascii=False),
    )


def java_double(value: float) -> str:
    """Return a number in the format of Java's Double.toString.

    >>> java_double(1024.0), java_double(10485760.0), java_double(0.0001), java_double(5e-324)
    ('1024.0', '1.048576E7', '1.0E-4', '4.9E-324')
    """
    if value != value:  # Only NaN differs from itself.
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or _SCIENTIFIC_BELOW <= abs(value) < _SCIENTIFIC_FROM:
        # Within this range, repr has no exponent either, and -0.0 keeps its sign as in Java.
        return repr(value)
    # repr uses the fewest digits that identify the number, as Java has done since version 19.
    text = repr(value)
    # If one digit is enough, Java takes the nearest number with two digits: 4.9E-324, not 5.0E-324.
    if float(f"{value:.0e}") == value:
        text = f"{value:.1e}"
    mantissa, _, exponent = text.partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    leading = len(whole) if whole.strip("0") else len(digits) - len(fraction)
    digits = digits.rstrip("0") or "0"
    power = int(exponent or 0) + leading - 1
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{power}"
