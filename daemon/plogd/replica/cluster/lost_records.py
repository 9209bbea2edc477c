"""What a replica may do that has lost records (rule C2).

A broker that was in sync may return with an empty disk, without a file, or with damaged batches. If
it led its partitions, the other replicas would remove the records that it lacks. So it does nothing
while the metadata store still counts it as in sync: it neither leads nor follows, and responds to
LeaderAndIsr with an error. If another member of the ISR is online, the controller removes this one,
and sends the new state. The replica then removes everything from the first lost offset on, and
copies it from the leader. From then on, it is a replica like others: it joins the ISR when it has
caught up.

If it is the last member of the ISR, its records may be the only ones. Around damage, it leads: the
error is REPLICA_NOT_AVAILABLE, and if all members return it, the controller lets one of them be the
last one. If the end of the log is missing, the replica does not lead, because it would assign the
lost offsets again: the error is KAFKA_STORAGE_ERROR, and an operator has to decide.

Called on the reactor's thread. log/log_loss.py contains the durable mark. Source: KIP-966 has the
same purpose for KRaft.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from plog.errors import KafkaError, KafkaStorageError, ReplicaNotAvailable
from plog.types import TopicPartition, Uuid
from plogd.log import file_names
from plogd.log.deletion import lane_of
from plogd.log.log import Log
from plogd.log.log_loss import LogLoss
from plogd.log.log_manager import LogManager
from plogd.metadata.cache import NO_LEADER, PartitionState
from plogd.ports import Report
from plogd.replica.topic_start import shown_partitions

_NOTHING_EXPECTED: Final[frozenset[tuple[Uuid, int]]] = frozenset()


class LostRecords:
    """The replicas of this broker that lack records."""

    def __init__(self, log_manager: LogManager, *, broker_id: int, report: Report) -> None:
        self._log_manager = log_manager
        self._broker_id = broker_id
        self._report = report
        self._expected: Collection[tuple[Uuid, int]] = _NOTHING_EXPECTED
        """The partitions in whose ISR this broker was when it registered, by topic id and number:
        their logs must exist."""
        self._refused: list[TopicPartition] = []
        self._refused_alone: list[TopicPartition] = []
        """Those of which this broker is the only member of the ISR."""

    # -- missing logs -------------------------------------------------------------------------

    async def registered(self, expected: Collection[tuple[Uuid, int]]) -> None:
        """Set the partitions in whose ISR this broker is, by topic id and number.

        Call this before the broker accepts requests of the controller.
        """
        self._expected = expected
        # In the usual case, new directories lack nothing. A topic that is created from now on must
        # not look as if its logs were lost, even if all brokers are killed before they create them.
        await self._check_new_dirs()

    def loss_of_missing(self, topic_id: Uuid, state: PartitionState) -> LogLoss | None:
        """Return the loss of a replica that has no log; None if it never had one."""
        is_expected = (topic_id, state.partition) in self._expected
        if not is_expected or self._broker_id not in state.isr or len(state.replicas) == 1:
            return None
        # Without a new directory, the log may also be missing because the brokers were stopped
        # while they created the topic. If all replicas are missing, the last one may lead.
        return LogLoss(first_offset=0, lacks_end=self._may_lack_logs)

    @property
    def _may_lack_logs(self) -> bool:
        return any(log_dir.may_lack_logs for log_dir in self._log_manager.dirs.online)

    async def all_received(self) -> None:
        """Note that the controller has sent all partitions of this broker."""
        await self._check_new_dirs()

    async def _check_new_dirs(self) -> None:
        """Remove the marks of new directories if all expected logs exist."""
        if not self._may_lack_logs or self._log_manager.offline_dirs:
            return
        logs = self._log_manager.logs
        found = {(log.topic_id, key.partition) for key, log in logs.items()}
        # Without a log, a partition has no mark, so the directory keeps its own.
        if all(one in found for one in self._expected):
            await self._log_manager.losses.all_marked(self._log_manager.dirs.online)

    # -- roles --------------------------------------------------------------------------------

    def refusal(self, key: TopicPartition, state: PartitionState) -> KafkaError | None:
        """Return the error with which this replica rejects any role in `state`, or None."""
        loss = self._log_manager.losses.get(key)
        # Also if a cancelled reassignment has left this replica only: it would assign the lost
        # offsets again.
        if loss is None or self._broker_id not in state.isr:
            return None
        is_alone = len(state.isr) == 1
        if is_alone and not loss.lacks_end:
            return None
        if is_alone:
            self._refused_alone.append(key)
        elif state.leader == self._broker_id:
            self._refused.append(key)
        error = KafkaStorageError if loss.lacks_end else ReplicaNotAvailable
        return error(f"{key}: this replica has lost records, from offset {loss.first_offset} on")

    def check_end_is_known(self, key: TopicPartition) -> None:
        """Raise KafkaStorageError if the end of the log is missing: this replica does not lead.

        Without this, an unclean election could make it the only member of the ISR.
        """
        loss = self._log_manager.losses.get(key)
        if loss is not None and loss.lacks_end:
            raise KafkaStorageError(
                f"{key}: this replica has lost the end of its log, from offset {loss.first_offset}"
                " on"
            )

    def report_refusals(self) -> None:
        """Report the partitions that this broker does not lead, since the last call."""
        refused, self._refused = self._refused, []
        if refused:
            self._report(
                "this broker has lost records of {count} partitions that it should lead:"
                " {partitions}; other in-sync replicas lead them, and it copies the records",
                count=len(refused),
                partitions=shown_partitions(refused),
                topic_partitions=refused,
                level="warn",
            )
        refused, self._refused_alone = self._refused_alone, []
        if refused:
            self._report_alone(refused)

    def _report_alone(self, refused: Sequence[TopicPartition]) -> None:
        self._report(
            "{count} partitions have no leader: {partitions}; this broker has lost the end of their"
            " logs, and no other replica is in sync; to recover the records, stop the broker and"
            " restore its log directories from a backup; to continue without the lost records,"
            " request an unclean election of another replica, or stop the broker, remove the file"
            " {mark} from their directories, and start it again",
            count=len(refused),
            partitions=shown_partitions(refused),
            mark=file_names.LOST_RECORDS,
            topic_partitions=refused,
            level="error",
        )

    async def excluded(
        self, log: Log, state: PartitionState, check_current: Callable[[], None]
    ) -> None:
        """Prepare a replica to follow the leader in `state`, if it has left the ISR.

        `check_current` raises a KafkaError if `state` is not valid any more, because the
        registration of this broker has ended; the mark then remains. Later requests of the
        controller wait. Raises KafkaStorageError.
        """
        key = log.topic_partition
        loss = self._log_manager.losses.get(key)
        if loss is None or self._broker_id in state.isr:
            return
        if state.leader in (NO_LEADER, self._broker_id):
            return
        check_current()
        if loss.first_offset < log.log_end_offset:
            self._report(
                "removing the records of {topic_partition} from offset {offset} on, because some of"
                " them are lost: this broker copies them from broker {leader}",
                topic_partition=key,
                offset=loss.first_offset,
                leader=state.leader,
                level="warn",
            )
            await log.truncate_to(loss.first_offset)
            check_current()
        # Only now, because a crash must not leave damage without its mark.
        await self._log_manager.losses.clear(
            key, log_dir=log.log_dir, directory=log.directory, lane=lane_of(log.log_dir)
        )
