"""Read the JSON files that tools accept, with errors that name the file and the place in it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from plog.cli.options import UsageError
from plog.types import TopicPartition

_VERSION = 1

T = TypeVar("T")


class JsonValue:
    """A value in a JSON file, with its path in the file. All checks raise UsageError.

    `form` is an example of a valid file, which errors show.
    """

    def __init__(self, value: Any, path: str, *, file: str, form: str) -> None:
        self._value = value
        self._path = path
        self._file = file
        self._form = form

    def error(self, problem: str) -> UsageError:
        """Return an error about this value."""
        text = f"{self._path} {problem}" if self._path else problem
        return UsageError(f"cannot read {self._file}: {text}; the file must look like {self._form}")

    def field(self, name: str) -> JsonValue:
        """Return a field of an object, which must exist."""
        found = self.optional_field(name)
        if found is None:
            raise self.error(f"has no field '{name}'" if self._path else f"'{name}' is missing")
        return found

    def optional_field(self, name: str) -> JsonValue | None:
        """Return a field of an object, or None."""
        if not isinstance(self._value, dict):
            raise self.error("is not an object" if self._path else "not a JSON object")
        if name not in self._value:
            return None
        path = f"{self._path}.{name}" if self._path else name
        return JsonValue(self._value[name], path, file=self._file, form=self._form)

    def elements(self) -> Iterator[JsonValue]:
        """Yield the elements of a list."""
        if not isinstance(self._value, list):
            raise self.error("is not a list")
        for number, each in enumerate(self._value):
            yield JsonValue(each, f"{self._path}[{number}]", file=self._file, form=self._form)

    def text(self) -> str:
        """Return a string."""
        if not isinstance(self._value, str):
            raise self.error("is not a string")
        return self._value

    def number(self, at_least: int = 0) -> int:
        """Return a whole number."""
        # In Python, bool is a kind of int.
        if not isinstance(self._value, int) or isinstance(self._value, bool):
            raise self.error("is not a whole number")
        if self._value < at_least:
            raise self.error(f"is less than {at_least}")
        return self._value

    def topic_partition(self) -> TopicPartition:
        """Return the partition that the fields `topic` and `partition` of an object name."""
        return TopicPartition(self.field("topic").text(), self.field("partition").number())


def read_json_file(path: str, form: str) -> JsonValue:
    """Return the document in a file. Raises OSError, or UsageError if it is not JSON.

    If the document has a version, it must be 1.
    """
    with open(path, encoding="utf-8") as file:
        try:
            document: Any = json.load(file)
        except json.JSONDecodeError as error:
            raise UsageError(
                f"cannot read {path}, line {error.lineno}, column {error.colno}: {error.msg}; the"
                f" file must look like {form}"
            ) from None
        except UnicodeDecodeError:
            raise UsageError(f"cannot read {path}: it is not encoded in UTF-8") from None
    root = JsonValue(document, "", file=path, form=form)
    version = root.optional_field("version")
    if version is not None and version.number() != _VERSION:
        raise UsageError(
            f"cannot read {path}: version {version.number()} is not supported; use version 1"
        )
    return root


def duplicates(items: Iterable[T]) -> list[T]:
    """Return the items that occur more than once.

    >>> duplicates("abca")
    ['a']
    """
    seen: set[T] = set()
    repeated: dict[T, None] = {}
    for each in items:
        if each in seen:
            repeated[each] = None
        seen.add(each)
    return list(repeated)
