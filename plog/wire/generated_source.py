"""Source code of the functions that decoder.py and encoder.py generate.

Each message and version has its own functions: straight-line code with the names of that version's
fields, in which one `struct.Struct` reads or writes adjacent fields of constant size. Such code is
three to five times faster than code that interprets the declarations for each message.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Source:
    """The lines of one function, and the objects that they refer to."""

    def __init__(self, signature: str, **names: Any) -> None:
        self._lines = [f"def {signature}:"]
        self._depth = 1
        # Each function has its own globals, so the constants of two functions cannot collide.
        self._namespace: dict[str, Any] = dict(names)
        self._used = 0

    def line(self, text: str) -> None:
        """Append a statement."""
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Append `head` and indent all lines that follow within the with statement."""
        self.line(head)
        self._depth += 1
        # Without try/finally: if the block raises an exception, the whole function is abandoned.
        yield
        self._depth -= 1

    def name(self, prefix: str) -> str:
        """Return the name of an unused variable."""
        self._used += 1
        return f"{prefix}{self._used}"

    def constant(self, value: object) -> str:
        """Return an expression for `value`: a literal, or the name of a global variable."""
        if value is None or isinstance(value, bool | int | float | str):
            # A literal is faster than a global variable, which Python looks up by name.
            return repr(value)
        # A class has no literal, and a literal list would be created again for each message.
        name = self.name("constant")
        self._namespace[name] = value
        return name

    def packing(self, codes: str, method: str) -> str:
        """Return the name of a method (pack, unpack_from) of the big-endian Struct of `codes`."""
        # A question mark, struct's code for a bool, cannot be part of a name.
        name = f"{method}_{codes.replace('?', 'bool')}"
        # A Struct is compiled once; struct.pack(codes, …) would look up the format in each call.
        # With ">", fields are not aligned, so there is no padding between them.
        self._namespace[name] = getattr(struct.Struct(">" + codes), method)
        return name

    def compile(self, title: str) -> Callable[..., Any]:
        """Return the compiled function; tracebacks show `title` and the line."""
        text = "\n".join(self._lines)
        file_name = f"<{title}>"
        # With a modification time of None, linecache.checkcache keeps the entry, although its file
        # does not exist.
        linecache.cache[file_name] = (len(text), None, text.splitlines(keepends=True), file_name)
        exec(compile(text, file_name, "exec"), self._namespace)  # noqa: S102 - our own tables
        function: Callable[..., Any] = self._namespace[self._lines[0][4:].partition("(")[0]]
        return function
