"""How a group gets from one generation to the next, and what happens when somebody is late.

Called by join_group.py and group_metadata_manager.py inside their operations, and by timers. What
comes back is a `Result` for the runtime: nothing most of the time, a record when a generation ended
with nobody left, for such a group may be the last one hears of it.

  timer       set when                             what is done when it is due
  session     a member is heard of                 it is out, unless a request of it waits
  join        a rebalance begins                   who has not joined is out, the generation begins
  sync        a generation begins                  who has not sent SyncGroup is out
  left        a client leaves during a request     it does not wait any more

Static members are not put out for being late to join, only by their session (KIP-345).
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
    assignment_answer,
    generation_answer,
    refuse_waits,
)
from plogd.coordinator.runtime.coordinator_result import Result
from plogd.coordinator.runtime.shard_timers import ShardTimers
from plogd.ports import Clock, Later, MaybeLater, Report

T = TypeVar("T")

NOTHING: Final[Result[None]] = Result(response=None)
"""The result of an operation that changed nothing durable."""

NEW_MEMBER_TIMEOUT_MS: Final = 5 * 60 * 1000
"""How long a new member may wait for its first generation. It cannot send heartbeats yet."""


def with_response(result: Result[None], response: MaybeLater[T]) -> Result[T]:
    """What a rebalance's step has to be written, and the answer to the request that led to it."""
    return Result(
        records=result.records, response=response, appended=result.appended, replay=result.replay
    )


def _join_key(group_id: str) -> str:
    return f"join {group_id}"


def _sync_key(group_id: str) -> str:
    return f"sync {group_id}"


def _session_key(group_id: str, member_id: str) -> str:
    # With the length, for both may hold any character.
    return f"session {len(group_id)} {group_id} {member_id}"


def _left_key(group_id: str, member_id: str) -> str:
    return f"left {len(group_id)} {group_id} {member_id}"


class Rebalances:
    """Rebalances of the groups of one shard."""

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

    def begin_or_go_on(self, group: Group, reason: str) -> Result[None]:
        """The group's members have changed: begin a rebalance, or see whether all have joined."""
        if group.can_rebalance:
            return self.begin(group, reason)
        return self.complete_if_all_joined(group)

    def begin(self, group: Group, reason: str) -> Result[None]:
        """Ask every member to join again; done at once if all have."""
        if group.state is COMPLETING_REBALANCE:
            self._refuse_syncs(
                group, RebalanceInProgress(f"group {group.group_id} rebalances: {reason}")
            )
        group.pending_syncs.clear()
        self._timers.cancel(_sync_key(group.group_id))
        group.become(PREPARING_REBALANCE, self._clock.now_ms())
        self._report(
            "group {group!r} rebalances after generation {generation}: {reason!r}",
            group=shortened(group.group_id),
            generation=group.generation_id,
            reason=shortened(reason),
        )
        if group.is_initial_rebalance:
            self._wait_for_more(group)
            return NOTHING
        if group.has_all_joined:
            return self.complete_join(group)
        self._schedule_join(group)
        return NOTHING

    def complete_if_all_joined(self, group: Group) -> Result[None]:
        """Begin the next generation if nobody is missing and no initial delay runs."""
        if (
            group.state is PREPARING_REBALANCE
            and not group.is_initial_rebalance
            and group.has_all_joined
        ):
            return self.complete_join(group)
        return NOTHING

    def complete_join(self, group: Group) -> Result[None]:
        """Begin the next generation with those who have joined, and the static members."""
        assert group.state is PREPARING_REBALANCE
        self._timers.cancel(_join_key(group.group_id))
        late = [member for member in group.not_yet_joined() if not member.is_static]
        self._put_out(group, [member.member_id for member in late], "to join")
        if group.members and not group.elect_joined_leader():
            # Nobody could lead. Sessions will run out, or somebody joins.
            self._schedule_join(group)
            return NOTHING
        group.begin_generation(self._clock.now_ms())
        self._report(
            "group {group!r} begins generation {generation} with {members} members",
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
                answers.append((join, generation_answer(group, member.member_id)))
            member.is_new = False
            group.pending_syncs.add(member.member_id)
            self.touch(group, member)
        generation_id = group.generation_id
        self._timers.schedule(
            _sync_key(group.group_id),
            group.rebalance_timeout_ms,
            lambda: self._sync_is_due(group.group_id, generation_id),
        )
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

    def _wait_for_more(self, group: Group) -> None:
        """KIP-134: give others that start at the same time a chance to join at once."""
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
        if not group.has_new_member or remaining_ms == 0 or delay_ms == 0:
            return self.complete_join(group)
        group.has_new_member = False
        next_ms = min(self._config().group_initial_rebalance_delay_ms, remaining_ms)
        self._schedule_initial(group_id, next_ms, max(remaining_ms - delay_ms, 0))
        return NOTHING

    def _write_empty(self, group: Group) -> Result[None]:
        """Write that nobody is left. If that fails, a restart finds members, and their sessions."""
        appended: Later[None] = Later()
        appended.then(
            lambda _: None,
            lambda error: self._report(
                "group {group!r} is empty, but that could not be written: {error}",
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
        """Write what the leader has decided; once that is durable, tell everybody.

        A leader that has lost its answer may ask again before that, and decide otherwise. Its first
        word counts: were both written, others would be told one and a restart would find the other.
        """
        generation_id = group.generation_id
        if group.generation_being_written == generation_id:
            return Result(response=response)
        group.generation_being_written = generation_id
        complete = {
            member_id: assignments.get(member_id, NO_ASSIGNMENT) for member_id in group.members
        }

        def write_ended() -> bool:
            """Whether it is still waited for: a rebalance may have begun meanwhile."""
            if group.generation_being_written == generation_id:
                group.generation_being_written = None
            return group.state is COMPLETING_REBALANCE and group.generation_id == generation_id

        def on_durable(_: None) -> None:
            if write_ended():
                self._assign(group, complete)

        def on_error(error: Exception) -> None:
            if not write_ended():
                return
            self._refuse_syncs(group, error)
            result = self.begin(group, f"the assignment could not be written: {error}")
            assert not result.records  # It has members, and none of them has joined.

        appended: Later[None] = Later()
        appended.then(on_durable, on_error)
        return Result(
            records=[group_record(group, complete)],
            response=response,
            appended=appended,
            replay=False,
        )

    def _assign(self, group: Group, assignments: Mapping[str, bytes]) -> None:
        group.become(STABLE, self._clock.now_ms())
        answers: list[tuple[SyncAnswer, SyncGroupResponse]] = []
        for member in group.members.values():
            group.assign(member, assignments[member.member_id])
            sync, member.sync = member.sync, None
            if sync is not None:
                answers.append((sync, assignment_answer(group, member)))
                self.touch(group, member)
        for sync, response in answers:
            sync.succeed(response)

    def _refuse_syncs(self, group: Group, error: Exception) -> None:
        for member in group.members.values():
            group.assign(member, NO_ASSIGNMENT)
            sync, member.sync = member.sync, None
            if sync is not None:
                self.touch(group, member)
                sync.fail(error)

    def synced(self, group: Group, member: Member) -> None:
        """The member has sent its SyncGroup: it is not late for it."""
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
        self._put_out(group, sorted(group.pending_syncs), "to sync")
        return self.begin(group, "some members have not asked for their assignment")

    # -- sessions -----------------------------------------------------------------------------

    def touch(self, group: Group, member: Member) -> None:
        """The member has been heard of: its session begins anew."""
        self.expect(group.group_id, member.member_id, member.session_timeout_ms)

    def expect(self, group_id: str, member_id: str, within_ms: int) -> None:
        """Put the member, or the pending id, out unless it is heard of within that time."""
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
            group.remove(member_id)
            return self.complete_if_all_joined(group)
        member = group.members.get(member_id)
        if member is None or member.is_excused:
            return NOTHING
        self.remove(group, member_id)
        return self.begin_or_go_on(group, f"member {member_id} was not heard of")

    def remove(self, group: Group, member_id: str) -> Member | None:
        """Take a member, or a pending id, out, and tell whatever request of it waits.

        The caller goes on with the rebalance that makes necessary.
        """
        self._timers.cancel(_session_key(group.group_id, member_id))
        member = group.remove(member_id)
        if member is not None:
            # Its client joins as a new member if it is still there.
            error = UnknownMemberId(f"member {member_id} is not in group {group.group_id} any more")
            refuse_waits(member, error)
        return member

    def fence(self, group: Group, member_id: str) -> None:
        """Another has come with the instance id of this member: tell whatever request of it waits.

        The caller gives the place away.
        """
        self._timers.cancel(_session_key(group.group_id, member_id))
        member = group.members[member_id]
        join, sync = group.set_join(member, None), member.sync
        member.sync = None
        error = FencedInstanceId(
            f"a consumer with group instance id {member.group_instance_id} has come back to group"
            f" {group.group_id} under another member id"
        )
        if join is not None:
            join.fail(error)
        if sync is not None:
            sync.fail(error)

    def _put_out(self, group: Group, member_ids: Iterable[str], late: str) -> None:
        for member_id in member_ids:
            self.remove(group, member_id)
            self._report(
                "group {group!r}: member {member!r} was too late {late}",
                group=shortened(group.group_id),
                member=shortened(member_id),
                late=late,
            )

    def forget(self, group: Group, error: Exception) -> None:
        """The group is DEAD: stop its timers, tell who waits."""
        group.become(DEAD, self._clock.now_ms())
        group.count_out()
        group_id = group.group_id
        for key in (_join_key(group_id), _sync_key(group_id)):
            self._timers.cancel(key)
        for member_id in (*group.members, *group.pending_joins):
            self._timers.cancel(_session_key(group_id, member_id))
        for member in group.members.values():
            refuse_waits(member, error)

    # -- clients that leave -------------------------------------------------------------------

    def join_answer(self, group_id: str, member_id: str) -> JoinAnswer:
        """What a JoinGroup waits for; given up when its client leaves."""
        answer: JoinAnswer = Later(
            lambda: self._timers.schedule(
                _left_key(group_id, member_id),
                0,
                lambda: self._left_during_join(group_id, member_id, answer),
            )
        )
        return answer

    def sync_answer(self, group_id: str, member_id: str) -> SyncAnswer:
        """What a SyncGroup waits for; given up when its client leaves."""
        answer: SyncAnswer = Later(
            lambda: self._timers.schedule(
                _left_key(group_id, member_id),
                0,
                lambda: self._left_during_sync(group_id, member_id, answer),
            )
        )
        return answer

    def _left_during_join(self, group_id: str, member_id: str, answer: JoinAnswer) -> Result[None]:
        """Kafka cannot see this, and waits for those that are gone. We need not.

        A new dynamic member has nothing to come back for. Others have their session to come back.
        """
        group = self._find_group(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None or member.join is not answer:
            return NOTHING
        if member.is_new and not member.is_static:
            self.remove(group, member_id)
            return self.begin_or_go_on(group, f"member {member_id} left while it joined")
        group.set_join(member, None)
        self.touch(group, member)
        return NOTHING

    def _left_during_sync(self, group_id: str, member_id: str, answer: SyncAnswer) -> Result[None]:
        group = self._find_group(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is not None and member is not None and member.sync is answer:
            member.sync = None
            self.touch(group, member)
        return NOTHING
