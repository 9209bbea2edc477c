"""Turning the engine's methods into a face's own: a line each, with their types.

    class Admin(_Client):
        create_topics = blocking(AdminCore.create_topics)

A face holds the engine's object in `_core`. Parameters, types and docstrings are the engine's, so
that the three faces cannot drift apart. Constructors and the lists of methods stand in each face,
because there a checker, and who reads, can see what a call returns.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

from twisted.internet.defer import Deferred

from plog.client.settings import ClientSettings

EXIT_TIMEOUT_S = 2.5
"""How long leaving a client's ``with`` block by an exception may take, such as by Ctrl-C.

What could be sent or committed is, in that time. Without a broker nothing can, and the user who
has pressed Ctrl-C does not want to wait for ``delivery.timeout.ms``.
"""

P = ParamSpec("P")
T = TypeVar("T")
Core = TypeVar("Core")
F = TypeVar("F", bound=Callable[..., Any])


def described(face: str, client: object, settings: ClientSettings, state: str = "") -> str:
    """A client's text form, such as ``<plog.Producer 'billing' at localhost:9092>``."""
    name = f" {settings.client_id!r}" if settings.client_id else ""
    servers = ",".join(settings.bootstrap_servers or getattr(settings, "bootstrap_controllers", ()))
    return f"<{face}.{type(client).__name__}{name} at {servers}{state and ', '}{state}>"


class NoCopy:
    """A client holds connections, which nothing can be made of by copying it."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be pickled or copied: make a client where it is used")


def check_topics(topics: Sequence[object]) -> None:
    """Raise TypeError for what another client's constructor takes in the place of topics."""
    if not topics or isinstance(topics[0], str):
        return
    if isinstance(topics[0], Mapping):
        raise TypeError("a consumer's settings are config={…}, or keywords; topics come first")
    if isinstance(topics[0], list | tuple | set | frozenset):
        raise TypeError(
            "topics are arguments of their own, Consumer('a', 'b', …), or a list for subscribe(…)"
        )


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

    assert not inspect.iscoroutinefunction(method), f"{method} has to be awaited"

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

    assert not inspect.iscoroutinefunction(method), f"{method} has to be awaited"

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
