"""The ports of the client's engine: time, connections and concurrent coroutines.

The engine consists of coroutines. They await only what a `Network` provides, so the same code can
run on any reactor (twisted_network.py) and on blocking sockets without a reactor
(socket_network.py). In tests, it runs in virtual time with a complete broker in the same process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from plog.errors import PlogError

if TYPE_CHECKING:
    from plog.client.network.tls_context import Security
    from plog.wire.schema import ApiMessage

T = TypeVar("T")
R = TypeVar("R", bound="ApiMessage")


class Cancelled(PlogError):
    """The coroutine was cancelled; the error is raised at its current await."""


class Channel(Protocol):
    """A connection to a broker: it sends encoded requests, and TLS is already established."""

    @property
    def address(self) -> str:
        """The host and port, for error messages."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        ...

    @property
    def in_flight(self) -> int:
        """The number of requests without a response."""
        ...

    def ask(
        self,
        request: ApiMessage,
        response: type[R],
        version: int,
        *,
        timeout_s: float,
        wait_s: float | None = None,
    ) -> Awaitable[R]:
        """Send `request` before returning; return an awaitable for its response.

        Requests are sent in the order of the calls, and responses arrive in the same order. Raises
        ConnectionFailed if the connection is lost, RequestTimedOut if there is no response within
        `timeout_s`, and BrokenAnswer for a malformed response. In these cases, the channel closes,
        and the broker may have processed the request. Raises WireError if the request cannot be
        encoded.

        With `wait_s`, RequestTimedOut is raised after that shorter time, but the channel stays
        open. It drops the response when it arrives.
        """
        ...

    def send(self, request: ApiMessage, version: int, *, timeout_s: float) -> Awaitable[None]:
        """Send a request without a response; the awaitable completes when the bytes are written.

        A caller that awaits it cannot send faster than the broker reads. Raises the same errors as
        `ask`.
        """
        ...

    def close(self) -> None:
        """Close the channel; pending requests fail with ConnectionFailed.

        Bytes that `send` has already written are still transmitted. Repeated calls have no effect.
        """
        ...


class Task(Protocol):
    """A coroutine that runs concurrently with other coroutines."""

    @property
    def done(self) -> bool:
        """Whether the task has finished, failed or been cancelled."""
        ...

    def cancel(self) -> None:
        """Raise `Cancelled` at the task's current await; this has no effect if the task is done."""
        ...


class Signal(Protocol):
    """A repeatable event that coroutines wait for; it stays set until it is cleared."""

    @property
    def is_set(self) -> bool:
        """Whether the signal was set since it was last cleared."""
        ...

    def set(self) -> None:
        """Set the signal and wake all waiters."""
        ...

    def clear(self) -> None:
        """Clear the signal, so that waiters wait for the next `set`."""
        ...

    def wait(self, timeout_s: float | None = None) -> Awaitable[bool]:
        """Wait until the signal is set and return True, or return False after `timeout_s`."""
        ...


class Network(Protocol):
    """The clock, connections, tasks and signals that the coroutines of an engine use."""

    @property
    def runs_tasks(self) -> bool:
        """Whether `spawn` works, that is, whether coroutines can run concurrently."""
        ...

    def now_s(self) -> float:
        """Return the monotonic time in seconds."""
        ...

    def wall_ms(self) -> int:
        """Return the current time in milliseconds since 1970, as in record timestamps."""
        ...

    def random(self) -> float:
        """Return a random number from 0 up to but not including 1, for jitter."""
        ...

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Wait for `seconds`."""
        ...

    def connect(
        self, host: str, port: int, security: Security | None, *, timeout_s: float
    ) -> Awaitable[Channel]:
        """Open a connection, encrypted if `security` is not None. Raises ConnectionFailed."""
        ...

    def spawn(self, coroutine: Coroutine[Any, Any, object], what: str) -> Task:
        """Run `coroutine` concurrently; the call runs it up to its first wait.

        An exception other than `Cancelled` is a bug. It is logged with `what`, the task's purpose.
        """
        ...

    def gather(self, coroutines: Sequence[Coroutine[Any, Any, T]]) -> Awaitable[list[T]]:
        """Run all coroutines, concurrently where possible, and return their results.

        After all coroutines have ended, raises the error from the first failed coroutine in the
        list.
        """
        ...

    def signal(self) -> Signal:
        """Return a new signal that is not set."""
        ...

    def job(self, work: Callable[[], T]) -> Awaitable[T]:
        """Run `work`, which may block on a disk, without blocking other coroutines.

        `work` may run in another thread, so it must not access shared state. Returns the result of
        `work` or raises its exception.
        """
        ...
