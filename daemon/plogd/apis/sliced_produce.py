"""Handle Produce requests for a large number of partitions in slices, so that others can run.

When a handler returns, the memory of its request is reused, so all records are copied first. The
copies count against ``plog.produce.parked.max.bytes`` until their slice is handled. If an append
fails with acks=0, the connection is closed only after the other slices have been appended.

produce.py handles each slice as a separate request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final, cast

from plog.errors import KafkaError, RequestTimedOut
from plog.wire.messages.produce import ProduceRequest, ProduceResponse, TopicProduceData
from plogd.apis.close_connection import CloseConnection
from plogd.apis.request_context import RequestContext
from plogd.broker import Broker
from plogd.concurrency import shielded
from plogd.ports import Later, MaybeLater, settle, spawn
from plogd.replica.append_queue import waiting_ms

AT_ONCE: Final = 500
"""A request is handled in one turn if it has at most this many topics and partitions."""
_SLICE: Final = 100
_SLICES_AT_ONCE: Final = 8
"""Maximum number of slices that wait for the disk. Whenever one of a slice's partitions is synced,
the slice checks all of them."""
_FEW_BYTES: Final = 2 * AT_ONCE
"""A request of at most this size cannot contain more than `AT_ONCE` topics or partitions."""


HandleSlice = Callable[[ProduceRequest, "KafkaError | None"], "MaybeLater[ProduceResponse | None]"]
"""Handles a slice as a request; if an error is given, rejects all partitions in the slice."""


def is_large(request: ProduceRequest, context: RequestContext) -> bool:
    """Return whether a request contains more topics or partitions than one turn may handle."""
    if context.size_bytes <= _FEW_BYTES:
        return False
    topics = request.topic_data
    return len(topics) > AT_ONCE or sum(len(one.partition_data) for one in topics) > AT_ONCE


def produce_in_slices(
    request: ProduceRequest, context: RequestContext, broker: Broker, handle: HandleSlice
) -> Later[ProduceResponse | None]:
    """Append slice by slice; return the whole response once all records satisfy the acks.

    If an append fails with acks=0, the result fails with CloseConnection after all slices have been
    handled.
    """
    # Otherwise, a later Produce of the connection could overtake a slice.
    context.runs_alone = True
    queues = broker.replica_manager.append_queues
    refusal = queues.reserve(context.size_bytes)
    reserved = context.size_bytes if refusal is None else 0
    if refusal is None:
        # A tight loop, because all copies are made in one turn. Records are memoryviews or None.
        for data in chain.from_iterable(topic.partition_data for topic in request.topic_data):
            data.records = data.records and _copy(data.records)  # type: ignore[arg-type]

    def hand_over(
        part: ProduceRequest, refusal: KafkaError | None
    ) -> MaybeLater[ProduceResponse | None]:
        nonlocal reserved
        if reserved:  # From now on, the append queues count those records that have to wait.
            nbytes = _bytes_of_records(part)
            queues.unreserve(nbytes)
            reserved -= nbytes
        return handle(part, refusal)

    async def run() -> ProduceResponse | None:
        try:
            return await _run(request, broker, hand_over, refusal)
        finally:
            queues.unreserve(reserved)

    # All slices are appended even if the client disconnects: with acks=0, it does not expect a
    # response.
    return shielded(spawn(run()))


def _copy(records: memoryview) -> memoryview:
    # Writable, because the log sets offsets and epochs in place.
    return memoryview(bytearray(records))


def _bytes_of_records(part: ProduceRequest) -> int:
    return sum(
        len(cast(memoryview, data.records))
        for topic in part.topic_data
        for data in topic.partition_data
        if data.records
    )


async def _run(
    request: ProduceRequest, broker: Broker, handle: HandleSlice, refusal: KafkaError | None
) -> ProduceResponse | None:
    whole = ProduceResponse()
    begun: deque[tuple[bool, MaybeLater[ProduceResponse | None]]] = deque()
    failure: CloseConnection | None = None

    async def finish_first() -> None:
        nonlocal failure
        continues, answered = begun.popleft()
        try:
            response = await settle(answered)
        except CloseConnection as error:
            failure = failure or error
            return
        if response is not None:
            whole.throttle_time_ms = response.throttle_time_ms
            answers = response.responses
            if continues:
                whole.responses[-1].partition_responses += answers.pop(0).partition_responses
            whole.responses += answers
            nodes = {node.node_id: node for node in whole.node_endpoints}
            nodes.update((node.node_id, node) for node in response.node_endpoints)
            whole.node_endpoints = list(nodes.values())

    # The request's timeout applies to all slices together.
    until_ms = broker.clock.monotonic_ms() + waiting_ms(request.timeout_ms)
    for continues, part in _slices(request):
        # The rest is rejected, not dropped: the response must contain every partition.
        if refusal is None and broker.clock.monotonic_ms() > until_ms:
            refusal = RequestTimedOut("the records were not appended before the request timed out")
        try:
            begun.append((continues, handle(part, refusal)))
        except CloseConnection as error:
            # The other slices are still appended: a client with acks=0 never resends records.
            failure = failure or error
        await broker.fair_queue.turn()
        if len(begun) == _SLICES_AT_ONCE:
            await finish_first()
    while begun:
        await finish_first()
    if failure is not None:
        raise failure
    return whole if request.acks else None


def _slices(request: ProduceRequest) -> Iterator[tuple[bool, ProduceRequest]]:
    """Yield the request in parts, each with whether it continues the previous part's last topic."""
    topics: list[TopicProduceData] = []
    count, continues = 0, False
    for topic in request.topic_data:
        # A topic without partitions is also added, because the response contains every topic.
        for start in range(0, len(topic.partition_data) or 1, _SLICE):
            data = topic.partition_data[start : start + _SLICE]
            # The first topic of a part determines whether the part continues the previous one.
            continues = start > 0 if not topics else continues
            topics.append(
                TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=data)
            )
            count += len(data) + 1
            if count > _SLICE:
                yield continues, _part(request, topics)
                topics, count = [], 0
    if topics:
        yield continues, _part(request, topics)


def _part(request: ProduceRequest, topics: list[TopicProduceData]) -> ProduceRequest:
    return ProduceRequest(acks=request.acks, timeout_ms=request.timeout_ms, topic_data=topics)
