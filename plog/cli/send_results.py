"""Report the results of sent records with one callback per batch.

Consecutive records usually share a batch and complete together. Only the first record's handle is
watched, and no objects are kept for the others. A callback and a handle for each record would take
a third of the producer's time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from plog.client.producer.producer_batch import RecordHandle

T = TypeVar("T")


class _Run(Generic[T]):
    """Consecutive records of one batch: the first one's handle, tags, and the number reported."""

    __slots__ = ("first", "is_done", "reported", "tags")

    def __init__(self, first: RecordHandle, tag: T) -> None:
        self.first = first
        self.tags = [tag]
        self.reported = 0
        self.is_done = False


class SendResults(Generic[T]):
    """Reports the results of records by the tags they were given, under `lock`.

    `written` receives several tags per call, `failed` one tag with its error. Only the sending
    thread calls `watch`; that thread or the engine's calls `written` and `failed`, never both at
    the same time.
    """

    def __init__(
        self,
        written: Callable[[Sequence[T]], object],
        failed: Callable[[T, Exception], object],
    ) -> None:
        from plog.client.producer import producer_batch

        self.lock = Lock()
        self._handles = producer_batch
        self._written = written
        self._failed = failed
        self._run: _Run[T] | None = None

    def watch(self, tag: T, handle: RecordHandle) -> None:
        """Report the result of the record that was sent last."""
        run = self._run
        if run is None or run.is_done or not self._handles.share_batch(handle, run.first):
            self._run = run = _Run(handle, tag)
            self._handles.call_when_done(handle, partial(self._done, run))
            return
        run.tags.append(tag)
        if _is_done(run):  # The batch completed after the check above: no callback will follow.
            self._done(run)

    def _done(self, run: _Run[T], _: Any = None) -> None:
        # Set before the tags are copied: `watch` checks it after it has added a tag, so a tag that
        # is added now is either copied here or reported by a second call.
        run.is_done = True
        late: list[tuple[T, RecordHandle]] = []
        with self.lock:
            first = run.reported
            tags = run.tags[first:]
            run.reported += len(tags)
            if self._handles.is_batch_written(run.first):
                self._written(tags)
                return
            for index, tag in enumerate(tags, first):
                handle = self._handles.handle_behind(run.first, index)
                if handle.done():
                    self._report(tag, handle)
                else:  # The batch was split, and this record's part is still in flight.
                    late.append((tag, handle))
        # Without the lock: if a handle is done by now, its callback runs here and takes the lock.
        for tag, handle in late:
            self._handles.call_when_done(handle, partial(self._done_late, tag))

    def _done_late(self, tag: T, handle: RecordHandle) -> None:
        with self.lock:
            self._report(tag, handle)

    def _report(self, tag: T, handle: RecordHandle) -> None:
        error = self._handles.error_of(handle)
        if error is None:
            self._written((tag,))
        else:
            self._failed(tag, error)


def _is_done(run: _Run[T]) -> bool:
    """Return `is_done`; a function, because mypy assumes that no other thread sets it."""
    return run.is_done
