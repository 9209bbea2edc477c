r"""Parser for Java's .properties format, which Kafka uses for its settings.

Pure: the callers find and read the files. The format is that of java.util.Properties. Comments
start with ``#`` or ``!``. A key ends at ``=``, ``:`` or white space. A line that ends with an odd
number of backslashes continues on the next line. Escapes are ``\t \n \r \f \uXXXX``; any other
escaped character stands for itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_SPACE = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_END = re.compile(r"\r\n|\r|\n")
# A key ends at the first separator without a backslash before it.
_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")


class PropertiesError(ValueError):
    """The text is not in the .properties format; `line` is the line number, starting at 1."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}")
        self.line = line
        self.problem = problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A ``key=value`` assignment; `line` is the number of its first line, starting at 1."""

    line: int
    key: str
    value: str


def decode_properties(data: bytes) -> str:
    """Decode a file as UTF-8 or, if that fails, as Latin-1, which Java originally used."""
    try:
        # Editors on Windows write a byte order mark, which would become part of the first key.
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def parse_properties(text: str) -> list[Assignment]:
    """Return all assignments in order, including repeated keys. Raises PropertiesError.

    >>> [(a.key, a.value) for a in parse_properties("# note\\na.b = 1, \\\\\\n   2\\n")]
    [('a.b', '1, 2')]
    """
    assignments = []
    for line, content in _logical_lines(text):
        key_match = _KEY.match(content)
        assert key_match is not None  # The pattern also matches the empty string.
        separator = _SEPARATOR.match(content, key_match.end())
        assert separator is not None
        assignments.append(
            Assignment(
                line=line,
                key=_unescape(key_match.group(), line),
                value=_unescape(content[separator.end() :], line),
            )
        )
    return assignments


def escape_value(value: str) -> str:
    """Escape `value` for use after ``key=``.

    >>> escape_value(" C:\\\\logs")
    '\\\\ C:\\\\\\\\logs'
    """
    escaped = value.replace("\\", "\\\\")
    for letter, character in _ESCAPES.items():
        escaped = escaped.replace(character, "\\" + letter)
    # The parser only strips white space before the value.
    return "\\" + escaped if escaped.startswith(" ") else escaped


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (first line number, content) without comments, blank lines or leading white space."""
    natural = iter(enumerate(_LINE_END.split(text), start=1))
    for number, raw in natural:
        content = raw.lstrip(_SPACE)
        if not content or content[0] in "#!":
            continue
        # As in Java, a continuation line is never a comment, even if it starts with `#`.
        while _is_continued(content):
            # A backslash at the end of the file continues with an empty line.
            _, following = next(natural, (0, ""))
            content = content[:-1] + following.lstrip(_SPACE)
        yield number, content


def _is_continued(line: str) -> bool:
    # In an even number of backslashes, each pair is an escaped backslash.
    backslashes = len(line) - len(line.rstrip("\\"))
    return backslashes % 2 == 1


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text
    parts = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\":
            parts.append(character)
            continue
        escaped = text[position : position + 1]
        position += 1
        if escaped == "u":
            digits = text[position : position + 4]
            if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
                raise PropertiesError(line, "\\u must be followed by four hexadecimal digits")
            parts.append(chr(int(digits, 16)))
            position += 4
        else:
            # As in Java, an unknown escape is not an error.
            parts.append(_ESCAPES.get(escaped, escaped))
    return "".join(parts)
