"""Deliberate bugs of replication that the simulator must find; see tests/sim/planted_bugs.py."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from plogd.coordinator.runtime.shard_runtime import ShardRuntime
from plogd.log.log import Log
from plogd.metadata.cache import NO_LEADER, PartitionState
from plogd.replica.cluster.lost_records import LostRecords
from plogd.replica.cluster.role_changes import RoleChanges
from plogd.replica.follower import follower_fetcher
from plogd.replica.follower.followed_partition import FollowedPartition
from plogd.replica.partition import Partition
from plogd.replica.remote_replicas import RemoteReplicas


def _truncate_to_hw(stack: ExitStack) -> None:
    """Let a follower truncate its log to its high watermark, as before KIP-101."""
    change_role = RoleChanges._change_role

    async def change(
        roles: RoleChanges, partition: Partition, state: PartitionState, registrations: int
    ) -> None:
        if state.leader not in (roles._broker_id, NO_LEADER):
            roles._leave_role(partition)
            await roles._followers.remove(partition.topic_partition)
            await partition.log.truncate_to(partition.log.high_watermark)
        await change_role(roles, partition, state, registrations)

    stack.enter_context(patch.object(RoleChanges, "_change_role", change))


def _hw_without_pending(stack: ExitStack) -> None:
    """Advance the high watermark without the members of a proposed ISR."""

    def high_watermark(
        remote: RemoteReplicas, acknowledged: int, leader_end_offset: int, now_ms: float
    ) -> int:
        ends = [
            follower.end_offset
            for broker_id, follower in remote.followers.items()
            if broker_id in remote.isr
        ]
        return min([acknowledged, *ends])

    stack.enter_context(patch.object(RemoteReplicas, "high_watermark", high_watermark))


def _fetch_before_sync(stack: ExitStack) -> None:
    """Let a follower fetch again before the records of the last response are durable."""
    stack.enter_context(
        patch.object(follower_fetcher, "_is_acknowledged", lambda partition, info: True)
    )
    stack.enter_context(patch.object(FollowedPartition, "must_sync", lambda followed: False))


def _no_epoch_fence(stack: ExitStack) -> None:
    """Accept the fetches of followers that are in another leader epoch."""
    read_for_follower = Partition.read_for_follower

    def read(partition: Partition, *args: Any, **how: Any) -> Any:
        how |= {"leader_epoch": partition.leader_epoch, "last_fetched_epoch": -1}
        return read_for_follower(partition, *args, **how)

    stack.enter_context(patch.object(Partition, "read_for_follower", read))


def _ignore_epoch_floor(stack: ExitStack) -> None:
    """Lead in a leader epoch that the log contains from before the start of the process."""
    stack.enter_context(
        patch.object(RoleChanges, "_check_epoch", lambda roles, partition, state: None)
    )


def _join_below_epoch_start(stack: ExitStack) -> None:
    """Let a follower join the ISR that lacks records from before the leader epoch."""
    expanded = RemoteReplicas.expanded

    def expand(
        remote: RemoteReplicas, broker_id: int, high_watermark: int
    ) -> tuple[int, ...] | None:
        start, remote._epoch_start_offset = remote._epoch_start_offset, 0
        try:
            return expanded(remote, broker_id, high_watermark)
        finally:
            remote._epoch_start_offset = start

    stack.enter_context(patch.object(RemoteReplicas, "expanded", expand))


def _follower_forgets_producers(stack: ExitStack) -> None:
    """Let a follower append batches without remembering their producers."""
    append_as_follower = Log.append_as_follower

    def append(log: Log, *args: Any, **how: Any) -> Any:
        info = append_as_follower(log, *args, **how)
        log.producer_state.producers.clear()
        return info

    stack.enter_context(patch.object(Log, "append_as_follower", append))


def _lead_after_loss(stack: ExitStack) -> None:
    """Let a replica lead and follow although it has lost records (rule C2)."""
    stack.enter_context(patch.object(LostRecords, "refusal", lambda lost, key, state: None))
    stack.enter_context(patch.object(LostRecords, "check_end_is_known", lambda lost, key: None))


def _answer_before_commit(stack: ExitStack) -> None:
    """Send a coordinator's response when its records are durable on its own disk only."""

    def progress(shard: ShardRuntime[Any]) -> None:
        shard._check_written()
        problem = shard._problem()
        if problem is not None:
            shard.close(problem)
        else:
            shard._deferred.complete_up_to(shard.partition.log.durable_end_offset)

    stack.enter_context(patch.object(ShardRuntime, "_progress", progress))


REPLICATION_PLANTS: dict[str, Callable[[ExitStack], None]] = {
    "truncate-to-hw": _truncate_to_hw,
    "hw-without-pending": _hw_without_pending,
    "fetch-before-sync": _fetch_before_sync,
    "no-epoch-fence": _no_epoch_fence,
    "ignore-epoch-floor": _ignore_epoch_floor,
    "join-below-epoch-start": _join_below_epoch_start,
    "follower-forgets-producers": _follower_forgets_producers,
    "lead-after-loss": _lead_after_loss,
    "answer-before-commit": _answer_before_commit,
}
