"""When a request may start, and in which order the answers leave: one connection's `RequestQueue`.

Kafka handles one request of a connection at a time, so clients rely on serial effects: a request
starts when every earlier one of its connection has been answered. The one exception is ours and
cannot be told apart: a Produce behind Produces starts at once. It appends in the order of arrival
and is answered in that order, and all of them share one sync of the disk. A Produce that runs alone
starts behind others, but nothing starts behind it.

A request whose client is over its quota is answered at once, and then nothing starts for the time
its handler has set as the connection's `mute_ms` (KIP-219).

A request that may not start is refused by `offer`; the caller keeps its bytes and offers it again
after `on_ready`. Pure: transport.py and protocol_connection.py drive it through connection.py, the
simulator directly. A frame is read during `offer` only; whoever offers it takes it back then.

Invariants: answers leave in the order of their requests; while anything but Produce is unanswered,
or a Produce that runs alone, nothing starts; after `connection_lost` nothing is waited for and no
file is held.
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
"""Starts a request and says whether it is a Produce, what comes of it, and if it runs alone."""


class RequestSlots:
    """How many Produces may wait for the disk or for followers, over all connections.

    Each connection may have one waiting in any case, so none can starve another:
    ``queued.max.requests`` bounds the ones beyond that.
    """

    __slots__ = ("in_use", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.in_use = 0

    @property
    def has_room(self) -> bool:
        """Whether one more may start while its connection has others waiting."""
        return self.in_use < self.limit


class _Pending:
    """A request that has started and whose answer has not left; `end`: close, do not answer."""

    __slots__ = ("answer", "end", "is_produce", "later", "runs_alone")

    def __init__(
        self, *, is_produce: bool, runs_alone: bool, later: Later[Answer | None] | None = None
    ) -> None:
        self.is_produce = is_produce
        self.runs_alone = runs_alone or not is_produce
        """Whether nothing may start behind it."""
        self.later = later
        self.answer: Answer | None = None
        self.end: tuple[str, Exception | None] | None = None


class RequestQueue:
    """The requests of one connection that have started, in order.

    Args:
        dispatch: starts a request; raises CloseConnection for one that makes no sense.
        write: takes an answer; takes over its file regions.
        close: the connection is to end, for this reason, once what was written has left; the second
            argument is the bug that led to it, if one did.
        on_ready: a refused request may start now, or a time in which none may is over. Called out
            of somebody else's work: only take note, and offer again in a turn of your own.

    Attributes:
        is_closing: nothing starts any more.
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
        """Ends the time in which nothing starts; None while there is none."""
        self._pending: deque[_Pending] = deque()
        self._has_refused = self._has_refused_produce = False
        self._is_lost = False
        self.is_closing = False

    @property
    def in_progress(self) -> int:
        """Requests that have started and are not answered."""
        return len(self._pending)

    @property
    def is_parked(self) -> bool:
        """Whether the next request will have to wait, whatever it is."""
        if self._mute is not None:
            return True
        return bool(self._pending) and self._pending[-1].runs_alone

    @property
    def is_muted(self) -> bool:
        """Whether the next request has to wait because of a quota."""
        return self._mute is not None

    def offer(self, frame: memoryview) -> bool:
        """Start a request if it may start now; False: keep it and offer it again after `on_ready`.

        Raises whatever `dispatch` raises other than CloseConnection: a bug, and no answer follows.
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
        if self._context.mute_ms:
            self._begin_mute()
        result = dispatched.result
        if isinstance(result, Later):
            self._wait_for(result, dispatched)
        elif self._pending and result is not None:
            self._answer_after_others(result, dispatched)
        elif result is not None:
            self._write(result)
        return True

    def call_when_ready(self) -> None:
        """Call `on_ready` as for a refused request: the caller waits to read one."""
        self._has_refused = True

    def finish(self, reason: str) -> None:
        """Start nothing more; `close` when the Produces under way are answered.

        Anything else that is under way may take as long as it likes, and is given up.
        """
        if self.is_closing:
            return
        self.is_closing = True
        # What is no Produce is the only one that is pending, so the newest speaks for all.
        if self._pending and not self._pending[-1].is_produce:
            self._drop_pending()
        self._end_after_answers(reason)

    def connection_lost(self) -> None:
        """Give up every wait and close every file region that will not be sent."""
        self.is_closing = self._is_lost = True
        self._drop_pending()

    def _may_pipeline(self, frame: memoryview) -> bool:
        """Whether `frame` may start though others are pending; takes note if it may not."""
        is_produce = _is_produce(frame)
        # Nothing starts behind one that runs alone, so the newest speaks for all.
        may_follow = is_produce and not self._pending[-1].runs_alone
        if may_follow and self._slots.has_room:
            return True
        self._has_refused = True
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
        self._slots.in_use += not request.runs_alone
        later.then(
            lambda answer: self._answered(request, answer),
            lambda error: self._failed(request, error),
        )

    def _answered(self, request: _Pending, answer: Answer | None) -> None:
        if request.later is None:  # Given up while the answer was on its way.
            if answer is not None:
                close_regions(answer)
            return
        self._slots.in_use -= not request.runs_alone
        request.later = None
        request.answer = answer
        if self._context.mute_ms:
            self._begin_mute()
        if request is self._pending[0]:
            self._send_finished()

    def _failed(self, request: _Pending, error: Exception) -> None:
        if request.later is None:
            return
        self.is_closing = True
        if isinstance(error, CloseConnection):
            request.end = (str(error), None)
        elif isinstance(error, Cancelled):
            request.end = ("its request was given up", None)
        else:
            request.end = ("its request failed unexpectedly", error)
        self._answered(request, None)

    def _end_after_answers(self, reason: str) -> None:
        """No further request starts; the connection ends when those before have been answered."""
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
                # Those behind it stay unanswered: an answer out of order would be worse.
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
        """Start nothing for as long as the last handler has said."""
        mute_ms, self._context.mute_ms = self._context.mute_ms, 0
        if self.is_closing:
            return
        if self._mute is not None:
            # Produces behind each other: the later one knows of the earlier one's bytes.
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
                request.later = None
            elif request.answer is not None:
                close_regions(request.answer)
        # Only now: giving one up may complete another.
        for later in waits:
            later.cancel()


def close_regions(answer: Iterable[Part]) -> None:
    """Let go of the files of an answer that will not be sent."""
    for part in answer:
        if not isinstance(part, bytes | memoryview):
            cast("FileRegion", part).close()


def _is_produce(frame: memoryview) -> bool:
    """Whether a request's first field, the API key, is 0."""
    return len(frame) > 1 and frame[0] == 0 and frame[1] == 0
