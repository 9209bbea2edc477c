"""The engine's `Network` on a Twisted reactor. The reactor is an argument and never imported.

A private reactor must not install or wake the global reactor, so this module avoids endpoints,
deferToThread and bare LoopingCalls. Work that may block on a resolver or a disk runs in a separate
daemon thread.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from plog.client.errors import ConnectionFailed
from plog.client.network.host_addresses import is_address, late_look_up, look_up
from plog.client.network.ports import Cancelled
from plog.client.network.twisted_channel import ChannelFactory, TwistedChannel

if TYPE_CHECKING:
    from plog.client.network.tls_context import Security
    from plog.client.network.twisted_tls import TlsClient
    from plog.client.settings import ClientSettings

log = logging.getLogger("plog.client")

T = TypeVar("T")


class DeferredNetwork:
    """A `Network` without connections, on any clock; its awaitables are Deferreds."""

    runs_tasks = True

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock

    def now_s(self) -> float:
        return float(self._clock.seconds())

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def random(self) -> float:
        return random.random()

    def sleep(self, seconds: float) -> Deferred[None]:
        call: IDelayedCall

        def cancelled(deferred: Deferred[None]) -> None:
            call.cancel()
            # Raise the engine's own exception instead of Twisted's CancelledError.
            deferred.errback(Failure(Cancelled()))

        deferred: Deferred[None] = Deferred(cancelled)
        call = self._clock.callLater(max(0.0, seconds), deferred.callback, None)
        return deferred

    def spawn(self, coroutine: Coroutine[Any, Any, object], what: str) -> DeferredTask:
        return DeferredTask(self._clock, coroutine, what)

    async def gather(self, coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        # Even after an error, wait for all coroutines: no coroutine may outlive the call.
        outcomes: list[tuple[bool, Any]] = await defer.DeferredList(
            [Deferred.fromCoroutine(coroutine) for coroutine in coroutines], consumeErrors=True
        )
        for succeeded, outcome in outcomes:
            if not succeeded:
                raise outcome.value
        return [outcome for _, outcome in outcomes]

    def signal(self) -> DeferredSignal:
        return DeferredSignal(self._clock)

    def job(self, work: Callable[[], T]) -> Deferred[T]:
        # A plain clock has no threads; `TwistedNetwork` overrides this method.
        return defer.execute(work)


class DeferredTask:
    """A `Task` that runs as a Deferred and logs its exceptions."""

    def __init__(
        self, clock: IReactorTime, coroutine: Coroutine[Any, Any, object], what: str
    ) -> None:
        self.done = False
        self._clock = clock
        self._coroutine = coroutine
        self._what = what
        self._deferred: Deferred[Any] = Deferred.fromCoroutine(coroutine)
        self._deferred.addBoth(self._ended)

    def cancel(self) -> None:
        if self.done:
            return
        if getattr(self._coroutine, "cr_running", False):
            # The task is cancelling itself indirectly. A running coroutine cannot be cancelled, so
            # cancel it at its next await.
            self._clock.callLater(0, self.cancel)
        else:
            self._deferred.cancel()

    def _ended(self, outcome: object) -> None:
        self.done = True
        # A cancelled task is normal. Any other exception is a bug, which no caller would notice.
        if isinstance(outcome, Failure) and outcome.check(Cancelled) is None:
            error = outcome.value
            log.error("%s failed: %s", self._what, error, exc_info=error)


class DeferredSignal:
    """A `Signal` whose waits are Deferreds."""

    def __init__(self, clock: IReactorTime) -> None:
        self.is_set = False
        self._clock = clock
        self._waiting: list[Deferred[bool]] = []

    def set(self) -> None:
        self.is_set = True
        # Replace the list first: a woken waiter may wait again immediately.
        waiting, self._waiting = self._waiting, []
        for deferred in waiting:
            # A waiter that was woken before may have cancelled this waiter.
            if not deferred.called:
                deferred.callback(True)

    def clear(self) -> None:
        self.is_set = False

    def wait(self, timeout_s: float | None = None) -> Deferred[bool]:
        if self.is_set:
            return defer.succeed(True)
        deferred: Deferred[bool] = Deferred(self._cancelled)
        self._waiting.append(deferred)
        if timeout_s is not None:
            call = self._clock.callLater(max(0.0, timeout_s), self._timed_out, deferred)
            deferred.addBoth(_stop_timer, call)
        return deferred

    def _timed_out(self, deferred: Deferred[bool]) -> None:
        if deferred in self._waiting:
            self._waiting.remove(deferred)
            deferred.callback(False)

    def _cancelled(self, deferred: Deferred[bool]) -> None:
        if deferred in self._waiting:
            self._waiting.remove(deferred)
        deferred.errback(Failure(Cancelled()))


def _stop_timer(outcome: T, call: IDelayedCall) -> T:
    if call.active():
        call.cancel()
    return outcome


class TwistedNetwork(DeferredNetwork):
    """A `Network` with TCP and TLS connections on `reactor`."""

    def __init__(
        self,
        reactor: Any,  # IReactorTCP, IReactorTime and IReactorFromThreads: no type combines them.
        *,
        client_id: str | None = None,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
    ) -> None:
        super().__init__(reactor)
        self.reactor = reactor
        """The reactor, which must run in the thread that uses the network."""
        self._client_id = client_id
        self._buffers = (send_buffer_bytes, receive_buffer_bytes)

    @classmethod
    def of(cls, reactor: Any, settings: ClientSettings) -> TwistedNetwork:
        """Return a network for a client with these settings."""
        return cls(
            reactor,
            client_id=settings.client_id,
            send_buffer_bytes=settings.send_buffer_bytes,
            receive_buffer_bytes=settings.receive_buffer_bytes,
        )

    def now_s(self) -> float:
        # Most reactors use the system's time as their clock, which may jump.
        return time.monotonic()

    async def connect(
        self, host: str, port: int, security: Security | None, *, timeout_s: float
    ) -> TwistedChannel:
        deadline_s = self.now_s() + timeout_s
        addresses = await self._addresses(host, port, timeout_s)
        problems = []
        # As with client.dns.lookup=use_all_dns_ips, try each address until one accepts (KIP-602).
        for address in addresses:
            if self.now_s() >= deadline_s:
                break
            try:
                return await self._connect_to(host, address, port, security, deadline_s)
            except ConnectionFailed as error:
                # Each address may fail for a different reason, so report all reasons.
                problems.append(str(error))
        raise ConnectionFailed("; ".join(problems) or f"{host}:{port} did not respond in time")

    async def _connect_to(
        self, host: str, address: str, port: int, security: Security | None, deadline_s: float
    ) -> TwistedChannel:
        # A host may have several addresses, so error messages contain the address.
        name = f"{host}:{port}" if host == address else f"{host}:{port} ({address})"
        factory = ChannelFactory(
            self.reactor, name, client_id=self._client_id, socket_buffers=self._buffers
        )
        outer: Any = factory
        if security is not None:
            tls = await self._tls_for(host, port, security, deadline_s - self.now_s())
            outer = tls.factory(factory, clock=self.reactor)
            factory.expect_handshake(tls.failure_of)
        timeout_s = max(0.0, deadline_s - self.now_s())
        factory.connector = self.reactor.connectTCP(address, port, outer, timeout=timeout_s)
        factory.give_up_after(timeout_s)
        return await factory.opened

    def _tls_for(
        self, host: str, port: int, security: Security, timeout_s: float
    ) -> Deferred[TlsClient]:
        def make() -> TlsClient:
            # Importing OpenSSL takes 50 ms, so only clients with TLS import it.
            from plog.client.network.twisted_tls import TlsClient

            return TlsClient.of(security, host)

        late = f"cannot connect to {host}:{port}: reading the certificates took too long"
        return self._job_within(make, timeout_s, late)

    def _addresses(self, host: str, port: int, timeout_s: float) -> Awaitable[list[str]]:
        """Return all addresses of a host, in the order in which the system would try them."""
        # An IP address does not need the resolver's thread.
        if is_address(host):
            return defer.succeed([host])
        return self._job_within(lambda: look_up(host, port), timeout_s, late_look_up(host, port))

    def job(self, work: Callable[[], T]) -> Deferred[T]:
        done: Deferred[T] = Deferred(lambda d: d.errback(Failure(Cancelled())))

        def run() -> None:
            outcome: tuple[Callable[[Any], None], Any]
            try:
                outcome = done.callback, work()
            except Exception:
                outcome = done.errback, Failure()
            # Deferreds are not thread-safe: this one must fire in the reactor's thread.
            self.reactor.callFromThread(_settle, *outcome)

        # A resolver that hangs must not delay other jobs or the exit of the process, so each job
        # has its own daemon thread.
        threading.Thread(target=run, name="plog-job", daemon=True).start()
        return done

    def _job_within(self, work: Callable[[], T], timeout_s: float, late: str) -> Deferred[T]:
        """Run `work` as `job` does; raise ConnectionFailed(`late`) after `timeout_s`."""
        done = self.job(work)
        # The thread cannot be stopped; `_settle` ignores its late outcome.
        timer = self.reactor.callLater(
            max(0.0, timeout_s), _settle, done.errback, Failure(ConnectionFailed(late))
        )
        return done.addBoth(_stop_timer, timer)


def _settle(finish: Callable[[Any], None], outcome: Any) -> None:
    """Fire a Deferred unless it has already been fired."""
    try:
        finish(outcome)
    except defer.AlreadyCalledError:
        pass
