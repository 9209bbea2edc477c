"""Turning the engine's coroutine methods into a face's own: a line each, with their types.

    class Admin(BlockingFace):
        create_topics = blocking(AdminCore.create_topics)

A face holds the engine's object in `_core` and runs its coroutines by `_run`. Parameters, types and
docstrings are the engine's, so that the three faces cannot drift apart.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Core = TypeVar("Core")

Method = Callable[Concatenate[Core, P], Coroutine[Any, Any, T]]


def blocking(
    method: Callable[Concatenate[Core, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """A method that returns when the engine's has."""

    @functools.wraps(method)
    def call(self: Any, *arguments: P.args, **options: P.kwargs) -> T:
        result: T = self._run(method, self._core, *arguments, **options)
        return result

    return call


def awaitable(
    method: Callable[Concatenate[Core, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], Awaitable[T]]:
    """A method that returns something to await: an asyncio future, or a Deferred."""

    @functools.wraps(method)
    def call(self: Any, *arguments: P.args, **options: P.kwargs) -> Awaitable[T]:
        result: Awaitable[T] = self._run(method, self._core, *arguments, **options)
        return result

    return call
