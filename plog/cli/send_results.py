"""What becomes of records that were sent, told at the cost of one callback for a batch.

Records that follow each other go into one batch, as a rule, and are done at one time: so only the
first of them is watched, and the others need no object that stays. A callback and a handle kept for
each would take a third of all the producer's time.
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
    """Records of one batch that follow each other: the first one's handle, and a tag for each."""

    __slots__ = ("first", "is_done", "tags", "told")

    def __init__(self, first: RecordHandle, tag: T) -> None:
        self.first = first
        self.tags = [tag]
        self.told = 0
        self.is_done = False


class SendResults(Generic[T]):
    """Tells what became of records by the tags they were given; one call at a time, under `lock`.

    `written` hears of several at once, `failed` of each with its error. `watch` is for the only
    thread that sends; the two are called by that one or by the engine's.
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
        """Have the outcome of the record told that was sent last."""
        run = self._run
        if run is None or run.is_done or not self._handles.share_batch(handle, run.first):
            self._run = run = _Run(handle, tag)
            self._handles.call_when_done(handle, partial(self._done, run))
            return
        run.tags.append(tag)
        if _is_done(run):  # Since it was asked: nobody else will see this one.
            self._done(run)

    def _done(self, run: _Run[T], _: Any = None) -> None:
        run.is_done = True
        late: list[tuple[T, RecordHandle]] = []
        with self.lock:
            tags = run.tags[run.told :]
            first = run.told
            run.told += len(tags)
            if self._handles.is_batch_written(run.first):
                self._written(tags)
                return
            for place, tag in enumerate(tags, first):
                handle = self._handles.handle_behind(run.first, place)
                if handle.done():
                    self._tell(tag, handle)
                else:  # Its batch was split, and its part is still on the way.
                    late.append((tag, handle))
        for tag, handle in late:
            self._handles.call_when_done(handle, partial(self._done_late, tag))

    def _done_late(self, tag: T, handle: RecordHandle) -> None:
        with self.lock:
            self._tell(tag, handle)

    def _tell(self, tag: T, handle: RecordHandle) -> None:
        error = self._handles.error_of(handle)
        if error is None:
            self._written((tag,))
        else:
            self._failed(tag, error)


def _is_done(run: _Run[T]) -> bool:
    """Another thread sets it, which a type checker does not expect."""
    return run.is_done
