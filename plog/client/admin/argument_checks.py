"""Check the arguments of admin operations against their annotations.

A wrong argument raises TypeError when the operation is called, and the error identifies the
parameter. Without the check, encoding the request would fail, or a broker would reject it with an
error that the caller cannot relate to the call. `AdminBase` applies `checked` to every operation,
so new operations need no checks.

Where the intent is clear, the value is converted: a pair becomes a `TopicPartition`, and a number
becomes the member of an enum. Config values stay unchanged; `config_text` returns their Kafka form.
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
    """Return the text of a config value, as Kafka writes it.

    >>> config_text(5), config_text(0.5), config_text(True), config_text("compact")
    ('5', '0.5', 'true', 'compact')
    """
    # Java writes booleans in lower case.
    return str(value).lower() if isinstance(value, bool) else str(value)


def checked(method: Callable[..., Any], *arguments: Any, **options: Any) -> inspect.BoundArguments:
    """Bind a call of `method` (without `self`), with its arguments checked and converted.

    Raises TypeError, which identifies the parameter, for arguments that do not fit.
    """
    signature, hints = _parameters(method)
    # `bind` raises the TypeError of a wrong call before any coroutine is created.
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
    """Return `value` converted to the type `hint`. Raises TypeError, which calls it `name`.

    >>> from plog.types import TopicPartition
    >>> conform(("page-views", 0), TopicPartition, "partition")
    TopicPartition(topic='page-views', partition=0)
    >>> conform("3", int | None, "partitions")
    Traceback (most recent call last):
        ...
    TypeError: partitions is '3': give an int or None
    """
    for option in _options(hint):
        if _fits(value, option):
            return _converted(value, option, name)
    advice = f"give {_described(hint)}"
    # Passing a single string instead of a list is the most common mistake.
    if isinstance(value, str) and any(_is_several(option) for option in _options(hint)):
        advice = f"give several, such as [{value!r}]"
    raise TypeError(f"{name} is {_shown(value)}: {advice}")


def _options(hint: Any) -> tuple[Any, ...]:
    if get_origin(hint) in (Union, UnionType):
        # A mapping is iterable as well, so it is tried first.
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
    """Return whether `value` has the outer type of `hint`; its contents are not checked."""
    if hint is Any:
        return True
    if hint is None or hint is NoneType:
        return value is None
    if _is_mapping(hint):
        return isinstance(value, Mapping)
    if get_origin(hint) is tuple:
        return isinstance(value, tuple)
    if _is_several(hint):
        # Strings and named tuples are single values, although they are iterable.
        is_one = isinstance(value, str | bytes) or _is_named_tuple(type(value))
        return isinstance(value, Iterable) and not is_one
    # A plain tuple may stand for a named one; it may omit only trailing fields with defaults.
    if _is_named_tuple(hint) and type(value) is tuple:
        return len(hint._fields) - len(hint._field_defaults) <= len(value) <= len(hint._fields)
    # A bool is an int in Python, but never a number of partitions or an offset.
    if isinstance(value, bool) and hint in (int, float):
        return False
    if hint is int:
        # This includes the integers of NumPy and similar libraries.
        return hasattr(value, "__index__")
    if hint is float:
        return isinstance(value, int | float)
    # An integer may stand for a member of a protocol enum.
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
        # Return a list, because an iterator can be read only once, and a retry reads it again.
        (item_hint,) = get_args(hint)
        return [conform(one, item_hint, f"{name}[{index}]") for index, one in enumerate(value)]
    if _is_named_tuple(hint):
        return hint(*_fields(dict(zip(hint._fields, value, strict=False)), hint, name).values())
    if dataclasses.is_dataclass(hint):
        fields = {one.name: getattr(value, one.name) for one in dataclasses.fields(hint)}
        conformed = _fields(fields, hint, name)
        # Unchanged objects keep their identity.
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
        raise TypeError(f"{name} is {_shown(value)}: give {len(hints)} values")
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
