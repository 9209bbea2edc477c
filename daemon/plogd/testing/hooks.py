"""Hooks with which a test delays, drops or fails requests: ``broker.hooks.drop("Fetch")``.

    with broker.hooks.fail("Produce", NotLeaderOrFollower, times=2) as hook:
        producer.flush()
    assert hook.hits == 2

A hook applies to the next requests with this name in Kafka's protocol, optionally only to requests
for one topic or from one client. It ends with its ``with`` block, with `Hook.remove`, at the end of
the test, or when the broker stops. hooked_dispatch.py applies the hooks; this module is the
interface for tests, and imports neither hooked_dispatch.py nor Twisted. May be used in any thread.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias

from plog.errors import ErrorCode, KafkaError

WAIT_TIMEOUT_S = 60.0
RESET_TIMEOUT_S = 60.0
"""Both timeouts are long enough for a slow machine: they only end a hanging test."""

Failing: TypeAlias = type[KafkaError] | KafkaError | ErrorCode | int
"""An error for `Hooks.fail`; an int is an error code."""


class Ask(Protocol):
    """Runs a command of controls.py in the broker; raises its error."""

    def __call__(self, command: str, *, timeout_s: float = ..., **arguments: Any) -> Any: ...


class Hook:
    """One hook, which ends with its ``with`` block if used as a context manager."""

    def __init__(self, ask: Ask, number: int) -> None:
        self._ask = ask
        self._number = number
        self._hits: int | None = None

    @property
    def hits(self) -> int:
        """Return the number of requests that the hook has handled."""
        # After a reset, the broker no longer knows the rule.
        if self._hits is not None:
            return self._hits
        return int(self._ask("hook_hits", number=self._number))

    def wait(self, count: int = 1, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Wait until the hook has handled `count` requests. Raises TimeoutError."""
        if self._hits is None:
            try:
                self._ask("wait_for_hook", timeout_s=timeout_s, number=self._number, count=count)
            except TimeoutError:
                # The number of requests shows better than the time what is missing.
                text = f"the hook handled {self.hits} of {count} requests within {timeout_s:g} s"
                raise TimeoutError(text) from None
        elif self._hits < count:
            raise TimeoutError(f"the hook ended after {self._hits} of {count} requests")

    def remove(self) -> None:
        """End the hook; has no effect if it has ended."""
        if self._hits is None:
            self._hits = int(self._ask("remove_hook", number=self._number))

    def ended(self, hits: int) -> None:
        """Record the number of hits after all hooks have ended."""
        if self._hits is None:
            self._hits = hits

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.remove()


class Hooks:
    """The hooks of one broker.

    In every method, `request` is a name in Kafka's protocol ("Produce", "Fetch", "OffsetCommit",
    ...), `times` limits the number of requests (None for no limit), and `topic` and `client_id`
    select requests. An unknown name raises ValueError with the nearest known name.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._hooks: dict[int, Hook] = {}

    def delay(
        self,
        request: str,
        seconds: float,
        *,
        after: bool = False,
        times: int | None = 1,
        topic: str | None = None,
        client_id: str | None = None,
    ) -> Hook:
        """Delay the start of a request or, if `after` is set, only its response by `seconds`."""
        if seconds < 0:
            raise ValueError(f"cannot delay a request by {seconds} s; use 0 or more")
        return self._add(
            request,
            "delay",
            delay_ms=seconds * 1000,
            after=after,
            times=times,
            topic=topic,
            client_id=client_id,
        )

    def drop(
        self,
        request: str,
        *,
        after: bool = False,
        times: int | None = 1,
        topic: str | None = None,
        client_id: str | None = None,
    ) -> Hook:
        """Close the connection before a request takes effect or, if `after` is set, afterward."""
        return self._add(
            request, "drop", after=after, times=times, topic=topic, client_id=client_id
        )

    def fail(
        self,
        request: str,
        error: Failing,
        *,
        after: bool = False,
        times: int | None = 1,
        topic: str | None = None,
        client_id: str | None = None,
    ) -> Hook:
        """Return `error` instead of handling a request or, if `after` is set, after handling it."""
        return self._add(
            request,
            "fail",
            error=_code_and_text(error),
            after=after,
            times=times,
            topic=topic,
            client_id=client_id,
        )

    def reset(self, timeout_s: float = RESET_TIMEOUT_S) -> None:
        """End all hooks."""
        # A broker without controls has no hooks, and rejects every command.
        if not self._hooks:
            return
        ended = self._ask("reset_hooks", timeout_s=timeout_s)
        hooks, self._hooks = self._hooks, {}
        for number, hits in ended:
            hooks[number].ended(hits)

    def forget(self) -> None:
        """End all hooks of a broker that has ended; hooks with unreported hits count 0 hits."""
        hooks, self._hooks = self._hooks, {}
        for hook in hooks.values():
            hook.ended(0)

    def _add(
        self,
        request: str,
        action: str,
        *,
        error: tuple[int, str] | None = None,
        delay_ms: float = 0.0,
        **filters: Any,
    ) -> Hook:
        number = self._ask(
            "add_hook",
            request=request,
            action=action,
            error=error,
            delay_ms=delay_ms,
            **filters,
        )
        hook = self._hooks[number] = Hook(self._ask, number)
        return hook


def _code_and_text(error: Failing) -> tuple[int, str]:
    if isinstance(error, KafkaError):
        return int(error.code), str(error)
    if isinstance(error, type):
        if not issubclass(error, KafkaError):
            raise TypeError(
                f"{error.__name__} has no Kafka error code; use a class from plog.errors"
            )
        return int(error.code), ""
    # An ErrorCode is an int, too.
    if not isinstance(error, int):
        raise TypeError(f"{error!r} is not an error; use a class from plog.errors or an ErrorCode")
    return int(error), ""
