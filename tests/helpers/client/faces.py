"""A common wrapper of the three faces of the client library, so that the same tests run on each.

    with open_face("aio") as face:
        producer = face.producer(bootstrap_servers=…)
        producer.send("topic", b"value").result(60)

The face's loop or reactor runs in a separate thread all the time, as in an application; calls wait
for that thread. It also calls listeners and callbacks, except with the blocking face, which calls
them in the caller's thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE_S = 60.0
NAMES = ("blocking", "aio", "twisted")


class Face:
    """One face; the clients that it creates are closed at the end of the test."""

    name = ""

    def __init__(self) -> None:
        self._opened: list[Proxy] = []

    def producer(self, **settings: Any) -> Any:
        """Return a producer whose methods wait."""
        return self._open(self.module().Producer, settings)

    def consumer(self, *topics: str, **settings: Any) -> Any:
        """Return a consumer whose methods wait; `listener` and similar arguments are passed on."""
        return self._open(self.module().Consumer, settings, *topics)

    def admin(self, **settings: Any) -> Any:
        """Return an admin client whose methods wait."""
        return self._open(self.module().Admin, settings)

    def module(self) -> Any:
        """The module that contains the classes."""
        raise NotImplementedError

    def make(self, what: Callable[..., Any], settings: dict[str, Any], *topics: str) -> Any:
        """Create a client, on the thread where its face requires it."""
        return self.wait(lambda: what(*topics, **settings))

    def wait(self, function: Callable[[], Any]) -> Any:
        """Return the result of `function`, awaited if necessary."""
        raise NotImplementedError

    def close(self) -> None:
        """Close all clients."""
        for proxy in self._opened:
            proxy.close()

    def _open(self, what: Callable[..., Any], settings: dict[str, Any], *topics: str) -> Proxy:
        proxy = Proxy(self, self.make(what, settings, *topics))
        self._opened.append(proxy)
        return proxy


class Proxy:
    """A client; each method call waits for its result."""

    def __init__(self, face: Face, client: Any) -> None:
        self._face = face
        self._client = client

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._client, name)
        if not callable(attribute):
            return attribute

        def call(*arguments: Any, **options: Any) -> Any:
            return self._face.wait(lambda: attribute(*arguments, **options))

        return call

    def send(self, *arguments: Any, **options: Any) -> Any:
        """Return a future whose `result` is the record's metadata."""
        return self._face.send(self._client, arguments, options)  # type: ignore[attr-defined]

    def take(self, count: int, patience_s: float = PATIENCE_S) -> list[Any]:
        """Return the next `count` records."""
        records: list[Any] = []
        while len(records) < count:
            some = self.consume(count - len(records), timeout_s=patience_s)
            assert some, f"only {len(records)} of {count} records in {patience_s:g} s"
            records += some
        return records


class BlockingFace(Face):
    """`plog` itself, called in the test's thread."""

    name = "blocking"

    def module(self) -> Any:
        import plog

        return plog

    def wait(self, function: Callable[[], Any]) -> Any:
        return function()

    def send(self, client: Any, arguments: Any, options: Any) -> Any:
        return client.send(*arguments, **options)


class AsyncioFace(Face):
    """`plog.aio`, on a loop that runs in a thread."""

    name = "aio"

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def module(self) -> Any:
        import plog.aio

        return plog.aio

    def wait(self, function: Callable[[], Any]) -> Any:
        async def call() -> Any:
            result = function()
            return await result if inspect.isawaitable(result) else result

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(PATIENCE_S)

    def send(self, client: Any, arguments: Any, options: Any) -> Any:
        sent = self.wait(lambda: client.send(*arguments, **options))
        return asyncio.run_coroutine_threadsafe(sent.result(), self._loop)

    def close(self) -> None:
        super().close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class TwistedFace(Face):
    """`plog.twisted`, on a reactor that runs in a thread."""

    name = "twisted"

    def __init__(self) -> None:
        super().__init__()
        from twisted.internet.selectreactor import SelectReactor

        self._reactor: Any = SelectReactor()
        running = threading.Event()
        self._reactor.callWhenRunning(running.set)
        self._thread = threading.Thread(
            target=self._reactor.run, kwargs={"installSignalHandlers": False}, daemon=True
        )
        self._thread.start()
        assert running.wait(PATIENCE_S)

    def module(self) -> Any:
        import plog.twisted

        return plog.twisted

    def make(self, what: Callable[..., Any], settings: dict[str, Any], *topics: str) -> Any:
        return self.wait(lambda: what(*topics, reactor=self._reactor, **settings))

    def wait(self, function: Callable[[], Any]) -> Any:
        return self._begin(function).result(PATIENCE_S)

    def _begin(self, function: Callable[[], Any]) -> concurrent.futures.Future[Any]:
        from twisted.internet.defer import maybeDeferred

        future: concurrent.futures.Future[Any] = concurrent.futures.Future()

        def begin() -> None:
            deferred = maybeDeferred(function)
            deferred.addCallbacks(
                future.set_result, lambda failure: future.set_exception(failure.value)
            )

        self._reactor.callFromThread(begin)
        return future

    def send(self, client: Any, arguments: Any, options: Any) -> Any:
        return self._begin(lambda: client.send(*arguments, **options))

    def close(self) -> None:
        super().close()
        self._reactor.callFromThread(self._reactor.stop)
        self._thread.join(PATIENCE_S)


@contextmanager
def open_face(name: str) -> Iterator[Any]:
    """Open the face of that name; all its clients are closed at the end."""
    faces = {face.name: face for face in (BlockingFace, AsyncioFace, TwistedFace)}
    face = faces[name]()
    try:
        yield face
    finally:
        face.close()
