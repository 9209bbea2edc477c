"""JSON of znodes, in the form in which Kafka's Jackson writes it, and checked access to its fields.

Every function raises ValueError with the reason if the JSON is damaged. Source: Kafka 3.9 Json,
JsonObject.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn


def encode_json(value: Mapping[str, Any]) -> bytes:
    """Return `value` as compact JSON, with its keys in their order.

    >>> encode_json({"version": 1, "name": "é"}).decode()
    '{"version":1,"name":"é"}'
    """
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def decode_object(data: bytes) -> dict[str, Any]:
    """Return the JSON object in `data`."""
    try:
        value = json.loads(data, parse_constant=_reject_constant)
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def _reject_constant(text: str) -> NoReturn:
    # Python also accepts NaN and Infinity, which are not JSON.
    raise ValueError(f"{text} is not JSON")


def int_of(value: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """Return an integer field."""
    found = value.get(name, default)
    # A bool is an int in Python.
    if not isinstance(found, int) or isinstance(found, bool):
        raise ValueError(f"{name} is not an integer")
    return found


def text_of(value: Mapping[str, Any], name: str) -> str:
    """Return a text field."""
    found = value.get(name)
    if not isinstance(found, str):
        raise ValueError(f"{name} is not a text")
    return found


def object_of(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a field that contains an object; empty if the field is missing."""
    found = value.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ValueError(f"{name} is not an object")
    return found


def ints_of(value: Any, name: str) -> tuple[int, ...]:
    """Return `value`, the contents of the field `name`, as a tuple of integers."""
    if not isinstance(value, list):
        raise ValueError(f"{name} is not a list")
    if not all(isinstance(one, int) and not isinstance(one, bool) for one in value):
        raise ValueError(f"{name} contains something else than integers")
    return tuple(value)


def merged(old: bytes | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return `fields`, followed by the fields of the JSON in `old` that they do not contain.

    A newer Kafka may have added these fields. Damaged JSON has none that could be kept.
    """
    try:
        kept = decode_object(old) if old else {}
    except ValueError:
        kept = {}
    return {**fields, **{name: value for name, value in kept.items() if name not in fields}}
