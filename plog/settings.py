"""Declare settings as dataclass fields with a type, default, bounds and description.

The broker's `BrokerConfig` and `TopicConfig` and the clients' `ClientSettings` declare their
settings in this way. Parsing, validation, DescribeConfigs responses, the pages in docs/ and the
example files in etc/ are all derived from the declarations. This module does not declare any
setting itself.

Values are parsed as in Kafka's ConfigDef: they are trimmed, integers are decimal, booleans are
case-insensitive, and commas separate list entries.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any, Literal, TypeAlias, TypeVar, cast

from plog.error_base import PlogError

T = TypeVar("T")

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None
UpdateMode: TypeAlias = Literal["read-only", "reload", "per-broker", "cluster-wide"]
"""When a new value takes effect: after a restart (read-only); after the files are reloaded
(reload); or immediately when a client sets it, for one broker only (per-broker) or for one or all
brokers (cluster-wide). Values of the last two kinds can also be reloaded from the files."""
Importance: TypeAlias = Literal["high", "medium", "low"]

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB


class ConfigError(PlogError):
    """The settings are invalid; `problems` contains one line for each error.

    `warnings` contains the warnings about the same settings. They often explain the error, such as
    a misspelled name.
    """

    def __init__(self, problems: Sequence[str], warnings: Sequence[str] = ()) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)
        self.warnings = tuple(warnings)

    def __reduce__(self) -> tuple[Any, ...]:
        # By default, an exception is unpickled from its message, which `__init__` does not accept.
        return type(self), (self.problems, self.warnings)


class SettingType(IntEnum):
    """The type of a setting, with its number in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


# int() and float() alone would also accept underscores, `nan` and `inf`.
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_WHOLE_NUMBER_LIMIT = {
    SettingType.SHORT: 2**15 - 1,
    SettingType.INT: INT_MAX,
    SettingType.LONG: LONG_MAX,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The definition of a setting.

    `also` lists valid values outside the bounds, such as -1. `spellings` lists other texts for the
    values of `one_of`, as (text, value) pairs; if `any_case` is set, both are case-insensitive.
    """

    name: str
    type: SettingType
    default: Value
    doc: str
    at_least: float | None = None
    at_most: float | None = None
    also: tuple[int, ...] = ()
    one_of: tuple[str, ...] = ()
    spellings: tuple[tuple[str, str], ...] = ()
    any_case: bool = False
    unit: str = ""
    importance: Importance = "medium"
    update: UpdateMode = "read-only"
    group: str = ""
    aliases: tuple[str, ...] = ()
    # Broker settings whose values are the default for this topic setting, by precedence. The factor
    # converts a value to the unit of this setting.
    synonyms: tuple[tuple[str, int], ...] = ()

    @property
    def attribute(self) -> str:
        """The name of the field that holds the value: underscores replace the dots of `name`."""
        return self.name.replace(".", "_")

    @property
    def is_dynamic(self) -> bool:
        """Whether a client may change the setting while the broker runs."""
        return self.update in ("per-broker", "cluster-wide")

    @property
    def sensitive(self) -> bool:
        """Whether the value is secret and must never be shown."""
        return self.type is SettingType.PASSWORD

    @property
    def allowed(self) -> str:
        """The allowed values as text for error messages and docs; empty if all are allowed."""
        if self.type is SettingType.BOOLEAN:
            return "true, false"
        if self.one_of:
            some = "any of " if self.type is SettingType.LIST else ""
            return some + ", ".join(value or "empty" for value in self.one_of)
        low, high = _number_text(self.at_least), _number_text(self.at_most)
        if low and high:
            bounds = f"{low} to {high}"
        elif low:
            bounds = f"at least {low}"
        else:
            bounds = f"at most {high}" if high else ""
        extra = ", ".join(str(value) for value in self.also)
        return f"{extra}, or {bounds}" if extra and bounds else bounds

    def parse(self, text: str) -> Value:
        """Parse a value. Raises ValueError, which states the problem and the allowed values.

        >>> Setting(name="a.ms", type=SettingType.INT, default=1, doc="", at_least=1).parse(" 7 ")
        7
        """
        try:
            return self._checked(self._read(text.strip()))
        except ValueError as error:
            # The cause would add a traceback that says nothing about the setting.
            raise self._refusal(error) from None

    def take(self, given: object) -> Value:
        """Convert a value from a program: text, as for `parse`, or a value of the setting's type.

        >>> Setting(name="a", type=SettingType.LIST, default=(), doc="").take(["x", "y"])
        ('x', 'y')
        """
        if isinstance(given, str):
            # Programs can therefore pass the values of a properties file unchanged.
            return self.parse(given)
        try:
            return self._checked(self._read_typed(given))
        except ValueError as error:
            raise self._refusal(error) from None

    def _refusal(self, error: ValueError) -> ValueError:
        allowed = f"; allowed: {self.allowed}" if self.allowed else ""
        unit = f" ({self.unit})" if self.unit and allowed else ""
        return ValueError(f"{error}{allowed}{unit}")

    def _read(self, text: str) -> Value:
        if self.type is SettingType.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise ValueError("neither true nor false")
            return text.lower() == "true"
        if self.type in _WHOLE_NUMBER_LIMIT:
            if not _INTEGER.fullmatch(text):
                raise ValueError("not a whole number")
            return int(text)
        if self.type is SettingType.DOUBLE:
            if not _DECIMAL.fullmatch(text):
                raise ValueError("not a number")
            return float(text)
        if self.type is SettingType.LIST:
            return tuple(self._spelt(item.strip()) for item in text.split(",")) if text else ()
        return self._spelt(text)

    def _read_typed(self, given: object) -> Value:
        if self.type is SettingType.LIST:
            if not isinstance(given, list | tuple):
                raise ValueError(f"a {type(given).__name__} is not a list")
            return tuple(self._spelt(str(item).strip()) for item in given)
        # Before the numbers, because a bool is also an int.
        if isinstance(given, bool):
            # As text, it is an error for a setting that is a number.
            return self._read("true" if given else "false")
        if isinstance(given, float) and self.type is not SettingType.DOUBLE:
            # Computations such as 0.5 * 1000 result in floats, even if the number is whole.
            if not given.is_integer():
                raise ValueError("not a whole number")
            given = int(given)
        if isinstance(given, int | float):
            return self._read(str(given))
        # For a setting that holds a file name, programs can pass a pathlib.Path.
        as_path = getattr(given, "__fspath__", None)
        path = as_path() if callable(as_path) else None
        if isinstance(path, str):
            return self._read(path)
        raise ValueError(f"a {type(given).__name__} is not valid for this setting")

    def _spelt(self, text: str) -> str:
        """Return the value that `text` is another spelling of, or `text` itself."""
        if self.any_case:
            known = (*self.one_of, *(other for other, _ in self.spellings))
            # Unknown text stays as it is, so that `_checked` rejects it.
            text = next((each for each in known if each.lower() == text.lower()), text)
        return dict(self.spellings).get(text, text)

    def _checked(self, value: Value) -> Value:
        if isinstance(value, tuple):
            self._check_list(value)
        elif isinstance(value, str):
            if self.one_of and value not in self.one_of:
                raise ValueError("not one of the allowed values")
        # A bool is also an int, but has no bounds.
        elif not isinstance(value, bool) and isinstance(value, int | float):
            self._check_number(value)
        return value

    def _check_list(self, items: tuple[str, ...]) -> None:
        if "" in items:
            # Otherwise, a trailing comma would add an entry that names nothing.
            raise ValueError("has an empty entry")
        if len(set(items)) < len(items):
            raise ValueError("has a duplicate entry")
        if self.one_of and not set(items) <= set(self.one_of):
            raise ValueError("has an entry that is not one of the allowed values")

    def _check_number(self, value: float) -> None:
        if value in self.also:
            return
        if self.at_least is not None and value < self.at_least:
            raise ValueError("too small")
        if self.at_most is not None and value > self.at_most:
            raise ValueError("too large")
        # Python's integers are unlimited, but Kafka's have the size of a Java type.
        limit = _WHOLE_NUMBER_LIMIT.get(self.type)
        if limit is not None and not -limit - 1 <= value <= limit:
            raise ValueError(f"does not fit the type {self.type.name}")

    def format(self, value: Value) -> str | None:
        """Return a value as text, in Kafka's format, or None for null.

        >>> Setting(name="a", type=SettingType.LIST, default=(), doc="").format(("x", "y"))
        'x,y'
        """
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)

    def shown(self, value: Value) -> str | None:
        """Return the result of `format`, or None if the setting is sensitive."""
        # As in Kafka, DescribeConfigs returns null for secrets, even to administrators.
        return None if self.sensitive else self.format(value)


def _number_text(number: float | None) -> str:
    """Return a bound as text; empty if there is no bound or it is the type's maximum."""
    # Tables would otherwise show a limit of 9223372036854775807 for settings that have none.
    return "" if number is None or number in (INT_MAX, LONG_MAX) else f"{number}"


def _type_of(default: object) -> SettingType:
    """Return the type that a default implies; LONG and a default of None need an explicit type."""
    for python_type, setting_type in (
        (bool, SettingType.BOOLEAN),  # Before int, because a bool is also an int.
        (int, SettingType.INT),
        (float, SettingType.DOUBLE),
        (str, SettingType.STRING),
        (tuple, SettingType.LIST),
    ):
        if isinstance(default, python_type):
            return setting_type
    raise TypeError(f"cannot infer the type of a setting with default {default!r}; specify `type`")


def setting(
    name: str,
    default: T,
    doc: str,
    *,
    type: SettingType | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    also: tuple[int, ...] = (),
    one_of: tuple[str, ...] = (),
    spellings: tuple[tuple[str, str], ...] = (),
    any_case: bool = False,
    unit: str = "",
    importance: Importance = "medium",
    update: UpdateMode = "read-only",
    group: str = "",
    aliases: tuple[str, ...] = (),
    synonyms: tuple[tuple[str, int], ...] = (),
) -> T:
    """Declare a setting as a dataclass field. A `group` starts a new section in the docs."""
    row = Setting(
        name=name,
        type=_type_of(default) if type is None else type,
        default=cast(Value, default),
        doc=doc,
        at_least=at_least,
        at_most=at_most,
        also=also,
        one_of=one_of,
        spellings=spellings,
        any_case=any_case,
        unit=unit,
        importance=importance,
        update=update,
        group=group,
        aliases=aliases,
        synonyms=synonyms,
    )
    # This function is declared to return a T, so that type checkers give the field the type of its
    # default. The repr omits sensitive values, because it may appear in logs and tracebacks.
    return field(default=default, repr=not row.sensitive, metadata={"setting": row})


_rows_by_table: dict[type[Any], Mapping[str, Setting]] = {}


def settings_of(table: type[Any]) -> Mapping[str, Setting]:
    """Return the settings of a table by name, in the order of their declaration."""
    # The fields are searched only once, because every new client reads the table.
    rows = _rows_by_table.get(table)
    if rows is None:
        declared = [f.metadata["setting"] for f in fields(table) if "setting" in f.metadata]
        rows = _rows_by_table[table] = {row.name: row for row in declared}
    return rows


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """Return the most similar of `names`, for "did you mean"; None if none is similar.

    >>> nearest_name("log.retention.hour", ["log.retention.hours", "num.partitions"])
    'log.retention.hours'
    """
    # With difflib's default of 0.6, auto.create.topics.enable would be suggested for
    # auto.leader.rebalance.enable.
    matches = difflib.get_close_matches(name, list(names), n=1, cutoff=0.75)
    return matches[0] if matches else None
