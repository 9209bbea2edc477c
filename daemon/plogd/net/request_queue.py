"""Decide when a connection's requests may start, and send their responses in order.

Kafka handles one request per connection at a time, and clients rely on this: a request starts when
all earlier requests on its connection are complete. plog makes one exception, which clients cannot
observe: a Produce that follows only Produces starts immediately. It appends in order of arrival,
its response is sent in that order, and all these Produces share one sync of the disk. A Produce
that runs alone may start after other Produces, but nothing starts until it is complete.

`offer` rejects a request that may not start; the caller keeps its bytes and offers the request
again after `on_ready`. The code is pure: transport.py and protocol_connection.py use it through
connection.py, and the simulator uses it directly. A frame is read only during `offer` and still
belongs to the caller.

Invariants: responses are sent in the order of their requests; while a request other than a Produce,
or a Produce that runs alone, is incomplete, nothing starts; after `connection_lost`, nothing is
pending and no file is open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias, cast

from plog.wire.primitives import Part
from plogd.apis.close_connection import CloseConnection
from plogd.ports import Cancelled, Later, Timer, Timers

if TYPE_CHECKING:
    from plogd.apis.dispatch import Dispatched
    from plogd.connection_context import ConnectionContext
    from plogd.log.segment.file_records import FileRegion

Answer: TypeAlias = list[Part]
"""A framed response in pieces: bytes, and regions of log files."""

Dispatch: TypeAlias = "Callable[[memoryview, ConnectionContext], Dispatched]"
"""Starts a request; returns its result, whether it is a Produce, and whether it must run alone."""


class RequestSlots:
    """Limits the Produces of all connections that wait for the disk or for followers.

    Each connection may always have one waiting Produce, so no connection can starve another;
    ``queued.max.requests`` limits the others.
    """

    __slots__ = ("in_use", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.in_use = 0

    @property
    def has_room(self) -> bool:
        """Return whether another Produce may start while its connection has others pending."""
        return self.in_use < self.limit


class _Pending:
    """A started request without a response. If `end` is set, the connection closes instead."""

    __slots__ = ("answer", "end", "is_produce", "later", "runs_alone")

    def __init__(
        self, *, is_produce: bool, runs_alone: bool, later: Later[Answer | None] | None = None
    ) -> None:
        self.is_produce = is_produce
        self.runs_alone = runs_alone or not is_produce
        """Whether nothing may start before it is complete."""
        self.later = later
        self.answer: Answer | None = None
        self.end: tuple[str, Exception | None] | None = None


class RequestQueue:
    """The pending requests of one connection, in order.

    Args:
        dispatch: starts a request; raises CloseConnection for an invalid request.
        write: sends a response and takes ownership of its file regions.
        close: closes the connection for the given reason after the responses are sent; the second
            argument is the unexpected exception that caused it, if any.
        on_ready: called when a rejected request may start, or when a mute has ended. It is called
            in the middle of other work, so it must only schedule a new turn, which offers the
            request again.

    Attributes:
        is_closing: whether the queue has stopped starting requests.
    """

    __slots__ = (
        "_close",
        "_context",
        "_dispatch",
        "_has_refused",
        "_has_refused_produce",
        "_is_lost",
        "_mute",
        "_on_ready",
        "_pending",
        "_slots",
        "_timers",
        "_write",
        "is_closing",
    )

    def __init__(
        self,
        dispatch: Dispatch,
        context: ConnectionContext,
        *,
        write: Callable[[Answer], None],
        close: Callable[[str, Exception | None], None],
        on_ready: Callable[[], None],
        slots: RequestSlots,
        timers: Timers,
    ) -> None:
        self._dispatch = dispatch
        self._context = context
        self._write = write
        self._close = close
        self._on_ready = on_ready
        self._slots = slots
        self._timers = timers
        self._mute: Timer | None = None
        """The timer that ends the mute; None if the connection is not muted."""
        self._pending: deque[_Pending] = deque()
        self._has_refused = self._has_refused_produce = False
        self._is_lost = False
        self.is_closing = False

    @property
    def in_progress(self) -> int:
        """Return the number of started requests without a response."""
        return len(self._pending)

    @property
    def is_parked(self) -> bool:
        """Return whether any further request would have to wait."""
        if self._mute is not None:
            return True
        return bool(self._pending) and self._pending[-1].runs_alone

    @property
    def is_muted(self) -> bool:
        """Return whether the next request has to wait because of a quota."""
        return self._mute is not None

    def offer(self, frame: memoryview) -> bool:
        """Start a request if it may start; if this returns False, offer it again after `on_ready`.

        Raises any exception of `dispatch` except CloseConnection; it indicates a bug, and no
        response is sent.
        """
        if self.is_closing:
            return False
        if self._mute is not None:
            self._has_refused = True
            return False
        if self._pending and not self._may_pipeline(frame):
            return False
        try:
            dispatched = self._dispatch(frame, self._context)
        except CloseConnection as error:
            self._end_after_answers(str(error))
            return True
        # KIP-219: a request that exceeds a quota is answered immediately, and then the connection
        # is muted for the throttle time that the handler has set.
        if self._context.mute_ms:
            self._begin_mute()
        result = dispatched.result
        if isinstance(result, Later):
            self._wait_for(result, dispatched)
        # With acks=0, there is no response, so the request does not take a place in the order.
        elif self._pending and result is not None:
            self._answer_after_others(result, dispatched)
        elif result is not None:
            self._write(result)
        return True

    def call_when_ready(self) -> None:
        """Call `on_ready` as after a rejection, for a caller that has stopped reading requests."""
        self._has_refused = True

    def finish(self, reason: str) -> None:
        """Do not start any more requests; call `close` when the pending Produces are complete.

        Any other pending request may take arbitrarily long, so it is cancelled.
        """
        if self.is_closing:
            return
        self.is_closing = True
        # A pending request other than a Produce is always the only one, so checking the newest
        # suffices.
        if self._pending and not self._pending[-1].is_produce:
            self._drop_pending()
        self._end_after_answers(reason)

    def connection_lost(self) -> None:
        """Cancel all pending requests and close the file regions of unsent responses."""
        self.is_closing = self._is_lost = True
        self._drop_pending()

    def _may_pipeline(self, frame: memoryview) -> bool:
        """Return whether `frame` may start while others are pending; if not, record that."""
        is_produce = _is_produce(frame)
        # Nothing starts after a request that runs alone, so checking the newest request suffices.
        may_follow = is_produce and not self._pending[-1].runs_alone
        if may_follow and self._slots.has_room:
            return True
        self._has_refused = True
        # Only a Produce that lacked a slot can start before all pending requests are complete.
        self._has_refused_produce = may_follow
        return False

    def _answer_after_others(self, answer: Answer, dispatched: Dispatched) -> None:
        request = _Pending(is_produce=dispatched.is_produce, runs_alone=dispatched.runs_alone)
        request.answer = answer
        self._pending.append(request)

    def _wait_for(self, later: Later[Answer | None], dispatched: Dispatched) -> None:
        request = _Pending(
            is_produce=dispatched.is_produce, runs_alone=dispatched.runs_alone, later=later
        )
        self._pending.append(request)
        # Only Produces that other requests may follow need slots, because only these accumulate.
        self._slots.in_use += not request.runs_alone
        later.then(
            lambda answer: self._answered(request, answer),
            lambda error: self._failed(request, error),
        )

    def _answered(self, request: _Pending, answer: Answer | None) -> None:
        if request.later is None:  # Cancelled while the outcome was being delivered.
            if answer is not None:
                close_regions(answer)
            return
        self._slots.in_use -= not request.runs_alone
        request.later = None
        request.answer = answer
        # If the request had to wait, its handler sets the throttle time only when it completes.
        if self._context.mute_ms:
            self._begin_mute()
        if request is self._pending[0]:
            self._send_finished()

    def _failed(self, request: _Pending, error: Exception) -> None:
        if request.later is None:
            return
        self.is_closing = True
        if isinstance(error, CloseConnection):
            # The earlier requests are still answered: the connection closes when it is this one's
            # turn.
            request.end = (str(error), None)
        elif isinstance(error, Cancelled):
            request.end = ("its request was cancelled", None)
        else:
            request.end = ("its request failed unexpectedly", error)
        self._answered(request, None)

    def _end_after_answers(self, reason: str) -> None:
        """Do not start any more requests; close the connection after the pending ones complete."""
        self.is_closing = True
        request = _Pending(is_produce=False, runs_alone=True)
        request.end = (reason, None)
        self._pending.append(request)
        if len(self._pending) == 1:
            self._send_finished()

    def _send_finished(self) -> None:
        while self._pending and self._pending[0].later is None:
            request = self._pending.popleft()
            if request.end is not None:
                # Later requests do not get a response, because it would be out of order.
                self._drop_pending()
                self._close(*request.end)
                return
            if request.answer is not None:
                self._write(request.answer)
        if not self._has_refused or self.is_closing or self._mute is not None:
            return
        if not self._pending or (self._has_refused_produce and self._slots.has_room):
            self._has_refused = False
            self._on_ready()

    def _begin_mute(self) -> None:
        """Do not start any requests until the throttle time set by the last handler has elapsed."""
        mute_ms, self._context.mute_ms = self._context.mute_ms, 0
        if self.is_closing:
            return
        if self._mute is not None:
            # With several Produces, the throttle time of a later one accounts for the bytes of
            # earlier ones.
            self._mute.cancel()
        self._mute = self._timers.call_later(mute_ms, self._end_mute)

    def _end_mute(self) -> None:
        self._mute = None
        if not self.is_closing:
            self._has_refused = False
            self._on_ready()

    def _drop_pending(self) -> None:
        if self._mute is not None:
            self._mute.cancel()
            self._mute = None
        pending, self._pending = self._pending, deque()
        waits: list[Later[Answer | None]] = []
        for request in pending:
            if request.later is not None:
                self._slots.in_use -= not request.runs_alone
                waits.append(request.later)
                # Without a Later, the request ignores an outcome that is already being delivered.
                request.later = None
            elif request.answer is not None:
                close_regions(request.answer)
        # After the loop, because cancelling a request may complete another.
        for later in waits:
            later.cancel()


def close_regions(answer: Iterable[Part]) -> None:
    """Close the file regions of a response that will not be sent."""
    for part in answer:
        if not isinstance(part, bytes | memoryview):
            cast("FileRegion", part).close()


def _is_produce(frame: memoryview) -> bool:
    """Return whether a request's first field, the API key, is 0."""
    # Read from the bytes, because a request must not be decoded before it may start.
    return len(frame) > 1 and frame[0] == 0 and frame[1] == 0
