"""The engine's `Network` on blocking sockets, without a reactor: one operation at a time.

Its awaitables never suspend, so `run_blocking` completes a coroutine in one step. The command line,
scripts and Spark workers use it, because importing a reactor would take longer than their work.
Producers, consumers and groups need concurrent coroutines, so they cannot run on it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from plog.client.network.socket_connection import SocketConnection
from plog.errors import KafkaError
from plog.wire.schema import ApiMessage, WireError

if TYPE_CHECKING:
    from plog.client.network.tls_context import Security

T = TypeVar("T")
R = TypeVar("R", bound=ApiMessage)


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run `coroutine`, which may await only awaitables of a `SocketNetwork`; return its result."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    # The coroutine has suspended, so it needs a reactor. That is a bug in the caller.
    coroutine.close()
    raise AssertionError("the coroutine awaits something other than a blocking socket")


class _Done(Generic[T]):
    """An awaitable that is already done."""

    __slots__ = ("_error", "_value")

    def __init__(self, value: T | None = None, error: Exception | None = None) -> None:
        self._value = value
        self._error = error

    def __await__(self) -> Generator[Any, Any, T]:
        if self._error is not None:
            raise self._error
        # `__await__` must return an iterator. This line makes it a generator that never suspends.
        yield from ()
        return self._value  # type: ignore[return-value]  # Set if there is no error.


class _Response(Generic[T]):
    """An awaitable for the response to a sent request; the first await receives the response."""

    __slots__ = ("_done", "_receive")

    def __init__(self, receive: Callable[[], T]) -> None:
        self._receive = receive
        self._done: _Done[T] | None = None

    def receive(self) -> _Done[T]:
        """Receive the response, unless it was already received; the await raises an error."""
        if self._done is None:
            try:
                self._done = _Done(self._receive())
            except (KafkaError, WireError) as error:
                self._done = _Done(error=error)
        return self._done

    def __await__(self) -> Generator[Any, Any, T]:
        return self.receive().__await__()


class SocketNetwork:
    """A network of blocking sockets, for one thread. `client_id` identifies it to brokers."""

    runs_tasks = False

    def __init__(self, *, client_id: str | None = None) -> None:
        self._client_id = client_id

    def now_s(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return int(time.time() * 1000)

    def random(self) -> float:
        return random.random()

    async def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))

    async def connect(
        self, host: str, port: int, security: Security | None, *, timeout_s: float
    ) -> SocketChannel:
        return SocketChannel(
            SocketConnection(
                host,
                port,
                timeout_s=timeout_s,
                client_id=self._client_id,
                security=security,
            )
        )

    async def gather(self, coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        results: list[T] = []
        # As on a reactor, run all coroutines, and raise the first error at the end.
        error: Exception | None = None
        for coroutine in coroutines:
            try:
                results.append(await coroutine)
            except Exception as failure:
                error = error or failure
        if error is not None:
            raise error
        return results

    def spawn(self, coroutine: Coroutine[Any, Any, object], what: str) -> NoReturn:
        # Without this, Python warns that the coroutine was never awaited.
        coroutine.close()
        raise RuntimeError(
            f"cannot start {what} without a reactor: blocking sockets cannot run tasks"
        )

    def signal(self) -> SocketSignal:
        return SocketSignal()

    async def job(self, work: Callable[[], T]) -> T:
        return work()


class SocketSignal:
    """A `Signal` without concurrency: no other code can set it during a wait."""

    def __init__(self) -> None:
        self.is_set = False

    def set(self) -> None:
        self.is_set = True

    def clear(self) -> None:
        self.is_set = False

    async def wait(self, timeout_s: float | None = None) -> bool:
        if not self.is_set:
            # Without a timeout, the wait would never end.
            if timeout_s is None:
                raise RuntimeError("cannot wait for a signal that no other task can set")
            time.sleep(max(0.0, timeout_s))
        return self.is_set


class SocketChannel:
    """A `Channel` that receives a response when it is awaited, or before the next request.

    Until then, the broker can prepare the response while the caller works (range_reader.py).
    """

    # A constant: a caller that waits until no requests are in flight (node.py) must not wait for a
    # response that is received only when it is awaited.
    in_flight = 0

    def __init__(self, connection: SocketConnection) -> None:
        self._connection = connection
        self._last: _Response[Any] | None = None

    @property
    def address(self) -> str:
        return self._connection.address

    @property
    def is_open(self) -> bool:
        return self._connection.is_open

    def ask(
        self,
        request: ApiMessage,
        response: type[R],
        version: int,
        *,
        timeout_s: float,
        wait_s: float | None = None,
    ) -> Awaitable[R]:
        # Unlike on a reactor, `wait_s` also closes the channel. An open channel would mistake the
        # late response for the response to the next request.
        if wait_s is not None:
            timeout_s = min(timeout_s, wait_s)
        self._receive_last()
        try:
            receive = self._connection.begin(request, response, version, timeout_s=timeout_s)
        except (KafkaError, WireError) as error:
            return _Done(error=error)
        self._last = sent = _Response(receive)
        return sent

    def _receive_last(self) -> None:
        # Responses arrive in the order of the requests, so receive the last response first.
        if self._last is not None:
            self._last.receive()
            self._last = None

    def send(self, request: ApiMessage, version: int, *, timeout_s: float) -> Awaitable[None]:
        self._receive_last()
        try:
            self._connection.send(request, version)
        except KafkaError as error:
            return _Done(error=error)
        return _Done(None)

    def close(self) -> None:
        self._connection.close()
