"""Adapters that turn an engine method into a face method, in one typed line.

    class Admin(_Client):
        create_topics = blocking(AdminCore.create_topics)

A face keeps the engine's object in `_core`. The engine's methods provide parameters, types and
docstrings, so the three faces cannot drift apart. Each face has its own constructor and list of
methods, so that type checkers and readers can see what each call returns.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

from twisted.internet.defer import Deferred

from plog.client.settings import ClientSettings

# The exception is often Ctrl-C: if no broker is reachable, the user should not have to wait for
# delivery.timeout.ms.
EXIT_TIMEOUT_S = 2.5
"""The time limit for closing a client when an exception ends its ``with`` block.

Within this time, the client sends and commits as much as possible.
"""

P = ParamSpec("P")
T = TypeVar("T")
Core = TypeVar("Core")
F = TypeVar("F", bound=Callable[..., Any])


def client_repr(face: str, client: object, settings: ClientSettings, state: str = "") -> str:
    """Return a client's repr, such as ``<plog.Producer 'billing' at localhost:9092>``."""
    name = f" {settings.client_id!r}" if settings.client_id else ""
    servers = ",".join(settings.bootstrap_servers or getattr(settings, "bootstrap_controllers", ()))
    return f"<{face}.{type(client).__name__}{name} at {servers}{state and ', '}{state}>"


class NoCopy:
    """A base class for clients, which cannot be pickled or copied because they own connections."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be pickled or copied; create a client in the process that uses it"
        )


def check_topics(topics: Sequence[object]) -> None:
    """Raise TypeError if `topics` are arguments meant for another library's constructor."""
    # A consumer without topics is valid: the application can call `assign` or `subscribe` later.
    if not topics or isinstance(topics[0], str):
        return
    if isinstance(topics[0], Mapping):
        raise TypeError(
            "a consumer's positional arguments are topics; pass settings as config={…} or as"
            " keywords"
        )
    if isinstance(topics[0], list | tuple | set | frozenset):
        raise TypeError(
            "a consumer takes each topic as a separate argument: Consumer('a', 'b', …);"
            " only subscribe(…) takes a list"
        )


def _named(call: F, method: Callable[..., Any]) -> F:
    """Return `call` with the name and the docstring of `method`."""
    # `help` and documentation tools then show the docstring of the engine's method.
    functools.update_wrapper(call, method)
    return call


def blocking(
    method: Callable[Concatenate[Core, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Adapt a coroutine method of the engine: a call blocks until the coroutine finishes."""

    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
        result: T = self._run(method, self._core, *arguments, **options)
        return result

    return _named(call, method)


def in_engine_thread(
    method: Callable[Concatenate[Core, P], T],
) -> Callable[Concatenate[Any, P], T]:
    """Adapt a plain method of the engine: it runs in the engine's thread while the caller waits."""

    # `run` would return the coroutine of a coroutine method without awaiting it.
    assert not inspect.iscoroutinefunction(method), f"{method} must be awaited"

    # `_run` runs coroutines in the engine's thread.
    async def run(*arguments: Any, **options: Any) -> T:
        return method(*arguments, **options)

    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
        result: T = self._run(run, self._core, *arguments, **options)
        return result

    return _named(call, method)


def direct(
    method: Callable[Concatenate[Core, P], T],
) -> Callable[Concatenate[Any, P], T]:
    """Adapt a plain method of the engine: it runs in the caller's thread."""

    # `call` would return the coroutine of a coroutine method without awaiting it.
    assert not inspect.iscoroutinefunction(method), f"{method} must be awaited"

    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> T:
        return method(self._core, *arguments, **options)

    return _named(call, method)


def awaitable(
    method: Callable[Concatenate[Core, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], Awaitable[T]]:
    """Adapt a coroutine method of the engine: a call returns an awaitable for an asyncio loop."""

    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> Awaitable[T]:
        result: Awaitable[T] = self._run(method, *arguments, **options)
        return result

    return _named(call, method)


def deferred(
    method: Callable[Concatenate[Core, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], Deferred[T]]:
    """Adapt a coroutine method of the engine: a call returns a Deferred."""

    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> Deferred[T]:
        return Deferred.fromCoroutine(method(self._core, *arguments, **options))

    return _named(call, method)
