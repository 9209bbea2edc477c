"""Check the arguments of admin operations against their type annotations.

A call with a wrong argument raises a TypeError that identifies the parameter. Without the check,
the client would fail to encode the request, or a broker would reject it with an error that does not
mention the argument. `AdminBase` applies `checked` to every operation, so new operations do not
need checks of their own.

Where the intent is clear, a value is converted: a pair becomes a `TopicPartition`, and a number
becomes a member of an enum. Config values stay unchanged; `config_text` returns their text.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints

ConfigValue: TypeAlias = str | int | float | bool
"""A config value: a string, a number or a bool."""


def config_text(value: ConfigValue) -> str:
    """Return a config value as text, in Kafka's format.

    >>> config_text(5), config_text(0.5), config_text(True), config_text("compact")
    ('5', '0.5', 'true', 'compact')
    """
    # Kafka expects Java's spelling of booleans, which is lower case.
    return str(value).lower() if isinstance(value, bool) else str(value)


def checked(method: Callable[..., Any], *arguments: Any, **options: Any) -> inspect.BoundArguments:
    """Check and convert a call's arguments (without `self`), and bind them to `method`.

    Raises a TypeError that identifies the parameter if an argument has the wrong type.
    """
    signature, hints = _parameters(method)
    # `bind` raises TypeError for missing or unknown arguments, as a call to `method` would.
    bound = signature.bind(None, *arguments, **options)
    for name, value in bound.arguments.items():
        if name in hints:
            bound.arguments[name] = conform(value, hints[name], f"{method.__name__}: {name}")
    return bound


# Evaluating annotations takes a long time, and operations are called often.
@functools.cache
def _parameters(method: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, Any]]:
    hints = get_type_hints(method)
    hints.pop("return", None)
    return inspect.signature(method), hints


def conform(value: Any, hint: Any, name: str) -> Any:
    """Return `value` converted to the type `hint`; `name` identifies it in a TypeError.

    >>> from plog.types import TopicPartition
    >>> conform(("page-views", 0), TopicPartition, "partition")
    TopicPartition(topic='page-views', partition=0)
    >>> conform("3", int | None, "partitions")
    Traceback (most recent call last):
        ...
    TypeError: partitions is '3': pass an int or None
    """
    for option in _options(hint):
        if _fits(value, option):
            return _converted(value, option, name)
    advice = f"pass {_described(hint)}"
    # Passing a single string instead of a list is the most common mistake.
    if isinstance(value, str) and any(_is_several(option) for option in _options(hint)):
        advice = f"pass a list, such as [{value!r}]"
    raise TypeError(f"{name} is {_shown(value)}: {advice}")


def _options(hint: Any) -> tuple[Any, ...]:
    if get_origin(hint) in (Union, UnionType):
        # A mapping is also an iterable of its keys, so try a mapping type first.
        return tuple(sorted(get_args(hint), key=lambda one: not _is_mapping(one)))
    return (hint,)


def _is_mapping(hint: Any) -> bool:
    origin = get_origin(hint)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _is_several(hint: Any) -> bool:
    origin = get_origin(hint)
    return isinstance(origin, type) and issubclass(origin, Iterable) and not _is_mapping(hint)


def _is_named_tuple(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def _fits(value: Any, hint: Any) -> bool:
    """Return whether `value` has the outer type of `hint`, without checking its contents."""
    if hint is Any:
        return True
    if hint is None or hint is NoneType:
        return value is None
    if _is_mapping(hint):
        return isinstance(value, Mapping)
    if get_origin(hint) is tuple:
        return isinstance(value, tuple)
    if _is_several(hint):
        # Strings and named tuples are iterable, but each of them is a single value.
        is_one = isinstance(value, str | bytes) or _is_named_tuple(type(value))
        return isinstance(value, Iterable) and not is_one
    # A plain tuple is accepted as a named tuple; it can omit trailing fields that have defaults.
    if _is_named_tuple(hint) and type(value) is tuple:
        return len(hint._fields) - len(hint._field_defaults) <= len(value) <= len(hint._fields)
    # A bool is an int in Python, but never a valid partition count or offset.
    if isinstance(value, bool) and hint in (int, float):
        return False
    if hint is int:
        # This includes the integers of NumPy and similar libraries.
        return hasattr(value, "__index__")
    if hint is float:
        return isinstance(value, int | float)
    # A plain integer is accepted as a member of a protocol enum.
    if issubclass(hint, Enum) and issubclass(hint, int) and type(value) is int:
        return value in hint.__members__.values()
    return isinstance(value, hint)


def _converted(value: Any, hint: Any, name: str) -> Any:
    """Return `value`, which has the outer type of `hint`, with its contents converted."""
    if _is_mapping(hint):
        key_hint, value_hint = get_args(hint)
        return {
            conform(key, key_hint, f"a key of {name}"): conform(one, value_hint, f"{name}[{key!r}]")
            for key, one in value.items()
        }
    if get_origin(hint) is tuple:
        return _items_of_tuple(value, get_args(hint), name)
    if _is_several(hint):
        # An iterator can be read only once, but a retry reads the items again.
        (item_hint,) = get_args(hint)
        return [conform(one, item_hint, f"{name}[{index}]") for index, one in enumerate(value)]
    if _is_named_tuple(hint):
        return hint(*_fields(dict(zip(hint._fields, value, strict=False)), hint, name).values())
    if dataclasses.is_dataclass(hint):
        fields = {one.name: getattr(value, one.name) for one in dataclasses.fields(hint)}
        conformed = _fields(fields, hint, name)
        # An unchanged object is returned as is, which avoids a copy for each call.
        changed = {one: conformed[one] for one in fields if conformed[one] != fields[one]}
        return dataclasses.replace(value, **changed) if changed else value
    if hint is int and not isinstance(value, int):
        return operator.index(value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    return value


def _items_of_tuple(value: tuple[Any, ...], hints: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    if len(hints) == 2 and hints[1] is Ellipsis:
        hints = hints[:1] * len(value)
    if len(value) != len(hints):
        raise TypeError(f"{name} is {_shown(value)}: pass {len(hints)} values")
    pairs = enumerate(zip(value, hints, strict=True))
    return tuple(conform(one, hint, f"{name}[{index}]") for index, (one, hint) in pairs)


def _fields(values: dict[str, Any], kind: Any, name: str) -> dict[str, Any]:
    hints = _hints_of(kind)
    return {
        field: conform(value, hints[field], f"{name}.{field}") for field, value in values.items()
    }


@functools.cache
def _hints_of(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


# A longer value, such as a list of all topics, would hide the rest of the message.
_LONGEST_SHOWN = 80


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"a {type(value).__name__}"


def _described(hint: Any) -> str:
    """Return the expected type in words."""
    words = []
    for option in _options(hint):
        if option is None or option is NoneType:
            words.append("None")
        elif _is_mapping(option):
            words.append("a mapping")
        elif _is_several(option) and get_origin(option) is not tuple:
            words.append("a list")
        else:
            word = getattr(option, "__name__", str(option)).lstrip("_")
            words.append(f"an {word}" if word[0] in "aeiouAEIOU" else f"a {word}")
    return " or ".join(words)
