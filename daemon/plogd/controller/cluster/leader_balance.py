"""Let preferred leaders lead again, at regular intervals (auto.leader.rebalance.enable).

After a broker has restarted, other brokers lead its partitions. For each broker, the controller
counts the partitions whose preferred leader it is. If another broker leads more than
`leader.imbalance.per.broker.percentage` of them, it elects the broker for those that it can lead.
Partitions that are being reassigned are left alone, because their preferred leader may be about to
change.

Source: Kafka 3.9 KafkaController.checkAndTriggerAutoLeaderRebalance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from plog.errors import KafkaError, NotController
from plog.types import TopicPartition
from plogd.config import BrokerConfig
from plogd.controller.cluster.leader_election import Brokers, preferred
from plogd.controller.controller_context import ControllerContext
from plogd.fair_queue import FairQueue, Slices
from plogd.metadata.cache import PartitionState
from plogd.ports import Report, Timer, Timers, spawn

_FIRST_CHECK_MS: Final = 5_000.0
"""Time from the start of a term to its first check, as in Kafka."""


class LeaderBalance:
    """The regular elections of preferred leaders in one term.

    Args:
        elect: elects the preferred leaders of partitions, and returns those that have changed.
    """

    def __init__(
        self,
        *,
        context: ControllerContext,
        liveness: Callable[[], Brokers],
        elect: Callable[[Collection[TopicPartition]], Awaitable[Collection[TopicPartition]]],
        config: Callable[[], BrokerConfig],
        timers: Timers,
        fair_queue: FairQueue,
        report: Report,
    ) -> None:
        self._context = context
        self._liveness = liveness
        self._elect = elect
        self._config = config
        self._timers = timers
        self._queue = fair_queue
        self._report = report
        self._timer: Timer | None = None
        self._is_over = False

    def begin(self) -> None:
        """Check in a moment, when most brokers have registered, and then regularly."""
        self._schedule(_FIRST_CHECK_MS)

    def end(self) -> None:
        """Check no more."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self, delay_ms: float) -> None:
        if not self._is_over:
            self._timer = self._timers.call_later(delay_ms, self._check)

    def _check(self) -> None:
        self._timer = None
        if self._config().auto_leader_rebalance_enable:
            spawn(self._balance()).then(self._checked, self._failed)
        else:
            self._checked(None)

    def _checked(self, _: None) -> None:
        self._schedule(self._config().leader_imbalance_check_interval_seconds * 1000)

    def _failed(self, error: Exception) -> None:
        if isinstance(error, NotController):
            return
        # A ValueError is that of a damaged znode.
        if not isinstance(error, KafkaError | ValueError):
            raise error
        self._report("cannot elect preferred leaders: {error}", error=str(error), level="error")
        self._checked(None)

    async def _balance(self) -> None:
        if not self._context.partitions.not_preferred.count:
            return
        totals, candidates = await self._look_at_all()
        limit = self._config().leader_imbalance_per_broker_percentage / 100
        elected: list[TopicPartition] = []
        for broker_id in sorted(candidates):
            partitions = candidates[broker_id]
            if not self._is_over and len(partitions) > limit * totals[broker_id]:
                elected += await self._elect([key for key, can_lead in partitions if can_lead])
        if elected:
            self._report(
                "elected the preferred leaders of {count} partitions",
                count=len(elected),
                topic_partitions=elected,
            )

    async def _look_at_all(
        self,
    ) -> tuple[Counter[int], dict[int, list[tuple[TopicPartition, bool]]]]:
        """Return, by preferred leader, the number of its partitions, and those that others lead.

        Each of the latter comes with whether the preferred leader can lead it now.
        """
        totals: Counter[int] = Counter()
        others: dict[int, list[tuple[TopicPartition, bool]]] = {}
        slices = Slices(self._queue)
        async for topic in slices.over(self._context.served_topics()):
            async for state in slices.over(topic.partitions):
                first = state.replicas[0]
                totals[first] += 1
                if state.leader != first:
                    key = TopicPartition(topic.name, state.partition)
                    others.setdefault(first, []).append((key, self._can_lead(state)))
        return totals, others

    def _can_lead(self, state: PartitionState) -> bool:
        return not state.is_reassigning and preferred(state, self._liveness()) is not None
