"""A term of the controller: its writes, its requests to brokers, and all that waits for them.

A term ends when another broker may have become the controller. Everything that waits in the term
then fails with NotController soon, and nothing else of the term is written or requested.
Requests that are already on their way still get an outcome. The next term of this broker begins
only after that (`settled`); otherwise, an earlier write could change the state that it has loaded.

Called on the reactor thread. Source: Kafka 3.9 KafkaController.onControllerResignation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from plog.errors import NotController
from plogd.fair_queue import SLICE, FairQueue
from plogd.metadata.store import Change, Fenced, MetadataStore, Outcome
from plogd.notify_all import notify_all
from plogd.ports import Later, spawn

T = TypeVar("T")


def not_controller() -> NotController:
    """Return the error for requests that another broker must handle."""
    return NotController(
        "this broker is not the active controller; send the request to the controller, which"
        " Metadata responses name"
    )


class Term:
    """A period in which this broker is the controller; `epoch` is its controller epoch."""

    def __init__(self, store: MetadataStore, epoch: int, fair_queue: FairQueue) -> None:
        self.epoch = epoch
        self.is_over = False
        self._store = store
        self._queue = fair_queue
        # Any, because operations wait for values of different types.
        self._waiting: dict[Later[Any], None] = {}
        self._running = 0
        """Number of requests that have no outcome yet."""
        self._over: Later[None] = Later()
        self._settled: Later[None] = Later()

    def check(self) -> None:
        """Raise NotController if the term is over."""
        if self.is_over:
            raise not_controller()

    def wait(self, work: Later[T]) -> Later[T]:
        """Return the outcome of `work`; fail with NotController once the term is over."""
        self.check()
        outcome: Later[T] = Later(lambda: self._waiting.pop(outcome, None))
        self._waiting[outcome] = None

        # After the end of the term, `end` fails the outcome, whatever `work` returns.
        def on_value(value: T) -> None:
            if outcome in self._waiting:
                del self._waiting[outcome]
                outcome.succeed(value)

        def on_error(error: Exception) -> None:
            if outcome in self._waiting:
                del self._waiting[outcome]
                outcome.fail(error)

        work.then(on_value, on_error)
        return outcome

    def run(self, request: Callable[[], Later[T]]) -> Later[T]:
        """Start a request and return its outcome; fail with NotController once the term is over."""
        self.check()
        work = request()
        self._running += 1
        outcome: Later[T] = Later()

        def on_value(value: T) -> None:
            self._running -= 1
            outcome.succeed(value)
            self._settle()

        def on_error(error: Exception) -> None:
            self._running -= 1
            outcome.fail(error)
            self._settle()

        waiting = self.wait(outcome)
        work.then(on_value, on_error)
        return waiting

    async def write(self, changes: Sequence[Change]) -> list[Outcome]:
        """Write all changes or none; each outcome is Written or Conflict.

        Raises NotController and ends the term if another broker has become the controller.
        """
        outcomes = await self.run(lambda: self._store.write_atomic(changes, self.epoch))
        return self._unfenced(outcomes)

    async def write_each(self, changes: Sequence[Change]) -> list[Outcome]:
        """Write each change independently, like `write`."""
        outcomes = await self.run(lambda: self._store.write(changes, self.epoch))
        return self._unfenced(outcomes)

    def _unfenced(self, outcomes: list[Outcome]) -> list[Outcome]:
        if any(isinstance(outcome, Fenced) for outcome in outcomes):
            self.end()
            raise not_controller()
        return outcomes

    def end(self) -> None:
        """End the term; do nothing if it is over."""
        if self.is_over:
            return
        self.is_over = True
        waiting, self._waiting = list(self._waiting), {}
        first, rest = waiting[:SLICE], waiting[SLICE:]
        notify_all([*_failures(first), partial(self._over.succeed, None), self._settle])
        # In slices, because every client can wait for an operation.
        spawn(self._fail_later(rest)).then(_ignore, _raise)

    async def _fail_later(self, waiting: Sequence[Later[Any]]) -> None:
        errors: list[Exception] = []
        for start in range(0, len(waiting), SLICE):
            await self._queue.turn()
            try:
                notify_all(_failures(waiting[start : start + SLICE]))
            except Exception as error:
                # A bug in one continuation must not keep the others waiting.
                errors.append(error)
        if errors:
            raise errors[0]

    def over(self) -> Later[None]:
        """Wait until the term is over; for one caller."""
        return self._over

    def settled(self) -> Later[None]:
        """Wait until the term is over and all its requests have an outcome; for one caller."""
        return self._settled

    def _settle(self) -> None:
        if self.is_over and not self._running and not self._settled.done:
            self._settled.succeed(None)


def _failures(waiting: Iterable[Later[Any]]) -> Iterator[Callable[[], None]]:
    # An error for each, because an exception keeps the frames that it has passed.
    return (partial(outcome.fail, not_controller()) for outcome in waiting)


def _ignore(_: None) -> None:
    """Do nothing: each operation has its own outcome."""


def _raise(error: Exception) -> None:
    """Raise a bug, so that the reactor reports it."""
    raise error
