"""A function with its argument fixed, typed: what a job or a callback made in a loop needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


def bind(function: Callable[[T], U], argument: T) -> Callable[[], U]:
    """``lambda: function(argument)``, with `argument` as it is now.

    >>> calls = [bind(str, number) for number in range(3)]
    >>> [call() for call in calls]
    ['0', '1', '2']
    """
    return lambda: function(argument)
