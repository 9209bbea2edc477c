"""Send control requests to the live brokers, in order, until each has been answered.

A broker learns its partitions only from these requests, so none may be lost: after an error, the
same request is sent again, and the later ones wait. This includes a broker that rejects the
request, for example because it has not accepted its broker epoch yet. A request that the broker has
processed twice has no effect the second time. A channel ends when its broker is gone, or has
registered again, and all channels end when this broker is no longer the controller; what they still
had to send is obsolete then. Rule C10 in docs/architecture.md.

If a live broker does not respond for so long that too many requests wait for it, they are dropped.
`on_dropped` then sends it everything again, in fewer requests.

Source: Kafka 3.9 ControllerChannelManager, RequestSendThread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from plog.errors import ErrorCode, KafkaError, RequestTimedOut, error_from_code
from plog.wire.schema import ApiMessage
from plogd.metadata.store import BrokerRegistration
from plogd.peers import PeerRequest, Peers, PeerUnavailable
from plogd.ports import Cancelled, Later, Report, Timers, failed, silence, spawn

_LANE: Final = "control"
_QUEUE_MAX: Final = 10_000
"""Maximum number of requests that wait for one broker."""
_RETRY_MS: Final = 100.0
"""Time until a request is sent again, as in Kafka."""


class BrokerChannels:
    """One ordered queue of requests for each live broker."""

    def __init__(self, peers: Peers, timers: Timers, report: Report = silence) -> None:
        self._peers = peers
        self._timers = timers
        self._report = report
        self.on_dropped: Callable[[int], None] = lambda broker_id: None
        """Called with the id of a broker for which too many requests have waited."""
        self._channels: dict[int, _Channel] = {}
        self._epochs: dict[int, int] = {}

    def update(self, brokers: Mapping[int, BrokerRegistration]) -> None:
        """Open channels to new brokers, and close those to brokers that are gone.

        A broker that has registered again gets a new channel, because the requests in the old one
        are for its earlier run.
        """
        epochs = {broker_id: broker.broker_epoch for broker_id, broker in brokers.items()}
        for broker_id in list(self._channels):
            if epochs.get(broker_id) != self._epochs[broker_id]:
                self._channels.pop(broker_id).close()
        for broker_id in epochs:
            if broker_id not in self._channels:
                self._channels[broker_id] = _Channel(
                    broker_id, self._peers, self._timers, self._report
                )
        self._epochs = epochs

    def close(self) -> None:
        """Close all channels."""
        self.update({})

    def epoch_of(self, broker_id: int) -> int | None:
        """Return the broker epoch of a live broker; None if it is gone, or after `close`."""
        return self._epochs.get(broker_id)

    def send(self, broker_id: int, request: PeerRequest) -> Later[Any]:
        """Queue a request; complete with its response, an `ApiMessage`.

        Fails with PeerUnavailable if the channel is closed, or too many requests wait, before a
        response arrives, and with another KafkaError if the request cannot be sent at all. The
        caller must not cancel it.
        """
        channel = self._channels.get(broker_id)
        if channel is None:
            return failed(PeerUnavailable(f"broker {broker_id} is not registered"))
        if channel.is_full:
            channel.drop_waiting()
            self.on_dropped(broker_id)
            return failed(PeerUnavailable(f"broker {broker_id} does not respond"))
        return channel.send(request)


class _Channel:
    """The requests for one run of a broker; the first of them is on its way."""

    def __init__(self, broker_id: int, peers: Peers, timers: Timers, report: Report) -> None:
        self._broker_id = broker_id
        self._peers = peers
        self._timers = timers
        self._report = report
        self._queue: deque[tuple[PeerRequest, Later[Any]]] = deque()
        self._sending: Later[None] | None = None
        self._is_sending = False
        self._has_failed = False
        """Whether the last attempt has failed, which is reported once."""
        self._is_closed = False

    def send(self, request: PeerRequest) -> Later[Any]:
        """Queue a request."""
        later: Later[Any] = Later()
        self._queue.append((request, later))
        # The queue may also be empty because the last response is being handled. Its handler calls
        # this method, and the loop then finds the request.
        if not self._is_sending:
            self._is_sending = True
            self._sending = spawn(self._send_all())
            self._sending.then(_ignore, self._ended)
        return later

    @property
    def is_full(self) -> bool:
        """Whether too many requests wait."""
        return len(self._queue) >= _QUEUE_MAX

    def drop_waiting(self) -> None:
        """Let the requests fail that have not been sent yet."""
        sent = self._queue.popleft()
        waiting, self._queue = self._queue, deque([sent])
        error = PeerUnavailable(f"broker {self._broker_id} does not respond")
        for _, later in waiting:
            later.fail(error)

    def close(self) -> None:
        """Send nothing more; the requests without a response fail."""
        self._is_closed = True
        if self._sending is not None:
            self._sending.cancel()
        error = PeerUnavailable(f"broker {self._broker_id} is no longer registered")
        while self._queue:
            self._queue.popleft()[1].fail(error)

    async def _send_all(self) -> None:
        try:
            await self._send_waiting()
        finally:
            self._is_sending = False

    async def _send_waiting(self) -> None:
        # A loop, because a request to this broker itself can complete at once: if each response
        # sent the next request, a long queue would exhaust the stack.
        while self._queue and not self._is_closed:
            request, later = self._queue[0]
            try:
                response = await self._peers.ask(self._broker_id, request, _LANE)
                problem = _problem_of(response)
            except (PeerUnavailable, RequestTimedOut) as error:
                problem = error
            except KafkaError as error:
                # The brokers have no version in common, for example; a retry would not help.
                self._queue.popleft()
                later.fail(error)
                continue
            if problem is not None:
                self._report_failure(problem)
                await self._sleep()
                continue
            if self._has_failed:
                self._has_failed = False
                self._report("broker {broker_id} answers again", broker_id=self._broker_id)
            self._queue.popleft()
            later.succeed(response)

    async def _sleep(self) -> None:
        woken: Later[None] = Later()
        timer = self._timers.call_later(_RETRY_MS, lambda: woken.succeed(None))
        try:
            await woken
        finally:
            timer.cancel()

    def _report_failure(self, error: KafkaError) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._report(
                "cannot send a control request to broker {broker_id}: {error}; retrying",
                broker_id=self._broker_id,
                error=str(error),
                level="warn",
            )

    def _ended(self, error: Exception) -> None:
        if not isinstance(error, Cancelled):
            raise error


def _problem_of(response: ApiMessage) -> KafkaError | None:
    """Return the error with which a broker rejects a request as a whole, or None.

    The broker may not have accepted its epoch yet. If it has registered once more, the channel is
    closed.
    """
    code: int = getattr(response, "error_code", 0)
    if not code:
        return None
    name = ErrorCode(code).name if code in ErrorCode.__members__.values() else f"code {code}"
    return error_from_code(code, f"it returned {name}")


def _ignore(_: None) -> None:
    """All requests have been answered."""
