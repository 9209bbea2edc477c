"""Apply a test's hooks to requests: delay or fail requests, or close their connection.

`HookedDispatch` wraps the dispatcher of a test's broker. Without rules, it passes on every request.
A rule applies before a request takes effect or, with `after`, to its response; only the oldest
matching rule applies to a request. hooks.py is the interface for tests.

Reactor thread only. Invariant: after the call, a frame is used only as a copy.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from plog.errors import KafkaError
from plog.types import ZERO_UUID
from plog.wire.api_keys import ApiKey
from plog.wire.frames import frame_response
from plog.wire.header import RequestHeader, UnknownApiKey, decode_request_header
from plog.wire.messages.fetch import FetchRequest
from plog.wire.primitives import WireError
from plog.wire.schema import ApiMessage
from plog.wire.structs import Struct
from plogd.apis.api_table import HANDLERS, Row
from plogd.apis.close_connection import CloseConnection
from plogd.apis.dispatch import Dispatched, Parts
from plogd.apis.request_context import RequestContext
from plogd.connection_context import ConnectionContext
from plogd.net.request_queue import Dispatch, close_regions
from plogd.ports import Later, Timer, Timers

if TYPE_CHECKING:
    from plogd.broker import Broker

_ROWS = {int(row.api_key): row for row in HANDLERS}
_ROW_BY_NAME = {row.name: row for row in HANDLERS}


# Compared by identity: `list.remove` must not remove another rule with the same values.
@dataclass(slots=True, kw_only=True, eq=False)
class Rule:
    """An action and the requests to which it applies; if `times` is None, there is no limit."""

    row: Row
    action: Literal["delay", "drop", "fail"]
    after: bool = False
    times: int | None = 1
    topic: str | None = None
    client_id: str | None = None
    delay_ms: float = 0.0
    error: KafkaError | None = None
    hits: int = 0
    waiting: list[tuple[int, Later[None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.times is not None and self.times < 1:
            raise ValueError(f"cannot add a hook with times={self.times}; use 1 or more")
        if self.topic is not None and not names_topics(self.row.request):
            raise ValueError(
                f"cannot add a hook for topic={self.topic!r}: {self.row.name} does not contain any"
                " topics"
            )

    @property
    def is_used_up(self) -> bool:
        """Return whether the rule has reached its limit."""
        return self.times is not None and self.hits >= self.times

    def hit(self) -> None:
        """Count a request, and complete the waits for this count."""
        self.hits += 1
        due = [later for count, later in self.waiting if count <= self.hits]
        self.waiting = [(count, later) for count, later in self.waiting if count > self.hits]
        # Completed last, because a callback may wait for the next request.
        for later in due:
            later.succeed(None)

    def when_hit(self, count: int) -> Later[None]:
        """Return a Later that completes after `count` requests."""
        later: Later[None] = Later()
        if self.hits >= count:
            later.succeed(None)
        else:
            self.waiting.append((count, later))
        return later


def row_named(name: str) -> Row:
    """Return the row of the API with this Kafka name. Raises ValueError with the nearest name."""
    row = _ROW_BY_NAME.get(name)
    if row is None:
        by_lower = {known.lower(): known for known in _ROW_BY_NAME}
        wanted = name.lower().removesuffix("request").replace("_", "")
        near = difflib.get_close_matches(wanted, by_lower, n=1, cutoff=0.0)
        raise ValueError(f"unknown request {name!r}; did you mean {by_lower[near[0]]!r}?")
    return row


def names_topics(message: Any) -> bool:
    """Return whether requests of this class contain topic names."""
    for each in message.fields:
        if "topic" in each.name:
            return True
        element = getattr(each.type, "element", each.type)
        struct = getattr(element, "struct", None)
        if struct is not None and names_topics(struct):
            return True
    return False


class HookedDispatch:
    """A `Dispatch` that applies `rules` before it calls the broker's dispatcher."""

    def __init__(self, broker: Broker, dispatch: Dispatch, timers: Timers) -> None:
        self._broker = broker
        self._dispatch = dispatch
        self._timers = timers
        self.rules: list[Rule] = []
        """The rules that have not reached their limit, oldest first."""

    def __call__(self, frame: memoryview, connection: ConnectionContext) -> Dispatched:
        """Start the request in `frame`. Raises CloseConnection."""
        if not self.rules:
            return self._dispatch(frame, connection)
        call = self._call_of(frame, connection)
        if call is None:
            return self._dispatch(frame, connection)
        rule = next((rule for rule in self.rules if self._fits(rule, call)), None)
        if rule is None:
            return self._dispatch(frame, connection)
        rule.hit()
        if rule.is_used_up:
            self.rules.remove(rule)
        return self._after(rule, call) if rule.after else self._before(rule, call)

    def _call_of(self, frame: memoryview, connection: ConnectionContext) -> _Call | None:
        try:
            header, position = decode_request_header(frame)
        # The broker's dispatcher also finds this error, and handles it as without hooks.
        except (WireError, UnknownApiKey):
            return None
        row = _ROWS.get(header.api_key)
        if row is None or not row.first_version <= header.api_version <= row.last_version:
            return None
        # Checked before the frame is copied, so that other requests cost little.
        if not any(rule.row is row for rule in self.rules):
            return None
        # The copy is writable because an append writes offsets into the batches.
        return _Call(row, header, memoryview(bytearray(frame)), position, connection)

    def _fits(self, rule: Rule, call: _Call) -> bool:
        if rule.row is not call.row:
            return False
        if rule.client_id is not None and rule.client_id != call.header.client_id:
            return False
        try:
            return rule.topic is None or rule.topic in set(self._topics(call.request))
        # An invalid request is left to the broker, which closes the connection.
        except WireError:
            return False

    def _topics(self, request: ApiMessage) -> Iterator[str]:
        yield from _topics_of(request, self._broker.cache.topic_name)
        # A request in a fetch session lists only changed partitions (KIP-227).
        if isinstance(request, FetchRequest):
            yield from self._broker.fetch_sessions.topics_in(request.session_id)

    # -- before the request takes effect --------------------------------------------------------

    def _before(self, rule: Rule, call: _Call) -> Dispatched:
        if rule.action == "drop":
            raise _drop_error(call)
        if rule.action == "fail":
            return Dispatched(call.is_produce, call.refusal(rule))
        held = _Held()
        held.timer = self._timers.call_later(rule.delay_ms, lambda: self._start(call, held))
        # The request runs alone, because later Produces would otherwise overtake it.
        return Dispatched(call.is_produce, held.answer, runs_alone=True)

    def _start(self, call: _Call, held: _Held) -> None:
        # The delay is over; the dispatcher may return the response immediately.
        held.release()
        try:
            result = self._dispatch(call.frame, call.connection).result
        except Exception as error:  # CloseConnection, or a bug, which the connection logs.
            held.fail(error)
        else:
            held.take(result)

    # -- after the request has taken effect -----------------------------------------------------

    def _after(self, rule: Rule, call: _Call) -> Dispatched:
        dispatched = self._dispatch(call.frame, call.connection)
        result = dispatched.result
        if rule.action == "delay":
            return Dispatched(call.is_produce, self._hold(rule, result), runs_alone=True)
        if not isinstance(result, Later):
            return dispatched._replace(result=_replacement(rule, call, result))
        answer: Later[Parts | None] = Later(result.cancel)

        def on_value(parts: Parts | None) -> None:
            try:
                replacement = _replacement(rule, call, parts)
            except CloseConnection as error:
                answer.fail(error)
            else:
                answer.succeed(replacement)

        result.then(on_value, answer.fail)
        return dispatched._replace(result=answer)

    def _hold(self, rule: Rule, result: Parts | Later[Parts | None] | None) -> Later[Parts | None]:
        held = _Held()
        held.timer = self._timers.call_later(rule.delay_ms, held.release)
        held.take(result)
        return held.answer


class _Call:
    """A copy of a request to which a rule may apply."""

    def __init__(
        self,
        row: Row,
        header: RequestHeader,
        frame: memoryview,
        position: int,
        connection: ConnectionContext,
    ) -> None:
        self.row = row
        self.header = header
        self.frame = frame
        self.connection = connection
        self.is_produce = header.api_key == ApiKey.PRODUCE
        self._position = position
        self._request: ApiMessage | None = None

    @property
    def request(self) -> ApiMessage:
        """Return the decoded request. Raises WireError."""
        # Decoded only if a rule needs the contents, and only once for all rules.
        if self._request is None:
            body = self.frame[self._position :]
            self._request = self.row.request.decode(body, self.header.api_version)
        return self._request

    def refusal(self, rule: Rule) -> Parts:
        """Return a response with the rule's error. An invalid request raises CloseConnection."""
        assert rule.error is not None
        context = RequestContext(self.header, self.connection, len(self.frame))
        try:
            response = self.row.refuse(self.request, context, rule.error)
        except WireError as error:
            raise CloseConnection(f"invalid {self.row.name} request: {error}") from error
        header = self.header
        return frame_response(header.api_key, header.api_version, header.correlation_id, response)


class _Held:
    """A delayed response, delivered when the delay has ended and the request is complete."""

    def __init__(self) -> None:
        self.answer: Later[Parts | None] = Later(self._cancel)
        self.timer: Timer | None = None
        self._is_released = False
        self._pending: Later[Parts | None] | None = None
        self._outcome: tuple[Parts | None, Exception | None] | None = None

    def take(self, result: Parts | Later[Parts | None] | None) -> None:
        """Set the request's result."""
        if isinstance(result, Later):
            self._pending = result
            result.then(self._arrived, self.fail)
        else:
            self._arrived(result)

    def fail(self, error: Exception) -> None:
        """Set the request's error."""
        self._pending = None
        self._outcome = (None, error)
        self._give()

    def release(self) -> None:
        """End the delay."""
        self._is_released = True
        self._give()

    def _arrived(self, parts: Parts | None) -> None:
        self._pending = None
        self._outcome = (parts, None)
        self._give()

    def _give(self) -> None:
        if not self._is_released or self._outcome is None:
            return
        # Cleared first, so that a later cancellation does not close regions that are being sent.
        (parts, error), self._outcome = self._outcome, None
        if error is None:
            self.answer.succeed(parts)
        else:
            self.answer.fail(error)

    def _cancel(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if self._pending is not None:
            self._pending.cancel()
        elif self._outcome is not None and self._outcome[0] is not None:
            close_regions(self._outcome[0])  # It will not be sent.


def _replacement(rule: Rule, call: _Call, parts: Parts | None) -> Parts | None:
    """Return the response that replaces `parts`. Raises CloseConnection to drop the request."""
    if parts is not None:
        # The regions hold files open until they are sent, which does not happen here.
        close_regions(parts)
    if rule.action == "drop":
        raise _drop_error(call)
    # With acks=0 there is no response to replace.
    return None if parts is None else call.refusal(rule)


def _drop_error(call: _Call) -> CloseConnection:
    return CloseConnection(f"a test hook dropped the {call.row.name} request")


def _topics_of(message: Struct, name_of: Callable[[bytes], str | None]) -> Iterator[str]:
    """Yield the topic names anywhere in a request."""
    for each in type(message).fields:
        value = getattr(message, each.name)
        items = value if isinstance(value, list) else [value]
        for item in items:
            if isinstance(item, Struct):
                if "topic" in each.name:
                    yield from _names_in(item, name_of)
                else:
                    yield from _topics_of(item, name_of)
            elif isinstance(item, str) and "topic" in each.name:
                yield item


def _names_in(topic: Struct, name_of: Callable[[bytes], str | None]) -> Iterator[str]:
    topic_id = getattr(topic, "topic_id", ZERO_UUID)
    for name in (
        # Kafka's name for this field depends on the API.
        getattr(topic, "name", None),
        getattr(topic, "topic", None),
        None if topic_id == ZERO_UUID else name_of(topic_id),
    ):
        if name:
            yield name
