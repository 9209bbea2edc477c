"""Parse lines into record fields for ``plog console-producer``.

Lines remain bytes, so values need not be UTF-8. A line ends with a line feed, or a carriage return
and a line feed. Source: Kafka 4.3 LineMessageReader. In Kafka, a carriage return alone also ends a
line, and ``headers.separator`` is a regular expression instead of plain text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from plog.cli.options import UsageError
from plog.error_base import PlogError

_SEPARATORS: Final = (
    "key.separator",
    "headers.delimiter",
    "headers.separator",
    "headers.key.separator",
)
_FLAGS: Final = ("parse.key", "parse.headers", "ignore.error")
_MARKER: Final = "null.marker"
_SHOWN_BYTES: Final = 60


class LineError(PlogError):
    """A line does not have the configured format; the message contains the line number."""


class Fields(NamedTuple):
    """The fields of one line."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFormat:
    """``h1:v1,h2:v2<TAB>key<TAB>value``, where headers and key are optional."""

    parse_key: bool = False
    parse_headers: bool = False
    ignore_error: bool = False
    key_separator: bytes = b"\t"
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    null_marker: bytes | None = None

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> LineFormat:
        """Return the format that the reader's properties describe. Raises UsageError."""
        # Kafka's tool passes the topic to its reader as a property, so scripts may set it.
        known = (*_FLAGS, *_SEPARATORS, _MARKER, "topic")
        for name in properties:
            if name not in known:
                raise UsageError(f"unknown reader property {name}; use one of {', '.join(known)}")
        given: dict[str, Any] = {
            _field(name): _is_true(properties.get(name, "")) for name in _FLAGS
        }
        for name in (*_SEPARATORS, _MARKER):
            if name in properties:
                # Python decodes command-line bytes that are not UTF-8 as surrogates (PEP 383).
                given[_field(name)] = properties[name].encode("utf-8", "surrogateescape")
        found = cls(**given)
        found._check()
        return found

    def _check(self) -> None:
        values = {name: getattr(self, _field(name)) for name in (*_SEPARATORS, _MARKER)}
        for name in _SEPARATORS:
            if not values[name]:
                raise UsageError(f"{name} is empty: it must contain at least one character")
            if values[name] == self.null_marker:
                raise UsageError(f"{_MARKER} and {name} must differ")
        # The headers' delimiter can equal the key separator, as it does by default, because headers
        # always come first.
        headers = ("headers.delimiter", "headers.separator", "headers.key.separator")
        for i, name in enumerate(headers):
            for other in headers[i + 1 :]:
                if values[name] == values[other]:
                    raise UsageError(f"{name} and {other} must differ")

    @property
    def is_plain(self) -> bool:
        """Return whether each line consists only of a value."""
        return not self.parse_key and not self.parse_headers and self.null_marker is None

    def parse(self, line: bytes, number: int) -> Fields:
        """Parse a line without its line ending; errors include its `number`. Raises LineError.

        >>> LineFormat(parse_key=True).parse(b"alice\\t/index.html", 1)
        Fields(key=b'alice', value=b'/index.html', headers=())
        """
        headers = key = None
        rest = line
        if self.parse_headers:
            headers, rest = self._cut(rest, self.headers_delimiter, "headers delimiter", number)
        if self.parse_key:
            key, rest = self._cut(rest, self.key_separator, "key separator", number)
        pairs = (
            () if headers is None or headers == self.null_marker else self._pairs(headers, number)
        )
        return Fields(self._unless_null(key), self._unless_null(rest), pairs)

    def _unless_null(self, data: bytes | None) -> bytes | None:
        return None if data == self.null_marker else data

    def _cut(
        self, text: bytes, separator: bytes, what: str, number: int
    ) -> tuple[bytes | None, bytes]:
        # Only the first separator counts, so the rest of the line can contain others.
        head, found, rest = text.partition(separator)
        if found:
            return head, rest
        if self.ignore_error:
            # As in Kafka, the whole text becomes the next field then.
            return None, text
        raise LineError(
            f"line {number} does not contain the {what} {excerpt(separator)}: {excerpt(text)}"
        )

    def _pairs(self, text: bytes, number: int) -> tuple[tuple[str, bytes | None], ...]:
        parts = text.split(self.headers_separator)
        # Kafka uses Java's String.split, which drops trailing empty parts.
        while len(parts) > 1 and not parts[-1]:
            parts.pop()
        return tuple(self._pair(part, number) for part in parts)

    def _pair(self, text: bytes, number: int) -> tuple[str, bytes | None]:
        name, found, value = text.partition(self.headers_key_separator)
        if not found:
            if self.ignore_error:
                return _name(text), None
            separator = excerpt(self.headers_key_separator)
            raise LineError(f"line {number} has a header without {separator}: {excerpt(text)}")
        if name == self.null_marker:
            raise LineError(f"line {number} uses the null marker as a header name")
        return _name(name), self._unless_null(value)


def stripped(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines without their line endings.

    >>> list(stripped([b"a\\n", b"b\\r\\n", b"", b"c"]))
    [b'a', b'b', b'', b'c']
    """
    for line in lines:
        # rstrip() would also remove carriage returns at the end of the value.
        if line[-1:] == b"\n":
            line = line[:-2] if line[-2:-1] == b"\r" else line[:-1]
        yield line


def excerpt(data: bytes) -> str:
    """Return a line for an error message, shortened if necessary."""
    # A line can have megabytes, for example if the file is binary.
    cut = data if len(data) <= _SHOWN_BYTES else data[:_SHOWN_BYTES] + b"..."
    return repr(cut.decode("utf-8", "backslashreplace"))


def _name(data: bytes) -> str:
    # Bytes that are not UTF-8 become surrogates, which the codec converts back (PEP 383).
    return data.decode("utf-8", "surrogateescape")


def _is_true(text: str) -> bool:
    # As in Java's Boolean.parseBoolean, any other text means false.
    return text.strip().lower() == "true"


def _field(name: str) -> str:
    return name.replace(".", "_")
