"""The future of a record, as the blocking producer's `send` returns it.

A `RecordFuture` is a `concurrent.futures.Future`, so that everything that waits for such futures
takes it: `concurrent.futures.wait`, `as_completed`, `asyncio.wrap_future`. What makes a Future
expensive is its lock, its condition and its lists. Few records are waited for in that way, so these
are made when the first such function asks for them. Until then it is a batch and an index, as any
`RecordHandle`, and costs no more.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from plog.client.private_reactor import PrivateReactor
from plog.client.producer_batch import RecordHandle, call_when_done, error_of, metadata_of
from plog.client.values import RecordMetadata

_STATE = frozenset({"_condition", "_done_callbacks", "_exception", "_result", "_state", "_waiters"})
"""The attributes that a `concurrent.futures.Future` makes when it is constructed."""
_OF_EXECUTORS = frozenset({"set_exception", "set_result", "set_running_or_notify_cancel"})
"""Methods of a Future that are not for its users."""
_making_state = threading.Lock()


class RecordFuture(RecordHandle, concurrent.futures.Future[RecordMetadata]):
    """A record on its way: a `concurrent.futures.Future` that cannot be cancelled.

    Its result is the record's metadata: topic, partition, offset and timestamp.
    """

    def result(
        self, timeout: float | None = None, *, timeout_s: float | None = None
    ) -> RecordMetadata:
        """Return where the record is, once that is known.

        `timeout_s` is another name for `timeout`, as this library's other methods have it. Raises
        why the record failed, or TimeoutError if its outcome is not known in time: it may still be
        written. Raises IllegalState in a callback of this client, which would wait for itself.
        """
        self._wait(timeout_s if timeout is None else timeout)
        return metadata_of(self)

    def exception(
        self, timeout: float | None = None, *, timeout_s: float | None = None
    ) -> Exception | None:
        """Return why the record failed, None if it did not. Raises TimeoutError as `result`."""
        self._wait(timeout_s if timeout is None else timeout)
        return error_of(self)

    def done(self) -> bool:
        """Return whether the record's outcome is known."""
        return RecordHandle.done(self)

    def running(self) -> bool:
        """Return whether the record's outcome is still unknown: it is on its way."""
        return not self.done()

    def cancelled(self) -> bool:
        """Return False: a record that was sent cannot be taken back."""
        return False

    def cancel(self) -> bool:
        """Return False: a record that was sent cannot be taken back."""
        return False

    def add_done_callback(self, fn: Callable[[RecordFuture], Any]) -> None:
        """Call `fn` with this future in the client's thread, or now if the outcome is known."""
        call_when_done(self, fn)

    def set_result(self, result: object) -> NoReturn:
        """Raise InvalidStateError: only the producer knows the outcome."""
        raise concurrent.futures.InvalidStateError("the outcome of a record is its producer's")

    def set_exception(self, exception: object) -> NoReturn:
        """Raise InvalidStateError: only the producer knows the outcome."""
        raise concurrent.futures.InvalidStateError("the outcome of a record is its producer's")

    def set_running_or_notify_cancel(self) -> NoReturn:
        """Raise InvalidStateError: the record is on its way already."""
        raise concurrent.futures.InvalidStateError("the record is on its way already")

    def __repr__(self) -> str:
        return RecordHandle.__repr__(self)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in _OF_EXECUTORS]

    def _wait(self, timeout_s: float | None) -> None:
        if self.done():
            return
        PrivateReactor.check_caller()
        done = threading.Event()
        call_when_done(self, lambda _: done.set())
        if not done.wait(timeout_s):
            raise TimeoutError(
                f"the record has no outcome after {timeout_s:g} s; it may still be written"
            )

    # -- the state of a concurrent.futures.Future -----------------------------------------------

    def __getattr__(self, name: str) -> Any:
        """Make the state that `concurrent.futures` looks at, when it first does."""
        if name not in _STATE:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        with _making_state:
            is_first = "_condition" not in vars(self)
            if is_first:
                concurrent.futures.Future.__init__(self)
        if is_first:
            call_when_done(self, RecordFuture._settle)
        return vars(self)[name]

    def _settle(self) -> None:
        """Take over the record's outcome, and wake the functions that wait for it."""
        error = error_of(self)
        if error is None:
            concurrent.futures.Future.set_result(self, metadata_of(self))
        else:
            concurrent.futures.Future.set_exception(self, error)
