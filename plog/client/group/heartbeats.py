"""A group member's heartbeats, which stop when the application no longer polls.

A separate task sends them, so the application can take a long time to process records. While the
member is in a generation, the task sends a heartbeat every ``heartbeat.interval.ms``. A response
may report that the group is rebalancing or that this member was removed. If the application does
not poll for ``max.poll.interval.ms``, the member leaves the group, so that another member can read
its partitions.

Source: Kafka 4.3 AbstractCoordinator.HeartbeatThread, Heartbeat; KIP-62.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from plog.client.group.coordinator_connection import CoordinatorConnection
from plog.client.group.member_state import Generation, Membership, MemberState
from plog.client.group.poll_interval import PollInterval
from plog.client.network.ports import Network, Task
from plog.client.settings import ConsumerSettings
from plog.errors import (
    ErrorCode,
    FencedInstanceId,
    KafkaError,
    error_from_code,
)
from plog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

log = logging.getLogger("plog.client.group")

_LOST = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID})


class Heartbeats:
    """A member's heartbeat task. It passes errors for the application to `fail`."""

    def __init__(
        self,
        network: Network,
        link: CoordinatorConnection,
        membership: Membership,
        settings: ConsumerSettings,
        *,
        poll_expired: Callable[[], None],
        fail: Callable[[Exception], None],
    ) -> None:
        self.last_answer_s: float | None = None
        """When the coordinator last acknowledged this member, or None before the first time."""
        self._network = network
        self._link = link
        self._membership = membership
        self._settings = settings
        self._poll_expired = poll_expired
        self._fail = fail
        self._changed = network.signal()
        self._task: Task | None = None
        self._polls = PollInterval(network, settings.max_poll_interval_ms)
        self._next_beat_s = 0.0
        self._is_syncing = False

    def polled(self, *, waits: bool = False) -> None:
        """Record a poll; with `waits`, the poll lasts until the next call. Thread-safe."""
        self._polls.polled(waits=waits)

    @property
    def poll_left_s(self) -> float:
        """Return the seconds until the next poll is due; negative if it is overdue."""
        return self._polls.left_s

    def start(self) -> None:
        """Start the task, unless it is already running."""
        if self._task is None or self._task.done:
            self._task = self._network.spawn(self._run(), "heartbeats")

    def stop(self) -> None:
        """Stop the task; `start` restarts it."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def look(self) -> None:
        """Recompute the next heartbeat after the membership has changed."""
        self._changed.set()

    def begin_generation(self) -> None:
        """Record that a generation has started."""
        # The JoinGroup response counts as a heartbeat: the coordinator knows the member.
        self.last_answer_s = self._network.now_s()
        self._next_beat_s = self.last_answer_s + self._settings.heartbeat_interval_ms / 1000

    def syncing(self, is_syncing: bool) -> None:
        """Pause heartbeats during SyncGroup, or resume them."""
        self._is_syncing = is_syncing

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            if not self._beats:
                await self._changed.wait()
                continue
            now_s = self._network.now_s()
            poll_expires_s = self._polls.expires_s(now_s)
            if now_s >= poll_expires_s:
                # KIP-62: a member that no longer polls leaves the group, so that another member can
                # read its partitions.
                self._poll_expired()
            elif now_s < self._next_beat_s:
                await self._changed.wait(min(self._next_beat_s, poll_expires_s) - now_s)
            else:
                await self._beat(self._membership.generation)

    @property
    def _beats(self) -> bool:
        state = self._membership.state
        if state is MemberState.COMPLETING_REBALANCE:
            # The broker answers requests on a connection in order: a heartbeat would wait for the
            # SyncGroup response and time out.
            return not self._is_syncing
        return state is MemberState.STABLE

    async def _beat(self, sent: Generation) -> None:
        settings = self._settings
        request = HeartbeatRequest(
            group_id=self._link.group_id,
            generation_id=sent.generation_id,
            member_id=sent.member_id,
            group_instance_id=sent.group_instance_id,
        )
        # After session.timeout.ms, the coordinator removes the member, so do not wait longer.
        timeout_s = min(settings.request_timeout_ms, max(settings.session_timeout_ms, 1)) / 1000
        try:
            answer = await self._link.ask(request, HeartbeatResponse, timeout_s=timeout_s)
        except KafkaError as error:
            if not error.retriable:
                self._fail(error)
            self._soon()
            return
        self._take(answer.error_code, sent)

    def _take(self, code: int, sent: Generation) -> None:
        """Apply a heartbeat's result; ignore errors from a heartbeat in an older generation."""
        now_s = self._network.now_s()
        self._next_beat_s = now_s + self._settings.heartbeat_interval_ms / 1000
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self.last_answer_s = now_s
            # In any other state, the member is already joining.
            if code and self._membership.state is MemberState.STABLE:
                self._membership.ask_to_rejoin("group is already rebalancing")
            return
        error = error_from_code(code, f"heartbeat of {sent.member_id} in {self._link.group_id}")
        # The error concerns a generation that the member left after sending the heartbeat.
        if self._membership.generation != sent:
            log.info("ignored heartbeat error for generation %s: %s", sent.generation_id, error)
        elif code in _LOST:
            log.warning("removed from group %s: %s; rejoining", self._link.group_id, error)
            self._membership.reset(
                f"heartbeat: {ErrorCode(code).name}",
                # With ILLEGAL_GENERATION, the member id is still valid.
                keeps_member_id=code == ErrorCode.ILLEGAL_GENERATION,
            )
        elif isinstance(error, FencedInstanceId):
            self._membership.reset("fenced", keeps_member_id=False)
            self._fail(fenced(sent, self._link.group_id))
        else:
            if not error.retriable:
                self._fail(error)
            self._link.moved(error)
            self._soon()

    def _soon(self) -> None:
        """Schedule the next heartbeat after a retry backoff, which is shorter than the interval."""
        wait_ms = min(self._settings.retry_backoff_ms * 2, self._settings.heartbeat_interval_ms)
        self._next_beat_s = self._network.now_s() + max(wait_ms, 1) / 1000


def fenced(generation: Generation, group_id: str) -> FencedInstanceId:
    """Return the error for a static member that another member has replaced."""
    return FencedInstanceId(
        f"group {group_id}: another consumer with group.instance.id="
        f"{generation.group_instance_id} has replaced this member; use a unique id for each member,"
        " or none"
    )
