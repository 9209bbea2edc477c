"""`Connection`: one client connection, which starts the client's requests in turns.

A `Wire` moves the bytes: transport.py on plain ports, copying_output.py with TLS. In a turn, the
connection starts the received requests in order. The turn ends when no complete request is left,
the next request may not start yet, too many responses are unsent, or the turn has taken too long.
In the last case, the connection waits in the run queue for its next turn. All appends in a turn
share one sync round (`ports.Turn`), and their responses are sent together (`Wire.cork`).

While requests may not start, the connection still reads a limited number of bytes, because only
reading detects that the client has disconnected. At the end of the stream, the connection starts
every request that may start before it closes.

Reactor thread only. Invariant: `lost` releases every wait, file, lease and queue position,
regardless of the connection's state.
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
"""Maximum duration of a turn, so that other connections are served in between."""
SHORT_TURN_MAX_MS = 0.1
"""Maximum duration of a turn while many connections are ready; usually enough for one request."""
PROMPT_API_KEYS = frozenset(key.to_bytes(2, "big") for key in (0, 1, 12, 18))
"""Produce, Fetch, Heartbeat and ApiVersions do little work per element. Small requests with these
keys start on arrival even if many connections are ready; all other requests then wait in the run
queue."""
PROMPT_MAX_BYTES = 16 << 10
"""Larger requests then always wait: appending 50 KB takes as long as twenty small Produces."""
_NO_BYTES = memoryview(b"")
CLOSE_MAX_MS = 30_000.0
"""Maximum time that the client of a closing connection has to read its last responses."""


class Wire(Protocol):
    """The transport of a connection's bytes."""

    @property
    def buffered_bytes(self) -> int:
        """Return the size of the unsent responses."""
        ...

    @property
    def sent_bytes(self) -> int:
        """Return the total number of bytes sent."""
        ...

    def write_answer(self, answer: Answer) -> None:
        """Send a response after the earlier ones.

        The wire calls `Connection.drained` when bytes are sent, and `Connection.unsent` when the
        number of unsent bytes in memory changes.
        """
        ...

    def cork(self) -> None:
        """Hold back responses until `uncork` is called."""
        ...

    def uncork(self) -> None:
        """Send as many of the held bytes as the transport accepts."""
        ...

    def set_reading(self, is_reading: bool) -> None:
        """Start or stop reading."""
        ...

    def close(self) -> None:
        """Close the connection after all responses are sent."""
        ...

    def abort(self) -> None:
        """Close the connection without sending anything more, after this call has returned."""
        ...

    def peer_has_left(self) -> bool:
        """Return whether the client has disconnected, even while reading is paused."""
        ...


class Blocked(Enum):
    """The reason why no request may start now."""

    NO = "a request may start"
    PARKED = "an earlier request is not complete"
    OUTPUT = "too many responses are unsent"
    TURN = "the connection is waiting for its turn"


class Connection:
    """One client connection, from accept to `lost`."""

    def __init__(self, shared: Connections, context: ConnectionContext, wire: Wire) -> None:
        settings = shared.settings
        self._shared = shared
        self._wire = wire
        self.host, _ = context.client_address
        self.context = context
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
        # The time at which the first request in the inbox was found incomplete, and the number of
        # bytes received by then.
        self._partial_since: tuple[float, int] | None = None
        shared.add(self)

    @property
    def is_closing(self) -> bool:
        """Return whether the connection has stopped starting requests."""
        return self._is_closing

    @property
    def sent_bytes(self) -> int:
        """Return the number of response bytes that the client has accepted."""
        return self._wire.sent_bytes

    @property
    def arriving(self) -> tuple[int, int] | None:
        """Return (bytes received, size) of an incomplete request that occupies memory.

        Returns None if there is no such request, or if the broker is not reading it now.
        """
        inbox = self._inbox
        is_up_to_client = self._blocked is Blocked.OUTPUT or not self._is_held_up()
        if self._is_closing or inbox.waits_for_memory or not is_up_to_client:
            return None
        return (self._bytes_in, inbox.frame_bytes) if inbox.leased_bytes else None

    @property
    def is_parked(self) -> bool:
        """Return whether a request waits for an earlier one to complete."""
        return self._blocked is Blocked.PARKED

    def target(self) -> memoryview:
        """Return the buffer for the next bytes; empty if the wire may not read now."""
        if self._is_closing:
            return _NO_BYTES
        return self._inbox.target(is_blocked=self._is_held_up())

    def received(self, nbytes: int) -> None:
        """Count `nbytes` read into `target`, and start the requests that may start."""
        shared = self._shared
        self._bytes_in += nbytes
        shared.bytes_in += nbytes
        self._active_ms = now_ms = shared.clock.monotonic_ms()
        self._inbox.received(nbytes)
        if not self._is_greeted and self._uses_wrong_protocol():
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
            if spent_ms > shared.notable_turn_ms:
                run_queue.spent(spent_ms)
        else:
            self._inbox.keep(self._may_grow)
            self._read_as_allowed()

    def end_of_stream(self) -> None:
        """Close the connection after all requests that may start have started.

        If thousands of clients disconnect in one pass of the reactor, most of the connections are
        closed later, in turns of the run queue.
        """
        self._at_end_of_stream = True
        run_queue, clock = self._shared.run_queue, self._shared.clock
        is_free = self._blocked in (Blocked.NO, Blocked.PARKED) and not self._waits_for_quota()
        if is_free and not run_queue.is_behind:
            began_ms = clock.monotonic_ms()
            self.close("the client has closed the connection")
            # Closing takes 30 µs or more, which adds up when thousands of clients disconnect
            # together.
            run_queue.spent(clock.monotonic_ms() - began_ms)
            return
        # Otherwise, the reactor would report the end of the stream in every pass.
        self._wire.set_reading(False)
        if is_free:
            self._may_start_again()

    def take_turn(self) -> None:
        """Start requests, in order, within the limits of a turn."""
        self._turn(self._shared.clock.monotonic_ms())

    def _turn(self, now_ms: float) -> None:
        assert not self._is_closing, "a closing connection is not in the run queue"
        self._wire.cork()
        try:
            with self._shared.turn:
                self._blocked = self._start_requests(now_ms)
                if not self._is_closing:
                    # Before the turn ends, because deferred calls then run, which may use the
                    # shared buffer for other connections.
                    self._inbox.keep(self._may_grow)
        except BadFrameSize as error:
            self._refuse("bad size", f"sent {error}; see socket.request.max.bytes")
        except Exception:
            # This is a bug in a deferred call, because _start_requests handles exceptions of
            # requests. The call may concern any connection, so this connection stays open.
            log.failure("a call deferred to the end of a turn failed")
        finally:
            self._wire.uncork()
        self._end_turn()

    def drained(self) -> None:
        """Start requests again if unsent output prevented them and enough has been sent."""
        self._active_ms = self._shared.clock.monotonic_ms()
        if self._blocked is Blocked.OUTPUT and not self._has_too_much_output():
            self._may_start_again()

    def unsent(self, nbytes: int) -> None:
        """Set the size of unsent responses in memory, not counting file regions."""
        if not self._is_aborted:
            self._shared.responses.count(self, nbytes)

    def sweep(self, now_ms: float) -> None:
        """Close the connection if it is idle or too slow, or if its client has disconnected."""
        settings = self._shared.settings
        silent_ms = now_ms - self._active_ms
        if self._is_closing:
            if silent_ms > CLOSE_MAX_MS:
                self._wire.abort()
            return
        if self._is_too_slow(now_ms):
            self.close_slow("")
        elif 0 <= settings.connections_max_idle_ms < silent_ms and not self._queue.in_progress:
            # A client that has not read anything for this long will not read its responses now.
            end = self.abort if self._wire.buffered_bytes else self.close
            end(f"idle for {silent_ms / 1000:.0f} s")
        elif (
            self._blocked is Blocked.PARKED
            and not self._waits_for_quota()
            and self._wire.peer_has_left()
        ):
            # In other states, reading or sending detects that the client has disconnected.
            self.abort("the client has disconnected")

    def close_slow(self, why_now: str) -> None:
        """Close the connection because its request arrives too slowly for its size."""
        inbox = self._inbox
        self._refuse(
            "slow",
            f"sent a request of {inbox.frame_bytes} bytes too slowly{why_now}:"
            f" {inbox.nbytes} bytes had arrived; see plog.partial.request.timeout.ms",
        )

    def close_unread(self, nbytes: int) -> None:
        """Abort the connection because its client does not read `nbytes` of responses."""
        line = (
            f"closed a connection: the client does not read its responses: {nbytes} bytes are"
            " unsent; the total for all connections exceeds plog.queued.max.response.bytes"
        )
        self._shared.report(self.context, "unread", line)
        self.abort("the client does not read its responses")

    def close(self, reason: str) -> None:
        """Close the connection after all responses are sent; drop parked requests."""
        if self._stop(reason):
            self._wire.close()

    def finish(self, reason: str) -> None:
        """Close the connection after the pending Produces complete and their responses are sent."""
        self._is_finishing = True
        self._queue.finish(reason)

    def abort(self, reason: str) -> None:
        """Close the connection without waiting for the client to read its responses."""
        self._stop(reason)
        self._forget_unsent()
        if not self._is_lost:
            self._wire.abort()

    def lost(self) -> None:
        """Release all resources of the closed connection."""
        if not self._is_lost:
            self._stop("the connection was lost")
            self._is_lost = True
            self._forget_unsent()
            self._shared.remove(self)
            # Both refer to methods of this object. Deleting them breaks the reference cycles, so
            # the memory is freed now, not by a later garbage collection.
            del self._queue, self._inbox

    def _start_requests(self, now_ms: float) -> Blocked:
        inbox, queue, wire, shared = self._inbox, self._queue, self._wire, self._shared
        monotonic_ms = shared.clock.monotonic_ms
        turn_ms = SHORT_TURN_MAX_MS if shared.run_queue.is_behind else TURN_MAX_MS
        until_ms = now_ms + turn_ms
        remaining = shared.settings.plog_request_turn_max_requests
        most_output = shared.settings.plog_response_buffer_max_bytes
        if shared.responses.used_bytes > shared.responses.limit_bytes:
            # Only connections without unsent responses may start requests now.
            most_output = 0
        while True:
            if wire.buffered_bytes > most_output:
                return Blocked.OUTPUT
            frame = inbox.next_frame()
            if frame is None:
                return Blocked.NO
            try:
                # The view must be released in any case: the buffer behind it is reused or resized.
                has_started = queue.offer(frame)
            except Exception:
                log.failure("request of {client} failed unexpectedly", client=self.context)
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
            self.close("the client has closed the connection")
            return
        if self._blocked is not Blocked.NO or not self._inbox.nbytes:
            self._partial_since = None
        elif self._partial_since is None:
            self._partial_since = (self._shared.clock.monotonic_ms(), self._bytes_in)
        self._read_as_allowed()

    def _may_start(self) -> None:
        """Start requests again after an earlier one has completed or a mute has ended."""
        # In state NO, no request was held back, but reading had stopped while earlier requests were
        # pending.
        if self._blocked in (Blocked.PARKED, Blocked.NO):
            self._may_start_again()

    def _may_start_again(self) -> None:
        self._blocked = Blocked.TURN
        if not self._is_closing:
            self._shared.run_queue.add(self)

    def _is_held_up(self) -> bool:
        """Return whether a request that arrives now would have to wait."""
        return self._blocked is not Blocked.NO or self._queue.is_parked

    def _waits_for_quota(self) -> bool:
        """Return whether only a quota prevents the received requests from starting.

        Such requests are handled even if the client has disconnected: a client that produces with
        acks=0 does not wait for a response.
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
        """Return whether the next request, if any, may start while others wait for a turn."""
        if not self._inbox.has_frame():
            return True
        head = self._inbox.head()
        # The API key follows the four bytes of the size.
        is_small = self._inbox.frame_bytes <= PROMPT_MAX_BYTES
        return is_small and head is not None and head[4:6] in PROMPT_API_KEYS

    def _read_as_allowed(self) -> None:
        if not self._is_closing:
            inbox = self._inbox
            has_room = inbox.is_empty or inbox.may_read(is_blocked=self._is_held_up())
            if not has_room and self._blocked is Blocked.NO and self._queue.is_parked:
                self._queue.call_when_ready()
            self._wire.set_reading(has_room and not self._at_end_of_stream)

    def _memory_granted(self) -> None:
        """Continue to read a large request, and restart its timeout because reading had stopped."""
        self._partial_since = (self._shared.clock.monotonic_ms(), self._bytes_in)
        self._read_as_allowed()

    def _uses_wrong_protocol(self) -> bool:
        head = self._inbox.head()
        if head is None:
            return False
        self._is_greeted = True
        mistake = explain_first_bytes(head, self._listener_name)
        if mistake is not None:
            self._refuse(mistake.partition(":")[0], f"sent {mistake}")
        return mistake is not None

    def _refuse(self, kind: str, why: str) -> None:
        self._shared.report(self.context, kind, f"closed a connection: the client {why}")
        self.close(why)

    def _is_too_slow(self, now_ms: float) -> bool:
        """Return whether the incomplete request arrives too slowly; if not, start a new window."""
        if self._partial_since is None or self._inbox.waits_for_memory:
            return False
        if self._queue.is_parked:
            # The broker reads little while a request is parked, so the timeout starts again.
            self._partial_since = (now_ms, self._bytes_in)
            return False
        settings = self._shared.settings
        since_ms, bytes_before = self._partial_since
        elapsed_ms, timeout_ms = now_ms - since_ms, settings.plog_partial_request_timeout_ms
        if elapsed_ms < timeout_ms:
            return False
        rate = (self._bytes_in - bytes_before) * 1000.0 / elapsed_ms
        # At this rate, the whole request arrives within twice the timeout.
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
            log.error(
                "{client}: {reason}: {error!r}", client=self.context, reason=reason, error=error
            )
        # A shutdown closes every connection, so a log line for each of them would be useless.
        if not self._is_finishing:
            self._shared.report(self.context, "closed", f"closed a connection: {reason}")
        self.close(reason)

    def _stop(self, reason: str) -> bool:
        """Release everything except unsent responses; return False if this was done before."""
        if self._is_closing:
            return False
        self._is_closing = True
        self._active_ms = self._shared.clock.monotonic_ms()
        # The event contains the context as text, because a log observer may keep the events of all
        # connections.
        peer = str(self.context)
        log.debug(
            "closing connection of {peer}: {reason}", peer=peer, reason=reason, client=self.host
        )
        self._wire.set_reading(False)
        self._queue.connection_lost()
        self._inbox.close()
        self._shared.run_queue.discard(self)
        return True
