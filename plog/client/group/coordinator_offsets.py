"""The offsets of a group, as its coordinator stores them: an `OffsetStore` for `Commits`.

committed_offsets.py fetches committed offsets. The coordinator rejects commits from a member that
is no longer in the group. It accepts commits without a generation while the group has no members.

Source: Kafka 4.3 ConsumerCoordinator.OffsetCommitResponseHandler; KIP-320.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from plog.client.errors import error_about
from plog.client.group.coordinator_connection import CoordinatorConnection
from plog.client.group.heartbeats import fenced
from plog.client.group.member_state import Generation, Membership
from plog.client.group.offset_messages import commit_request, commit_results
from plog.client.group.offset_store import (
    NO_MEMBER,
    Offsets,
    commit_failed,
    generation_error,
    rebalance_in_progress,
)
from plog.client.network.connection import Connection
from plog.client.network.deadline import Deadline
from plog.client.settings import ConsumerSettings
from plog.errors import ErrorCode, GroupAuthorizationFailed, TopicAuthorizationFailed
from plog.types import TopicPartition
from plog.wire.messages.offset_commit import OffsetCommitResponse


class CoordinatorOffsets:
    """The commits of one member. It passes a permanent error of the membership to `fail`."""

    def __init__(
        self,
        settings: ConsumerSettings,
        link: CoordinatorConnection,
        membership: Membership,
        *,
        fail: Callable[[Exception], None],
    ) -> None:
        self._settings = settings
        self._link = link
        self._membership = membership
        self._fail = fail
        self._connection: Connection | None = None

    @property
    def group_id(self) -> str:
        """The group."""
        return self._link.group_id

    async def connected(self, deadline: Deadline | None = None) -> None:
        """Connect to the coordinator. Raises the same errors as `CoordinatorConnection`."""
        self._connection = await self._link.connected(deadline)

    def send(
        self, offsets: Offsets, generation: Generation, deadline: Deadline | None = None
    ) -> Awaitable[None]:
        """Send an OffsetCommit on the connection of the last call to `connected`."""
        connection = self._connection
        assert connection is not None, "await connected() first"
        request = commit_request(self._link.group_id, offsets, generation, connection)
        answer = self._link.ask_on(connection, request, OffsetCommitResponse, deadline=deadline)
        return self._outcome(answer, generation)

    async def _outcome(
        self, answer: Awaitable[OffsetCommitResponse], generation: Generation
    ) -> None:
        self._raise_for(commit_results(await answer), generation)

    def _raise_for(self, codes: Mapping[TopicPartition, int], sent: Generation) -> None:
        """Raise the commit's error, if the response's codes contain an error."""
        refused = sorted(
            partition.topic
            for partition, code in codes.items()
            if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        )
        # An authorization error is about individual topics. Any other error is about the whole
        # commit, so it takes precedence.
        for partition, code in codes.items():
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
                continue
            raise self._error(code, partition, sent)
        if refused:
            raise TopicAuthorizationFailed(
                f"cannot commit offsets for group {self._link.group_id}: not authorized to read"
                f" {', '.join(refused)}"
            )

    def _error(self, code: int, partition: TopicPartition, sent: Generation) -> Exception:
        is_current = self._membership.generation == sent
        is_managed = sent != NO_MEMBER
        group_id = self._link.group_id
        error = error_about(code, f"group {group_id}: committing {partition}")
        self._link.moved(error)
        match code:
            case ErrorCode.REQUEST_TIMED_OUT:
                # The coordinator did not replicate the commit in time. As in Kafka's consumer, look
                # up the coordinator again.
                self._link.forget()
            case ErrorCode.REBALANCE_IN_PROGRESS:
                # Until the member has rejoined, in the next poll, it cannot commit.
                self._membership.ask_to_rejoin("offset commit failed since group is rebalancing")
                return rebalance_in_progress(self._settings)
            case ErrorCode.GROUP_AUTHORIZATION_FAILED:
                return GroupAuthorizationFailed(
                    f"cannot commit offsets for group {group_id}: not authorized; add an ACL that"
                    " allows READ on the group"
                )
            case ErrorCode.FENCED_INSTANCE_ID if is_current and is_managed:
                # Another member uses the same group.instance.id (KIP-345), so this member cannot
                # rejoin.
                failure = fenced(sent, group_id)
                self._membership.reset("fenced", keeps_member_id=False)
                self._fail(failure)
                return failure
            case (
                ErrorCode.UNKNOWN_MEMBER_ID
                | ErrorCode.ILLEGAL_GENERATION
                | ErrorCode.FENCED_INSTANCE_ID
            ):
                return self._lost(code, sent, is_current=is_current, is_managed=is_managed)
        return error

    def _lost(
        self, code: int, sent: Generation, *, is_current: bool, is_managed: bool
    ) -> Exception:
        """Return the error for a commit whose generation the coordinator does not know."""
        if not is_managed:
            why = "the group has members, which commit its offsets"
            return commit_failed(self._settings, why)
        if is_current:
            self._membership.reset(
                f"offset commit: {ErrorCode(code).name}",
                keeps_member_id=code == ErrorCode.ILLEGAL_GENERATION,
            )
        elif self._membership.is_rebalancing:
            # Since the commit was sent, the member has changed its generation.
            return generation_error(self._membership, self._settings)
        return commit_failed(self._settings, "the group has rebalanced without this consumer")
