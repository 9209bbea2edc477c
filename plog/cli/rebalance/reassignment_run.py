"""Have the controller carry out a plan: a few partitions at a time, with progress and elections.

The controller keeps each reassignment that has started, also if the tool ends. A tool that is
interrupted therefore leaves a valid state, in which some partitions of the plan have moved, some
are being moved, and the others have not changed. The next run reads this state, makes a plan for
the rest, and waits for the moves that it finds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from plog.cli.reassign_partitions.throttles import (
    clear_broker_throttles,
    clear_topic_throttles,
    proposed_moves,
    set_throttle,
    throttled_topics,
)
from plog.cli.rebalance.cluster_state import ClusterState, describe_partitions
from plog.cli.rebalance.plan import Plan
from plog.client.admin.brokers import BrokerAdmin
from plog.client.admin.log_dirs import LogDirAdmin
from plog.client.admin.partitions import PartitionAdmin
from plog.client.network.cluster import Cluster
from plog.enums import ElectionType
from plog.errors import ElectionNotNeeded, KafkaError
from plog.types import TopicPartition

_POLL_S = 0.5
"""Time between two requests for the progress."""
_CHECKS = 10
"""Number of requests for the replicas of moved partitions until other replicas are an error."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a run has done."""

    moved: list[TopicPartition] = field(default_factory=list)
    moving: list[TopicPartition] = field(default_factory=list)
    """Partitions that the controller is still moving, because the run was interrupted."""
    waiting: list[TopicPartition] = field(default_factory=list)
    """Partitions whose moves were not started, because the run was interrupted."""
    elected: list[TopicPartition] = field(default_factory=list)
    errors: dict[TopicPartition, KafkaError] = field(default_factory=dict)


class ReassignmentRun:
    """One run of a plan.

    Args:
        is_interrupted: whether the run is to end as soon as possible; checked twice per second.
        say: receives a line for each partition that is done.
        warn: receives lines about what delays the run, and about throttles.
        advance: receives the number of bytes that were copied since the last call.
        measures: whether to query the sizes of unfinished replicas for `advance`.
    """

    def __init__(
        self,
        cluster: Cluster,
        plan: Plan,
        state: ClusterState,
        *,
        is_interrupted: Callable[[], bool],
        say: Callable[[str], object],
        warn: Callable[[str], object],
        advance: Callable[[int], object],
        measures: bool,
    ) -> None:
        self._cluster = cluster
        self._admin = PartitionAdmin(cluster)
        self._plan = plan
        self._changes = plan.changes
        self._copied = plan.copied
        self._state = state
        self._is_interrupted = is_interrupted
        self._say = say
        self._warn = warn
        self._advance = advance
        self._measures = measures
        self._reported_bytes = 0
        self._unavailable: set[int] = set()
        self.outcome = Outcome()

    async def move(self, *, parallel: int, throttle: int | None) -> None:
        """Carry out the moves, at most `parallel` at a time, and wait for those in progress.

        `throttle` limits the bytes per second that each broker copies. The outcome contains the
        errors of partitions. Raises errors of whole requests.
        """
        if throttle is None:
            # An earlier run that was interrupted may have left a throttle, which is not wanted now.
            await self.clear_throttles({partition.topic for partition in self._plan.after})
        waiting = list(self._changes)
        # A reassignment that the plan changes again is replaced when its turn comes.
        moving = {one for one in self._state.ongoing if one not in self._changes}
        if throttle is not None and (self._copied or moving):
            moves = proposed_moves(self._state.ongoing, self._changes, self._plan.before)
            await set_throttle(self._cluster, moves, throttle)
        while (waiting or moving) and not self._is_interrupted():
            count = max(0, parallel - len(moving))
            moving |= await self._start(waiting[:count])
            del waiting[:count]
            ongoing = await self._admin.list_partition_reassignments(moving) if moving else {}
            done = sorted(moving - ongoing.keys())
            moving &= ongoing.keys()
            self._report(done)
            await self._measure(moving)
            if moving:
                await self._report_unavailable(moving)
                await self._cluster.network.sleep(_POLL_S)
        self.outcome.moving, self.outcome.waiting = sorted(moving), waiting
        await self._check_moved()

    async def _start(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Start moves; return the partitions without an error."""
        if not partitions:
            return set()
        started = await self._admin.alter_partition_reassignments(
            {partition: self._changes[partition] for partition in partitions}
        )
        self.outcome.errors |= started.errors
        return set(started.values_by_key)

    def _report(self, done: Collection[TopicPartition]) -> None:
        for partition in done:
            self.outcome.moved.append(partition)
            replicas = self._changes.get(partition)
            if replicas is None:
                self._say(f"{partition}: the reassignment that was in progress has ended")
                continue
            before, after = (
                ",".join(map(str, each)) for each in (self._plan.before[partition], replicas)
            )
            planned = sum(one in self._changes for one in self.outcome.moved)
            self._say(
                f"{partition}: replicas {before} -> {after} ({planned} of {len(self._changes)})"
            )

    async def _check_moved(self) -> None:
        """Find partitions whose moves were cancelled or replaced by another client."""
        moved = [one for one in self.outcome.moved if one in self._changes]
        if not moved:
            return
        others = await self._other_replicas(moved)
        for _ in range(_CHECKS - 1):
            if not others:
                break
            # The controller reports the end of a move before all brokers have received it.
            await self._cluster.network.sleep(_POLL_S)
            others = await self._other_replicas(moved)
        for partition, replicas in others.items():
            text = ",".join(map(str, replicas))
            self.outcome.errors[partition] = KafkaError(
                f"another client has changed the replicas to {text}; run the command again"
            )
            self.outcome.moved.remove(partition)

    async def _other_replicas(
        self, moved: Collection[TopicPartition]
    ) -> dict[TopicPartition, Sequence[int]]:
        """Return the replicas of those partitions that do not have the planned ones."""
        now = await describe_partitions(self._cluster, sorted({one.topic for one in moved}))
        return {
            partition: now[partition].replicas
            for partition in moved
            # A topic can be deleted meanwhile, which is not an error.
            if partition in now and now[partition].replicas != self._changes[partition]
        }

    # -- progress -----------------------------------------------------------------------------

    async def _measure(self, moving: Collection[TopicPartition]) -> None:
        """Report the bytes of the moves that are done, and of the replicas being copied."""
        if not self._measures:
            return
        copied = sum(self._copied.get(one, 0) for one in self.outcome.moved)
        targets: dict[TopicPartition, set[int]] = {
            one: set(self._changes[one]) - set(self._plan.before[one])
            for one in moving
            if self._copied.get(one)
        }
        brokers = sorted({broker for some in targets.values() for broker in some})
        if brokers:
            described = await LogDirAdmin(self._cluster).describe_log_dirs(
                brokers, partitions=sorted(targets)
            )
            for broker, log_dirs in described.values_by_key.items():
                for log_dir in log_dirs.values():
                    for partition, replica in log_dir.replicas.items():
                        if broker in targets.get(partition, ()):
                            copied += min(replica.size_bytes, self._plan.sizes.get(partition, 0))
        # The partitions grow while they are copied, and retention makes them smaller.
        if copied > self._reported_bytes:
            self._advance(copied - self._reported_bytes)
            self._reported_bytes = copied

    async def _report_unavailable(self, moving: Collection[TopicPartition]) -> None:
        """Report each broker that has to be available for a move to end, once."""
        needed = {one for partition in moving for one in self._changes.get(partition, ())}
        available = (await BrokerAdmin(self._cluster).describe_cluster()).brokers
        for broker in sorted(needed - available.keys() - self._unavailable):
            self._warn(f"broker {broker} is not available; moves to it continue when it is")
            self._unavailable.add(broker)

    # -- after the moves ----------------------------------------------------------------------

    async def elect(self, partitions: Collection[TopicPartition]) -> None:
        """Elect the preferred leaders of those `partitions` that other replicas lead."""
        now = await describe_partitions(self._cluster, sorted({one.topic for one in partitions}))
        # The planned replicas, because a broker may not have received the latest ones yet.
        needed = [
            partition
            for partition in sorted(partitions)
            if partition in now
            and now[partition].leader != self._plan.after.get(partition, now[partition].replicas)[0]
        ]
        if not needed:
            return
        outcomes = await self._admin.elect_leaders(ElectionType.PREFERRED, needed)
        for partition, error in outcomes.items():
            if error is None:
                self.outcome.elected.append(partition)
            elif not isinstance(error, ElectionNotNeeded):
                self.outcome.errors[partition] = error

    async def clear_throttles(self, topics: Collection[str]) -> None:
        """Remove the throttles of this run, and those of an earlier one that was interrupted."""
        throttled = await throttled_topics(self._cluster, sorted(topics))
        if not throttled:
            return
        await clear_broker_throttles(self._cluster, self._state.racks)
        await clear_topic_throttles(self._cluster, throttled)
        self._warn("removed the throttles")


def interruption_text(outcome: Outcome, command: str, *, is_throttled: bool) -> str:
    """Return what an interrupted run has left, and how to continue or to undo it."""
    text = (
        f"interrupted: {len(outcome.moved)} partitions are done, {len(outcome.moving)} are being"
        f" moved by the controller, and {len(outcome.waiting)} have not changed; to continue, run"
        f" '{command}' again"
    )
    if outcome.moving:
        text += "; to see or cancel the moves in progress, use plog reassign-partitions"
    if is_throttled:
        text += "; the throttle remains until a run has finished, or starts without --throttle"
    return text


def error_lines(errors: Mapping[TopicPartition, KafkaError]) -> list[str]:
    """Return a line for each partition with an error."""
    return [f"{partition}: {error.message}" for partition, error in sorted(errors.items())]
