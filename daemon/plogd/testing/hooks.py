"""What a test hooks into its broker: ``broker.hooks.drop("Fetch")`` and the like.

    with broker.hooks.fail("Produce", NotLeaderOrFollower, times=2) as hook:
        producer.flush()
    assert hook.hits == 2

A hook is for the next requests with this name of Kafka's protocol, of one topic or one client if
told so. It ends with its ``with`` block, `Hook.remove`, the test, or this start of the broker. What
it does, and when, is hooked_dispatch.py's; this is the front, which imports neither that nor
Twisted. Any thread.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias

from plog.errors import ErrorCode, KafkaError

WAIT_TIMEOUT_S = 30.0
RESET_TIMEOUT_S = 5.0

Failing: TypeAlias = type[KafkaError] | KafkaError | ErrorCode | int
"""An error as `Hooks.fail` takes it; an int is its code."""


class Ask(Protocol):
    """Has the broker do a command of controls.py; raises what is wrong with it."""

    def __call__(self, command: str, *, timeout_s: float = ..., **arguments: Any) -> Any: ...


class Hook:
    """One hook. Used as a context, it ends with it."""

    def __init__(self, ask: Ask, number: int) -> None:
        self._ask = ask
        self._number = number
        self._hits: int | None = None

    @property
    def hits(self) -> int:
        """How many requests it has had so far."""
        if self._hits is not None:
            return self._hits
        return int(self._ask("hook_hits", number=self._number))

    def wait(self, count: int = 1, timeout_s: float = WAIT_TIMEOUT_S) -> None:
        """Return when it has had `count` requests. Raises TimeoutError."""
        if self._hits is None:
            try:
                self._ask("wait_for_hook", timeout_s=timeout_s, number=self._number, count=count)
            except TimeoutError:
                text = f"the hook has had {self.hits} of {count} requests in {timeout_s:g} s"
                raise TimeoutError(text) from None
        elif self._hits < count:
            raise TimeoutError(f"the hook has ended after {self._hits} requests")

    def remove(self) -> None:
        """End it; harmless when it has ended."""
        if self._hits is None:
            self._hits = int(self._ask("remove_hook", number=self._number))

    def ended(self, hits: int) -> None:
        """It was ended with all others."""
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
    """All hooks of one broker.

    In every method `request` is Kafka's name ("Produce", "Fetch", "OffsetCommit", ...), `times` is
    for how many requests, None for all, and `topic` and `client_id` say for whose. A name that is
    none is a ValueError with the nearest one.
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
        """Let a request begin `seconds` later; with `after` only its answer is late."""
        if seconds < 0:
            raise ValueError(f"seconds={seconds}: nothing is answered before it is asked")
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
        """Cut the connection before a request has an effect; with `after` it has, unanswered."""
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
        """Answer with `error` and do nothing; with `after` do it and answer with the error."""
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
        if not self._hooks:
            return
        ended = self._ask("reset_hooks", timeout_s=timeout_s)
        hooks, self._hooks = self._hooks, {}
        for number, hits in ended:
            hooks[number].ended(hits)

    def forget(self) -> None:
        """The broker has ended before it could tell: what was not heard of counts as no hit."""
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
            raise TypeError(f"{error.__name__} has no code of Kafka's: take one of plog.errors")
        return int(error.code), ""
    if not isinstance(error, int):
        raise TypeError(f"{error!r} is no error: take a class of plog.errors, or an ErrorCode")
    return int(error), ""
