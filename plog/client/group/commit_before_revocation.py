"""Commit positions before partitions are revoked.

A poll must not exceed its timeout, and the coordinator may be unavailable. Therefore, the commit
runs concurrently with polls. The partitions are revoked in the first poll after the commit has
succeeded, failed permanently or timed out. Each attempt starts in a poll and includes the records
that the application has processed by then.

revocation.py decides which partitions are revoked, and calls this module. Source: Kafka 4.3
ConsumerCoordinator.onJoinPrepare.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Coroutine
from functools import partial
from typing import Any

from plog.client.group.member_state import Generation
from plog.client.group.offset_commits import Commits
from plog.client.group.positions_port import PositionsPort
from plog.client.network.cluster import Cluster
from plog.client.network.ports import Network, Task
from plog.errors import KafkaError
from plog.types import TopicPartition

log = logging.getLogger("plog.client.group")


class CommitBeforeRevocation:
    """The commit before a revocation. It calls `on_change` when the next poll has work to do."""

    def __init__(
        self,
        cluster: Cluster,
        network: Network,
        commits: Commits,
        positions: PositionsPort,
        on_change: Callable[[], None],
    ) -> None:
        self.waits_in: Generation | None = None
        """The generation in which polls must wait for the commit; None if they need not."""
        self._network = network
        self._cluster = cluster
        self._commits = commits
        self._positions = positions
        self._on_change = on_change
        self._generation: Generation | None = None
        self._is_over = False
        self._try = 0
        self._backoff = cluster.backoff(cluster.deadline(math.inf))
        self._clocks: list[Task] = []

    def is_over(
        self,
        generation: Generation,
        going: Collection[TopicPartition],
        *,
        only_these: bool,
        longest_s: float,
    ) -> bool:
        """Return whether `going` may be revoked; start or retry the commit if it is due.

        Unless `only_these`, the commit also includes all other partitions.
        """
        # In a new generation, other partitions may be revoked, so discard earlier attempts.
        if self._generation != generation:
            self._begin(generation, going, longest_s)
        if not self._is_over and self.waits_in is None:
            self._try += 1
            self.waits_in = generation
            # Before a rebalance, commit all positions: afterwards, the generation is over.
            only = going if only_these else None
            self._commits.commit_before_revocation(only, partial(self._answered, self._try))
        return self._is_over

    def end(self) -> None:
        """Record that the revocation is complete or cancelled.

        The call has no effect if no revocation is in progress.
        """
        self._stop()
        self._generation = None
        self._is_over = False
        self._positions.withhold(())

    def _begin(
        self, generation: Generation, going: Collection[TopicPartition], longest_s: float
    ) -> None:
        self.end()
        self._generation = generation
        self._backoff = self._cluster.backoff(self._cluster.deadline(math.inf))
        if self._commits.is_automatic:
            # The next owner reads all records after the committed position again, so stop returning
            # records from these partitions.
            self._positions.withhold(going)
            self._start(self._expire(longest_s))

    def _start(self, waiting: Coroutine[Any, Any, None]) -> None:
        self._clocks.append(self._network.spawn(waiting, "committing before a revocation"))

    def _stop(self) -> None:
        # With a new number, late responses to earlier attempts are ignored.
        self._try += 1
        self.waits_in = None
        clocks, self._clocks = self._clocks, []
        for clock in clocks:
            clock.cancel()

    def _answered(self, number: int, error: Exception | None) -> None:
        if number != self._try:
            return
        if isinstance(error, KafkaError) and error.retriable:
            log.info("commit before revocation failed: %s; retrying", error)
            self._start(self._pause())
            # `waits_in` stays set during the pause; otherwise, each poll would retry immediately.
            return
        if error is not None:
            # At-least-once delivery permits reading records twice. A longer delay could cost this
            # member its place in the group.
            log.warning("commit before revocation failed; records may be read twice: %s", error)
        self._finish()

    def _finish(self) -> None:
        self._stop()
        self._is_over = True
        self._on_change()

    async def _pause(self) -> None:
        await self._backoff.wait()
        # The next poll retries and includes the records that the application has processed by then.
        self.waits_in = None
        self._on_change()

    async def _expire(self, longest_s: float) -> None:
        await self._network.sleep(longest_s)
        log.warning(
            "commit before revocation timed out after %g s, because the group is waiting; records"
            " may be read twice",
            longest_s,
        )
        self._finish()
