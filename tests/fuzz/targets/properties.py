"""The text of a server.properties: parsed, or refused with PropertiesError and the line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from plog.properties import Assignment, PropertiesError, escape_value, parse_properties
from tests.fuzz.target import Target

_EXAMPLE = Path(__file__).parents[3] / "etc" / "server.properties"


def fuzz(data: bytes) -> None:
    """Parse the text; every value can be written and parsed again."""
    text = data.decode("utf-8", "replace")
    assignments: list[Assignment] = []
    lines = {1}
    try:
        assignments = parse_properties(text)
    except PropertiesError as error:
        lines.add(error.line)
    lines |= {one.line for one in assignments}
    assert min(lines) >= 1 and max(lines) <= 1 + text.count("\n") + text.count("\r")
    for one in assignments:
        [again] = parse_properties(f"key={escape_value(one.value)}")
        assert (again.key, again.value) == ("key", one.value)


def _seeds() -> Iterator[bytes]:
    yield _EXAMPLE.read_bytes()[:3_000]
    yield b"a=b\n c : d\\\n  e\n! f\n\\u00e9\\t=\\ x\r\ng\rh=i\\\\"
    yield b"a\\"
    yield b"a=\\u12"


TARGET = Target(name="properties", fuzz=fuzz, seeds=_seeds, memory=(500, 50_000))
