"""Send results, reported with one callback per batch instead of one per record.

Consecutive records usually share a batch and complete together. Therefore `SendResults` only
watches the handle of a batch's first record, and keeps no objects for the others. A callback and a
handle for each record would take a third of the producer's time.
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
    """Consecutive records of one batch.

    `first` is the first record's handle, `tags` are the tags of all records, and `reported` is the
    number of records whose results have been reported.
    """

    __slots__ = ("first", "is_done", "reported", "tags")

    def __init__(self, first: RecordHandle, tag: T) -> None:
        self.first = first
        self.tags = [tag]
        self.reported = 0
        self.is_done = False


class SendResults(Generic[T]):
    """Reports the results for records, which are identified by tags.

    `written` receives several tags per call, `failed` one tag and its error. Only the sending
    thread calls `watch`. The sending thread and the engine's thread call `written` and `failed`;
    they hold `lock` while they do so.
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
        """Report the result for the record that was sent last."""
        run = self._run
        if run is None or run.is_done or not self._handles.share_batch(handle, run.first):
            self._run = run = _Run(handle, tag)
            self._handles.call_when_done(handle, partial(self._done, run))
            return
        run.tags.append(tag)
        # If the batch has completed since the check above, no callback will report this tag.
        if _is_done(run):
            self._done(run)

    def _done(self, run: _Run[T], _: Any = None) -> None:
        # Set before the tags are copied. `watch` checks `is_done` after it has added a tag, so a
        # tag that is added concurrently is either copied here or reported by a second call.
        run.is_done = True
        late: list[tuple[T, RecordHandle]] = []
        with self.lock:
            # A second call for the same run reports only the tags that were added in between.
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
                # The producer has split a batch that was too large for the broker, and this
                # record's part is still in flight.
                else:
                    late.append((tag, handle))
        # Called without the lock: if the handle is already done, the callback runs immediately, and
        # it acquires the lock.
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
    """Return `is_done`, which the engine's thread can set at any time."""
    # A function, because mypy assumes that no other thread sets the attribute.
    return run.is_done
