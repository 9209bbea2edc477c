"""One broker without a network: requests go directly to its `dispatch`, without delays.

Nothing is random: this is for histories that must be the same every time, step by step. `Observed`
records the responses that the clients received. Used by crash_points.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from plog.records.reader import iter_records
from plog.types import Uuid
from plog.wire.header import RequestHeader, decode_response_header, encode_request
from plog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from plog.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from plog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from plog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from plog.wire.messages.metadata import MetadataRequest, MetadataResponse
from plog.wire.messages.produce import ProduceResponse
from plog.wire.primitives import Part
from plog.wire.schema import ApiMessage
from plogd.apis.dispatch import Dispatcher
from plogd.broker import Broker
from plogd.config import BrokerConfig
from plogd.metrics import Registry
from plogd.ports import Later
from tests.helpers.injection import Faults
from tests.helpers.sim.sim_files import SimFiles
from tests.helpers.sim.sim_ports import SimJobs, SimPorts, outcome
from tests.helpers.sim.sim_time import START_MS, SimClock, SimTimers
from tests.sim.batches import Batch, produce_request
from tests.sim.reader import received
from tests.sim.server_end import bytes_of, make_context

T = TypeVar("T")
Response = TypeVar("Response", bound=ApiMessage)

CONFIG = BrokerConfig(
    log_dirs=("/data",),
    listeners=("PLAINTEXT://127.0.0.1:9092",),
    plog_http_port=0,
    log_segment_bytes=700,
    log_index_interval_bytes=100,
    log_segment_delete_delay_ms=10,
    metadata_log_max_record_bytes_between_snapshots=300,
)
_TIMEOUT_MS = 10_000


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A record that the broker has acknowledged."""

    topic_id: Uuid
    partition: int
    offset: int
    value: bytes


@dataclass(slots=True)
class Observed:
    """What the clients know."""

    records: list[Acknowledged] = field(default_factory=list)
    created: list[Uuid] = field(default_factory=list)
    deleting: list[Uuid] = field(default_factory=list)
    deleted: list[Uuid] = field(default_factory=list)
    in_doubt: list[Batch] = field(default_factory=list)
    """Batches that were sent and not yet acknowledged."""

    def copy(self) -> Observed:
        """Return a copy of the current knowledge."""
        return Observed(*(list(known) for known in self._lists()))

    def _lists(self) -> Sequence[list]:  # type: ignore[type-arg]
        return self.records, self.created, self.deleting, self.deleted, self.in_doubt


class _SyncsFirst(SimJobs):
    """Jobs that run one at a time, syncs before others.

    Responses are therefore sent as early, and all other work runs as late, as possible.
    """

    def run_all(self) -> bool:
        waiting = self.waiting
        if waiting:
            self.run_one(min(waiting, key=_not_a_sync))
        return bool(waiting)


class Site:
    """One broker on one disk, and a client that calls it directly."""

    def __init__(
        self, files: SimFiles, now_ms: int = START_MS, *, faults: Faults | None = None
    ) -> None:
        self.files = files
        timers = SimTimers(SimClock(now_ms))
        self.ports = SimPorts(timers=timers, jobs=_SyncsFirst(), files=files)
        ports = self.ports.bundle()
        if faults is not None:
            ports = replace(faults.ports(ports), timers=faults.timers(timers))
        self.broker = Broker(CONFIG, ports, metrics=Registry())
        self._dispatch = Dispatcher(self.broker)
        self._context = make_context(40_000)
        self._number = 0

    # -- time and jobs ------------------------------------------------------------------------

    def settle(self) -> None:
        """Run everything that can run without time passing, jobs sequentially."""
        self.ports.settle()

    def advance(self, by_ms: float) -> None:
        """Let time pass; settle at each moment at which a timer is due."""
        self.ports.advance(by_ms)

    def wait_for(self, later: Later[T]) -> T:
        """Return the outcome, which must arrive without time passing."""
        self.settle()
        return outcome(later)

    def start(self) -> None:
        """Start the broker; raises the error of a failed start."""
        self.wait_for(self.broker.start())

    def stop(self) -> None:
        """Stop the broker cleanly."""
        self.wait_for(self.broker.stop())

    # -- requests -----------------------------------------------------------------------------

    def ask(
        self,
        message: ApiMessage,
        version: int,
        answer_type: type[Response],
        on_answer: Callable[[Response], None] = lambda answer: None,
    ) -> Response:
        """Return the response to a request; `on_answer` is called at the moment it is sent."""
        self._number += 1
        header = RequestHeader(message.api_key, version, self._number, "crash")
        frame = memoryview(bytearray(encode_request(header, message)[4:]))
        answers: list[Response] = []

        def answered(parts: Sequence[Part] | None) -> None:
            answers.append(_decode(parts or (), header, answer_type))
            on_answer(answers[0])

        with self.ports.turn:
            result = self._dispatch(frame, self._context).result
        if isinstance(result, Later):
            result.then(answered, _raise)
        else:
            answered(result)
        self.settle()
        return answers[0]

    # -- actions of the script ----------------------------------------------------------------

    def create(self, observed: Observed, name: str, partitions: int, **settings: str) -> Uuid:
        """Create a topic."""
        configs = [
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in settings.items()
        ]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, configs=configs
        )

        def created(answer: CreateTopicsResponse) -> None:
            assert answer.topics[0].error_code == 0, answer
            observed.created.append(answer.topics[0].topic_id)

        self.ask(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse, created)
        return observed.created[-1]

    def delete(self, observed: Observed, topic_id: Uuid) -> None:
        """Delete a topic."""
        observed.deleting.append(topic_id)
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=None, topic_id=topic_id)], timeout_ms=_TIMEOUT_MS
        )

        def deleted(answer: DeleteTopicsResponse) -> None:
            assert answer.responses[0].error_code == 0, answer
            observed.deleted.append(topic_id)

        self.ask(request, 6, DeleteTopicsResponse, deleted)

    def produce(self, observed: Observed, batch: Batch) -> None:
        """Append one batch with acks=all."""

        def acknowledged(answer: ProduceResponse) -> None:
            result = answer.responses[0].partition_responses[0]
            assert result.error_code == 0, answer
            for offset, value in enumerate(batch.values, result.base_offset):
                observed.records.append(
                    Acknowledged(batch.topic_id, batch.partition, offset, value)
                )
            observed.in_doubt.remove(batch)

        observed.in_doubt.append(batch)
        self.ask(produce_request([batch], acks=-1), 13, ProduceResponse, acknowledged)

    def producer_id(self) -> int:
        """Return a new id for an idempotent producer."""
        request = InitProducerIdRequest(transactional_id=None)
        answer = self.ask(request, 4, InitProducerIdResponse)
        assert answer.error_code == 0, answer
        return answer.producer_id

    def topic_ids(self) -> dict[Uuid, int]:
        """Return the ids of all topics, with their partition counts."""
        answer = self.ask(MetadataRequest(topics=None), 12, MetadataResponse)
        return {topic.topic_id: len(topic.partitions) for topic in answer.topics}

    def read(self, topic_id: Uuid, partition: int) -> tuple[int, dict[int, bytes]]:
        """Return the log's start offset, and every value by offset."""
        start, position, values = -1, 0, dict[int, bytes]()
        while True:
            wanted = FetchPartition(
                partition=partition, fetch_offset=position, partition_max_bytes=1 << 20
            )
            topic = FetchTopic(topic_id=topic_id, partitions=[wanted])
            answer = self.ask(FetchRequest(topics=[topic]), 13, FetchResponse)
            data = answer.responses[0].partitions[0]
            if data.error_code == 1 and start < 0:
                position = start = self._log_start(topic_id, partition)
                continue
            assert data.error_code == 0, data
            start = max(start, data.log_start_offset)
            records = list(iter_records(received(data), from_offset=position))
            values.update((record.offset, record.value or b"") for record in records)
            if not records:
                assert position == data.high_watermark, "missing records below the high watermark"
                return start, values
            offsets = [record.offset for record in records]
            assert offsets == list(range(position, position + len(records))), (
                "a gap between offsets"
            )
            position += len(records)

    def _log_start(self, topic_id: Uuid, partition: int) -> int:
        [log] = [
            log
            for log in self.broker.log_manager.logs.values()
            if (log.topic_id, log.topic_partition.partition) == (topic_id, partition)
        ]
        return log.log_start_offset


def _not_a_sync(lane: str) -> bool:
    return not lane.startswith("sync:")


def _decode(parts: Sequence[Part], header: RequestHeader, answer_type: type[Response]) -> Response:
    data = b"".join(bytes_of(part) for part in parts)[4:]
    _, position = decode_response_header(data, header.api_key, header.api_version)
    return answer_type.decode(data[position:], header.api_version)


def _raise(error: Exception) -> None:
    raise error
