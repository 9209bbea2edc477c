"""Clients over plain sockets that need neither a reactor nor a thread.

`SimpleConsumer` (simple_consumer.py) reads ranges of partitions from a cluster; batch job workers
and tools use it. `SimpleClient` is a minimal client for smoke tests and first steps: it sends one
request at a time to a single broker and waits for each response. It does not retry requests, follow
a leader to another broker, or reconnect. Only one thread at a time may use either client.

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

if TYPE_CHECKING:  # Type checkers do not see what `__getattr__` returns.
    from plog.client.consumer.simple_consumer import SimpleConsumer as SimpleConsumer

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
"""Special timestamps: the end of the log, its start, and the record with the latest timestamp."""

_BROKER_DEFAULT = -1


def __getattr__(name: str) -> object:
    if name != "SimpleConsumer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Imported on first access: the import takes 0.1 s, which users of SimpleClient can avoid.
    from plog.client.consumer.simple_consumer import SimpleConsumer

    return SimpleConsumer


_Answer = TypeVar("_Answer")
_Response = TypeVar("_Response", bound=ApiMessage)


class SimpleClient:
    """A connection to one broker, opened by the constructor; close it with `close` or ``with``.

    `timeout_s` limits each wait for the network; time that the broker may hold a request is added.
    Every method raises the `KafkaError` for the broker's error code, `ConnectionFailed` or
    `RequestTimedOut` if no response arrives, and `WireError` for a malformed response.
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
        """Close the connection; repeated calls have no effect."""
        self._connection.close()

    def api_versions(self) -> dict[int, tuple[int, int]]:
        """Return the lowest and highest version that the broker serves, by API key."""
        # Every broker accepts version 0, and its response shows which other versions it serves.
        response = self._connection.ask(
            api_versions.ApiVersionsRequest(), api_versions.ApiVersionsResponse, version=0
        )
        _raise_if_error(response.error_code)
        self._versions = ranges_of(response)
        return dict(self._versions)

    def metadata(self, topics: Sequence[str] | None = None) -> metadata.MetadataResponse:
        """Return the brokers and the partitions of `topics`, or of all topics.

        The broker may create missing topics. A new topic may not have a leader yet, which raises a
        retriable error.
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
        """Append `records` as one batch; return the first record's offset, or -1 with acks=0.

        The records' own offsets are ignored; a timestamp of -1 becomes the current time. The batch
        is sent only once; if the call fails, the broker may have written it anyway.
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
        # With acks=0, the broker does not send a response.
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
        """Return records from `offset` on, or an empty list if none arrive within `max_wait_ms`.

        Returns about `max_bytes` of records, but at least one batch if any are available. Includes
        records from aborted transactions (`SimpleConsumer` can filter them out). Raises
        OffsetOutOfRange.
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
        # In a response without records, the field is null.
        batches = result.records if isinstance(result.records, memoryview) else b""
        # A batch may begin before the requested offset.
        return list(iter_records(batches, from_offset=offset))

    def list_offset(self, topic: str, partition: int, timestamp: int = LATEST) -> int:
        """Return the offset of the first record at or after `timestamp` (ms), or -1.

        LATEST returns the offset that the next record will get, EARLIEST the log start offset.
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
        """Send a request at the highest version that both sides support; return the response."""
        return self._connection.ask(
            request,
            response_type,
            self._version_of(request),
            # The broker may hold a fetch, produce or create request for up to `wait_ms`.
            timeout_s=self._timeout_s + wait_ms / 1000,
        )

    def _version_of(self, request: ApiMessage) -> int:
        # A broker's versions do not change while a connection is open, so one request is enough.
        if not self._versions:
            self.api_versions()
        return common_version(request, self._versions, self._connection.address)


def _raise_if_error(code: int, message: str = "") -> None:
    if code != ErrorCode.NONE:
        raise error_from_code(code, message)


def _only(answers: Sequence[_Answer]) -> _Answer:
    """Return the single element of `answers`. Raises WireError if there is not exactly one."""
    if len(answers) != 1:
        raise WireError(f"malformed response: expected one result, found {len(answers)}")
    return answers[0]
