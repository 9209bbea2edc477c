"""Deliberate bugs that the simulator must find: ``--plant NAME``, and test_planted_bugs.py.

Each one changes a single method of the broker slightly, only while `planted` is active.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, cast
from unittest.mock import patch

from plog.errors import CoordinatorLoadInProgress, FencedInstanceId
from plog.records.offset_map import OffsetMap
from plog.wire.messages.sync_group import SyncGroupResponse
from plogd.coordinator.group import group_metadata_manager as groups_module
from plogd.coordinator.group.group import Group
from plogd.coordinator.group.group_coordinator import GroupCoordinator
from plogd.coordinator.group.group_metadata_manager import GroupMetadataManager
from plogd.coordinator.group.member import Member
from plogd.coordinator.group.offset_metadata_manager import (
    Fetched,
    FetchedOffset,
    RequestedPartitions,
)
from plogd.coordinator.group.rebalance import Rebalances
from plogd.coordinator.group.responses import sync_group_response
from plogd.coordinator.runtime.coordinator_result import Result
from plogd.coordinator.runtime.deferred_events import DeferredEvents, complete, new_answer
from plogd.log.compaction import log_cleaner, segment_swap
from plogd.log.compaction.batch_filter import BatchFilter
from plogd.log.disk.group_commit import SyncTicket
from plogd.log.disk.slow_disk_writes import Prepared, SlowDiskWrites
from plogd.log.log import Log
from plogd.log.producer_state import ProducerStateManager
from plogd.log.segment.log_segment import LogSegment
from plogd.ports import Buffer, Files, Later, spawn
from plogd.replica.delayed_produce import PartitionAppend
from tests.sim.cluster.library.planted_library_bugs import LIBRARY_PLANTS
from tests.sim.cluster.planted_replication_bugs import REPLICATION_PLANTS


def _ack_before_flush(stack: ExitStack) -> None:
    """Treat every appended record as durable immediately."""
    end = property(lambda log: log.log_end_offset)
    stack.enter_context(patch.object(Log, "acknowledged_end_offset", end))


def _skip_dir_sync(stack: ExitStack) -> None:
    """Omit the directory with a new segment's name from the sync round."""
    begin_sync = Log.begin_sync

    def without_directory(log: Log) -> SyncTicket | None:
        ticket = begin_sync(log)
        return ticket and dataclasses.replace(ticket, directory=None)

    stack.enter_context(patch.object(Log, "begin_sync", without_directory))


def _ack_before_hw(stack: ExitStack) -> None:
    """Acknowledge a produce as soon as it is appended."""
    stack.enter_context(patch.object(PartitionAppend, "is_waiting", lambda append, acks: False))


def _forget_producers(stack: ExitStack) -> None:
    """Skip the check of sequence numbers."""
    stack.enter_context(
        patch.object(ProducerStateManager, "check", lambda state, header, origin: None)
    )


def _forget_refusals(stack: ExitStack) -> None:
    """Let a producer whose first batch was rejected begin with its second."""
    stack.enter_context(
        patch.object(ProducerStateManager, "note_refused", lambda state, header: None)
    )


def _keep_unwritten_sequences(stack: ExitStack) -> None:
    """Keep the sequence numbers of batches that a slow disk did not write."""
    fail = SlowDiskWrites._fail

    def keep(lane: SlowDiskWrites, unwritten: Sequence[Prepared], error: OSError | None) -> None:
        lane._log.producer_state.producers.update(lane._producers.producers)
        fail(lane, unwritten, error)

    stack.enter_context(patch.object(SlowDiskWrites, "_fail", keep))


def _ack_unwritten(stack: ExitStack) -> None:
    """Judge by offset alone whether a record is durable, even if its write failed."""
    is_waiting = PartitionAppend.is_waiting

    def by_offset(append: PartitionAppend, acks: int) -> bool:
        if append.info is not None and append.info.writing is not None:
            append.info = append.info._replace(writing=None)
        return is_waiting(append, acks)

    stack.enter_context(patch.object(PartitionAppend, "is_waiting", by_offset))


def _answer_before_durable(stack: ExitStack) -> None:
    """Send a coordinator's response as soon as its records are appended."""

    def add(waiting: DeferredEvents, result: Result[Any], end_offset: int) -> Later[Any]:
        answer = new_answer(result)
        complete(result, answer)
        return answer

    stack.enter_context(patch.object(DeferredEvents, "add", add))


def _accept_old_generations(stack: ExitStack) -> None:
    """Skip the check of a member's generation."""
    stack.enter_context(patch.object(Group, "validate_generation", lambda group, generation: None))


def _forget_groups(stack: ExitStack) -> None:
    """Load committed offsets, but no groups."""
    stack.enter_context(
        patch.object(GroupMetadataManager, "replay_group", lambda groups, key, value: None)
    )


def _no_offset_while_loading(stack: ExitStack) -> None:
    """Return no offset to a client that fetches offsets before they are loaded."""
    fetch_offsets = GroupCoordinator.fetch_offsets

    def fetch(
        coordinator: GroupCoordinator[Any],
        group_id: str,
        asked: RequestedPartitions | None,
        *,
        require_stable: bool,
    ) -> Later[Fetched]:
        nothing = [(name, [FetchedOffset(one) for one in numbers]) for name, numbers in asked or ()]

        async def no_waiting() -> Fetched:
            try:
                return await fetch_offsets(
                    coordinator, group_id, asked, require_stable=require_stable
                )
            except CoordinatorLoadInProgress:
                return nothing

        return spawn(no_waiting())

    stack.enter_context(patch.object(GroupCoordinator, "fetch_offsets", fetch))


def _keep_dead_members(stack: ExitStack) -> None:
    """Never expire a session."""
    stack.enter_context(
        patch.object(
            Rebalances,
            "set_session_timeout",
            lambda rebalances, group_id, member_id, within_ms: None,
        )
    )


def _forget_fencing(stack: ExitStack) -> None:
    """Accept a fenced member as if it still had its instance id."""
    validate_member = Group.validate_member

    def validate(group: Group, member_id: str, group_instance_id: str | None) -> Member:
        try:
            return validate_member(group, member_id, group_instance_id)
        except FencedInstanceId:
            return group.members[group.static_member_id(group_instance_id) or ""]

    stack.enter_context(patch.object(Group, "validate_member", validate))


def _mix_up_assignments(stack: ExitStack) -> None:
    """Return the first member's assignment to a member whose SyncGroup arrives later."""

    def first_members(group: Group, member: Member) -> SyncGroupResponse:
        return sync_group_response(group, next(iter(group.members.values())))

    stack.enter_context(patch.object(groups_module, "sync_group_response", first_members))


def _undo_os_errors_only(stack: ExitStack) -> None:
    """Keep the batch in the file when an append fails with an exception other than OSError."""

    def append(
        segment: LogSegment,
        batch: Buffer,
        last_offset: int,
        max_timestamp: int,
        offset_of_max_timestamp: int,
    ) -> int:
        position = segment.records.append(batch)
        try:
            segment.indexes.add(position, last_offset, max_timestamp, offset_of_max_timestamp)
        except OSError:
            segment.records.truncate(position)
            raise
        return position

    stack.enter_context(patch.object(LogSegment, "append", append))
    stack.enter_context(patch.object(LogSegment, "truncate_to_size", lambda segment, size: None))


def _clean_above_lso(stack: ExitStack) -> None:
    """Compact records of open transactions, as if they were committed."""
    cleanable_part = log_cleaner.cleanable_part

    class Stable:
        """A log that claims not to have any open transactions."""

        def __init__(self, log: Log) -> None:
            self.last_stable_offset = log.high_watermark
            self._log = log

        def __getattr__(self, name: str) -> Any:
            return getattr(self._log, name)

    stack.enter_context(
        patch.object(
            log_cleaner, "cleanable_part", lambda log, **how: cleanable_part(Stable(log), **how)
        )
    )


def _swap_without_dir_sync(stack: ExitStack) -> None:
    """Put compacted segments in place without syncing the directory."""

    class Unsynced:
        """Files that omit the syncs of directories as long as `is_active` is set."""

        def __init__(self, files: Files) -> None:
            self.is_active = True
            self._files = files

        def __getattr__(self, name: str) -> Any:
            return getattr(self._files, name)

        def sync_dir(self, path: str) -> None:
            if not self.is_active:
                self._files.sync_dir(path)

    def omit_syncs(step: Callable[..., Any]) -> Callable[..., Any]:
        def run(files: Files, *arguments: Any) -> Any:
            unsynced = Unsynced(files)
            try:
                return step(unsynced, *arguments)
            finally:
                unsynced.is_active = False

        return run

    rename = LogSegment.rename

    def rename_without_sync(segment: LogSegment, state: str, *, records_last: bool = False) -> None:
        files = segment._files
        segment._files = cast(Files, Unsynced(files))
        try:
            rename(segment, state, records_last=records_last)
        finally:
            segment._files = files

    stack.enter_context(patch.object(LogSegment, "rename", rename_without_sync))
    for name in ("commit", "complete"):
        step = getattr(segment_swap, name)
        stack.enter_context(patch.object(segment_swap, name, omit_syncs(step)))


def _drop_last_batches(stack: ExitStack) -> None:
    """Remove the last batch of a producer if compaction removes its records."""
    stack.enter_context(
        patch.object(BatchFilter, "_is_last_of_producer", lambda batches, header: False)
    )


def _drop_tombstones(stack: ExitStack) -> None:
    """Remove a tombstone as soon as it is compacted for the first time."""
    mark_kept = OffsetMap.mark_kept
    stack.enter_context(
        patch.object(
            OffsetMap,
            "mark_kept",
            lambda latest, data, spans, end_offset, _: mark_kept(
                latest, data, spans, end_offset, False
            ),
        )
    )


def _keep_old_tickets(stack: ExitStack) -> None:
    """Truncate while a sync is in progress, whose ticket has a removed record as its end."""

    async def stop_writes(log: Log) -> None:
        log.is_truncating = True
        log.rewrites += 1
        while log._lane is not None:
            await log._lane.ended()

    stack.enter_context(patch.object(Log, "stop_writes", stop_writes))


PLANTS: dict[str, Callable[[ExitStack], None]] = {
    "ack-before-flush": _ack_before_flush,
    "skip-dir-sync": _skip_dir_sync,
    "ack-before-hw": _ack_before_hw,
    "forget-producers": _forget_producers,
    "forget-refusals": _forget_refusals,
    "keep-unwritten-sequences": _keep_unwritten_sequences,
    "ack-unwritten": _ack_unwritten,
    "undo-os-errors-only": _undo_os_errors_only,
    "clean-above-lso": _clean_above_lso,
    "swap-without-dir-sync": _swap_without_dir_sync,
    "drop-last-batches": _drop_last_batches,
    "drop-tombstones": _drop_tombstones,
    "keep-old-tickets": _keep_old_tickets,
    "answer-before-durable": _answer_before_durable,
    "accept-old-generations": _accept_old_generations,
    "forget-groups": _forget_groups,
    "no-offset-while-loading": _no_offset_while_loading,
    "keep-dead-members": _keep_dead_members,
    "forget-fencing": _forget_fencing,
    "mix-up-assignments": _mix_up_assignments,
}


ALL_PLANTS = PLANTS | REPLICATION_PLANTS | LIBRARY_PLANTS


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Run with the bug `name`; None plants no bug."""
    with ExitStack() as stack:
        if name is not None:
            ALL_PLANTS[name](stack)
        yield
