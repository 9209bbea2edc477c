"""A broker over the simulated ports; tests send it real frames without sockets.

    broker = SimBroker(num_partitions=3)
    broker.start()
    answer = broker.ask(MetadataRequest(topics=None), 12)

`ask` runs all pending work first; `begin` leaves a waiting request pending. Frames are overwritten
after the handler has returned, because the transport reuses its receive buffer, so that late use is
detected. `restart` starts the next broker on the same disk.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, TypeVar, cast

from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.types import TopicPartition
from plog.wire.header import (
    RequestHeader,
    decode_response_header,
    encode_request,
)
from plog.wire.messages import API_BY_KEY
from plog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from plog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from plog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from plog.wire.schema import ApiMessage
from plogd.apis.api_table import HANDLERS, Row
from plogd.apis.dispatch import Dispatcher
from plogd.broker import Broker, MakeMetadata
from plogd.config import BrokerConfig
from plogd.connection_context import ConnectionContext
from plogd.log.segment.file_records import FileRegion
from plogd.metrics import Registry
from plogd.ports import Later
from tests.helpers.sim.sim_files import SimFiles
from tests.helpers.sim.sim_ports import SimPorts, outcome
from tests.helpers.sim.sim_time import START_MS

M = TypeVar("M", bound=ApiMessage)

LOG_DIR = "/data"


def connection(
    listener_name: str = "PLAINTEXT", local_address: tuple[str, int] = ("192.0.2.1", 9092)
) -> ConnectionContext:
    """Return a connection context as the transport would create it."""
    return ConnectionContext(
        listener_name=listener_name,
        security_protocol="PLAINTEXT",
        client_address=("192.0.2.77", 50_000),
        local_address=local_address,
    )


class Asked:
    """A request that has started; `response` is set when it has finished."""

    def __init__(self, broker: SimBroker, header: RequestHeader, result: Any) -> None:
        self._broker = broker
        self._header = header
        self._result = result
        self._regions: list[FileRegion] = []

    @property
    def is_done(self) -> bool:
        """Whether the response is available."""
        return not isinstance(self._result, Later) or self._result.done

    def parts(self) -> Any:
        """The response in the form that the transport receives."""
        if isinstance(self._result, Later):
            self._result = outcome(self._result)
        return self._result

    def response(self, version: int | None = None) -> Any:
        """The response, decoded; its file regions are read and closed. None for no response."""
        parts = self.parts()
        if parts is None:
            return None
        data = b"".join(_bytes_of(part) for part in parts)
        assert int.from_bytes(data[:4], "big") == len(data) - 4
        answered = self._header.api_version if version is None else version
        api_key = self._header.api_key
        correlation_id, position = decode_response_header(data[4:], api_key, answered)
        assert correlation_id == self._header.correlation_id
        body = data[4 + position :]
        message, size = API_BY_KEY[api_key].response.decode_prefix(body, answered)
        assert size == len(body), "bytes after the response"
        return message

    def cancel(self) -> None:
        """Disconnect the client."""
        assert isinstance(self._result, Later)
        self._result.cancel()


def _bytes_of(part: Any) -> bytes:
    if isinstance(part, FileRegion):
        data = part.read()
        part.close()
        return data
    return bytes(part)


class SimBroker:
    """A broker on simulated ports, which serves `rows`. `settings` are fields of BrokerConfig."""

    def __init__(
        self,
        *,
        files: SimFiles | None = None,
        ports: SimPorts | None = None,
        rows: Iterable[Row] = HANDLERS,
        make_metadata: MakeMetadata | None = None,
        **settings: Any,
    ) -> None:
        assert files is None or ports is None, "the ports have a disk"
        self.ports = ports or SimPorts(files=files)
        self.files = self.ports.files
        self._settings = {"log_dirs": (LOG_DIR,), **settings}
        self.config = dataclasses.replace(BrokerConfig(), **self._settings)
        self.metrics = Registry()
        self.bugs: list[tuple[str, Exception]] = []
        self.reports = self.ports.reports
        self.broker = self._make_broker(
            metrics=self.metrics,
            on_bug=lambda where, error: self.bugs.append((where, error)),
            make_metadata=make_metadata,
        )
        self.dispatch = Dispatcher(self.broker, rows)
        self.connection = connection()
        self._correlation_id = 0

    def _make_broker(self, **parts: Any) -> Broker:
        return Broker(self.config, self.ports.bundle(), **parts)

    # -- its life -----------------------------------------------------------------------------

    def start(self) -> SimBroker:
        """Start, and run until ready."""
        started = self.broker.start()
        self.ports.settle()
        outcome(started)
        return self

    def stop(self) -> None:
        """Stop cleanly."""
        stopped = self.broker.stop()
        self.ports.settle()
        outcome(stopped)

    def restart(self, files: SimFiles | None = None, **settings: Any) -> SimBroker:
        """Return the next broker, over `files` or the same disk; do not use this one afterwards."""
        ports = self.ports.next_life(files or self.files.kill())
        ports.clock.jump_wall(1000)
        return SimBroker(ports=ports, **(self._settings | settings)).start()

    def settle(self) -> None:
        """Run everything that needs no time."""
        self.ports.settle()

    # -- requests -----------------------------------------------------------------------------

    def dispatch_frame(self, frame: bytes, connection: ConnectionContext | None = None) -> Any:
        """Pass a frame without its size to the broker; overwrite it afterwards."""
        buffer = bytearray(frame)
        with self.ports.turn:
            dispatched = self.dispatch(memoryview(buffer), connection or self.connection)
            buffer[:] = b"\xee" * len(buffer)
        return dispatched

    def begin(
        self,
        message: ApiMessage,
        version: int,
        *,
        client_id: str | None = "test",
        connection: ConnectionContext | None = None,
    ) -> Asked:
        """Start a request and return immediately."""
        self._correlation_id += 1
        header = RequestHeader(message.api_key, version, self._correlation_id, client_id)
        frame = encode_request(header, message)[4:]
        dispatched = self.dispatch_frame(frame, connection)
        return Asked(self, header, dispatched.result)

    def ask(
        self,
        message: ApiMessage,
        version: int,
        *,
        client_id: str | None = "test",
        connection: ConnectionContext | None = None,
    ) -> Any:
        """Return the response to a request after running all pending work; no time passes."""
        asked = self.begin(message, version, client_id=client_id, connection=connection)
        self.ports.settle()
        return asked.response()

    # -- common requests -----------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        *values: bytes,
        partition: int = 0,
        acks: int = -1,
        version: int = 9,
        **batch: Any,
    ) -> PartitionProduceResponse:
        """Append records to one partition; return its part of the response."""
        answer = self.ask(
            produce_request(topic, *values, partition=partition, acks=acks, **batch), version
        )
        return cast(PartitionProduceResponse, answer.responses[0].partition_responses[0])

    def fetch(
        self, topic: str, offset: int = 0, *, partition: int = 0, version: int = 11, **fields: Any
    ) -> Any:
        """Read one partition; return its part of the response."""
        request = fetch_request(topic, offset, partition=partition, **fields)
        return self.ask(request, version).responses[0].partitions[0]

    def log(self, topic: str, partition: int = 0) -> Any:
        """Return the log of a partition."""
        return self.broker.log_manager.get(TopicPartition(topic, partition))


def records_of(values: tuple[bytes, ...], now_ms: int = START_MS, **batch: Any) -> bytes:
    """Return a batch with these values; `batch` are arguments of `build_batch`."""
    records = [Record(offset=i, timestamp=now_ms, value=value) for i, value in enumerate(values)]
    return build_batch(records, **batch)


def produce_request(
    topic: str,
    *values: bytes,
    partition: int = 0,
    acks: int = -1,
    timeout_ms: int = 30_000,
    records: bytes | None = None,
    **batch: Any,
) -> ProduceRequest:
    """Return a request for one partition; `records` replaces `values` in special cases."""
    data = records_of(values, **batch) if records is None else records
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[PartitionProduceData(index=partition, records=data)],
            )
        ],
    )


def fetch_request(
    topic: str,
    offset: int = 0,
    *,
    partition: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    partition_max_bytes: int = 1 << 20,
    current_leader_epoch: int = -1,
    **fields: Any,
) -> FetchRequest:
    """Return a request for one partition."""
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(
                        partition=partition,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                        current_leader_epoch=current_leader_epoch,
                    )
                ],
            )
        ],
        **fields,
    )


def create_request(name: str, partitions: int = 1, **config: str) -> CreateTopicsRequest:
    """Return a request that creates a topic; `config` with underscores for dots."""
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                configs=[
                    CreatableTopicConfig(name=key.replace("_", "."), value=value)
                    for key, value in config.items()
                ],
            )
        ]
    )


def create_topic(broker: SimBroker, name: str, partitions: int = 1, **config: str) -> None:
    """Create a topic through the API; `config` with underscores for dots."""
    [result] = broker.ask(create_request(name, partitions, **config), 7).topics
    assert result.error_code == 0, result.error_message
