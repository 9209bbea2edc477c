"""The future that the blocking producer's `send` returns.

A `RecordFuture` behaves like a `concurrent.futures.Future`: `concurrent.futures.wait`,
`as_completed` and `asyncio.wrap_future` accept it, and `isinstance` returns True. The condition and
the waiters that these functions need are created on first access.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from plog.client.network.private_reactor import PrivateReactor
from plog.client.producer.producer_batch import RecordHandle, call_when_done, error_of, metadata_of
from plog.client.values import RecordMetadata

if TYPE_CHECKING:

    class _Base(RecordHandle, Future[RecordMetadata]):
        """The base class that type checkers see."""

else:
    # A base class without slots would give each instance a dict, which makes `send` 5 % slower.
    _Base = RecordHandle

_STATE = frozenset({"_condition", "_state", "_waiters"})
"""The private attributes of a future that `concurrent.futures` uses."""
_FINISHED = "FINISHED"
# All futures share one lock, because each future needs it at most once.
_making_state = threading.Lock()


class RecordFuture(_Base):
    """The outcome of a sent record: a `concurrent.futures.Future` that cannot be cancelled.

    Its result is the record's metadata: topic, partition, offset and timestamp.
    """

    __slots__ = ("_future",)

    _future: Future[Any]
    """The state that `concurrent.futures` uses; unset until it is first accessed."""

    def result(
        self, timeout: float | None = None, *, timeout_s: float | None = None
    ) -> RecordMetadata:
        """Wait for the record to be acknowledged and return its metadata.

        `timeout_s` is an alias for `timeout`, named as in this library's other methods. Raises the
        delivery's error, or TimeoutError if the outcome is not known in time; the record may still
        be written. Raises IllegalState in one of this client's callbacks, where the call would wait
        for itself.
        """
        self._wait(timeout_s if timeout is None else timeout)
        return metadata_of(self)

    def exception(
        self, timeout: float | None = None, *, timeout_s: float | None = None
    ) -> Exception | None:
        """Return the delivery's error, or None. Raises TimeoutError as `result` does."""
        self._wait(timeout_s if timeout is None else timeout)
        return error_of(self)

    def done(self) -> bool:
        """Return whether the record's outcome is known."""
        return RecordHandle.done(self)

    def running(self) -> bool:
        """Return whether the record's outcome is still unknown."""
        return not self.done()

    def cancelled(self) -> bool:
        """Return False: a record cannot be cancelled."""
        return False

    def cancel(self) -> bool:
        """Return False: a record cannot be cancelled."""
        return False

    def add_done_callback(self, fn: Callable[[RecordFuture], Any]) -> None:
        """Call `fn` with this future: now if it is done, otherwise in the client's thread."""
        call_when_done(self, fn)

    def __repr__(self) -> str:
        return RecordHandle.__repr__(self)

    def __dir__(self) -> list[str]:
        return dir(type(self))

    def _wait(self, timeout_s: float | None) -> None:
        if self.done():
            return
        # In a callback, the client's thread would wait for itself.
        PrivateReactor.check_caller()
        done = threading.Event()
        call_when_done(self, lambda _: done.set())
        if not done.wait(timeout_s):
            raise TimeoutError(
                f"the record was not acknowledged within {timeout_s:g} s; it may still be written"
            )

    # -- behaving as a concurrent.futures.Future ------------------------------------------------

    if not TYPE_CHECKING:

        @property
        def __class__(self) -> type:
            # `concurrent.futures` and `asyncio` check futures with `isinstance`, which uses
            # `__class__`. `type` and `super` do not use it, so they still see the real class.
            return Future

        def __getattr__(self, name: str) -> Any:
            if name not in _STATE:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            # Two threads may access the state for the first time at the same moment.
            with _making_state:
                is_first = not _has_state(self)
                if is_first:
                    self._future = Future()
            # Release the lock first: if the record is already done, `_settle` runs in this call.
            if is_first:
                call_when_done(self, _settle)
            return getattr(self._future, name)


def _has_state(future: RecordFuture) -> bool:
    try:
        object.__getattribute__(future, "_future")
    except AttributeError:
        return False
    return True


def _settle(future: RecordFuture) -> None:
    """Wake the functions that wait for the record, as a Future does when its result is set."""
    state: Any = future._future
    # `wait` and `as_completed` add their waiters while they hold this condition.
    with state._condition:
        state._state = _FINISHED
        for waiter in state._waiters:
            if error_of(future) is None:
                waiter.add_result(future)
            else:
                waiter.add_exception(future)
        state._condition.notify_all()
