"""Turning the engine's methods into a face's own: a line each, with their types.

    class Admin(_Client):
        create_topics = blocking(AdminCore.create_topics)

A face holds the engine's object in `_core`. Parameters, types and docstrings are the engine's, so
that the three faces cannot drift apart. Constructors and the lists of methods stand in each face,
because there a checker, and who reads, can see what a call returns.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from twisted.internet.defer import Deferred

P = ParamSpec("P")
T = TypeVar("T")
Core = TypeVar("Core")
F = TypeVar("F", bound=Callable[..., Any])


def _named(call: F, method: Callable[..., Any]) -> F:
    """`call` with the name and the text of `method`."""
    functools.update_wrapper(call, method)
    return call


def blocking(
    method: Callable[Concatenate[Core, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """A coroutine method of the engine as one that returns when it is done."""

    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
        result: T = self._run(method, self._core, *arguments, **options)
        return result

    return _named(call, method)


def elsewhere(
    method: Callable[Concatenate[Core, P], T],
) -> Callable[Concatenate[Any, P], T]:
    """A plain method of the engine, run in its thread while the caller waits."""

    async def run(*arguments: Any, **options: Any) -> T:
        return method(*arguments, **options)

    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
        result: T = self._run(run, self._core, *arguments, **options)
        return result

    return _named(call, method)


def here(
    method: Callable[Concatenate[Core, P], T],
) -> Callable[Concatenate[Any, P], T]:
    """A plain method of the engine, for a face that lives in the engine's thread."""

    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
        return method(self._core, *arguments, **options)

    return _named(call, method)


def awaitable(
    method: Callable[Concatenate[Core, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], Awaitable[T]]:
    """A coroutine method of the engine as one to be awaited on an asyncio loop."""

    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> Awaitable[T]:
        result: Awaitable[T] = self._run(method, *arguments, **options)
        return result

    return _named(call, method)


def deferred(
    method: Callable[Concatenate[Core, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], Deferred[T]]:
    """A coroutine method of the engine as one that returns a Deferred."""

    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> Deferred[T]:
        return Deferred.fromCoroutine(method(self._core, *arguments, **options))

    return _named(call, method)
