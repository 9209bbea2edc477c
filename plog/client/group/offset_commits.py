"""Commit a group's offsets synchronously, asynchronously or automatically.

An `OffsetStore` writes the offsets: coordinator_offsets.py to the group's coordinator,
zookeeper_offsets.py to ZooKeeper.

A commit belongs to a generation: the store rejects commits from a member that is no longer in the
group. A consumer without a subscription commits without a generation.

Asynchronous commits are sent and completed in the order of the calls, and a synchronous commit is
sent after them. Automatic commits include only records that were returned before the application's
last poll, because the application may still be processing later records.

Source: Kafka 4.3 ConsumerCoordinator; KIP-320.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from typing import Any, NamedTuple

from plog.client.consumer.rebalance_listener import CallUser
from plog.client.errors import CommitFailed
from plog.client.group.member_state import Generation, Membership
from plog.client.group.offset_store import NO_MEMBER, Offsets, OffsetStore, generation_error
from plog.client.group.positions_port import PositionsPort
from plog.client.network.backoff import timed_out
from plog.client.network.cluster import Cluster
from plog.client.network.deadline import Deadline
from plog.client.network.ports import Cancelled, Network, Task
from plog.client.settings import ConsumerSettings
from plog.errors import KafkaError
from plog.types import TopicPartition

log = logging.getLogger("plog.client.group")

CommitCallback = Callable[[Offsets, Exception | None], Any]

# While the application processes records, a due commit is sent after at most this time, in seconds.
_TICK_S = 1.0


class _Waiting(NamedTuple):
    offsets: Offsets
    generation: Generation
    done: Callable[[Exception | None], None]


class Commits:
    """One consumer's commits. Use only in the network's thread, except for `polled`."""

    def __init__(
        self,
        cluster: Cluster,
        network: Network,
        settings: ConsumerSettings,
        store: OffsetStore,
        membership: Membership,
        positions: PositionsPort,
        call_user: CallUser,
    ) -> None:
        self.is_managed = False
        """Whether the group assigns the partitions, so that commits need a generation."""
        self._cluster = cluster
        self._network = network
        self._settings = settings
        self._store = store
        self._membership = membership
        self._positions = positions
        self._call_user = call_user
        self._waiting: deque[_Waiting] = deque()
        self._in_flight = 0
        self._sender: Task | None = None
        self._answered = network.signal()
        self._callbacks: deque[Callable[[], Awaitable[Any]]] = deque()
        self._caller: Task | None = None
        self._committed_count = 0
        self._failed_count = 0
        self._interval_s = settings.auto_commit_interval_ms / 1000
        self._due_s = network.now_s() + self._interval_s
        self._due: tuple[Offsets, Generation] | None = None
        self._ticker: Task | None = None
        self._is_automatic_pending = False

    # -- synchronous commits ------------------------------------------------------------------

    async def commit(self, offsets: Offsets, *, timeout_s: float | None = None) -> None:
        """Commit, with retries for up to `timeout_s` (default ``default.api.timeout.ms``).

        Raises CommitFailed if this member is no longer in the group, RebalanceInProgress during a
        rebalance (commit again after the next poll), and permanent errors from the broker.
        """
        self._supersede(offsets)
        # An empty commit only waits for asynchronous commits, so it does not need a generation.
        generation = self._generation() if offsets else NO_MEMBER
        limit_s = self._settings.default_api_timeout_ms / 1000 if timeout_s is None else timeout_s
        backoff = self._cluster.backoff(self._cluster.deadline(limit_s))
        # Wait for earlier asynchronous commits: they must not overwrite this commit.
        while self._waiting or self._in_flight:
            self._answered.clear()
            if not await self._answered.wait(backoff.left_s):
                what = f"cannot commit offsets for group {self._store.group_id}"
                raise timed_out(what, limit_s, self._cluster.trouble)
        while offsets:
            try:
                await self._store.connected(backoff.deadline)
                answer = self._sent(offsets, generation, backoff.deadline)
                await self._outcome(answer, offsets)
                return
            except KafkaError as error:
                if not error.retriable:
                    raise
                await backoff.wait_or_raise(error)

    def _generation(self) -> Generation:
        """Return the generation for a commit. Raises CommitFailed or RebalanceInProgress."""
        if not self.is_managed:
            return NO_MEMBER
        generation = self._membership.stable_generation
        if generation is not None:
            return generation
        raise generation_error(self._membership, self._settings)

    def _sent(
        self, offsets: Offsets, generation: Generation, deadline: Deadline | None = None
    ) -> Awaitable[None]:
        """Send a commit now and return its outcome."""
        # If the generation has changed, another member may own the partitions and may have read
        # further. The commit would overwrite that member's offsets.
        if generation not in (NO_MEMBER, self._membership.stable_generation):
            raise generation_error(self._membership, self._settings)
        return self._store.send(offsets, generation, deadline)

    async def _outcome(self, answer: Awaitable[None], offsets: Offsets) -> None:
        try:
            await answer
        except Exception:
            self._failed_count += 1
            raise
        self._committed_count += 1
        log.debug("group %s: committed %s", self._store.group_id, offsets)

    # -- asynchronous commits -----------------------------------------------------------------

    def commit_async(self, offsets: Offsets, callback: CommitCallback | None = None) -> None:
        """Commit without waiting; `callback` receives the offsets and the error, or None."""
        # Copy the mapping, because the caller may change it before the commit is sent.
        taken = dict(offsets)
        self._supersede(taken)

        def done(error: Exception | None) -> None:
            if callback is None:
                if error is not None:
                    log.error("group %s: commit failed: %s", self._store.group_id, error)
                return
            self._callbacks.append(lambda: self._call_user(callback, taken, error))
            if self._caller is None or self._caller.done:
                self._caller = self._network.spawn(self._call(), "commits' callbacks")

        try:
            # There are no retries: a retry could overwrite a later commit.
            self._enqueue(_Waiting(taken, self._generation(), done))
        except (KafkaError, CommitFailed) as error:
            done(error)

    def _enqueue(self, waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        if self._sender is None or self._sender.done:
            self._sender = self._network.spawn(self._send(), "committing offsets")

    async def _send(self) -> None:
        """Send the queued commits in order, without waiting for the responses in between."""
        while self._waiting:
            waiting = self._waiting[0]
            try:
                await self._store.connected()
                answer = self._sent(waiting.offsets, waiting.generation)
            except Cancelled:
                raise
            except Exception as error:
                # The commit stays in the queue until now, so that a synchronous commit waits for
                # it.
                self._waiting.popleft()
                self._finished(waiting, error)
                continue
            self._waiting.popleft()
            self._in_flight += 1
            self._network.spawn(
                self._finish(answer, waiting), "waiting for the response to an offset commit"
            )

    async def _finish(self, answer: Awaitable[None], waiting: _Waiting) -> None:
        error: Exception | None = None
        try:
            await self._outcome(answer, waiting.offsets)
        except Exception as failure:
            error = failure
        self._in_flight -= 1
        self._finished(waiting, error)

    def _finished(self, waiting: _Waiting, error: Exception | None) -> None:
        waiting.done(error)
        self._answered.set()

    async def _call(self) -> None:
        """Run the callbacks sequentially, in the order of the commits."""
        while self._callbacks:
            try:
                await self._callbacks.popleft()()
            except Cancelled:
                raise
            except Exception:
                log.exception("group %s: commit callback failed", self._store.group_id)

    # -- automatic commits --------------------------------------------------------------------

    def polled(self) -> None:
        """Mark the returned records as processed, for the next automatic commit. Thread-safe."""
        if not self._settings.enable_auto_commit:
            return
        now_s = self._network.now_s()
        if now_s >= self._due_s:
            self._due_s = now_s + self._interval_s
            # Save the positions now: they include the records returned before this poll, but not
            # the records that the poll will return.
            self._due = (self._positions.consumed(), self._membership.generation)

    def _supersede(self, offsets: Offsets) -> None:
        """Drop the parts of the pending automatic commit that the application's commit replaces."""
        if self._due is not None:
            due, generation = self._due
            left = {key: offset for key, offset in due.items() if key not in offsets}
            self._due = (left, generation)

    def restart_interval(self) -> None:
        """Restart the interval after an assignment, when there is nothing to commit yet."""
        self._due_s = self._network.now_s() + self._interval_s
        self._due = None

    async def _tick(self) -> None:
        """Commit at each interval, even if the application processes records for a long time."""
        while True:
            # An interval of 0 must not cause a busy loop.
            await self._network.sleep(min(self._interval_s, _TICK_S) or _TICK_S)
            self.send_automatic()

    def send_automatic(self) -> None:
        """Send the automatic commit that is due, without waiting for it."""
        if self._settings.enable_auto_commit and self._ticker is None:
            self._ticker = self._network.spawn(self._tick(), "committing automatically")
        # While the store is away, commits must not accumulate. The next one has newer positions.
        if self._is_automatic_pending:
            return
        # Clear the commit before sending it, so that the next tick does not send it again.
        due, self._due = self._due, None
        if due is None or not due[0]:
            return
        offsets, generation = due
        if not self.is_managed:
            generation = NO_MEMBER
        elif generation != self._membership.stable_generation:
            # Revoked partitions were committed before their revocation; a later commit includes the
            # others.
            return
        self._is_automatic_pending = True
        self._enqueue(_Waiting(offsets, generation, self._automatic_done))

    def _automatic_done(self, error: Exception | None) -> None:
        self._is_automatic_pending = False
        if error is None:
            return
        if isinstance(error, KafkaError) and error.retriable:
            # The next poll retries with newer positions, so do not keep the failed commit.
            self._due_s = self._network.now_s()
            log.info("group %s: automatic commit failed: %s; retrying", self._store.group_id, error)
        else:
            log.warning("group %s: automatic commit failed: %s", self._store.group_id, error)

    @property
    def is_automatic(self) -> bool:
        """Whether automatic commits are enabled."""
        return self._settings.enable_auto_commit

    def commit_before_revocation(
        self, only: Collection[TopicPartition] | None, done: Callable[[Exception | None], None]
    ) -> None:
        """Before a revocation, commit the positions of `only`, or of all partitions.

        The commit is sent only if automatic commits are enabled. `done` is always called, possibly
        immediately.
        """
        offsets = self._positions.consumed() if self.is_automatic else {}
        if only is None:
            # A commit of all positions includes the pending automatic commit.
            self._due = None
        else:
            offsets = {key: offset for key, offset in offsets.items() if key in only}
        if not offsets:
            done(None)
            return
        try:
            self._enqueue(_Waiting(offsets, self._generation(), done))
        except (KafkaError, CommitFailed) as error:
            done(error)

    async def close(self, timeout_s: float) -> None:
        """Send the last automatic commit, if enabled, and wait for pending commits."""
        # No other automatic commit may follow the last commit.
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None
        offsets = self._positions.consumed() if self.is_automatic else {}
        if not (offsets or self._waiting or self._in_flight):
            return
        try:
            await self.commit(offsets, timeout_s=timeout_s)
        except (KafkaError, CommitFailed) as error:
            # Log the error but do not raise it: the member must still leave the group.
            log.warning("group %s: the last commit failed: %s", self._store.group_id, error)

    def metrics(self) -> dict[str, float]:
        """Return metrics, named as in Kafka's consumer-coordinator-metrics."""
        return {
            "commit-total": float(self._committed_count),
            "commit-failed-total": float(self._failed_count),
        }
