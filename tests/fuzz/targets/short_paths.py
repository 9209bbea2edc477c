"""Produce and Fetch requests to two brokers in memory, one of which has no short paths: both agree.

The second broker decodes every request with the general decoder and validates every batch by steps.
The two get the same frames at the same times, so their responses, reasons to close the connection
and logs must be equal. Bit 0 of the first byte is the API, Produce or Fetch; a frame without its
size follows. If only bit 1 is set, the size, magic and checksum of the produced batch are corrected
first; without that, nearly all batches would be refused there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from unittest import mock

from plog.records.batch import Compression
from plog.wire.header import RequestHeader, encode_request
from plog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from plog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from plog.wire.single_produce import decode_single_produce
from plogd.apis import dispatch
from plogd.apis.dispatch import CloseConnection
from plogd.log import log as log_module
from plogd.log.segment.file_records import FileRegion
from plogd.ports import Later
from tests.fuzz.target import Target
from tests.fuzz.targets.batches import correct
from tests.helpers.log.log_data import client_batch
from tests.helpers.sim.sim_broker import SimBroker, create_topic

_INPUTS_PER_BROKER = 300
_TAG_BYTES = 3
"""The tags at the end of a flexible request."""
_FIRST_FLEXIBLE_PRODUCE = 9
_WAIT_MS = 50
_TOPIC = "t"


class _Pair:
    """A broker, and its twin without short paths; recreated from time to time."""

    def __init__(self) -> None:
        self.usual, self.twin = _broker(), _broker()
        self.inputs = 0

    def send(self, frame: bytes) -> None:
        """Let both brokers handle a frame, and compare everything that follows."""
        self.inputs += 1
        expected = _outcome(self.usual, frame)
        with _no_short_paths():
            assert _outcome(self.twin, frame) == expected
            _settle(self.twin)
        _settle(self.usual)
        assert _state(self.usual) == _state(self.twin)


class _Pairs:
    def __init__(self) -> None:
        self._pair: _Pair | None = None

    def get(self) -> _Pair:
        if self._pair is None or self._pair.inputs >= _INPUTS_PER_BROKER:
            self._pair = _Pair()
        return self._pair

    def forget(self) -> None:
        self._pair = None


_PAIRS = _Pairs()


def fuzz(data: bytes) -> None:
    """Send a frame to both brokers."""
    if len(data) < 3:
        return
    frame = bytearray(b"\0" + bytes([data[0] & 1]) + data[3:])
    if data[0] & 3 == 2:
        _correct_batch(frame)
    try:
        _PAIRS.get().send(bytes(frame))
    except BaseException:
        _PAIRS.forget()
        raise


def _broker() -> SimBroker:
    broker = SimBroker(num_partitions=1, auto_create_topics_enable=False).start()
    create_topic(broker, _TOPIC, 2)
    broker.produce(_TOPIC, b"a", b"b")
    broker.settle()
    return broker


def _no_short_paths() -> ExitStack:
    stack = ExitStack()
    for module, name in (
        (dispatch, "decode_single_produce"),
        (dispatch, "decode_single_fetch"),
        (log_module, "check_produced_batch"),
    ):
        stack.enter_context(mock.patch.object(module, name, return_value=None))
    return stack


def _outcome(broker: SimBroker, frame: bytes) -> tuple[object, ...]:
    """Return the response, the reason to close the connection, or None for no response."""
    try:
        result = broker.dispatch_frame(frame).result
    except CloseConnection as error:
        return ("close", str(error))
    _settle(broker)
    if isinstance(result, Later):
        if not result.done:  # A long poll, or acks that the records do not satisfy yet.
            result.cancel()
            return ("waits",)
        values: list[tuple[object, ...]] = []
        result.then(
            lambda parts: values.append(("response", _joined(parts))),
            lambda error: values.append(("close", str(error))),
        )
        return values[0]
    return ("response", _joined(result))


def _joined(parts: Any) -> bytes | None:
    if parts is None:
        return None
    pieces = []
    for part in parts:
        if isinstance(part, FileRegion):
            pieces.append(part.read())
            part.close()
        else:
            pieces.append(bytes(part))
    return b"".join(pieces)


def _settle(broker: SimBroker) -> None:
    broker.settle()
    broker.ports.advance(_WAIT_MS)
    broker.settle()


def _state(broker: SimBroker) -> list[object]:
    """Return what the logs contain, and the bugs that the broker has reported."""
    logs = [broker.log(_TOPIC, number) for number in range(2)]
    return [
        *((log.log_end_offset, log.durable_end_offset, log.size_bytes) for log in logs),
        [repr(error) for _, error in broker.bugs],
    ]


def _correct_batch(frame: bytearray) -> None:
    """Correct the batch of a frame that the short path accepts."""
    single = decode_single_produce(memoryview(bytes(frame)))
    if single is not None:
        tags = _TAG_BYTES if single.api_version >= _FIRST_FLEXIBLE_PRODUCE else 0
        end = len(frame) - tags
        frame[end - len(single.records) : end] = correct(bytes(single.records))


def _seeds() -> Iterator[bytes]:
    for version in (7, 8, 9, 11, 12, 13):
        topic_id = _broker().broker.cache.topic(_TOPIC).topic_id
        for acks in (1, -1, 0):
            data = PartitionProduceData(index=0, records=bytes(client_batch(2)))
            topic = TopicProduceData(name=_TOPIC, topic_id=topic_id, partition_data=[data])
            request = ProduceRequest(acks=acks, timeout_ms=9, topic_data=[topic])
            header = RequestHeader(0, version, 7, "client")
            yield b"\2" + encode_request(header, request)[4:]
    for batch in (
        client_batch(3, compression=Compression.GZIP),
        client_batch(producer_id=4, producer_epoch=0, base_sequence=0),
        client_batch(key=None),
        client_batch(is_control=True),
    ):
        data = PartitionProduceData(index=1, records=bytes(batch))
        topic = TopicProduceData(name=_TOPIC, partition_data=[data])
        request = ProduceRequest(acks=1, timeout_ms=9, topic_data=[topic])
        yield b"\2" + encode_request(RequestHeader(0, 9, 7, "client"), request)[4:]
    for version in (4, 6, 7, 10, 11, 12):
        for offset in (0, 1, 99):
            wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            fetch = FetchRequest(
                max_wait_ms=9,
                min_bytes=1,
                topics=[FetchTopic(topic=_TOPIC, partitions=[wanted])],
                session_epoch=0 if offset == 1 else -1,
            )
            yield b"\1" + encode_request(RequestHeader(1, version, 7, None), fetch)[4:]


TARGET = Target(name="short_paths", fuzz=fuzz, seeds=_seeds)
