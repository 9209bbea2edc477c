"""Three brokers as a client sees them, with one real broker's core behind them.

Each partition has one of the three as its leader, in an epoch, and `move` changes it. A broker
refuses writes to partitions that it does not lead, and metadata contains the leader. All writes go
to the one core, as if they were replicated immediately. So leaders change during requests, also
between a write and its response, without the loss of an acknowledged record.

`fate` decides the outcome of each Produce request; see `FATES`.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

from twisted.internet.defer import Deferred

from plog.client.errors import ConnectionFailed
from plog.errors import ErrorCode
from plog.types import ZERO_UUID, Uuid
from plog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from plog.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
)
from plog.wire.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from plog.wire.schema import ApiMessage
from tests.helpers.client.client_on_sim_network import HOST, PORT
from tests.helpers.client.sim_channel import SimChannel
from tests.sim.network import ConnectionLost
from tests.unit.client.producer.producer_site import MeddlingNetwork

NODES = range(3)

REFUSALS = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
)
"""Errors of a broker that has written nothing."""
DOUBTS = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)
"""Errors that it may also return after a write."""

FATES = ("fine", "refuse", "doubt", "drop", "lose", "late", "twice", "partial", "throttle", "move")


class ThreeBrokers(MeddlingNetwork):
    """A simulated cluster of three brokers, whose random decisions `seed` determines."""

    fate: Callable[[], str] = staticmethod(lambda: "fine")

    def __init__(self, seed: int = 0, **settings: Any) -> None:
        super().__init__(seed, **settings)
        self.whims = random.Random(seed + 2)
        self.down: set[int] = set()
        """Brokers that accept no connections."""
        self.stale = 0.0
        """The probability that metadata contains the previous leader."""
        self.names_leaders = False
        """Whether brokers that do not lead a partition name its leader (KIP-951)."""
        self.has_ids = True
        """Whether producer ids are assigned; otherwise brokers return a loading error."""
        self._leaders: dict[tuple[Uuid, int], tuple[int, int]] = {}
        """Leader and epoch of the partitions that were moved."""
        self._before: dict[tuple[Uuid, int], tuple[int, int]] = {}
        self._id_by_topic: dict[str, Uuid] = {}
        self._last_answer: dict[SimChannel, Deferred[None]] = {}

    # -- leaders ------------------------------------------------------------------------------

    def leader(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the leader of a partition and its epoch."""
        return self._leader(self._topic_id(topic), partition)

    def _leader(self, topic_id: Uuid, partition: int) -> tuple[int, int]:
        return self._leaders.get((topic_id, partition), (partition % len(NODES), 0))

    def _topic_id(self, topic: str) -> Uuid:
        """Return the id in the last metadata; a moved leader may not know a newer one."""
        return self._id_by_topic.get(topic, ZERO_UUID)

    def move(self, topic: str, partition: int, leader: int | None = None) -> None:
        """Make another broker the leader of the partition; -1 for none."""
        key = self._topic_id(topic), partition
        before, epoch = self._before[key] = self._leader(*key)
        others = [node for node in NODES if node != before]
        self._leaders[key] = (self.whims.choice(others) if leader is None else leader, epoch + 1)

    # -- connections --------------------------------------------------------------------------

    async def connect(
        self, host: str, port: int, security: object, *, timeout_s: float
    ) -> SimChannel:
        node = port - PORT
        if node in self.down:
            await self.sleep(0.001)
            raise ConnectionFailed(f"cannot connect to {host}:{port}: refused")
        channel = await super().connect(host, PORT, security, timeout_s=timeout_s)
        channel.address = f"{HOST}:{port}"
        ask, send = channel.ask, channel.send

        def asked(request: Any, response: Any, version: int, *, timeout_s: float) -> Any:
            def really(message: ApiMessage = request) -> Any:
                return ask(message, response, version, timeout_s=timeout_s)

            answer = Deferred.fromCoroutine(
                self._answer(node, channel, request, version, really, self._behind(channel))
            )
            return answer

        def sent(request: Any, version: int, *, timeout_s: float) -> Any:
            led, _ = self._split(node, request)
            if not led.topic_data:  # Without a response, a former leader closes.
                channel.drop()
                raise ConnectionFailed("the connection was closed")
            return send(led, version, timeout_s=timeout_s)

        channel.ask, channel.send = asked, sent  # type: ignore[method-assign]
        return channel

    def _behind(self, channel: SimChannel) -> tuple[Deferred[None] | None, Deferred[None]]:
        """Return the end of the previous response, and that of this one, which the caller fires."""
        before = self._last_answer.get(channel)
        this: Deferred[None] = Deferred()
        self._last_answer[channel] = this
        return before, this

    async def _answer(
        self,
        node: int,
        channel: SimChannel,
        request: ApiMessage,
        version: int,
        really: Callable[..., Awaitable[Any]],
        turn: tuple[Deferred[None] | None, Deferred[None]],
    ) -> Any:
        before, this = turn
        try:
            if isinstance(request, ProduceRequest):
                answer = await self._produced(node, channel, request, version, really)
            elif isinstance(request, InitProducerIdRequest) and not self.has_ids:
                await self.sleep(0.002)
                answer = InitProducerIdResponse(
                    error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, producer_id=-1
                )
            else:
                answer = await really()
            if isinstance(answer, MetadataResponse):
                self._set_leaders(answer)
            if before is not None:
                await before  # Responses keep the order of the requests.
            if not channel.is_open:
                raise ConnectionFailed("the connection broke before the response")
            return answer
        finally:
            self.call_later(0, lambda: this.callback(None))  # Once this response has arrived.

    def _set_leaders(self, answer: MetadataResponse) -> None:
        answer.brokers = [
            MetadataResponseBroker(node_id=node, host=HOST, port=PORT + node) for node in NODES
        ]
        is_stale = self.whims.random() < self.stale
        for topic in answer.topics:
            if topic.name is None or topic.error_code:
                continue
            self._id_by_topic[topic.name] = topic.topic_id
            for partition in topic.partitions:
                key = topic.topic_id, partition.partition_index
                stale = self._before.get(key) if is_stale else None
                self._set_leader(partition, *(stale or self._leader(*key)))

    @staticmethod
    def _set_leader(partition: MetadataResponsePartition, leader: int, epoch: int) -> None:
        partition.leader_id, partition.leader_epoch = leader, epoch
        if leader < 0:
            partition.error_code = ErrorCode.LEADER_NOT_AVAILABLE

    # -- writing ------------------------------------------------------------------------------

    def _split(self, node: int, request: ProduceRequest) -> tuple[ProduceRequest, ProduceResponse]:
        """Return the part that the broker may write, and its response for the other partitions."""
        written: list[TopicProduceData] = []
        refused: list[TopicProduceResponse] = []
        for topic in request.topic_data:
            led, other = [], []
            for data in topic.partition_data:
                if self.leader(topic.name, data.index)[0] == node:
                    led.append(data)
                else:
                    other.append(_refusal(data.index, ErrorCode.NOT_LEADER_OR_FOLLOWER))
            if led:
                written.append(TopicProduceData(name=topic.name, partition_data=led))
            if other:
                refused.append(TopicProduceResponse(name=topic.name, partition_responses=other))
        led_request = ProduceRequest(
            acks=request.acks, timeout_ms=request.timeout_ms, topic_data=written
        )
        return led_request, ProduceResponse(responses=refused)

    async def _produced(
        self,
        node: int,
        channel: SimChannel,
        request: ProduceRequest,
        version: int,
        really: Callable[..., Awaitable[Any]],
    ) -> ProduceResponse:
        fate = self.fate()
        led, answer = self._split(node, request)
        if fate == "refuse":
            await self.sleep(0.003)
            answer = self._refused(request)
        elif fate == "late":  # It is delayed in the network, but arrives.
            self.call_later(self.whims.random() * 2, lambda: self._arrive(led, version))
            channel.drop()
        elif led.topic_data:
            if fate == "drop":
                channel.drop()
            asked = really(led)
            if fate == "twice" and channel.is_open:
                self._arrive(led, version)
            written: ProduceResponse = await asked
            answer.responses = _joined(written.responses, answer.responses)
        else:
            await self.sleep(0.001)
        if fate == "lose":
            channel.drop()
        elif fate == "doubt":
            self._cast_doubt(answer)
        elif fate == "partial":
            answer.responses.pop()
        elif fate == "throttle":
            answer.throttle_time_ms = self.whims.choice([1, 50, 400])
        elif fate == "move":  # The leader wrote the batch, but moved before it responded.
            for topic in answer.responses:
                for partition in topic.partition_responses:
                    self.move(topic.name, partition.index)
                    partition.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                    partition.base_offset = -1
        if self.names_leaders:
            self._name_leaders(answer)
        return answer

    def _name_leaders(self, answer: ProduceResponse) -> None:
        for topic in answer.responses:
            for partition in topic.partition_responses:
                leader, epoch = self.leader(topic.name, partition.index)
                if partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and leader >= 0:
                    partition.current_leader = LeaderIdAndEpoch(
                        leader_id=leader, leader_epoch=epoch
                    )
                    answer.node_endpoints.append(
                        NodeEndpoint(node_id=leader, host=HOST, port=PORT + leader)
                    )

    def _arrive(self, request: ProduceRequest, version: int) -> None:
        """Pass a request to the core directly, without awaiting the response."""
        if not request.topic_data:
            return
        try:
            later = self._wire.connect().request(request, version)
        except ConnectionLost:
            return
        later.then(lambda _: None, lambda _: None)

    def _refused(self, request: ProduceRequest) -> ProduceResponse:
        code = self.whims.choice(REFUSALS)
        log_start_offset = self.whims.choice([-1, 0, 5])
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    partition_responses=[
                        _refusal(data.index, code, log_start_offset)
                        for data in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    def _cast_doubt(self, answer: ProduceResponse) -> None:
        for topic in answer.responses:
            for partition in topic.partition_responses:
                if not partition.error_code and self.whims.random() < 0.7:
                    partition.error_code = self.whims.choice(DOUBTS)
                    partition.base_offset = -1


def _refusal(index: int, code: int, log_start_offset: int = -1) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index, error_code=code, base_offset=-1, log_start_offset=log_start_offset
    )


def _joined(
    some: list[TopicProduceResponse], others: list[TopicProduceResponse]
) -> list[TopicProduceResponse]:
    by_name = {topic.name: topic for topic in some}
    for topic in others:
        if topic.name in by_name:
            by_name[topic.name].partition_responses.extend(topic.partition_responses)
        else:
            by_name[topic.name] = topic
    return list(by_name.values())
