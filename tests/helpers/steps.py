"""Work in steps, run to its end without interruption."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def finished(steps: Generator[None, None, T]) -> T:
    """Run all steps; return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value
