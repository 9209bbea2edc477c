"""Role changes: make this broker leader or follower of its replicas, as the controller requests.

The controller sends partition states in LeaderAndIsr, and stops replicas with StopReplica. A new
leader epoch ends the old role first: the partition accepts no more appends, its fetcher releases
the log, and the jobs that write to a slow disk end (rule C5). Only then can records of the new
epoch follow. Other partitions of the request do not wait for that.

A broker never leads in an epoch that its log or its registration contains (rule C1): the records
that it wrote in that epoch may be lost, and two records must not have the same epoch and offset. If
the replica has lost records, lost_records.py decides about its role.

Requests may contain thousands of partitions, so they are handled in slices. The caller makes one
call at a time (control_requests.py). Called on the reactor thread. Source: Kafka 3.9
ReplicaManager.becomeLeaderOrFollower, ReplicaManager.stopReplicas.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

from plog.errors import (
    FencedLeaderEpoch,
    InconsistentTopicId,
    KafkaError,
    KafkaStorageError,
    PolicyViolation,
    StaleBrokerEpoch,
    StaleControllerEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from plog.types import ZERO_UUID, TopicPartition, Uuid
from plog.wire.messages.stop_replica import EPOCH_DURING_DELETE
from plogd.concurrency import OneAtATime
from plogd.config import BrokerConfig
from plogd.fair_queue import FairQueue, Slices
from plogd.log.creation import NewLog
from plogd.log.log_manager import LogManager
from plogd.metadata.cache import NO_LEADER, PartitionState
from plogd.ports import Later, Report, gather, ready
from plogd.replica.cluster.lost_records import LostRecords
from plogd.replica.hosted_topics import HostedTopics
from plogd.replica.partition import NO_EPOCH, Partition
from plogd.replica.topic_start import shown_partitions
from plogd.topic_config import TopicConfig

_METADATA_TOPIC: Final = "__cluster_metadata"
"""The log of the embedded metadata store, which is not a replica."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewState:
    """A partition's state from the controller."""

    topic_partition: TopicPartition
    topic_id: Uuid
    state: PartitionState
    is_new: bool = False
    """Whether the partition has been created by this state, so that it has no log anywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedReplica:
    """A replica that this broker stops; `leader_epoch` is -1 if the request lacks it."""

    topic_partition: TopicPartition
    leader_epoch: int
    deletes: bool


class Followers(Protocol):
    """The fetchers of the partitions that this broker follows."""

    def add(self, partition: Partition) -> None:
        """Follow the partition's leader in the partition's leader epoch."""
        ...

    def remove(self, key: TopicPartition) -> Later[None]:
        """Stop following a partition; complete when its log is not used any more."""
        ...


class RoleChanges:
    """Applies partition states and stops replicas.

    Args:
        topic_overrides: returns the own settings of a topic.
    """

    def __init__(
        self,
        topics: HostedTopics,
        log_manager: LogManager,
        followers: Followers,
        *,
        broker_id: int,
        topic_overrides: Callable[[str], Mapping[str, str]],
        fair_queue: FairQueue,
        report: Report,
        on_bug: Callable[[str, Exception], None],
    ) -> None:
        self._topics = topics
        self._log_manager = log_manager
        self._followers = followers
        self._broker_id = broker_id
        self._topic_overrides = topic_overrides
        self._queue = fair_queue
        self._report = report
        self._on_bug = on_bug
        self.lost = LostRecords(log_manager, broker_id=broker_id, report=report)
        """What this broker may do with replicas that have lost records (rule C2)."""
        self._ended_registrations = 0
        """Number of calls of `resign_all`."""
        self._resolved: dict[str, tuple[BrokerConfig, Mapping[str, str], TopicConfig]] = {}
        """The settings of topics in the current call, each with those that they depend on."""
        self.epoch_floors: Mapping[tuple[Uuid, int], int] = {}
        """The leader epochs at the time of this broker's registration, in which it must not lead
        (rule C1), by topic id and partition number."""
        self.confirm_strays: Callable[[Sequence[TopicPartition]], Later[list[TopicPartition]]]
        self.confirm_strays = lambda keys: ready(list(keys))
        """Returns which of the partitions are not assigned to this broker in the metadata store:
        the controller also omits topics that it is changing, or whose metadata is damaged."""
        self.on_elected: Callable[[Partition], None] = _ignore
        """Called with a partition that this broker leads in a new leader epoch."""
        self.on_resigned: Callable[[Partition], None] = _ignore
        """Called with a partition that this broker does not lead any more."""

    # -- new states ---------------------------------------------------------------------------

    async def apply(self, states: Sequence[NewState]) -> list[KafkaError | None]:
        """Apply the states; return the error of each one, or None.

        States of the same partition are applied in order.
        """
        slices = Slices(self._queue)
        registrations = self._ended_registrations
        self._resolved.clear()
        failures = await self._create_missing_logs(states, slices)
        in_order: dict[TopicPartition, OneAtATime] = {}
        changes: dict[int, Later[KafkaError | None]] = {}
        async for number, new in slices.over(enumerate(states)):
            key = new.topic_partition
            # A new controller sends all states, and most of them are known.
            if key not in in_order and self._is_known(new, registrations):
                continue
            apply = partial(self._apply, new, failures.get(key), registrations)
            changes[number] = in_order.setdefault(key, OneAtATime()).run(apply)
        errors: list[KafkaError | None] = [None] * len(states)
        for number, error in zip(changes, await gather(list(changes.values())), strict=True):
            errors[number] = error
        self.lost.report_refusals()
        return errors

    async def _create_missing_logs(
        self, states: Sequence[NewState], slices: Slices
    ) -> dict[TopicPartition, KafkaError]:
        """Create the logs of new replicas; return the errors of partitions that lack one."""
        missing: dict[TopicPartition, NewLog] = {}
        failures: dict[TopicPartition, KafkaError] = {}
        async for new in slices.over(states):
            key = new.topic_partition
            if not self._needs_log(new) or key in missing:
                continue
            if self._log_manager.offline_dirs and not new.is_new:
                # As in Kafka: an empty log in another directory would hide its records.
                failures[key] = KafkaStorageError(
                    f"cannot create {key}: its log may be in a log directory that is offline"
                )
                continue
            topic_id = new.topic_id
            if topic_id == ZERO_UUID:
                failures[key] = UnknownTopicId(f"cannot create {key}: its topic id is unknown")
                continue
            loss = None if new.is_new else self.lost.loss_of_missing(topic_id, new.state)
            missing[key] = NewLog(
                topic_partition=key,
                topic_id=topic_id,
                config=self._config_of(key.topic),
                loss=loss,
            )
            self._note_creation(new)
        if missing:
            failures.update(await self._create(missing))
        return failures

    def _config_of(self, name: str) -> TopicConfig:
        """Return the settings of a topic."""
        overrides, config = self._topic_overrides(name), self._topics.config
        known = self._resolved.get(name)
        # Once per topic, which may have thousands of partitions, unless the settings have changed.
        if known is None or known[0] is not config or known[1] != overrides:
            known = config, overrides, TopicConfig.resolve(config, overrides)
            self._resolved[name] = known
        return known[2]

    def _needs_log(self, new: NewState) -> bool:
        key = new.topic_partition
        return (
            self._broker_id in new.state.replicas
            and self._log_manager.get(key) is None
            and key not in self._topics.without_log
        )

    def _note_creation(self, new: NewState) -> None:
        """Report the creation of a log that should exist: the disk is new, or has lost it."""
        if not new.is_new:
            self._report(
                "creating an empty log for {topic_partition}, which is not a new partition: this"
                " broker copies its records from the other replicas",
                topic_partition=new.topic_partition,
                level="warn",
            )

    async def _create(
        self, missing: Mapping[TopicPartition, NewLog]
    ) -> dict[TopicPartition, KafkaError]:
        try:
            # A single call, so that the new logs share syncs.
            await self._log_manager.create(list(missing.values()))
        # PolicyViolation means that the process has too few file descriptors.
        except (KafkaStorageError, PolicyViolation) as error:
            # Logs in other log directories may have been created.
            failure = KafkaStorageError(error.message)
            return {key: failure for key in missing if self._log_manager.get(key) is None}
        return {}

    def _is_known(self, new: NewState, registrations: int) -> bool:
        """Return whether `_apply` would neither change anything nor return an error."""
        key, state = new.topic_partition, new.state
        partition = self._topics.partitions.get(key)
        return (
            partition is not None
            and state.leader_epoch == partition.leader_epoch
            and state.leader == partition.leader
            and state.partition_epoch <= partition.partition_epoch
            and new.topic_id == partition.topic_id
            and self._broker_id in state.replicas
            and not (partition.log.closed or partition.log.offline)
            and self._log_manager.losses.get(key) is None
            and registrations == self._ended_registrations
        )

    async def _apply(
        self, new: NewState, error: KafkaError | None, registrations: int
    ) -> KafkaError | None:
        try:
            if error is not None:
                raise error
            await self._apply_one(new, registrations)
        except KafkaError as refused:
            return refused.bare()
        except Exception as bug:  # As in appends, a bug fails only one partition.
            self._on_bug(f"a role change of {new.topic_partition}", bug)
            return KafkaError("unexpected error; see the broker log")
        return None

    async def _apply_one(self, new: NewState, registrations: int) -> None:
        self._check_registration(registrations)
        partition, state = self._partition_of(new), new.state
        if state.leader_epoch < partition.leader_epoch:
            raise StaleControllerEpoch(
                f"{new.topic_partition}: the leader epoch is {partition.leader_epoch}, not"
                f" {state.leader_epoch}"
            )
        refusal = self.lost.refusal(new.topic_partition, state)
        if refusal is not None:
            # It does not follow either, because its log still has to be truncated.
            state = replace(state, leader=NO_LEADER)
        is_same_role = (
            state.leader_epoch == partition.leader_epoch and state.leader == partition.leader
        )
        if not is_same_role:
            await self._change_role(partition, state, registrations)
        elif state.partition_epoch > partition.partition_epoch:  # Otherwise, it is a repetition.
            self._set_role(partition, state)
            # Requests with acks=all depend on the size of the ISR.
            self._topics.partition_context.on_progress(partition)
        if refusal is not None:
            raise refusal

    def _partition_of(self, new: NewState) -> Partition:
        """Return the replica, which may have no role yet. Raises the KafkaError for the controller.

        A partition with an error keeps its role.
        """
        key = new.topic_partition
        if self._broker_id not in new.state.replicas:
            raise UnknownTopicOrPartition(f"broker {self._broker_id} has no replica of {key}")
        log = self._log_manager.get(key)
        if log is None or log.offline:
            raise KafkaStorageError(f"{key}: its log directory is offline")
        if ZERO_UUID not in (new.topic_id, log.topic_id) and new.topic_id != log.topic_id:
            raise InconsistentTopicId(f"the log of {key} belongs to a topic with a different id")
        hosted = self._topics.partitions.get(key)
        return hosted or self._topics.host(log, self._config_of(key.topic))

    def _check_registration(self, ended: int) -> None:
        """Raise StaleBrokerEpoch if the registration has ended since `ended` of them had."""
        if ended != self._ended_registrations:
            raise StaleBrokerEpoch("the registration of this broker has ended during the request")

    async def _change_role(
        self, partition: Partition, state: PartitionState, registrations: int
    ) -> None:
        """End the old role, and take the role in `state`."""
        self._check_epoch(partition, state)
        self._leave_role(partition)
        log = partition.log
        await self._followers.remove(partition.topic_partition)
        await log.lane_writes_ended()
        await self.lost.excluded(log, state, lambda: self._check_registration(registrations))
        self._check_registration(registrations)
        if log.closed or log.offline:
            raise log.not_open()
        # The append or the truncation that has just ended may have changed the log.
        self._check_epoch(partition, state)
        if state.leader == self._broker_id and log.is_truncating:
            # A truncation has failed, and only a follower completes it.
            raise log.not_open()
        self._set_role(partition, state)
        if state.leader == self._broker_id:
            self.on_elected(partition)
        elif state.leader != NO_LEADER:
            self._followers.add(partition)

    def _check_epoch(self, partition: Partition, state: PartitionState) -> None:
        """Raise FencedLeaderEpoch if this broker must not lead in the epoch of `state`."""
        if state.leader != self._broker_id:
            return
        key = partition.topic_partition
        # By id, because a recreated topic begins with the first epoch again.
        registered_epoch = self.epoch_floors.get((partition.topic_id, key.partition), NO_EPOCH)
        floor = max(partition.log.leader_epochs.latest_epoch, registered_epoch)
        if state.leader_epoch <= floor:
            raise FencedLeaderEpoch(
                f"cannot lead {key} in leader epoch {state.leader_epoch}: this replica knows epoch"
                f" {floor}, from before; a new epoch is required"
            )

    def _leave_role(self, partition: Partition) -> None:
        """Let the partition have no leader, so that it accepts no more appends.

        The next state with a leader is then a role change, even in the same leader epoch.
        """
        old_leader = partition.leader
        if old_leader == NO_LEADER:
            return
        partition.make_follower(
            PartitionState(
                partition=partition.topic_partition.partition,
                leader=NO_LEADER,
                leader_epoch=partition.leader_epoch,
                replicas=partition.replicas,
                isr=(),
                partition_epoch=partition.partition_epoch,
            )
        )
        if old_leader == self._broker_id:
            self.on_resigned(partition)

    def _set_role(self, partition: Partition, state: PartitionState) -> None:
        if state.leader == self._broker_id:
            partition.make_leader(state)
        else:
            partition.make_follower(state)

    # -- stopping -----------------------------------------------------------------------------

    async def resign_all(self) -> None:
        """Lead no partition and follow none, because the registration of this broker has ended.

        Role changes in progress fail with StaleBrokerEpoch.
        """
        self._ended_registrations += 1
        slices = Slices(self._queue)
        removed: list[Later[None]] = []
        async for partition in slices.over(list(self._topics.partitions.values())):
            self._leave_role(partition)
            removed.append(self._followers.remove(partition.topic_partition))
        await gather(removed)

    async def stop(self, replicas: Sequence[StoppedReplica]) -> list[KafkaError | None]:
        """Stop replicas, and delete the logs of some; return the error of each one, or None."""
        slices = Slices(self._queue)
        errors: list[KafkaError | None] = []
        deleted: dict[TopicPartition, None] = {}
        async for replica in slices.over(replicas):
            error = self._problem_of(replica)
            errors.append(error)
            if error is None:
                await self._stop_following(replica.topic_partition)
                if replica.deletes:
                    self._unhost(replica.topic_partition)
                    deleted[replica.topic_partition] = None
        # The replicas of topics that were deleted while this broker was down may have no partition.
        await self._log_manager.delete(*(key for key in deleted if self._log_manager.get(key)))
        return errors

    async def _stop_following(self, key: TopicPartition) -> None:
        partition = self._topics.partitions.get(key)
        if partition is not None and partition.leader != self._broker_id:
            self._leave_role(partition)
        await self._followers.remove(key)

    def _problem_of(self, replica: StoppedReplica) -> KafkaError | None:
        """Return why the replica must not be stopped, or None."""
        key, epoch = replica.topic_partition, replica.leader_epoch
        log, partition = self._log_manager.get(key), self._topics.partitions.get(key)
        if key in self._topics.without_log or (log is not None and log.offline):
            return KafkaStorageError(f"{key}: its log directory is offline")
        if partition is None or epoch in (NO_EPOCH, EPOCH_DURING_DELETE):
            return None
        if epoch < partition.leader_epoch:
            return FencedLeaderEpoch(
                f"{key}: the leader epoch is {partition.leader_epoch}, not {epoch}"
            )
        return None

    def _unhost(self, key: TopicPartition) -> None:
        partition = self._topics.partitions.get(key)
        if partition is not None:
            was_leader = partition.leader == self._broker_id
            self._topics.unhost(key)
            if was_leader:
                self.on_resigned(partition)

    async def remove_strays(self, assigned: Collection[TopicPartition]) -> None:
        """Stop all replicas except the assigned ones, and give their logs ``-stray`` names."""
        slices = Slices(self._queue)
        unassigned = [
            key
            async for key in slices.over(list(self._log_manager.logs))
            if key not in assigned and key.topic != _METADATA_TOPIC and self._has_log(key)
        ]
        strays = await self.confirm_strays(unassigned) if unassigned else []
        async for key in slices.over(strays):
            await self._followers.remove(key)
            self._unhost(key)
        strays = [key for key in strays if self._has_log(key)]
        if strays:
            self._report(
                "renaming the directories of {count} partitions that are not assigned to this"
                " broker to -stray: {partitions}",
                count=len(strays),
                partitions=shown_partitions(strays),
                topic_partitions=strays,
                level="warn",
            )
            await self._log_manager.remove_strays(*strays)

    def _has_log(self, key: TopicPartition) -> bool:
        log = self._log_manager.get(key)
        return log is not None and not log.offline


def _ignore(partition: Partition) -> None:
    """Do nothing; a coordinator replaces this callback."""
