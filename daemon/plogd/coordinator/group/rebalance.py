"""Rebalances: transitions of a group from one generation to the next, and their timeouts.

The operations in join_group.py and group_metadata_manager.py call this module, and so do timers.
Methods return a `Result` for the runtime, usually without records. After the last member has left,
the result contains the empty group's record, because there may be no later request to write it.

  timer       set when                           action when it is due
  session     a member sends a request           remove the member, unless a request is pending
  join        a rebalance starts                 remove late members, start the generation
  sync        a generation starts                remove members that have not sent SyncGroup
  disconnect  a client disconnects               cancel the pending request

A static member that joins late is not removed; only its session timeout removes it (KIP-345).
Source: Kafka 4.0 GroupMetadataManager, the methods on classic groups; KIP-62, 134.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from plog.errors import FencedInstanceId, RebalanceInProgress, UnknownMemberId
from plog.wire.messages.join_group import JoinGroupResponse
from plog.wire.messages.sync_group import SyncGroupResponse
from plogd.config import BrokerConfig
from plogd.coordinator.group.group import (
    COMPLETING_REBALANCE,
    DEAD,
    PREPARING_REBALANCE,
    STABLE,
    Group,
)
from plogd.coordinator.group.group_memory import shortened
from plogd.coordinator.group.group_records import group_record
from plogd.coordinator.group.member import NO_ASSIGNMENT, JoinAnswer, Member, SyncAnswer
from plogd.coordinator.group.responses import (
    fail_pending,
    join_group_response,
    sync_group_response,
)
from plogd.coordinator.runtime.coordinator_result import Result
from plogd.coordinator.runtime.shard_timers import ShardTimers
from plogd.ports import Clock, Later, MaybeLater, Report

T = TypeVar("T")

NOTHING: Final[Result[None]] = Result(response=None)
"""The result of an operation that did not change any durable state."""

NEW_MEMBER_TIMEOUT_MS: Final = 5 * 60 * 1000  # As in Kafka.
"""Session timeout until a new member's first generation, because it cannot send heartbeats yet."""


def with_response(result: Result[None], response: MaybeLater[T]) -> Result[T]:
    """Combine the records of a rebalance step with the response to the request that caused it."""
    return Result(
        records=result.records, response=response, appended=result.appended, replay=result.replay
    )


def _join_key(group_id: str) -> str:
    return f"join {group_id}"


def _sync_key(group_id: str) -> str:
    return f"sync {group_id}"


def _session_key(group_id: str, member_id: str) -> str:
    # The length keeps the keys unique: both ids can contain any character, including spaces.
    return f"session {len(group_id)} {group_id} {member_id}"


def _disconnect_key(group_id: str, member_id: str) -> str:
    return f"disconnect {len(group_id)} {group_id} {member_id}"


class Rebalances:
    """Runs the rebalances of all groups of one shard, and the sessions of members."""

    def __init__(
        self,
        *,
        find_group: Callable[[str], Group | None],
        config: Callable[[], BrokerConfig],
        timers: ShardTimers,
        clock: Clock,
        report: Report,
    ) -> None:
        self._find_group = find_group
        self._config = config
        self._timers = timers
        self._clock = clock
        self._report = report

    # -- joining ------------------------------------------------------------------------------

    def begin_or_complete(self, group: Group, reason: str) -> Result[None]:
        """Start a rebalance after a membership change, or complete the current one if possible."""
        if group.can_rebalance:
            return self.begin(group, reason)
        return self.complete_if_all_joined(group)

    def begin(self, group: Group, reason: str) -> Result[None]:
        """Start a rebalance; complete it immediately if all members have joined."""
        if group.state is COMPLETING_REBALANCE:
            # Members that wait for an assignment of the old generation have to join again.
            self._fail_syncs(
                group, RebalanceInProgress(f"group {group.group_id} is rebalancing: {reason}")
            )
        # Members of the old generation no longer need to send SyncGroup, because they join again.
        group.pending_syncs.clear()
        self._timers.cancel(_sync_key(group.group_id))
        group.transition_to(PREPARING_REBALANCE, self._clock.now_ms())
        self._report(
            "started rebalance of group {group!r} after generation {generation}: {reason!r}",
            group=shortened(group.group_id),
            generation=group.generation_id,
            reason=shortened(reason),
        )
        if group.is_initial_rebalance:
            self._delay_initial_rebalance(group)
            return NOTHING
        if group.has_all_joined:
            return self.complete_join(group)
        self._schedule_join(group)
        return NOTHING

    def complete_if_all_joined(self, group: Group) -> Result[None]:
        """Start the next generation if all members have joined and no initial delay is active."""
        if (
            group.state is PREPARING_REBALANCE
            and not group.is_initial_rebalance
            and group.has_all_joined
        ):
            return self.complete_join(group)
        return NOTHING

    def complete_join(self, group: Group) -> Result[None]:
        """Start the next generation with the members that have joined and all static members."""
        assert group.state is PREPARING_REBALANCE
        self._timers.cancel(_join_key(group.group_id))
        late = [member for member in group.not_yet_joined() if not member.is_static]
        self._remove_late(group, [member.member_id for member in late], "JoinGroup")
        if group.members and not group.elect_joined_leader():
            # Only static members remain, and none of them has joined. Wait until one joins or the
            # sessions expire.
            self._schedule_join(group)
            return NOTHING
        group.begin_generation(self._clock.now_ms())
        self._report(
            "started generation {generation} of group {group!r} with {members} members",
            group=shortened(group.group_id),
            generation=group.generation_id,
            members=len(group.members),
        )
        if group.is_empty:
            return self._write_empty(group)
        self._answer_joins(group)
        return NOTHING

    def _answer_joins(self, group: Group) -> None:
        answers: list[tuple[JoinAnswer, JoinGroupResponse]] = []
        for member in group.members.values():
            join = group.set_join(member, None)
            if join is not None:
                answers.append((join, join_group_response(group, member.member_id)))
            member.is_new = False
            group.pending_syncs.add(member.member_id)
            # The time that a member waited for other members does not count against its session.
            self.restart_session(group, member)
        generation_id = group.generation_id
        self._timers.schedule(
            _sync_key(group.group_id),
            group.rebalance_timeout_ms,
            lambda: self._sync_is_due(group.group_id, generation_id),
        )
        # Respond after the loop: a callback may handle a member's next request, which changes the
        # group.
        for join, response in answers:
            join.succeed(response)

    def _schedule_join(self, group: Group) -> None:
        self._timers.schedule(
            _join_key(group.group_id),
            group.rebalance_timeout_ms,
            lambda: self._join_is_due(group.group_id),
        )

    def _join_is_due(self, group_id: str) -> Result[None]:
        group = self._find_group(group_id)
        if group is None or group.state is not PREPARING_REBALANCE:
            return NOTHING
        return self.complete_join(group)

    def _delay_initial_rebalance(self, group: Group) -> None:
        # KIP-134: members that start at the same time then join in a single rebalance.
        delay_ms = self._config().group_initial_rebalance_delay_ms
        remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        group.has_new_member = False
        self._schedule_initial(group.group_id, delay_ms, remaining_ms)

    def _schedule_initial(self, group_id: str, delay_ms: int, remaining_ms: int) -> None:
        self._timers.schedule(
            _join_key(group_id),
            delay_ms,
            lambda: self._initial_is_due(group_id, delay_ms, remaining_ms),
        )

    def _initial_is_due(self, group_id: str, delay_ms: int, remaining_ms: int) -> Result[None]:
        group = self._find_group(group_id)
        if group is None or group.state is not PREPARING_REBALANCE:
            return NOTHING
        # KIP-134: each new member extends the delay, up to the rebalance timeout in total.
        if not group.has_new_member or remaining_ms == 0 or delay_ms == 0:
            return self.complete_join(group)
        group.has_new_member = False
        next_ms = min(self._config().group_initial_rebalance_delay_ms, remaining_ms)
        self._schedule_initial(group_id, next_ms, max(remaining_ms - delay_ms, 0))
        return NOTHING

    def _write_empty(self, group: Group) -> Result[None]:
        """Write the empty group; if this fails, a restart restores its members, and they expire."""
        appended: Later[None] = Later()
        appended.then(
            lambda _: None,
            lambda error: self._report(
                "cannot record that group {group!r} is empty: {error}",
                group=shortened(group.group_id),
                error=error,
                level="warn",
            ),
        )
        return Result(
            records=[group_record(group, {})], response=None, appended=appended, replay=False
        )

    # -- syncing ------------------------------------------------------------------------------

    def write_assignment(
        self, group: Group, assignments: Mapping[str, bytes], response: SyncAnswer
    ) -> Result[SyncGroupResponse]:
        """Write the leader's assignment; once it is durable, respond to all members.

        Another assignment that the leader sends in the meantime, on a new connection, is ignored.
        """
        # If both assignments were written, the members could receive one of them, but a restart
        # could restore the other.
        generation_id = group.generation_id
        if group.generation_being_written == generation_id:
            return Result(response=response)
        group.generation_being_written = generation_id
        # An assignor can omit members that do not get any partitions.
        complete = {
            member_id: assignments.get(member_id, NO_ASSIGNMENT) for member_id in group.members
        }

        def write_ended() -> bool:
            """Return whether the assignment still applies: a new rebalance may have started."""
            if group.generation_being_written == generation_id:
                group.generation_being_written = None
            return group.state is COMPLETING_REBALANCE and group.generation_id == generation_id

        def on_durable(_: None) -> None:
            if write_ended():
                self._assign(group, complete)

        def on_error(error: Exception) -> None:
            if not write_ended():
                return
            self._fail_syncs(group, error)
            result = self.begin(group, f"the assignment could not be written: {error}")
            assert not result.records  # The group has members, and none of them has joined.

        appended: Later[None] = Later()
        appended.then(on_durable, on_error)
        return Result(
            records=[group_record(group, complete)],
            response=response,
            appended=appended,
            # `on_durable` applies the assignment, so no member receives one that can still be lost.
            replay=False,
        )

    def _assign(self, group: Group, assignments: Mapping[str, bytes]) -> None:
        group.transition_to(STABLE, self._clock.now_ms())
        answers: list[tuple[SyncAnswer, SyncGroupResponse]] = []
        for member in group.members.values():
            group.assign(member, assignments[member.member_id])
            sync, member.sync = member.sync, None
            if sync is not None:
                answers.append((sync, sync_group_response(group, member)))
                self.restart_session(group, member)
        # Respond after the loop, as in `_answer_joins`.
        for sync, response in answers:
            sync.succeed(response)

    def _fail_syncs(self, group: Group, error: Exception) -> None:
        for member in group.members.values():
            group.assign(member, NO_ASSIGNMENT)
            sync, member.sync = member.sync, None
            if sync is not None:
                self.restart_session(group, member)
                sync.fail(error)

    def on_sync(self, group: Group, member: Member) -> None:
        """Record that the member has sent SyncGroup in time."""
        group.pending_syncs.discard(member.member_id)
        if not group.pending_syncs:
            self._timers.cancel(_sync_key(group.group_id))

    def _sync_is_due(self, group_id: str, generation_id: int) -> Result[None]:
        group = self._find_group(group_id)
        if (
            group is None
            or group.generation_id != generation_id
            or group.state not in (COMPLETING_REBALANCE, STABLE)
            or not group.pending_syncs
        ):
            return NOTHING
        # Sorted, because the order of a set of strings differs between runs.
        self._remove_late(group, sorted(group.pending_syncs), "SyncGroup")
        return self.begin(group, "some members did not send SyncGroup in time")

    # -- sessions -----------------------------------------------------------------------------

    def restart_session(self, group: Group, member: Member) -> None:
        """Restart the member's session."""
        self.set_session_timeout(group.group_id, member.member_id, member.session_timeout_ms)

    def set_session_timeout(self, group_id: str, member_id: str, within_ms: int) -> None:
        """Remove the member or pending id unless it sends a request within `within_ms`."""
        self._timers.schedule(
            _session_key(group_id, member_id),
            within_ms,
            lambda: self._session_is_over(group_id, member_id),
        )

    def _session_is_over(self, group_id: str, member_id: str) -> Result[None]:
        group = self._find_group(group_id)
        if group is None:
            return NOTHING
        if member_id in group.pending_joins:
            # The id never belonged to a member, so no rebalance is needed. A rebalance in progress
            # may have waited for the id.
            group.remove(member_id)
            return self.complete_if_all_joined(group)
        member = group.members.get(member_id)
        if member is None or member.has_satisfied_heartbeat:
            return NOTHING
        self.remove(group, member_id)
        return self.begin_or_complete(group, f"the session of member {member_id} expired")

    def remove(self, group: Group, member_id: str) -> Member | None:
        """Remove a member or pending id, and fail the member's pending requests.

        The caller must then start or continue a rebalance.
        """
        self._timers.cancel(_session_key(group.group_id, member_id))
        member = group.remove(member_id)
        if member is not None:
            # If the client is still running, it joins as a new member.
            error = UnknownMemberId(f"member {member_id} was removed from group {group.group_id}")
            fail_pending(member, error)
        return member

    def fence(self, group: Group, member_id: str) -> None:
        """Fail a static member's pending requests, because another client now uses its instance id.

        The caller replaces the member.
        """
        self._timers.cancel(_session_key(group.group_id, member_id))
        member = group.members[member_id]
        join, sync = group.set_join(member, None), member.sync
        member.sync = None
        error = FencedInstanceId(
            f"a consumer with group instance id {member.group_instance_id} has rejoined group"
            f" {group.group_id} with a different member id"
        )
        if join is not None:
            join.fail(error)
        if sync is not None:
            sync.fail(error)

    def _remove_late(self, group: Group, member_ids: Iterable[str], request: str) -> None:
        for member_id in member_ids:
            self.remove(group, member_id)
            self._report(
                "removed member {member!r} from group {group!r}: {request} did not arrive in time",
                group=shortened(group.group_id),
                member=shortened(member_id),
                request=request,
            )

    def discard(self, group: Group, error: Exception) -> None:
        """Make the group DEAD: cancel its timers and fail pending requests with `error`."""
        group.transition_to(DEAD, self._clock.now_ms())
        group.untrack_memory()
        group_id = group.group_id
        for key in (_join_key(group_id), _sync_key(group_id)):
            self._timers.cancel(key)
        for member_id in (*group.members, *group.pending_joins):
            self._timers.cancel(_session_key(group_id, member_id))
        for member in group.members.values():
            fail_pending(member, error)

    # -- disconnected clients -----------------------------------------------------------------

    def new_join_answer(self, group_id: str, member_id: str) -> JoinAnswer:
        """Return the pending answer to a JoinGroup; it is cancelled if the client disconnects."""
        # A timer runs the removal as an operation of the shard, which can write records.
        answer: JoinAnswer = Later(
            lambda: self._timers.schedule(
                _disconnect_key(group_id, member_id),
                0,
                lambda: self._disconnected_during_join(group_id, member_id, answer),
            )
        )
        return answer

    def new_sync_answer(self, group_id: str, member_id: str) -> SyncAnswer:
        """Return the pending answer to a SyncGroup; it is cancelled if the client disconnects."""
        answer: SyncAnswer = Later(
            lambda: self._timers.schedule(
                _disconnect_key(group_id, member_id),
                0,
                lambda: self._disconnected_during_sync(group_id, member_id, answer),
            )
        )
        return answer

    def _disconnected_during_join(
        self, group_id: str, member_id: str, answer: JoinAnswer
    ) -> Result[None]:
        """Handle a client that disconnected during JoinGroup."""
        group = self._find_group(group_id)
        member = None if group is None else group.members.get(member_id)
        # If the client has repeated the request on another connection, the new request is pending.
        if group is None or member is None or member.join is not answer:
            return NOTHING
        # Unlike in Kafka, which ignores the disconnection, a new dynamic member is removed: its
        # client does not know the member id and cannot return. Other members can return within
        # their session timeout.
        if member.is_new and not member.is_static:
            self.remove(group, member_id)
            return self.begin_or_complete(group, f"member {member_id} disconnected while joining")
        group.set_join(member, None)
        self.restart_session(group, member)
        return NOTHING

    def _disconnected_during_sync(
        self, group_id: str, member_id: str, answer: SyncAnswer
    ) -> Result[None]:
        group = self._find_group(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is not None and member is not None and member.sync is answer:
            member.sync = None
            self.restart_session(group, member)
        return NOTHING
