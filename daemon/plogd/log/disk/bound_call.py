"""Bind an argument to a function, for jobs and callbacks that are created in a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


def bind(function: Callable[[T], U], argument: T) -> Callable[[], U]:
    """Return ``lambda: function(argument)`` with the current value of `argument`, typed for mypy.

    >>> calls = [bind(str, number) for number in range(3)]
    >>> [call() for call in calls]
    ['0', '1', '2']
    """
    return lambda: function(argument)
