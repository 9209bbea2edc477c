"""Inform the brokers of a cluster about changed partitions, brokers and deleted topics.

Each broker first gets the partitions that it hosts (LeaderAndIsr), then what it shows to clients
(UpdateMetadata). The states are those that the controller knows when the requests are queued, not
those that a caller has seen: of two changes, the brokers never get the older one last. A request
has a limited number of partitions, because a broker rejects requests with too many elements, and
other requests must not wait while a large one is encoded.

All partitions of a broker are sent in slices, and the changes that are made meanwhile are sent
between them. Each slice therefore reads the present states and queues its request in the same turn.

Source: Kafka 3.9 ControllerBrokerRequestBatch.sendRequestsToBrokers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from plog.errors import KafkaError
from plog.types import TopicPartition
from plog.wire.messages.leader_and_isr import LeaderAndIsrResponse
from plogd.controller.cluster.broker_channels import BrokerChannels
from plogd.controller.cluster.control_requests import ControlRequests
from plogd.controller.controller_context import ControllerContext
from plogd.fair_queue import FairQueue, Slices
from plogd.metadata.cache import PartitionState, TopicState
from plogd.metadata.store import BrokerRegistration
from plogd.peers import PeerUnavailable
from plogd.ports import Later, spawn

_PARTITIONS_MAX: Final = 1000
"""Maximum number of partitions in a request, and of those that are looked at in one turn, which
takes about a millisecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """A replica that could not do what the controller has requested, or that works again."""

    broker_id: int
    topic_partition: TopicPartition
    error_code: int
    """0 if the replica works."""
    partition_epoch: int
    """The partition epoch in the request."""


class BrokerUpdates:
    """Sends the controller's state to the live brokers, in one term.

    Args:
        brokers: returns the live brokers by id.
        offline: the brokers of the offline replicas of each partition that has any.
        fair_queue: limits how long the partitions are looked at without a pause.
    """

    def __init__(
        self,
        channels: BrokerChannels,
        requests: ControlRequests,
        context: ControllerContext,
        brokers: Callable[[], Mapping[int, BrokerRegistration]],
        offline: Mapping[TopicPartition, Collection[int]],
        fair_queue: FairQueue,
    ) -> None:
        self._channels = channels
        self._requests = requests
        self._context = context
        self._brokers = brokers
        self._offline = offline
        self._queue = fair_queue
        self._full: dict[int, object] = {}
        """The last call of `send_all` for each broker."""

    # -- partitions ---------------------------------------------------------------------------

    def send(
        self,
        partitions: Collection[TopicPartition],
        *,
        new: Collection[TopicPartition] = (),
        to_replicas: bool = True,
    ) -> dict[int, Later[list[ReplicaStatus]]]:
        """Send the present state of partitions to their replicas and to all brokers.

        Returns the replicas that have failed, and the offline ones that work again, by broker:
        known when the broker has responded to all requests. Fails with a KafkaError if it does not:
        if it is gone, for example, which causes elections of its own. Without `to_replicas`, only
        the metadata for clients is sent.
        """
        topics = self._present(partitions)
        brokers = self._brokers()
        sent: dict[int, Later[list[ReplicaStatus]]] = {}
        for broker_id, broker in brokers.items():
            hosted = _hosted_by(broker_id, topics) if to_replicas else []
            if hosted:
                sent[broker_id] = self._send_partitions(broker, hosted, new=new)
            self._send_metadata(broker, topics)
        return sent

    def _send_partitions(
        self,
        broker: BrokerRegistration,
        hosted: Sequence[TopicState],
        *,
        new: Collection[TopicPartition] = (),
    ) -> Later[list[ReplicaStatus]]:
        """Send the partitions that a broker hosts."""
        sent = [self._send_part(broker, part, new=new) for part in _in_parts(hosted)]
        return spawn(_all_of(sent))

    def _send_part(
        self,
        broker: BrokerRegistration,
        hosted: Sequence[TopicState],
        *,
        new: Collection[TopicPartition] = (),
        is_full: bool = False,
    ) -> Later[list[ReplicaStatus]]:
        """Send as many partitions as fit in a request; `is_full` if no other request follows."""
        request = self._requests.leader_and_isr(
            broker, hosted, brokers=self._brokers(), new=new, is_full=is_full
        )
        responded = self._channels.send(broker.broker_id, request)
        return spawn(self._statuses_in(broker.broker_id, responded, hosted))

    def _present(self, partitions: Collection[TopicPartition]) -> list[TopicState]:
        """Return the topics with only these partitions, without those that no longer exist."""
        numbers: dict[str, list[int]] = {}
        for name, number in partitions:
            numbers.setdefault(name, []).append(number)
        found = ((self._context.existing(name), some) for name, some in numbers.items())
        return [
            replace(topic, partitions=_some_of(topic, sorted(some)))
            for topic, some in found
            if topic is not None
        ]

    def send_hosted(self, broker_id: int) -> Later[list[ReplicaStatus]]:
        """Send a live broker the partitions that it hosts; see `send`."""
        return spawn(self._send_hosted(self._brokers()[broker_id]))

    async def _send_hosted(self, broker: BrokerRegistration) -> list[ReplicaStatus]:
        sent: list[Later[list[ReplicaStatus]]] = []
        async for hosted, _ in self._all_hosted(broker, Slices(self._queue, _PARTITIONS_MAX)):
            self._check_receiver(broker)
            if hosted:
                sent.append(self._send_part(broker, hosted))
        return await _all_of(sent)

    def send_all(self, broker_id: int) -> Later[list[ReplicaStatus]]:
        """Send everything to a live broker that has just registered; see `send`.

        A later call for the same broker replaces this one, which then fails with PeerUnavailable.
        """
        call = self._full[broker_id] = object()
        return spawn(self._send_all(self._brokers()[broker_id], call))

    async def _send_all(self, broker: BrokerRegistration, call: object) -> list[ReplicaStatus]:
        slices = Slices(self._queue, _PARTITIONS_MAX)
        sent: list[Later[list[ReplicaStatus]]] = []
        async for hosted, is_last in self._all_hosted(broker, slices):
            self._check_receiver(broker, call)
            # Also without partitions: the broker then moves away the logs of deleted topics.
            if hosted or is_last:
                sent.append(self._send_part(broker, hosted, is_full=is_last))
        async for keys, is_last in self._all_partitions(_is_any, slices):
            self._check_receiver(broker, call)
            self._send_metadata(broker, self._served(keys), is_full=is_last)
        # Their deletion has begun without this broker, and it still finds them in the store.
        async for topic in slices.over(self._context.deleted_topics()):
            self._check_receiver(broker, call)
            known = self._context.get(topic.name)
            # Otherwise, the deletion has ended, and the name may belong to another topic.
            if known is not None and topic.name in self._context.deleting:
                slices.spend(len(known.state.partitions))
                for stopped in self._delete_on(broker, known.state):
                    stopped.then(_ignore, _ignore)
        return await _all_of(sent)

    async def _all_hosted(
        self, broker: BrokerRegistration, slices: Slices
    ) -> AsyncIterator[tuple[list[TopicState], bool]]:
        """Yield the partitions that a broker hosts; see `_all_partitions`."""
        broker_id = broker.broker_id
        parts = self._all_partitions(lambda state: broker_id in state.replicas, slices)
        async for keys, is_last in parts:
            # In the meantime, a replica may have been moved away.
            yield _hosted_by(broker_id, self._served(keys)), is_last

    async def _all_partitions(
        self, is_wanted: Callable[[PartitionState], bool], slices: Slices
    ) -> AsyncIterator[tuple[list[TopicPartition], bool]]:
        """Yield lists of partitions that fit in a request, and whether this is the last one.

        Topics that are created, and replicas that are added, in the meantime are not included: the
        brokers get them from `send`. The last list may be empty.
        """
        found: list[TopicPartition] = []
        for topic in self._context.served_topics():
            async for some in slices.over(_parts_of(topic.partitions)):
                slices.spend(len(some))
                found += [
                    TopicPartition(topic.name, one.partition) for one in some if is_wanted(one)
                ]
                if len(found) > _PARTITIONS_MAX:
                    yield found[:_PARTITIONS_MAX], False
                    slices.spend(_PARTITIONS_MAX)
                    found = found[_PARTITIONS_MAX:]
        async for _ in slices.over([None]):  # In the next turn, if this one has sent a request.
            yield found, True
        slices.spend(len(found))

    def _check_receiver(self, broker: BrokerRegistration, call: object = None) -> None:
        """Raise PeerUnavailable if a broker must not get the remaining requests of a call.

        It has registered again or is gone, the term is over, or it gets everything once more.
        """
        broker_id = broker.broker_id
        is_replaced = call is not None and self._full[broker_id] is not call
        if is_replaced or self._channels.epoch_of(broker_id) != broker.broker_epoch:
            raise PeerUnavailable(f"broker {broker_id} gets its partitions in other requests")

    def _served(self, keys: Collection[TopicPartition]) -> list[TopicState]:
        """Return the present states of partitions, without those of topics that are not served."""
        return [one for one in self._present(keys) if one.name not in self._context.incomplete]

    def send_brokers(self) -> None:
        """Send the live brokers to all brokers, because one has come, changed or gone."""
        for broker in self._brokers().values():
            self._send_metadata(broker, [])

    def _send_metadata(
        self,
        broker: BrokerRegistration,
        topics: Sequence[TopicState],
        *,
        deleted: Sequence[TopicState] = (),
        is_full: bool = False,
    ) -> None:
        *parts, last = [*_in_parts(topics), *(_in_parts(deleted) if deleted else [])]
        hidden = {topic.name for topic in deleted}
        for part in (*parts, last):
            request = self._requests.update_metadata(
                broker,
                [topic for topic in part if topic.name not in hidden],
                brokers=self._brokers().values(),
                deleted=[topic for topic in part if topic.name in hidden],
                is_full=is_full and part is last,
            )
            # Nothing depends on the response: a broker that is gone needs no metadata.
            self._channels.send(broker.broker_id, request).then(_ignore, _ignore)

    async def _statuses_in(
        self,
        broker_id: int,
        responded: Later[LeaderAndIsrResponse],
        topics: Sequence[TopicState],
    ) -> list[ReplicaStatus]:
        """Return the replicas that have an error, or had one before."""
        names = {topic.topic_id: topic.name for topic in topics}
        found: dict[TopicPartition, int] = {}
        for topic in (await responded).topics:
            for one in topic.partition_errors if topic.topic_id in names else ():
                key = TopicPartition(names[topic.topic_id], one.partition_index)
                if one.error_code or broker_id in self._offline.get(key, ()):
                    found[key] = one.error_code
        if not found:
            return []
        return [
            ReplicaStatus(
                broker_id=broker_id,
                topic_partition=key,
                error_code=found[key],
                partition_epoch=state.partition_epoch,
            )
            for known in topics
            for state in known.partitions
            if (key := TopicPartition(known.name, state.partition)) in found
        ]

    # -- deletion -----------------------------------------------------------------------------

    async def delete(self, topic: TopicState) -> None:
        """Hide a topic from clients, then delete its replicas.

        Completes when all live brokers have responded. Those that are gone move the logs away when
        they return, because the topic does not exist any more.
        """
        brokers = self._brokers().values()
        for later in [one for broker in brokers for one in self._delete_on(broker, topic)]:
            try:
                await later
            except KafkaError:
                continue

    def _delete_on(self, broker: BrokerRegistration, topic: TopicState) -> list[Later[object]]:
        """Hide a topic and delete its replicas on one broker; return the responses."""
        self._send_metadata(broker, [], deleted=[topic])
        hosted = _hosted_by(broker.broker_id, [topic])
        return [
            self._channels.send(
                broker.broker_id, self._requests.stop_replicas(broker, part, is_deletion=True)
            )
            for part in (_in_parts(hosted) if hosted else ())
        ]

    def delete_replicas(
        self, topic: TopicState, removed: Mapping[int, Sequence[PartitionState]]
    ) -> None:
        """Delete replicas of partitions that have been moved away, by broker.

        A broker that is gone moves the logs away when it returns.
        """
        for broker_id, states in removed.items():
            broker = self._brokers().get(broker_id)
            if broker is None:
                continue
            for part in _in_parts([replace(topic, partitions=tuple(states))]):
                request = self._requests.stop_replicas(
                    broker, part, is_deletion=True, keeps_topics=True
                )
                # After an error, the broker moves the log away at its next start.
                self._channels.send(broker_id, request).then(_ignore, _ignore)


async def _all_of(sent: Sequence[Later[list[ReplicaStatus]]]) -> list[ReplicaStatus]:
    """Return the statuses in all responses."""
    statuses: list[ReplicaStatus] = []
    for later in sent:
        statuses += await later
    return statuses


def _is_any(_: PartitionState) -> bool:
    return True


def _parts_of(states: Sequence[PartitionState]) -> Iterable[Sequence[PartitionState]]:
    for start in range(0, len(states), _PARTITIONS_MAX):
        yield states[start : start + _PARTITIONS_MAX]


def _some_of(topic: TopicState, numbers: Sequence[int]) -> tuple[PartitionState, ...]:
    return tuple(topic.partitions[one] for one in numbers if one < len(topic.partitions))


def _hosted_by(broker_id: int, topics: Iterable[TopicState]) -> list[TopicState]:
    """Return the topics with only the partitions that have a replica on this broker."""
    hosted = (
        replace(
            topic,
            partitions=tuple(one for one in topic.partitions if broker_id in one.replicas),
        )
        for topic in topics
    )
    return [topic for topic in hosted if topic.partitions]


def _in_parts(topics: Iterable[TopicState]) -> list[list[TopicState]]:
    """Split topics into one or more lists with a limited number of partitions each."""
    parts: list[list[TopicState]] = [[]]
    room = _PARTITIONS_MAX
    for topic in topics:
        partitions = topic.partitions
        while len(partitions) > room:
            if room:
                parts[-1].append(replace(topic, partitions=partitions[:room]))
            partitions = partitions[room:]
            parts.append([])
            room = _PARTITIONS_MAX
        parts[-1].append(replace(topic, partitions=partitions))
        room -= len(partitions)
    return parts


def _ignore(_: object) -> None:
    """Do nothing."""
