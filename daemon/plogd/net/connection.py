"""One client's connection: bytes become requests, requests take turns, and some end it.

Knows nothing of sockets: a `Wire` moves the bytes, which is transport.py for plain ports and
copying_output.py under TLS. A turn starts requests until the bytes are used up, a request may not
start yet, too many answers wait to be sent, or the turn has lasted long enough; the run queue gives
the next turn then. All appends of a turn share one sync round (`ports.Turn`), and their answers
leave in one go (`Wire.cork`).

Reading goes on, up to a bound, while requests may not start: only so is it seen that the client has
left. The end of the stream ends the connection after the requests that could start have started; an
append that was made stays made.

Reactor thread only. Invariants: a request's view is dead when its handler has returned; `lost`
gives back every wait, file, lease and place in a queue, whatever state the connection was in.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

from twisted.logger import Logger

from plogd.net.connections import Connections
from plogd.net.receive_buffer import BadFrameSize, ReceiveBuffer
from plogd.net.request_queue import Answer, RequestQueue
from plogd.net.wrong_protocol import explain_first_bytes

if TYPE_CHECKING:
    from plogd.connection_context import ConnectionContext

log = Logger()

TURN_MAX_MS = 2.0
SHORT_TURN_MAX_MS = 0.1
"""A turn while many connections are ready at the same time: usually one request."""
NOTABLE_TURN_MS = 0.25
"""Turns that are shorter are not counted: hundreds of them fit before another client notices."""
PROMPT_API_KEYS = frozenset(key.to_bytes(2, "big") for key in (0, 1, 12, 18))
"""Produce, Fetch, Heartbeat and ApiVersions do little work for one element. They start as they
arrive even if many connections are ready; other requests then wait in the run queue."""
_NO_BYTES = memoryview(b"")
CLOSE_MAX_MS = 30_000.0
"""How long a connection that is closing may take to accept its last answers."""


class Wire(Protocol):
    """What moves the bytes of a connection."""

    @property
    def buffered_bytes(self) -> int:
        """Answers that wait to be sent."""
        ...

    @property
    def sent_bytes(self) -> int:
        """What has left so far."""
        ...

    def write_answer(self, answer: Answer) -> None:
        """Send an answer after those before it.

        Call `Connection.drained` as they leave, and `Connection.unsent` when the bytes in memory
        have become more or fewer.
        """
        ...

    def cork(self) -> None:
        """Hold back what is written until `uncork`."""
        ...

    def uncork(self) -> None:
        """Send what was held back, as far as it goes."""
        ...

    def set_reading(self, is_reading: bool) -> None:
        """Deliver bytes, or leave them where they are."""
        ...

    def close(self) -> None:
        """End the connection once what was written has left."""
        ...

    def abort(self) -> None:
        """End the connection; never inside this call."""
        ...

    def peer_has_left(self) -> bool:
        """Whether the client is known to be gone though nothing is read from it."""
        ...


class Blocked(Enum):
    """Why no request may start now."""

    NO = "one may"
    PARKED = "an earlier request is not answered"
    OUTPUT = "too many answers wait to be sent"
    TURN = "others are first"


class Connection:
    """The state of one connection; made when it is accepted, dead after `lost`."""

    def __init__(self, shared: Connections, context: ConnectionContext, wire: Wire) -> None:
        settings = shared.settings
        self._shared = shared
        self._wire = wire
        self.host, port = context.client_address
        self._peer = f"{self.host}:{port}"
        self._listener_name = context.listener_name
        self._inbox = ReceiveBuffer(
            shared.shared_buffer,
            shared.memory,
            host=self.host,
            max_frame_bytes=settings.socket_request_max_bytes,
            on_memory=self._memory_granted,
        )
        self._queue = RequestQueue(
            shared.dispatch,
            context,
            write=wire.write_answer,
            close=self._close_for,
            on_ready=self._may_start,
            slots=shared.slots,
            timers=shared.timers,
        )
        self._blocked = Blocked.NO
        self._is_greeted = False
        self._at_end_of_stream = False
        self._is_finishing = self._is_closing = self._is_aborted = self._is_lost = False
        self._active_ms = shared.clock.monotonic_ms()
        self._bytes_in = 0
        # Since when the first request in the inbox is unfinished, and what had come by then.
        self._partial_since: tuple[float, int] | None = None
        shared.add(self)

    @property
    def is_closing(self) -> bool:
        """Whether nothing starts any more."""
        return self._is_closing

    @property
    def sent_bytes(self) -> int:
        """What the client has accepted of its responses."""
        return self._wire.sent_bytes

    @property
    def arriving(self) -> tuple[int, int] | None:
        """(bytes received so far, size) of a request that occupies memory and is up to the client.

        None if there is none, or if it is the broker that does not read or start it.
        """
        inbox = self._inbox
        is_up_to_client = self._blocked is Blocked.OUTPUT or not self._is_held_up()
        if self._is_closing or inbox.waits_for_memory or not is_up_to_client:
            return None
        return (self._bytes_in, inbox.frame_bytes) if inbox.leased_bytes else None

    @property
    def is_parked(self) -> bool:
        """Whether a request waits for an earlier one to be answered."""
        return self._blocked is Blocked.PARKED

    def target(self) -> memoryview:
        """Where the wire may put bytes now; empty if it may not read."""
        if self._is_closing:
            return _NO_BYTES
        return self._inbox.target(is_blocked=self._is_held_up())

    def received(self, nbytes: int) -> None:
        """`nbytes` have been put into `target`; start what may start."""
        shared = self._shared
        self._bytes_in += nbytes
        shared.bytes_in += nbytes
        self._active_ms = now_ms = shared.clock.monotonic_ms()
        self._inbox.received(nbytes)
        if not self._is_greeted and self._speaks_something_else():
            return
        if self._blocked is Blocked.NO:
            run_queue = shared.run_queue
            if run_queue.is_behind and not self._is_prompt():
                self._blocked = Blocked.TURN
                self._inbox.keep(self._may_grow)
                self._end_turn()
                return
            self._turn(now_ms)
            spent_ms = shared.clock.monotonic_ms() - now_ms
            if spent_ms > NOTABLE_TURN_MS:
                run_queue.spent(spent_ms)
        else:
            self._inbox.keep(self._may_grow)
            self._read_as_allowed()

    def end_of_stream(self) -> None:
        """The client sends no more. Ends the connection when all that can start has started."""
        self._at_end_of_stream = True
        if self._blocked in (Blocked.NO, Blocked.PARKED) and not self._waits_for_quota():
            self.close("the client has closed it")
        else:
            self._wire.set_reading(False)

    def take_turn(self) -> None:
        """Start requests, in order, as far as this turn goes."""
        self._turn(self._shared.clock.monotonic_ms())

    def _turn(self, now_ms: float) -> None:
        assert not self._is_closing, "a connection that ends leaves the run queue"
        self._wire.cork()
        try:
            with self._shared.turn:
                self._blocked = self._start_requests(now_ms)
                if not self._is_closing:
                    # Before anything deferred runs: the shared buffer is everybody's again.
                    self._inbox.keep(self._may_grow)
        except BadFrameSize as error:
            self._refuse("bad size", f"sent {error}; socket.request.max.bytes is the upper bound")
        except Exception:
            # A deferred call's bug, as _start_requests catches those of requests; it may be about
            # anybody's data, so this connection is not to blame.
            log.failure("work deferred to the end of a turn failed")
        finally:
            self._wire.uncork()
        self._end_turn()

    def drained(self) -> None:
        """Some of what was written has left."""
        self._active_ms = self._shared.clock.monotonic_ms()
        if self._blocked is Blocked.OUTPUT and not self._has_too_much_output():
            self._may_start_again()

    def unsent(self, nbytes: int) -> None:
        """So many bytes of responses are in memory and wait to be sent, not counting files."""
        if not self._is_aborted:
            self._shared.responses.count(self, nbytes)

    def sweep(self, now_ms: float) -> None:
        """Close this connection if it is overdue in one of the ways a client can be."""
        settings = self._shared.settings
        silent_ms = now_ms - self._active_ms
        if self._is_closing:
            if silent_ms > CLOSE_MAX_MS:
                self._wire.abort()
            return
        if self._is_too_slow(now_ms):
            self.close_slow("")
        elif 0 <= settings.connections_max_idle_ms < silent_ms and not self._queue.in_progress:
            # It had all that time to take its answers.
            end = self.abort if self._wire.buffered_bytes else self.close
            end(f"idle for {silent_ms / 1000:.0f} s")
        elif (
            self._blocked is Blocked.PARKED
            and not self._waits_for_quota()
            and self._wire.peer_has_left()
        ):
            # Otherwise reading, or sending, would have told.
            self.abort("the client has left")

    def close_slow(self, why_now: str) -> None:
        """End the connection because its request arrives too slowly for its size."""
        inbox = self._inbox
        self._refuse(
            "slow",
            f"sent a request of {inbox.frame_bytes} bytes too slowly{why_now}:"
            f" {inbox.nbytes} bytes had arrived; see plog.partial.request.timeout.ms",
        )

    def close_unread(self, nbytes: int) -> None:
        """Cut the connection because its client does not read `nbytes` of responses."""
        what = f"does not read its responses: {nbytes} bytes wait"
        bound = "all connections together have more than plog.queued.max.response.bytes"
        self._shared.report(self.host, "unread", f"closed a connection that {what}; {bound}")
        self.abort("it does not read its responses")

    def close(self, reason: str) -> None:
        """End the connection when what was written has left; what is parked is given up."""
        if self._stop(reason):
            self._wire.close()

    def finish(self, reason: str) -> None:
        """End the connection when the Produces under way have been answered and those sent."""
        self._is_finishing = True
        self._queue.finish(reason)

    def abort(self, reason: str) -> None:
        """End the connection without waiting for the client to take its answers."""
        self._stop(reason)
        self._forget_unsent()
        if not self._is_lost:
            self._wire.abort()

    def lost(self) -> None:
        """The connection is gone: nothing of it may be left anywhere."""
        if not self._is_lost:
            self._stop("it was lost")
            self._is_lost = True
            self._forget_unsent()
            self._shared.remove(self)
            # They hold methods of ours. Without them all of this is freed now; with them it would
            # stay until the collector looks at what is old, which it seldom does.
            del self._queue, self._inbox

    def _start_requests(self, now_ms: float) -> Blocked:
        inbox, queue, wire, shared = self._inbox, self._queue, self._wire, self._shared
        monotonic_ms = shared.clock.monotonic_ms
        turn_ms = SHORT_TURN_MAX_MS if shared.run_queue.is_behind else TURN_MAX_MS
        until_ms = now_ms + turn_ms
        remaining = shared.settings.plog_request_turn_max_requests
        most_output = shared.settings.plog_response_buffer_max_bytes
        if shared.responses.used_bytes > shared.responses.limit_bytes:
            most_output = 0
        while True:
            if wire.buffered_bytes > most_output:
                return Blocked.OUTPUT
            frame = inbox.next_frame()
            if frame is None:
                return Blocked.NO
            try:
                has_started = queue.offer(frame)
            except Exception:
                log.failure("a request of {peer} failed unexpectedly", peer=self._peer)
                self.abort("its request failed unexpectedly")
                return Blocked.NO
            finally:
                frame.release()
            if self._is_closing:
                return Blocked.NO
            if not has_started:
                return Blocked.PARKED
            inbox.consume()
            self._partial_since = None
            shared.requests += 1
            remaining -= 1
            if not remaining or monotonic_ms() >= until_ms:
                return Blocked.TURN if inbox.has_frame() else Blocked.NO

    def _end_turn(self) -> None:
        if self._is_closing:
            return
        if self._blocked is Blocked.TURN:
            self._shared.run_queue.add(self)
        elif (
            self._at_end_of_stream
            and self._blocked is not Blocked.OUTPUT
            and not self._waits_for_quota()
        ):
            self.close("the client has closed it")
            return
        if self._blocked is not Blocked.NO or not self._inbox.nbytes:
            self._partial_since = None
        elif self._partial_since is None:
            self._partial_since = (self._shared.clock.monotonic_ms(), self._bytes_in)
        self._read_as_allowed()

    def _may_start(self) -> None:
        """An earlier request was answered, or a quota has been kept long enough."""
        if self._blocked in (Blocked.PARKED, Blocked.NO):
            self._may_start_again()

    def _may_start_again(self) -> None:
        self._blocked = Blocked.TURN
        if not self._is_closing:
            self._shared.run_queue.add(self)

    def _is_held_up(self) -> bool:
        """Whether a request that came now would have to wait."""
        return self._blocked is not Blocked.NO or self._queue.is_parked

    def _waits_for_quota(self) -> bool:
        """Whether there are requests that may only not start yet because of a quota.

        Their client has done its part: they are handled even if it has left (acks=0).
        """
        return self._queue.is_muted and self._inbox.has_frame()

    def _has_too_much_output(self) -> bool:
        shared = self._shared
        if shared.responses.is_full:
            return self._wire.buffered_bytes > 0
        return self._wire.buffered_bytes > shared.settings.plog_response_buffer_max_bytes

    def _may_grow(self) -> bool:
        return not self._is_held_up()

    def _is_prompt(self) -> bool:
        """Whether the next request, if there is one, may start while others wait for a turn."""
        if not self._inbox.has_frame():
            return True
        head = self._inbox.head()
        return head is not None and head[4:6] in PROMPT_API_KEYS

    def _read_as_allowed(self) -> None:
        if not self._is_closing:
            inbox = self._inbox
            has_room = inbox.is_empty or inbox.may_read(is_blocked=self._is_held_up())
            if not has_room and self._blocked is Blocked.NO and self._queue.is_parked:
                self._queue.call_when_ready()
            self._wire.set_reading(has_room and not self._at_end_of_stream)

    def _memory_granted(self) -> None:
        """The rest of a large request may be read; its client was not slow while we waited."""
        self._partial_since = (self._shared.clock.monotonic_ms(), self._bytes_in)
        self._read_as_allowed()

    def _speaks_something_else(self) -> bool:
        head = self._inbox.head()
        if head is None:
            return False
        self._is_greeted = True
        mistake = explain_first_bytes(head, self._listener_name)
        if mistake is not None:
            self._refuse(mistake.partition(":")[0], f"sent {mistake}")
        return mistake is not None

    def _refuse(self, kind: str, what: str) -> None:
        self._shared.report(self.host, kind, f"closed a connection that {what}")
        self.close(what)

    def _is_too_slow(self, now_ms: float) -> bool:
        """Whether the unfinished request has grown too little; starts the next window if not."""
        if self._partial_since is None or self._inbox.waits_for_memory:
            return False
        if self._queue.is_parked:
            # We read little meanwhile; it has its whole time after that.
            self._partial_since = (now_ms, self._bytes_in)
            return False
        settings = self._shared.settings
        since_ms, bytes_before = self._partial_since
        elapsed_ms, timeout_ms = now_ms - since_ms, settings.plog_partial_request_timeout_ms
        if elapsed_ms < timeout_ms:
            return False
        rate = (self._bytes_in - bytes_before) * 1000.0 / elapsed_ms
        # So that the whole request is here after twice that time, whatever its size.
        proportional_rate = self._inbox.frame_bytes * 1000.0 / (2 * timeout_ms)
        if rate < max(settings.plog_partial_request_min_rate_bytes, proportional_rate):
            return True
        self._partial_since = (now_ms, self._bytes_in)
        return False

    def _forget_unsent(self) -> None:
        self._is_aborted = True
        self._shared.responses.forget(self)

    def _close_for(self, reason: str, error: Exception | None) -> None:
        if error is not None:
            log.error("{peer}: {reason}: {error!r}", peer=self._peer, reason=reason, error=error)
        if not self._is_finishing:
            self._shared.report(self.host, "closed", f"closed a connection: {reason}")
        self.close(reason)

    def _stop(self, reason: str) -> bool:
        """Give back everything but the answers that wait to be sent; False if that was done."""
        if self._is_closing:
            return False
        self._is_closing = True
        self._active_ms = self._shared.clock.monotonic_ms()
        log.debug("closing the connection of {peer}: {reason}", peer=self._peer, reason=reason)
        self._wire.set_reading(False)
        self._queue.connection_lost()
        self._inbox.close()
        self._shared.run_queue.discard(self)
        return True
