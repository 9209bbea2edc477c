"""Producing and fetching compared with Apache Kafka: the same responses and the same errors."""

from __future__ import annotations

import time
from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.wire.api_keys import ApiKey
from plog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from plog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from plog.wire.messages.init_producer_id import InitProducerIdRequest
from plog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from plog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.helpers.side_by_side import Pair, Request, Side
from tests.integration.kafka_comparison.versions import lowest_and_highest

NOW_MS = 1_700_000_000_000
NO_ID = b"\0" * 16
_FIRST_PRODUCE_WITH_IDS = _FIRST_FETCH_WITH_IDS = 13


def create(pair: Pair, name: str, partitions: int = 1, **fields: Any) -> None:
    """Create a topic on both sides; each side remembers the id that it assigned."""
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    for side in (pair.ours, pair.kafka):
        [created] = side.ask(CreateTopicsRequest(topics=[topic], **fields), 7)["topics"]
        assert created["error_code"] == 0, created
        side.told[name] = created["topic_id"].bytes
        for number in range(partitions):
            _wait_until_led(side, name, number)


def _wait_until_led(side: Side, name: str, number: int) -> None:
    """Wait until the partition has a leader: Kafka lists a topic before it serves it."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        [topic] = side.ask(list_offsets(name, -1, number), 4)["topics"]
        if topic["partitions"][0]["error_code"] == 0:
            return
    raise AssertionError(f"{side.name} does not lead {name}-{number}")


def batch(*values: bytes | None, now_ms: int = NOW_MS, **fields: Any) -> bytes:
    """Return a batch of records one second apart."""
    records = [
        Record(offset=i, timestamp=now_ms + 1000 * i, key=b"k", value=value)
        for i, value in enumerate(values)
    ]
    return build_batch(records, **fields)


def produce(topic: str, *batches: bytes, acks: int = -1, partition: int = 0) -> Any:
    """Return a request that appends one batch to each partition from `partition` on."""
    data = [
        PartitionProduceData(index=partition + i, records=records)
        for i, records in enumerate(batches)
    ]

    def request(side: Side) -> ProduceRequest:
        topic_id = side.told.get(topic, b"\7" * 16)
        named = TopicProduceData(name=topic, topic_id=topic_id, partition_data=data)
        return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[named])

    return request


def fetch(topic: str, offset: int, partition: int = 0, **fields: Any) -> Request:
    """Return a request for one partition, outside a session."""
    inner = {name: fields.pop(name) for name in ("current_leader_epoch",) if name in fields}
    wanted = FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20, **inner
    )

    def request(side: Side) -> FetchRequest:
        topic_id = side.told.get(topic, b"\7" * 16)
        named = FetchTopic(topic=topic, topic_id=topic_id, partitions=[wanted])
        return FetchRequest(**({"max_wait_ms": 0, "topics": [named]} | fields))

    return request


# -- produce -------------------------------------------------------------------------------------


@lowest_and_highest(ApiKey.PRODUCE)
def test_batches_are_appended(pair: Pair, version: int) -> None:
    name = f"produce-{version}"
    create(pair, name, 2)
    pair.same(produce(name, batch(b"a", b"b"), batch(b"c")), version)
    pair.same(produce(name, batch(b"d")), version)


@lowest_and_highest(ApiKey.PRODUCE)
def test_produce_to_a_missing_topic_or_partition_is_refused(pair: Pair, version: int) -> None:
    pair.same(produce("nowhere", batch(b"a")), version)
    create(pair, f"narrow-{version}")
    pair.same(produce(f"narrow-{version}", batch(b"a"), partition=7), version)


@lowest_and_highest(ApiKey.PRODUCE)
@pytest.mark.parametrize("damage", ["checksum", "size", "empty"])
def test_damaged_batches_are_refused(pair: Pair, version: int, damage: str) -> None:
    name = f"damaged-{damage}-{version}"
    create(pair, name)
    data = bytearray(batch(b"a"))
    match damage:
        case "size":
            data[11] -= 1
        case "checksum":
            data[-1] ^= 1
        case "empty":
            data.clear()
    pair.same(produce(name, bytes(data)), version)
    pair.same(produce(name, batch(b"good")), version)


@lowest_and_highest(ApiKey.PRODUCE)
@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_refused(pair: Pair, version: int, magic: int) -> None:
    """Kafka returns INVALID_RECORD, but plog returns an error that names the format."""
    name = f"magic-{magic}-{version}"
    create(pair, name)
    data = bytearray(batch(b"a"))
    data[16] = magic
    ours, kafkas = pair.ask(produce(name, bytes(data)), version)
    codes = [
        answer["responses"][0]["partition_responses"][0]["error_code"] for answer in (ours, kafkas)
    ]
    assert codes == [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.INVALID_RECORD]


@lowest_and_highest(ApiKey.PRODUCE)
def test_too_large_batch_is_refused(pair: Pair, version: int) -> None:
    name = f"large-{version}"
    create(pair, name)
    pair.same(produce(name, batch(b"x" * (2 << 20))), version)


@lowest_and_highest(ApiKey.PRODUCE)
def test_invalid_acks_is_refused(pair: Pair, version: int) -> None:
    name = f"acks-{version}"
    create(pair, name)
    pair.same(produce(name, batch(b"a"), acks=7), version)


@lowest_and_highest(ApiKey.INIT_PRODUCER_ID)
def test_sequence_numbers_are_checked(pair: Pair, version: int) -> None:
    name = f"produce_with_sequence-{version}"
    create(pair, name)
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    while pair.kafka.ask(request, version)["error_code"] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        pass  # Kafka needs a moment for its first ids.
    for side, answer in zip((pair.ours, pair.kafka), pair.ask(request, version), strict=True):
        assert (answer["error_code"], answer["producer_epoch"]) == (0, 0)
        side.told["producer"] = answer["producer_id"]
    pair.same(request, version)

    def produce_with_sequence(sequence: int, epoch: int = 0) -> Request:
        def request(side: Side) -> Any:
            data = batch(
                b"a",
                producer_id=side.told["producer"],
                producer_epoch=epoch,
                base_sequence=sequence,
            )
            return produce(name, data)(side)

        return request

    for sequence in (0, 1, 1, 0, 5, 2):  # In order, in order, duplicate, duplicate, gap, in order.
        # For a duplicate, Kafka returns the batch's largest timestamp, which clients would take
        # for the time of the append.
        pair.same(produce_with_sequence(sequence), 9, ignoring=["log_append_time"])
    pair.same(produce_with_sequence(0, epoch=1), 9)
    pair.same(produce_with_sequence(3, epoch=0), 9)


# -- fetch ---------------------------------------------------------------------------------------


@lowest_and_highest(ApiKey.FETCH)
def test_records_are_fetched(pair: Pair, version: int) -> None:
    name = f"fetch-{version}"
    create(pair, name)
    pair.same(produce(name, batch(b"a", b"b", b"c")), 9)
    pair.same(produce(name, batch(b"d")), 9)
    for offset in (0, 1, 3, 4):
        pair.same(fetch(name, offset), version)


@lowest_and_highest(ApiKey.FETCH)
def test_fetches_outside_the_log_get_the_same_response(pair: Pair, version: int) -> None:
    name = f"outside-{version}"
    create(pair, name)
    for offset in (0, 1, -1, 1 << 40):
        pair.same(fetch(name, offset), version)


@lowest_and_highest(ApiKey.FETCH)
def test_fetch_of_a_missing_topic_or_partition_is_refused(pair: Pair, version: int) -> None:
    create(pair, f"fetch-narrow-{version}")
    for request in (fetch("nowhere", 0), fetch(f"fetch-narrow-{version}", 0, partition=7)):
        pair.same(request, version, ignoring=["aborted_transactions"])  # An empty list, or null.


@lowest_and_highest(ApiKey.FETCH, lowest=9)
def test_leader_epochs_are_checked(pair: Pair, version: int) -> None:
    name = f"fetch-epochs-{version}"
    create(pair, name)
    pair.same(fetch(name, 0, current_leader_epoch=0), version)
    pair.same(fetch(name, 0, current_leader_epoch=5), version)


@lowest_and_highest(ApiKey.FETCH, lowest=7)
def test_session_returns_only_changes(pair: Pair, version: int) -> None:
    name = f"session-{version}"
    create(pair, name)
    opened = pair.ask(fetch(name, 0, session_epoch=0), version)
    for side, answer in zip((pair.ours, pair.kafka), opened, strict=True):
        assert answer["session_id"] > 0
        side.told["session"] = answer["session_id"]

    def next_fetch(epoch: int) -> Request:
        return lambda side: FetchRequest(
            max_wait_ms=0, session_id=side.told["session"], session_epoch=epoch, topics=[]
        )

    assert pair.same(next_fetch(1), version)["responses"] == []
    pair.same(produce(name, batch(b"a")), 9)
    assert pair.same(next_fetch(2), version)["responses"]
    pair.same(next_fetch(7), version)
    pair.same(FetchRequest(max_wait_ms=0, session_id=1, session_epoch=1, topics=[]), version)


# -- offsets -------------------------------------------------------------------------------------


@lowest_and_highest(ApiKey.LIST_OFFSETS)
@pytest.mark.parametrize(
    "timestamp", [-1, -2, NOW_MS - 1, NOW_MS, NOW_MS + 1, NOW_MS + 1000, NOW_MS + 9000]
)
def test_offsets_are_found_by_time(pair: Pair, version: int, timestamp: int) -> None:
    name = f"times-{version}-{timestamp}"
    create(pair, name)
    pair.same(list_offsets(name, timestamp), version)  # The log is empty.
    pair.same(produce(name, batch(b"a", b"b")), 9)
    pair.same(list_offsets(name, timestamp), version)


@pytest.mark.parametrize(
    ("timestamp", "version"), [(-3, 7), (-3, 11), (-4, 8), (-4, 11), (-5, 9), (-5, 11)]
)
def test_offsets_are_found_by_special_times(pair: Pair, version: int, timestamp: int) -> None:
    """The largest timestamp, the start of the local log, the end of the tiered one."""
    name = f"special-{version}-{timestamp}"
    create(pair, name)
    pair.same(list_offsets(name, timestamp), version)
    pair.same(produce(name, batch(b"a", b"b")), 9)
    pair.same(list_offsets(name, timestamp), version)


@lowest_and_highest(ApiKey.LIST_OFFSETS)
def test_offsets_of_a_missing_topic_or_partition_are_refused(pair: Pair, version: int) -> None:
    pair.same(list_offsets("nowhere", -1), version)


def list_offsets(topic: str, timestamp: int, number: int = 0) -> ListOffsetsRequest:
    """Return a request for one offset of one partition."""
    partition = ListOffsetsPartition(partition_index=number, timestamp=timestamp)
    named = ListOffsetsTopic(name=topic, partitions=[partition])
    return ListOffsetsRequest(replica_id=-1, topics=[named])
