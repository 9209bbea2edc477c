"""Request changes of in-sync replica sets from the controller (AlterPartition, KIP-497).

One request at a time is in flight; changes that are proposed in the meantime share the next one. If
there is no answer, or the receiver is not the controller, the changes are sent again after a
backoff, until the partition has another state: the controller compares the leader epoch and the
partition epoch of each change, so a repetition cannot undo a later change.

Called on the reactor thread. Source: Kafka 3.9 DefaultAlterPartitionManager,
Partition.handleAlterPartitionError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from plog.errors import (
    ErrorCode,
    IneligibleReplica,
    InvalidUpdateVersion,
    PlogError,
    error_from_code,
)
from plog.types import TopicPartition, Uuid
from plog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    BrokerState,
)
from plogd.metadata.cache import PartitionState
from plogd.peers import Peers, VersionedRequest
from plogd.ports import Later, Ports, Timer, spawn
from plogd.replica.partition_context import ChangedPartition
from plogd.replica.remote_replicas import UNKNOWN_EPOCH

LANE: Final = "alter-partition"
RETRY_MS: Final = 50.0
RETRY_MAX_MS: Final = 1_000.0
"""The backoff after the first failure, as in Kafka, and its maximum."""
MAX_CHANGES: Final = 1_000
"""Maximum number of partitions in one request, so that building it takes a few milliseconds."""

_FINAL_ERRORS: Final = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INELIGIBLE_REPLICA,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""With these errors, the controller rejects the change of a partition; others are temporary."""
_FIRST_VERSION_WITH_EPOCHS: Final = 3


class _Change:
    """A proposed ISR, and the state of the partition that it is based on."""

    __slots__ = ("broker_epochs", "isr", "later", "leader_epoch", "partition", "partition_epoch")

    def __init__(self, partition: ChangedPartition, isr: tuple[int, ...]) -> None:
        self.partition = partition
        self.isr = isr
        # Not when the request is repeated: a member that has restarted since then may have lost
        # records (KIP-903).
        self.broker_epochs = {one: _epoch_of(partition, one) for one in isr}
        self.leader_epoch = partition.leader_epoch
        self.partition_epoch = partition.partition_epoch
        self.later: Later[PartitionState] = Later()

    @property
    def is_current(self) -> bool:
        """Whether the partition still has the state that the change is based on."""
        partition = self.partition
        return (
            partition.leader == partition.broker_id
            and partition.leader_epoch == self.leader_epoch
            and partition.partition_epoch == self.partition_epoch
        )

    def drop(self) -> None:
        """Fail the change, because the partition has another state."""
        self.later.fail(
            InvalidUpdateVersion(f"the state of {self.partition.topic_partition} has changed")
        )


class AlterPartitionManager:
    """The changes of a broker that the controller has not answered; implements `IsrChanges`.

    Args:
        broker_epoch: returns the epoch of this broker's registration.
        controller_id: returns the broker id of the controller, or -1 if it is unknown.
    """

    def __init__(
        self,
        peers: Peers,
        ports: Ports,
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        controller_id: Callable[[], int],
        on_bug: Callable[[str, Exception], None],
    ) -> None:
        self._peers = peers
        self._timers = ports.timers
        self._turn = ports.turn
        self.shrinks = self.expansions = self.failures = 0
        """Number of changes that removed members, that added members, and that were rejected."""
        self._report = ports.report
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._controller_id = controller_id
        self._on_bug = on_bug
        self._waiting: dict[TopicPartition, _Change] = {}
        """The newest change of each partition that is not in a request."""
        self._is_sending = self._is_closed = False
        self._backoff_ms = RETRY_MS
        self._timer: Timer | None = None
        self._has_failed = False
        """Whether the last request failed, so that the error has been reported."""

    def propose(self, partition: ChangedPartition, isr: tuple[int, ...]) -> Later[PartitionState]:
        """Ask the controller to set the ISR; see `IsrChanges.propose`."""
        change = _Change(partition, isr)
        replaced = self._waiting.pop(partition.topic_partition, None)
        if replaced is not None:
            replaced.drop()
        self._waiting[partition.topic_partition] = change
        # At the end of the turn, because a check of the ISR proposes changes of many partitions.
        if not self._is_sending and self._timer is None and len(self._waiting) == 1:
            self._turn.defer(self._send)
        return change.later

    def close(self) -> None:
        """Send no more requests; the changes get no answer."""
        self._is_closed = True
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- sending ------------------------------------------------------------------------------

    def _send(self) -> None:
        """Send the waiting changes, unless a request is in flight or a retry is scheduled."""
        if not self._is_closed and not self._is_sending and self._timer is None and self._waiting:
            self._is_sending = True
            spawn(self._exchange()).then(self._sent, self._failed)

    def _sent(self, is_answered: bool) -> None:
        self._is_sending = False
        if self._is_closed:
            return
        if is_answered:
            self._backoff_ms = RETRY_MS
            self._send()
        elif self._waiting:
            self._timer = self._timers.call_later(self._backoff_ms, self._retry)
            self._backoff_ms = min(2 * self._backoff_ms, RETRY_MAX_MS)

    def _retry(self) -> None:
        self._timer = None
        self._send()

    def _failed(self, error: Exception) -> None:
        self._on_bug("a request to change in-sync replicas", error)
        self._sent(False)

    async def _exchange(self) -> bool:
        """Send one request; return whether the controller has answered all its changes."""
        changes = self._take()
        if not changes:
            return True
        controller = self._controller_id()
        if controller < 0:
            self._keep(changes)
            return False
        request = VersionedRequest(
            AlterPartitionRequest, lambda version: self._request(changes, version)
        )
        try:
            response: AlterPartitionResponse = await self._peers.ask(controller, request, LANE)
            if response.error_code:
                raise error_from_code(response.error_code, "the controller rejects the request")
        except (PlogError, OSError) as error:
            self._keep(changes)
            self._report_failure(controller, error)
            return False
        self._has_failed = False
        return self._complete(changes, response)

    def _report_failure(self, controller: int, error: Exception) -> None:
        if not self._has_failed and not self._is_closed:
            self._has_failed = True
            self._report(
                "cannot change in-sync replicas at controller {controller}: {error}; retrying",
                controller=controller,
                error=str(error),
                level="warn",
            )

    def _take(self) -> list[_Change]:
        """Remove the changes for one request from those that wait; drop the outdated ones."""
        changes: list[_Change] = []
        for key in list(self._waiting)[:MAX_CHANGES]:
            change = self._waiting.pop(key)
            if change.is_current:
                changes.append(change)
            else:
                change.drop()
        return changes

    def _keep(self, changes: Iterable[_Change]) -> None:
        """Send `changes` again, except those of partitions with a newer change."""
        if self._is_closed:
            return
        for change in changes:
            if change.partition.topic_partition in self._waiting or not change.is_current:
                change.drop()
            else:
                self._waiting[change.partition.topic_partition] = change

    def _request(self, changes: Iterable[_Change], version: int) -> AlterPartitionRequest:
        topics: dict[Uuid, list[AlterPartitionRequestPartition]] = {}
        has_epochs = version >= _FIRST_VERSION_WITH_EPOCHS
        for change in changes:
            partition = AlterPartitionRequestPartition(
                partition_index=change.partition.topic_partition.partition,
                leader_epoch=change.leader_epoch,
                new_isr=[] if has_epochs else list(change.isr),
                new_isr_with_epochs=self._with_epochs(change) if has_epochs else [],
                partition_epoch=change.partition_epoch,
            )
            topics.setdefault(change.partition.topic_id, []).append(partition)
        return AlterPartitionRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            topics=[
                AlterPartitionRequestTopic(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
        )

    def _with_epochs(self, change: _Change) -> list[BrokerState]:
        return [
            BrokerState(
                broker_id=one,
                broker_epoch=self._broker_epoch()
                if one == self._broker_id
                else change.broker_epochs[one],
            )
            for one in change.isr
        ]

    # -- answers ------------------------------------------------------------------------------

    def _complete(self, changes: Iterable[_Change], response: AlterPartitionResponse) -> bool:
        """Complete the changes that are answered; return whether all are."""
        answers = {
            (topic.topic_id, partition.partition_index): partition
            for topic in response.topics
            for partition in topic.partitions
        }
        unanswered: list[_Change] = []
        for change in changes:
            key = change.partition.topic_id, change.partition.topic_partition.partition
            answer = answers.get(key)
            if answer is None or (answer.error_code and answer.error_code not in _FINAL_ERRORS):
                unanswered.append(change)
            elif not change.is_current:
                change.drop()
            else:
                self._complete_one(change, answer)
        self._keep(unanswered)
        return not unanswered

    def _complete_one(self, change: _Change, answer: AlterPartitionResponsePartition) -> None:
        key = change.partition.topic_partition
        if answer.error_code:
            self.failures += 1
            why = f"the controller rejects the ISR {change.isr} of {key}"
            change.later.fail(error_from_code(answer.error_code, why))
        elif answer.partition_epoch == change.partition_epoch:
            self.failures += 1
            # The controller has not changed anything, so the confirmed ISR still holds.
            change.later.fail(IneligibleReplica(f"the controller has not changed the ISR of {key}"))
        else:
            self._count(change, len(answer.isr))
            change.later.succeed(
                PartitionState(
                    partition=key.partition,
                    leader=answer.leader_id,
                    leader_epoch=answer.leader_epoch,
                    replicas=change.partition.replicas,
                    isr=tuple(answer.isr),
                    partition_epoch=answer.partition_epoch,
                    adding_replicas=change.partition.adding_replicas,
                    removing_replicas=change.partition.removing_replicas,
                )
            )

    def _count(self, change: _Change, new_size: int) -> None:
        remote = change.partition.remote
        old_size = new_size if remote is None else len(remote.isr)
        if new_size < old_size:
            self.shrinks += 1
        elif new_size > old_size:
            self.expansions += 1


def _epoch_of(partition: ChangedPartition, follower: int) -> int:
    """Return the broker epoch in the follower's last fetch, or -1 if it is unknown."""
    known = None if partition.remote is None else partition.remote.followers.get(follower)
    return UNKNOWN_EPOCH if known is None else known.broker_epoch
