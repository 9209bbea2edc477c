"""Elect leaders that are not in sync, for partitions of which no in-sync replica is online.

Records that only the offline replicas have are lost for good, so this happens only if
`unclean.leader.election.enable` allows it, or an operator requests it (ElectLeaders, KIP-460). Of
the replicas that are online, the one with the longest log leads: the controller asks all of them
for the last leader epoch and the end offset of their logs, and compares the epochs first (rule C9).
Kafka elects the first of them instead, which may have no records at all. A replica whose log only
lacks some records in the middle (rule C2) counts as online.

Source: Kafka 3.9 PartitionStateMachine.doElectLeaderForPartitions,
Election.leaderForOffline; KIP-106, KIP-704 for the recovery state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from plog.errors import ErrorCode, KafkaError, NotController
from plog.types import TopicPartition
from plog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from plogd.concurrency import OneAtATime
from plogd.config import BrokerConfig
from plogd.controller.cluster.broker_changes import BrokerChanges
from plogd.controller.cluster.leader_election import (
    uncleanly_led_by,
    without_offline_replicas,
)
from plogd.controller.cluster.partition_changes import PartitionChanges
from plogd.controller.controller_context import ControllerContext
from plogd.fair_queue import FairQueue, Slices
from plogd.metadata.cache import NO_LEADER, PartitionState
from plogd.metrics import Counter
from plogd.peers import Peers
from plogd.ports import Later, Report, Timers, spawn
from plogd.topic_config import TopicConfig

_LANE: Final = "log-ends"
_TIMEOUT_MS: Final = 5_000.0
"""How long a broker may take to respond. The others can still be elected."""
_RETRY_MS: Final = 1_000.0
_PARTITIONS_MAX: Final = 1_000
"""Maximum number of partitions in a request."""
_LATEST: Final = -1
_DEBUGGING_REPLICA_ID: Final = -2
"""The replica id of requests that any replica answers, also if it is not the leader."""


class LogEnd(NamedTuple):
    """The end of a replica's log; a longer log is greater."""

    leader_epoch: int
    offset: int


class UncleanElections:
    """Unclean elections in one term of the controller.

    Args:
        elections: counts the elections.
    """

    def __init__(
        self,
        *,
        context: ControllerContext,
        brokers: BrokerChanges,
        changes: PartitionChanges,
        peers: Peers,
        config: Callable[[], BrokerConfig],
        timers: Timers,
        fair_queue: FairQueue,
        elections: Counter,
        report: Report,
    ) -> None:
        self._context = context
        self._brokers = brokers
        self._changes = changes
        self._peers = peers
        self._config = config
        self._timers = timers
        self._queue = fair_queue
        self._elections = elections
        self._report = report
        self._one_at_a_time = OneAtATime()
        self._is_due = self._is_running = self._is_over = False

    def end(self) -> None:
        """Elect no more leaders."""
        self._is_over = True

    def check(self) -> None:
        """Elect leaders in the background where the settings allow it.

        Called after each change of the brokers, and when settings change.
        """
        self._is_due = True
        if not self._is_running and not self._is_over and self._context.partitions.leaderless.count:
            self._is_running = True
            spawn(self._run()).then(_ignore, self._failed)

    async def _run(self) -> None:
        try:
            while self._is_due and not self._is_over:
                self._is_due = False
                allowed = await self._allowed()
                if allowed:
                    await self.elect(allowed)
        finally:
            self._is_running = False

    def _failed(self, error: Exception) -> None:
        if isinstance(error, NotController):
            return
        # A ValueError is that of a damaged znode.
        if not isinstance(error, KafkaError | ValueError):
            raise error
        self._report(
            "cannot write unclean elections: {error}; retrying", error=str(error), level="error"
        )
        self._retry()

    def _retry(self) -> None:
        self._timers.call_later(_RETRY_MS, self.check)

    async def _allowed(self) -> list[TopicPartition]:
        """Return the partitions without a leader whose topic allows unclean elections."""
        found: list[TopicPartition] = []
        slices = Slices(self._queue)
        leaderless = self._context.partitions.leaderless
        async for name in slices.over(list(leaderless.by_topic())):
            topic = self._context.existing(name)
            if topic is None:
                continue
            config = TopicConfig.resolve(self._config(), topic.config)
            if config.unclean_leader_election_enable:
                found += [TopicPartition(name, number) for number in sorted(leaderless.of(name))]
        return found

    def elect(
        self, partitions: Collection[TopicPartition] | None
    ) -> Later[Collection[TopicPartition]]:
        """Elect leaders for those of the partitions that have none; return the elected ones.

        `partitions` is None for all partitions. Fails with NotController or KafkaStorageError.
        """
        return self._one_at_a_time.run(lambda: self._elect(partitions))

    async def _elect(
        self, partitions: Collection[TopicPartition] | None
    ) -> Collection[TopicPartition]:
        slices = Slices(self._queue)
        leaderless = self._context.partitions.leaderless
        if partitions is None:
            partitions = [
                TopicPartition(name, number)
                for name, some in leaderless.by_topic().items()
                for number in some
            ]
        wanted: dict[TopicPartition, PartitionState] = {}
        async for key in slices.over(partitions):
            if key.partition in leaderless.of(key.topic):
                topic = self._context.existing(key.topic)
                if topic is not None:
                    wanted[key] = topic.partitions[key.partition]
        asked, ends = await self._log_ends(wanted, slices)
        elected = await self._write(wanted, ends, slices)
        if asked - len(ends):
            # A broker has not responded, or does not know yet that it hosts the partition.
            self._retry()
        return elected

    async def _write(
        self,
        wanted: Mapping[TopicPartition, PartitionState],
        ends: Mapping[TopicPartition, Mapping[int, LogEnd]],
        slices: Slices,
    ) -> Collection[TopicPartition]:
        decided: dict[TopicPartition, PartitionState] = {}

        def decide(key: TopicPartition, state: PartitionState) -> PartitionState | None:
            decided.pop(key, None)
            # A replica in sync may have come back during the requests.
            new = without_offline_replicas(state, self._brokers.liveness)
            if new is None or new.leader == NO_LEADER:
                new = self._longest(key, state, ends.get(key, {}))
            if new is not None:
                decided[key] = new
            return new

        changed = await self._changes.change(wanted, decide, self._brokers.inform_of_elections)
        elected: set[TopicPartition] = set()
        async for key in slices.over(changed):
            # Another election has changed the others in the meantime.
            if key in decided:
                elected.add(key)
                leader = decided[key].leader
                if leader not in wanted[key].isr:
                    self._elections.inc()
                    self._report_election(key, wanted[key], leader, ends[key][leader])
        return elected

    def _longest(
        self, key: TopicPartition, state: PartitionState, ends: Mapping[int, LogEnd]
    ) -> PartitionState | None:
        """Return the state led by the replica with the longest log that can lead, or None."""
        liveness = self._brokers.liveness
        # A member of the ISR that is online leads as soon as its broker has responded.
        if state.leader != NO_LEADER or any(liveness.is_online(x, state) for x in state.isr):
            return None
        able = [
            replica
            for replica in state.replicas
            if replica in ends and self._can_lead(replica, key, state)
        ]
        if not able:
            return None
        # Of several, the first one in the order of the assignment.
        return uncleanly_led_by(max(able, key=lambda replica: ends[replica]), state)

    def _can_lead(self, replica: int, key: TopicPartition, state: PartitionState) -> bool:
        """Return whether a replica is online, or can lead around damaged records (rule C2)."""
        liveness = self._brokers.liveness
        if replica in self._brokers.damaged.get(key, ()):
            state = replace(state, offline_replicas=())
        return liveness.can_lead(replica, state)

    def _report_election(
        self, key: TopicPartition, old: PartitionState, leader: int, end: LogEnd
    ) -> None:
        self._report(
            "unclean election: broker {leader} leads {topic_partition} from offset {offset} of"
            " leader epoch {leader_epoch}, although it is not in sync; records after that offset,"
            " which only the former in-sync replicas {isr} have, are lost",
            topic_partition=key,
            leader=leader,
            offset=end.offset,
            leader_epoch=end.leader_epoch,
            isr=list(old.isr),
            level="warn",
        )

    # -- the ends of logs ---------------------------------------------------------------------

    async def _log_ends(
        self, wanted: Mapping[TopicPartition, PartitionState], slices: Slices
    ) -> tuple[int, dict[TopicPartition, dict[int, LogEnd]]]:
        """Ask for the ends of the logs of all online replicas.

        Returns the number of partitions that have such a replica, and the ends, by partition and
        broker, that brokers have responded with.
        """
        asked_keys: set[TopicPartition] = set()
        by_broker: dict[int, list[TopicPartition]] = {}
        async for key, state in slices.over(wanted.items()):
            for replica in state.replicas:
                if self._can_lead(replica, key, state):
                    by_broker.setdefault(replica, []).append(key)
                    asked_keys.add(key)
        # All brokers at once, so that silent ones are waited for together. Each turn builds one
        # request.
        parts = [
            (broker_id, keys[start : start + _PARTITIONS_MAX])
            for broker_id, keys in sorted(by_broker.items())
            for start in range(0, len(keys), _PARTITIONS_MAX)
        ]
        asked = [
            (broker_id, self._ask(broker_id, some))
            async for broker_id, some in Slices(self._queue, size=1).over(parts)
        ]
        ends: dict[TopicPartition, dict[int, LogEnd]] = {}
        for broker_id, later in asked:
            async for key, end in slices.over(await later):
                ends.setdefault(key, {})[broker_id] = end
        return len(asked_keys), ends

    def _ask(
        self, broker_id: int, keys: Sequence[TopicPartition]
    ) -> Later[list[tuple[TopicPartition, LogEnd]]]:
        asked = self._peers.ask(broker_id, _request(keys), _LANE, timeout_ms=_TIMEOUT_MS)
        return spawn(_ends_of(asked))


async def _ends_of(
    asked: Later[ListOffsetsResponse],
) -> list[tuple[TopicPartition, LogEnd]]:
    try:
        response = await asked
    except KafkaError:
        # It is elected at the next attempt, if it has registered again by then.
        return []
    return [
        (TopicPartition(topic.name, one.partition_index), LogEnd(one.leader_epoch, one.offset))
        for topic in response.topics
        for one in topic.partitions
        if one.error_code == ErrorCode.NONE
    ]


def _request(keys: Iterable[TopicPartition]) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for name, number in keys:
        topic = topics.setdefault(name, ListOffsetsTopic(name=name))
        topic.partitions.append(ListOffsetsPartition(partition_index=number, timestamp=_LATEST))
    return ListOffsetsRequest(replica_id=_DEBUGGING_REPLICA_ID, topics=list(topics.values()))


def _ignore(_: None) -> None:
    """Do nothing: the elections have been reported."""
