"""A broker with transactions, as far as a producer can observe it, in place of a simulated one.

    world = TransactionWorld(level=2)
    network = world.network
    ...
    world.committed("orders")   # the values that read_committed consumers see

It follows Kafka 4.3's TransactionCoordinator and ProducerStateManager, for one broker and without
time. Forbidden actions of a producer fail an assertion: Produce before its partition was added, or
a request in a version of the other transaction protocol. `faults` apply to requests: the next one
of a type is rejected with a code, or it or its response is lost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from plog.client.errors import ConnectionFailed
from plog.errors import ErrorCode, RequestTimedOut
from plog.records.batch import parse_header
from plog.records.reader import iter_records
from plog.types import TopicPartition
from plog.wire.api_keys import ApiKey
from plog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from plog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from plog.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from plog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from plog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from plog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from plog.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from plog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from plog.wire.schema import ApiMessage
from tests.helpers.client.client_on_sim_network import HOST, PORT, SimNetwork
from tests.helpers.client.sim_channel import SimChannel

Fault = int | str
"""An error code, "drop": the request is lost, "lose": its response is, "hang": no response."""


@dataclass(slots=True)
class Producer:
    """The coordinator's state of a transactional.id."""

    producer_id: int
    epoch: int = 0
    last_epoch: int = -1
    state: str = "empty"
    partitions: set[TopicPartition] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    offsets: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    number: int = 0
    """How many transactions have ended."""


class TransactionWorld:
    """A broker with transactions. `level` is that of the feature transaction.version."""

    def __init__(self, *, level: int = 2, seed: int = 0) -> None:
        self.level = level
        self.network = _Network(self, seed)
        self.producers: dict[str, Producer] = {}
        self.faults: list[tuple[type[ApiMessage], Fault]] = []
        self.asked: list[tuple[ApiMessage, int]] = []
        """Every request of a producer, and its version."""
        self.busy = 0
        """How many more times the coordinator is busy completing the last transaction."""
        self.offsets: dict[tuple[str, TopicPartition], int] = {}
        """Committed offsets, by group."""
        self.generation: dict[str, int] = {}
        """The current generation of groups that have members."""
        self._log: dict[TopicPartition, list[tuple[str, int, list[bytes]]]] = {}
        self._sequences: dict[tuple[TopicPartition, int], tuple[int, list[tuple[int, int]]]] = {}
        self._outcomes: dict[tuple[str, int], bool] = {}
        self._next_id = 1000

    # -- observations ---------------------------------------------------------------------------

    def committed(self, topic: str, partition: int = 0) -> list[bytes]:
        """Return the values that read_committed consumers see, of completed transactions."""
        return [
            value
            for name, number, values in self._log.get(TopicPartition(topic, partition), [])
            if self._outcomes.get((name, number))
            for value in values
        ]

    def count(self, kind: type[ApiMessage]) -> int:
        """Return how many requests of a type were sent."""
        return sum(isinstance(request, kind) for request, _ in self.asked)

    def time_out(self, name: str) -> None:
        """Abort the transaction as the coordinator does after its timeout, and fence its epoch."""
        producer = self.producers[name]
        self._finish(name, committed=False)
        producer.last_epoch, producer.epoch = producer.epoch, producer.epoch + 1

    # -- responses ------------------------------------------------------------------------------

    async def answer(
        self,
        request: ApiMessage,
        version: int,
        ask: Callable[[], Awaitable[Any]],
        timeout_s: float,
    ) -> Any:
        """Return the broker's response to `request`."""
        if isinstance(request, ApiVersionsRequest):
            return self._with_transactions(await ask())
        handler = self._handler(request)
        if handler is None:
            return await ask()
        self.asked.append((request, version))
        fault = next((x for kind, x in self.faults if isinstance(request, kind)), None)
        if fault is not None:
            self.faults.remove((type(request), fault))
        await self.network.sleep(0.001)
        if fault == "drop":
            raise ConnectionFailed("lost in transit")
        answer = handler(version, fault if isinstance(fault, int) else 0)
        await self.network.sleep(0.001)
        if fault == "hang":
            await self.network.sleep(timeout_s)
            raise RequestTimedOut("no response arrived")
        if fault == "lose":
            raise ConnectionFailed("its response was lost")
        return answer

    def _handler(self, request: Any) -> Callable[[int, int], ApiMessage] | None:
        match request:
            case FindCoordinatorRequest():
                return lambda version, code: self._find(request, code)
            case InitProducerIdRequest():
                return lambda version, code: self._init(request, code)
            case AddPartitionsToTxnRequest():
                return lambda version, code: self._add_partitions(request, version, code)
            case AddOffsetsToTxnRequest():
                return lambda version, code: self._add_offsets(request, code)
            case TxnOffsetCommitRequest():
                return lambda version, code: self._commit_offsets(request, version, code)
            case EndTxnRequest():
                return lambda version, code: self._end(request, version, code)
            # Audit reports are not part of a transaction.
            case ProduceRequest() if request.transactional_id is not None:
                return lambda version, code: self._produce(request, version, code)
        return None

    def _with_transactions(self, answer: ApiVersionsResponse) -> ApiVersionsResponse:
        for key, last in ((24, 5), (25, 4), (26, 5), (28, 5)):
            answer.api_keys.append(ApiVersion(api_key=key, min_version=0, max_version=last))
        for api in answer.api_keys:
            if api.api_key == ApiKey.PRODUCE:
                api.max_version = 13
        answer.finalized_features_epoch = 1
        answer.finalized_features = [
            FinalizedFeatureKey(
                name="transaction.version", max_version_level=self.level, min_version_level=1
            )
        ]
        return answer

    def _find(self, request: FindCoordinatorRequest, code: int) -> FindCoordinatorResponse:
        node_id = self.network.broker.config.node_id
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=node_id, host=HOST, port=PORT, error_code=code)
                for key in request.coordinator_keys
            ]
        )

    def _init(self, request: InitProducerIdRequest, code: int) -> InitProducerIdResponse:
        name = request.transactional_id
        assert name is not None
        code = code or self._init_code(name, request.producer_id, request.producer_epoch)
        if code:
            return InitProducerIdResponse(error_code=code)
        producer = self.producers[name]
        return InitProducerIdResponse(
            producer_id=producer.producer_id, producer_epoch=producer.epoch
        )

    def _init_code(self, name: str, producer_id: int, epoch: int) -> int:
        producer = self.producers.get(name)
        if producer is None:
            self._next_id += 1
            self.producers[name] = Producer(producer_id=self._next_id)
            return 0
        if producer_id >= 0:
            if (producer_id, epoch) == (producer.producer_id, producer.last_epoch):
                return 0  # A retry.
            if (producer_id, epoch) != (producer.producer_id, producer.epoch):
                return ErrorCode.PRODUCER_FENCED
        if producer.state == "ongoing":
            self.time_out(name)
            return ErrorCode.CONCURRENT_TRANSACTIONS
        producer.last_epoch, producer.epoch = producer.epoch, producer.epoch + 1
        producer.state = "empty"
        return 0

    def _check(self, name: str, producer_id: int, epoch: int) -> int:
        producer = self.producers.get(name)
        if producer is None or producer.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if producer.epoch != epoch:
            return ErrorCode.PRODUCER_FENCED
        if self.busy:
            self.busy -= 1
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return 0

    def _add_partitions(
        self, request: AddPartitionsToTxnRequest, version: int, code: int
    ) -> AddPartitionsToTxnResponse:
        assert version <= 3, "the rest is for brokers"
        assert self.level < 2, "partitions are added by Produce"
        name = request.v3_and_below_transactional_id
        code = code or self._check(
            name, request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        )
        if not code:
            producer = self.producers[name]
            producer.state = "ongoing"
            for topic in request.v3_and_below_topics:
                producer.partitions |= {TopicPartition(topic.name, x) for x in topic.partitions}
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(
                            partition_index=one, partition_error_code=code
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ]
        )

    def _add_offsets(self, request: AddOffsetsToTxnRequest, code: int) -> AddOffsetsToTxnResponse:
        assert self.level < 2, "groups are added by TxnOffsetCommit"
        name = request.transactional_id
        code = code or self._check(name, request.producer_id, request.producer_epoch)
        if not code:
            self.producers[name].state = "ongoing"
            self.producers[name].groups.add(request.group_id)
        return AddOffsetsToTxnResponse(error_code=code)

    def _commit_offsets(
        self, request: TxnOffsetCommitRequest, version: int, code: int
    ) -> TxnOffsetCommitResponse:
        assert (version >= 5) == (self.level >= 2)
        name, group = request.transactional_id, request.group_id
        code = code or self._check(name, request.producer_id, request.producer_epoch)
        if group in self.generation and request.generation_id != self.generation[group]:
            code = code or ErrorCode.ILLEGAL_GENERATION
        if not code:
            producer = self.producers[name]
            if self.level >= 2:
                producer.groups.add(group)
                producer.state = "ongoing"
            assert group in producer.groups, "AddOffsetsToTxn comes before"
            for topic in request.topics:
                for one in topic.partitions:
                    partition = TopicPartition(topic.name, one.partition_index)
                    producer.offsets[group, partition] = one.committed_offset
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponsePartition(
                            partition_index=one.partition_index, error_code=code
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _end(self, request: EndTxnRequest, version: int, code: int) -> EndTxnResponse:
        is_v2 = version >= 5
        assert is_v2 == (self.level >= 2)
        name, committed = request.transactional_id, request.committed
        code = code or self._end_code(
            name, request.producer_id, request.producer_epoch, committed=committed, is_v2=is_v2
        )
        if code or not is_v2:
            return EndTxnResponse(error_code=code)
        producer = self.producers[name]
        return EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)

    def _end_code(
        self, name: str, producer_id: int, epoch: int, *, committed: bool, is_v2: bool
    ) -> int:
        producer = self.producers.get(name)
        ended = "committed" if committed else "aborted"
        if is_v2 and producer is not None and epoch == producer.epoch - 1:
            return 0 if producer.state == ended else ErrorCode.INVALID_TXN_STATE
        code = self._check(name, producer_id, epoch)
        if code:
            return code
        producer = self.producers[name]
        if producer.state != "ongoing":
            if not is_v2:
                return 0 if producer.state == ended else ErrorCode.INVALID_TXN_STATE
            if committed:
                return ErrorCode.INVALID_TXN_STATE
        self._finish(name, committed=committed)
        if is_v2:
            producer.last_epoch, producer.epoch = producer.epoch, producer.epoch + 1
        return 0

    def _finish(self, name: str, *, committed: bool) -> None:
        producer = self.producers[name]
        self._outcomes[name, producer.number] = committed
        if committed:
            self.offsets |= producer.offsets
        producer.number += 1
        producer.state = "committed" if committed else "aborted"
        for pending in (producer.partitions, producer.groups, producer.offsets):
            pending.clear()

    # -- records --------------------------------------------------------------------------------

    def _produce(self, request: ProduceRequest, version: int, code: int) -> ProduceResponse:
        assert (version >= 12) == (self.level >= 2)
        assert request.transactional_id is not None
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    partition_responses=[
                        PartitionProduceResponse(
                            index=data.index,
                            error_code=code
                            or self._append(
                                request.transactional_id,
                                TopicPartition(topic.name, data.index),
                                bytes(data.records or b""),
                            ),
                            base_offset=0,
                            log_start_offset=0,
                        )
                        for data in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    def _append(self, name: str, partition: TopicPartition, records: bytes) -> int:
        header = parse_header(records)
        assert header.is_transactional
        producer = self.producers[name]
        if (header.producer_id, header.producer_epoch) != (producer.producer_id, producer.epoch):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if self.level >= 2:
            producer.partitions.add(partition)
            producer.state = "ongoing"
        assert partition in producer.partitions, "AddPartitionsToTxn comes before"
        values = [record.value or b"" for record in iter_records(records)]
        span = (header.base_sequence, header.base_sequence + len(values))
        epoch, seen = self._sequences.get((partition, header.producer_id), (-1, []))
        if epoch != header.producer_epoch:
            epoch, seen = header.producer_epoch, []
        if span in seen[-5:]:
            return 0
        if span[0] != (seen[-1][1] if seen else 0):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self._sequences[partition, header.producer_id] = (epoch, [*seen, span])
        self._log.setdefault(partition, []).append((name, producer.number, values))
        return 0


class _Network(SimNetwork):
    """A simulated network whose broker supports transactions."""

    def __init__(self, world: TransactionWorld, seed: int) -> None:
        super().__init__(seed)
        self._world = world

    async def connect(
        self, host: str, port: int, security: object, *, timeout_s: float
    ) -> SimChannel:
        channel = await super().connect(host, port, security, timeout_s=timeout_s)
        ask = channel.ask

        def asked(
            request: Any,
            response: Any,
            version: int,
            *,
            timeout_s: float,
            wait_s: float | None = None,
        ) -> Any:
            def really() -> Awaitable[Any]:
                return ask(request, response, version, timeout_s=timeout_s, wait_s=wait_s)

            return self._world.answer(request, version, really, timeout_s)

        channel.ask = asked  # type: ignore[method-assign]
        return channel
