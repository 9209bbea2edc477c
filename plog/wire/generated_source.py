"""Python source that is written, compiled and called by decoder.py and encoder.py.

One function is made per message and version: straight-line code with the names of that version's
fields in it, in which neighbours of constant size are read and written by one `struct.Struct`. That
is three to five times faster than walking the declarations for each message.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Source:
    """The lines of one function, and the objects they refer to."""

    def __init__(self, signature: str, **names: Any) -> None:
        self._lines = [f"def {signature}:"]
        self._depth = 1
        self._namespace: dict[str, Any] = dict(names)
        self._used = 0

    def line(self, text: str) -> None:
        """Append a statement."""
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Append `head` and indent what follows inside the with statement."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, prefix: str) -> str:
        """A variable no other line uses."""
        self._used += 1
        return f"{prefix}{self._used}"

    def constant(self, value: object) -> str:
        """An expression for `value`, which is bound to a global name unless it is a literal."""
        if value is None or isinstance(value, bool | int | float | str):
            return repr(value)
        name = self.name("constant")
        self._namespace[name] = value
        return name

    def packing(self, codes: str, method: str) -> str:
        """The name of a bound method (pack, unpack_from) of the big-endian Struct of `codes`."""
        name = f"{method}_{codes.replace('?', 'bool')}"
        self._namespace[name] = getattr(struct.Struct(">" + codes), method)
        return name

    def compile(self, title: str) -> Callable[..., Any]:
        """The finished function; tracebacks show `title` and the line."""
        text = "\n".join(self._lines)
        file_name = f"<{title}>"
        linecache.cache[file_name] = (len(text), None, text.splitlines(keepends=True), file_name)
        exec(compile(text, file_name, "exec"), self._namespace)  # noqa: S102 - our own tables
        function: Callable[..., Any] = self._namespace[self._lines[0][4:].partition("(")[0]]
        return function
