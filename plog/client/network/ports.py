"""What the client's engine needs of the world: time, connections, and concurrent coroutines.

The engine is coroutines over pure parts. It awaits only what a `Network` gives it, so that the same
code runs on any reactor (twisted_network.py), on plain blocking sockets without one
(socket_network.py), and in a test on virtual time against a whole broker in the same process.
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
    """The coroutine was told to end: raised where it waits."""


class Channel(Protocol):
    """An open connection to a broker, its TLS done and nothing asked yet."""

    @property
    def address(self) -> str:
        """Host and port, for people."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether something can be asked."""
        ...

    @property
    def in_flight(self) -> int:
        """Requests whose answer has not come."""
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
        """Send `request` before this returns; its answer.

        Requests go out in the order of the calls, and answers come in the same order. Raises
        ConnectionFailed if the connection breaks, RequestTimedOut if there is no answer after
        `timeout_s`, and BrokenAnswer for one that makes no sense: the channel is closed then, and
        the broker may have done what was asked. Raises WireError for what cannot be written.

        With `wait_s`, the caller gets RequestTimedOut after that time already. The channel stays
        open and drops the answer when it comes.
        """
        ...

    def send(self, request: ApiMessage, version: int, *, timeout_s: float) -> Awaitable[None]:
        """Send a request that has no answer; nothing, when its bytes have left this process.

        So whoever waits cannot send faster than the broker reads. Raises as `ask`.
        """
        ...

    def close(self) -> None:
        """End it; what has been asked fails with ConnectionFailed. Harmless when it has ended.

        Requests without an answer that have left this process still arrive.
        """
        ...


class Task(Protocol):
    """A coroutine that runs beside others."""

    @property
    def done(self) -> bool:
        """Whether it has ended, one way or another."""
        ...

    def cancel(self) -> None:
        """Raise `Cancelled` where it waits; nothing if it has ended."""
        ...


class Signal(Protocol):
    """Something to wait for that happens again and again; it stays set until it is cleared."""

    @property
    def is_set(self) -> bool:
        """Whether it has happened since it was last cleared."""
        ...

    def set(self) -> None:
        """Wake all who wait."""
        ...

    def clear(self) -> None:
        """From now on, wait for the next time."""
        ...

    def wait(self, timeout_s: float | None = None) -> Awaitable[bool]:
        """Until it is set, True; or False when `timeout_s` have passed."""
        ...


class Network(Protocol):
    """A clock, connections, tasks and signals, for the coroutines of one engine."""

    @property
    def runs_tasks(self) -> bool:
        """Whether `spawn` works: whether a coroutine can go on while another one waits."""
        ...

    def now_s(self) -> float:
        """Seconds on a clock that never goes back."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as records bear them."""
        ...

    def random(self) -> float:
        """Chance from 0 up to 1, for what must not happen everywhere at once."""
        ...

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Nothing, after a while."""
        ...

    def connect(
        self, host: str, port: int, security: Security | None, *, timeout_s: float
    ) -> Awaitable[Channel]:
        """A new connection, encrypted if `security` says so. Raises ConnectionFailed."""
        ...

    def spawn(self, coroutine: Coroutine[Any, Any, object], what: str) -> Task:
        """Run `coroutine` beside the caller, until it waits for the first time at once.

        What it raises is a bug, unless it is `Cancelled`: logged, with `what` it was about.
        """
        ...

    def gather(self, coroutines: Sequence[Coroutine[Any, Any, T]]) -> Awaitable[list[T]]:
        """The results of all, run beside each other where that is possible.

        Raises the first error, in their order, when all have ended.
        """
        ...

    def signal(self) -> Signal:
        """A new signal, not set."""
        ...

    def job(self, work: Callable[[], T]) -> Awaitable[T]:
        """What `work` returns or raises, which may wait for a disk: it holds up nobody else.

        It may run in another thread, so it touches only what is its own.
        """
        ...
