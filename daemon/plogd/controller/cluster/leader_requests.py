"""The requests of brokers about the partitions that they lead.

A leader changes its in-sync replicas (AlterPartition, KIP-497), and a broker that is about to stop
hands its partitions over (ControlledShutdown, KIP-46). Both carry the broker's epoch, so that a
request from before a restart is rejected (KIP-380).

Source: Kafka 3.9 KafkaController.processAlterPartition, processControlledShutdown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from plog.errors import (
    BrokerIdNotRegistered,
    InvalidUpdateVersion,
    KafkaError,
    StaleBrokerEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from plog.types import TopicPartition, Uuid
from plog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    AlterPartitionResponseTopic,
)
from plogd.controller.cluster.broker_changes import BrokerChanges
from plogd.controller.cluster.isr_change import UNKNOWN_BROKER_EPOCH, IsrChange, changed_state
from plogd.controller.cluster.leader_election import for_shutdown, preferred
from plogd.controller.cluster.partition_changes import PartitionChanges
from plogd.controller.controller_context import ControllerContext
from plogd.metadata.cache import PartitionState


class LeaderRequests:
    """Answers the requests of leaders in one term of the controller."""

    def __init__(
        self, *, context: ControllerContext, brokers: BrokerChanges, changes: PartitionChanges
    ) -> None:
        self._context = context
        self._brokers = brokers
        self._changes = changes

    def _check_epoch(self, broker_id: int, broker_epoch: int) -> None:
        broker = self._brokers.brokers.get(broker_id)
        if broker is None:
            raise BrokerIdNotRegistered(f"broker {broker_id} is not registered")
        if broker_epoch != broker.broker_epoch:
            raise StaleBrokerEpoch(
                f"the epoch of broker {broker_id} is {broker.broker_epoch}, not {broker_epoch}"
            )

    # -- AlterPartition -----------------------------------------------------------------------

    async def alter_partitions(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Change the ISR of partitions; the response has the new state or an error for each.

        Raises StaleBrokerEpoch, BrokerIdNotRegistered, NotController or KafkaStorageError.
        """
        self._check_epoch(request.broker_id, request.broker_epoch)
        wanted: dict[TopicPartition, IsrChange] = {}
        for topic in request.topics:
            name = self._context.name_of(topic.topic_id)
            if name is not None:
                for one in topic.partitions:
                    key = TopicPartition(name, one.partition_index)
                    wanted[key] = _change(request.broker_id, one)
        errors = await self._change(wanted)
        return AlterPartitionResponse(
            topics=[
                AlterPartitionResponseTopic(
                    topic_id=topic.topic_id,
                    partitions=[
                        self._result(topic.topic_id, one.partition_index, wanted, errors)
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    async def _change(
        self, wanted: Mapping[TopicPartition, IsrChange]
    ) -> Mapping[TopicPartition, KafkaError]:
        """Write the changes that can be made; return the errors of the others."""
        errors: dict[TopicPartition, KafkaError] = {}

        def decide(key: TopicPartition, state: PartitionState) -> PartitionState | None:
            # A second decision, after a conflict, replaces the first one.
            errors.pop(key, None)
            try:
                return changed_state(
                    str(key),
                    state,
                    wanted[key],
                    broker_epochs=self._brokers.epochs,
                    shutting_down=self._brokers.shutting_down,
                )
            except KafkaError as error:
                errors[key] = error.bare()
                return None

        # Together, because a leader may have thousands of partitions with the same follower.
        await self._changes.change(
            wanted,
            decide,
            # The leader learns the new state from the response, and followers do not need it.
            lambda changed: self._brokers.updates.send(changed, to_replicas=False),
        )
        return errors

    def _result(
        self,
        topic_id: Uuid,
        number: int,
        wanted: Mapping[TopicPartition, IsrChange],
        errors: Mapping[TopicPartition, KafkaError],
    ) -> AlterPartitionResponsePartition:
        try:
            state = self._present_state(topic_id, number)
            key = TopicPartition(str(self._context.name_of(topic_id)), number)
            if key in errors:
                raise errors[key]
            if {broker_id for broker_id, _ in wanted[key].isr} != set(state.isr):
                raise InvalidUpdateVersion(f"{key}: its state was changed at the same time")
        except KafkaError as error:
            return AlterPartitionResponsePartition(partition_index=number, error_code=error.code)
        return AlterPartitionResponsePartition(
            partition_index=number,
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            leader_recovery_state=int(state.is_recovering),
            partition_epoch=state.partition_epoch,
        )

    def _present_state(self, topic_id: Uuid, number: int) -> PartitionState:
        name = self._context.name_of(topic_id)
        topic = None if name is None else self._context.existing(name)
        if topic is None:
            raise UnknownTopicId("the topic does not exist")
        if not 0 <= number < len(topic.partitions):
            raise UnknownTopicOrPartition(f"{topic.name}-{number} does not exist")
        return topic.partitions[number]

    # -- elections on demand ------------------------------------------------------------------

    async def elect_preferred(
        self, partitions: Collection[TopicPartition] | None
    ) -> Collection[TopicPartition]:
        """Let preferred leaders that are in sync lead; return the partitions that have changed.

        `partitions` is None for all partitions.
        """
        changed: list[TopicPartition] = []

        def decide(_: TopicPartition, state: PartitionState) -> PartitionState | None:
            is_led = state.leader == state.replicas[0]
            return None if is_led else preferred(state, self._brokers.liveness)

        def inform(some: Collection[TopicPartition]) -> None:
            changed.extend(some)
            self._brokers.inform(some)

        if partitions is None:
            await self._changes.change_all(decide, inform)
        else:
            await self._changes.change(partitions, decide, inform)
        return frozenset(changed)

    # -- controlled shutdown ------------------------------------------------------------------

    async def shut_down(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """Move leaders off a broker that is about to stop, and remove it from ISRs.

        Returns the partitions that it still leads, although they have other replicas: the broker
        asks again. Raises the errors of `alter_partitions`.
        """
        # Clusters of old versions do not send the epoch.
        if broker_epoch != UNKNOWN_BROKER_EPOCH:
            self._check_epoch(broker_id, broker_epoch)
        elif broker_id not in self._brokers.brokers:
            raise BrokerIdNotRegistered(f"broker {broker_id} is not registered")
        self._brokers.shutting_down.add(broker_id)
        remaining: dict[TopicPartition, None] = {}

        def decide(key: TopicPartition, state: PartitionState) -> PartitionState | None:
            new = for_shutdown(state, self._brokers.liveness)
            # A second decision, after a conflict, replaces the first one.
            remaining.pop(key, None)
            if (new or state).leader == broker_id and len(state.replicas) > 1:
                remaining[key] = None
            return new

        await self._changes.change_all(decide, self._brokers.inform)
        return list(remaining)


def _change(leader: int, requested: AlterPartitionRequestPartition) -> IsrChange:
    isr = [(one.broker_id, one.broker_epoch) for one in requested.new_isr_with_epochs]
    return IsrChange(
        leader=leader,
        leader_epoch=requested.leader_epoch,
        partition_epoch=requested.partition_epoch,
        is_recovering=requested.leader_recovery_state != 0,
        # Before version 3, the request has no epochs.
        isr=isr or [(one, UNKNOWN_BROKER_EPOCH) for one in requested.new_isr],
    )
