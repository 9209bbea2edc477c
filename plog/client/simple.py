"""Clients over plain sockets, without a reactor or a thread.

`SimpleConsumer` (simple_consumer.py) reads ranges of partitions from a cluster: for workers of
batch jobs and for tools. `SimpleClient` is the smallest client there can be, for smoke tests and
first steps: it asks the one broker it was given, one request at a time, waits for each answer, and
neither retries nor follows a leader to another broker. After a broken connection a new one is
needed. One thread at a time may use either.

    with SimpleClient("127.0.0.1", 9092) as client:
        offset = client.produce("page-views", 0, [Record(value=b"/index.html")])
        print(client.fetch("page-views", 0, offset))
"""

from __future__ import annotations

from collections.abc import Sequence
from time import time
from typing import TYPE_CHECKING, Self, TypeVar

from plog.client.network.api_versions import Ranges, common_version, ranges_of
from plog.client.network.socket_connection import SocketConnection
from plog.errors import ErrorCode, error_from_code
from plog.records.batch import Compression
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.reader import iter_records
from plog.wire.messages import api_versions, create_topics, fetch, list_offsets, metadata, produce
from plog.wire.schema import ApiMessage, WireError

if TYPE_CHECKING:  # So that checkers see what `__getattr__` gives.
    from plog.client.consumer.simple_consumer import SimpleConsumer as SimpleConsumer

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
"""Times that are none: the end of the log, its start, and its newest record."""

_BROKER_DEFAULT = -1


def __getattr__(name: str) -> object:
    if name != "SimpleConsumer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from plog.client.consumer.simple_consumer import SimpleConsumer  # Settings and metadata: 0.1 s.

    return SimpleConsumer


_Answer = TypeVar("_Answer")
_Response = TypeVar("_Response", bound=ApiMessage)


class SimpleClient:
    """A connection to one broker, open from the start; ``with`` or `close` ends it.

    `timeout_s` bounds each wait for the network, on top of what a request itself may take. Every
    method raises the `KafkaError` that the broker's code stands for, `ConnectionFailed` or
    `RequestTimedOut` if no answer came, and `WireError` for one that makes no sense.
    """

    def __init__(
        self, host: str, port: int, *, timeout_s: float = 10.0, client_id: str = "plog-simple"
    ) -> None:
        self._connection = SocketConnection(host, port, timeout_s=timeout_s, client_id=client_id)
        self._timeout_s = timeout_s
        self._timeout_ms = int(timeout_s * 1000)
        self._versions: Ranges = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; harmless when it has ended."""
        self._connection.close()

    def api_versions(self) -> dict[int, tuple[int, int]]:
        """The lowest and highest version the broker serves, by API key."""
        # Version 0 is the one that every broker answers, however old or new.
        response = self._connection.ask(
            api_versions.ApiVersionsRequest(), api_versions.ApiVersionsResponse, version=0
        )
        _raise_if_error(response.error_code)
        self._versions = ranges_of(response)
        return dict(self._versions)

    def metadata(self, topics: Sequence[str] | None = None) -> metadata.MetadataResponse:
        """Brokers and partitions of `topics`, or of all. May create a topic that does not exist.

        A topic just created may have no leader yet: the error says it is retriable.
        """
        wanted = (
            None
            if topics is None
            else [metadata.MetadataRequestTopic(name=name) for name in topics]
        )
        response = self._ask(metadata.MetadataRequest(topics=wanted), metadata.MetadataResponse)
        _raise_if_error(response.error_code)
        for topic in response.topics:
            _raise_if_error(topic.error_code, f"topic {topic.name}")
        return response

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic with the broker's default replication. Raises TopicAlreadyExists."""
        topic = create_topics.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=_BROKER_DEFAULT
        )
        request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=self._timeout_ms)
        response = self._ask(request, create_topics.CreateTopicsResponse, wait_ms=self._timeout_ms)
        result = _only(response.topics)
        _raise_if_error(result.error_code, result.error_message or f"topic {name}")

    def produce(
        self,
        topic: str,
        partition: int,
        records: Sequence[Record],
        acks: int = -1,
        timeout_ms: int = 30_000,
        *,
        compression: Compression = Compression.NONE,
    ) -> int:
        """Append `records` as one batch; the offset of the first one, -1 with acks=0.

        Their offsets are not looked at; a timestamp of -1 becomes now. Sent once: after an error
        they may be in the log or not.
        """
        now_ms = int(time() * 1000)
        stamped = [
            record._replace(
                offset=-1, timestamp=now_ms if record.timestamp < 0 else record.timestamp
            )
            for record in records
        ]
        batch = build_batch(stamped, compression=compression)
        data = produce.PartitionProduceData(index=partition, records=batch)
        request = produce.ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[produce.TopicProduceData(name=topic, partition_data=[data])],
        )
        if acks == 0:
            self._connection.send(request, self._version_of(request))
            return -1
        response = self._ask(request, produce.ProduceResponse, wait_ms=timeout_ms)
        result = _only(_only(response.responses).partition_responses)
        _raise_if_error(result.error_code, result.error_message or f"{topic}-{partition}")
        return result.base_offset

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_wait_ms: int = 500,
        max_bytes: int = 1 << 20,
    ) -> list[Record]:
        """Records from `offset` on; none if the log holds none before `max_wait_ms` have passed.

        About `max_bytes` of them, but one batch at least. Raises OffsetOutOfRange. Records of
        aborted transactions are among the rest (`SimpleConsumer` can leave them out).
        """
        wanted = fetch.FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes
        )
        request = fetch.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            topics=[fetch.FetchTopic(topic=topic, partitions=[wanted])],
        )
        response = self._ask(request, fetch.FetchResponse, wait_ms=max_wait_ms)
        _raise_if_error(response.error_code)
        result = _only(_only(response.responses).partitions)
        _raise_if_error(result.error_code, f"{topic}-{partition} at offset {offset}")
        batches = result.records if isinstance(result.records, memoryview) else b""
        return list(iter_records(batches, from_offset=offset))

    def list_offset(self, topic: str, partition: int, timestamp: int = LATEST) -> int:
        """The offset of the first record at `timestamp` (ms) or later, -1 if there is none.

        LATEST gives the offset the next record will get, EARLIEST that of the first one there.
        """
        wanted = list_offsets.ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = list_offsets.ListOffsetsRequest(
            replica_id=-1,
            topics=[list_offsets.ListOffsetsTopic(name=topic, partitions=[wanted])],
        )
        response = self._ask(request, list_offsets.ListOffsetsResponse)
        result = _only(_only(response.topics).partitions)
        _raise_if_error(result.error_code, f"{topic}-{partition}")
        return result.offset

    def _ask(
        self, request: ApiMessage, response_type: type[_Response], *, wait_ms: int = 0
    ) -> _Response:
        """One request in the highest version both sides speak, and its answer."""
        return self._connection.ask(
            request,
            response_type,
            self._version_of(request),
            timeout_s=self._timeout_s + wait_ms / 1000,
        )

    def _version_of(self, request: ApiMessage) -> int:
        if not self._versions:
            self.api_versions()
        return common_version(request, self._versions, self._connection.address)


def _raise_if_error(code: int, message: str = "") -> None:
    if code != ErrorCode.NONE:
        raise error_from_code(code, message)


def _only(answers: Sequence[_Answer]) -> _Answer:
    """The one answer there is to one question."""
    if len(answers) != 1:
        raise WireError(f"{len(answers)} answers to one question")
    return answers[0]
