"""Lists of records, which producers accept without a handle for each record."""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Any

import pytest

from plog.client.producer.accumulator import Accumulator
from plog.client.producer.interceptors import ProducerInterceptor
from plog.client.producer.partition_queue import PartitionQueue
from plog.client.producer.producer_batch import SendHandle, size_of_record
from plog.errors import InvalidTimestamp, MessageTooLarge
from plog.records.batch import HEADER_SIZE
from plog.records.codec import NO_OFFSET, RecordFields
from tests.unit.client.producer.producer_site import TOPIC, ProducerSite, ready

MAX_BYTES = 5_000


class NoInterceptor(ProducerInterceptor):
    """An interceptor that changes nothing."""


def record(value: bytes, key: bytes | None = None, timestamp: int = 1_000) -> RecordFields:
    return NO_OFFSET, timestamp, key, value, ()


def accumulator(seed: int = 0, **options: Any) -> Accumulator[SendHandle]:
    arguments: dict[str, Any] = {
        "batch_size": 1_000,
        "buffer_memory": 1 << 20,
        "largest_bytes": MAX_BYTES,
        "linger_s": 0,
        "now_s": lambda: 0.0,
        "random": Random(seed).random,
        "wake": lambda: None,
    }
    made: Accumulator[SendHandle] = Accumulator(SendHandle, **arguments | options)
    made.update_topic(TOPIC, 3, range(3))
    return made


def batches(of: Accumulator[SendHandle]) -> dict[int, list[list[RecordFields]]]:
    def contents(queue: PartitionQueue) -> list[list[RecordFields]]:
        return [list(batch.records) for batch in queue.batches]

    return {queue.topic_partition.partition: contents(queue) for queue in of.waiting}


def random_records(random: Random, keys: tuple[bytes | None, ...]) -> list[RecordFields]:
    largest = random.choice([10, 300, 3_000])
    return [
        record(b"%d:" % number + bytes(random.randrange(largest)), random.choice(keys))
        for number in range(random.randrange(1, 200))
    ]


@pytest.mark.parametrize("partition", [None, 1])
@pytest.mark.parametrize("seed", range(30))
def test_list_fills_the_same_batches_as_single_records(seed: int, partition: int | None) -> None:
    random = Random(seed)
    records = random_records(random, (None,))
    batch_size = random.choice([1, 1_000, 1 << 16])
    one, all_ = (accumulator(seed, batch_size=batch_size) for _ in range(2))
    for _, timestamp, key, value, headers in records:
        size = size_of_record((NO_OFFSET, timestamp, key, value, headers))
        one.append(TOPIC, partition, timestamp, key, value, headers, size)
    cut = random.randrange(len(records))
    assert not all_.append_all(TOPIC, partition, records[:cut], print)
    assert not all_.append_all(TOPIC, partition, records[cut:], print)
    assert batches(all_) == batches(one)
    assert all_.used_bytes == one.used_bytes


@pytest.mark.parametrize("ignore_keys", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_records_of_a_partition_keep_their_order(seed: int, ignore_keys: bool) -> None:
    records = random_records(Random(seed), (b"a", b"b", b"c", b"d"))
    site = accumulator(ignore_keys=ignore_keys)
    assert not site.append_all(TOPIC, None, records, print)
    topic = site.topic(TOPIC)
    assert topic is not None
    expected = defaultdict(list)
    for fields in records:
        assert fields[2] is not None
        expected[topic.partition_of(fields[2])].append(fields)
    found = {
        number: [fields for batch in contents for fields in batch]
        for number, contents in batches(site).items()
    }
    if ignore_keys:
        for values in found.values():
            assert values == [fields for fields in records if fields in values]
    else:
        assert found == expected


def test_records_without_memory_are_returned_in_order() -> None:
    records = [record(b"%03d" % number + bytes(400)) for number in range(60)]
    site = accumulator(buffer_memory=10_000)
    rest = list(site.append_all(TOPIC, 0, records, print))
    added = [fields for batch in batches(site)[0] for fields in batch]
    assert added + rest == records
    assert 0 < len(rest) < len(records)


@pytest.mark.parametrize(("topic", "partition"), [("other", None), ("other", 0), (TOPIC, 3)])
def test_records_of_unknown_topic_or_partition_are_returned(
    topic: str, partition: int | None
) -> None:
    records = [record(b"v")] * 2
    assert list(accumulator().append_all(topic, partition, records, print)) == records


def test_list_with_a_record_that_is_too_large_is_returned() -> None:
    records = [record(b"v"), record(bytes(MAX_BYTES))]
    site = accumulator()
    assert list(site.append_all(TOPIC, 0, records, print)) == records
    assert not site.waiting


def test_closed_accumulator_returns_the_records() -> None:
    site = accumulator()
    site.close()
    records = [record(b"v")]
    assert list(site.append_all(TOPIC, 0, records, print)) == records
    assert list(site.append_all(TOPIC, None, records, print)) == records


def test_full_batch_of_a_list_is_sent() -> None:
    wakes: list[None] = []
    site = accumulator(linger_s=60, wake=lambda: wakes.append(None))
    site.append_all(TOPIC, 0, [record(bytes(200))], print)
    site.begin_check()
    site.end_check(60)
    wakes.clear()
    site.append_all(TOPIC, 0, [record(bytes(200))] * 6, print)
    assert len(wakes) == 1


# -- the producer -----------------------------------------------------------------------------


def send_all(site: ProducerSite, *values: bytes, **options: Any) -> tuple[int, list[Exception]]:
    """Return the number of records that must be sent one by one, and the errors of the others."""
    errors: list[Exception] = []
    now_ms = int(site.sim.wall_ms())
    records = [record(value, timestamp=options.get("timestamp", now_ms)) for value in values]
    rest = site.core.send_all(TOPIC, None, records, errors.append)
    site.flush()
    return len(rest), errors


def test_list_is_written() -> None:
    site = ready()
    values = [b"%d" % number for number in range(100)]
    assert send_all(site, *values) == (0, [])
    assert site.values() == values


def test_failure_is_reported_once_for_a_batch() -> None:
    site = ready(topic={"message_timestamp_after_max_ms": "1000"})
    later_ms = site.sim.wall_ms() + 3_600_000
    rest, [error] = send_all(site, b"a", b"b", timestamp=later_ms)
    assert rest == 0
    assert isinstance(error, InvalidTimestamp)
    assert site.values() == []


def test_failure_of_a_split_batch_is_reported() -> None:
    site = ready(topic={"max_message_bytes": "600"})
    values = [b"%03d" % number * 30 for number in range(40)]
    rest, errors = send_all(site, *values[:20], bytes(2_000), *values[20:])
    assert rest == 0
    assert [type(error) for error in errors] == [MessageTooLarge]
    assert site.values() == values


@pytest.mark.parametrize(
    "options",
    [
        {"core": {"value_serializer": bytes}},
        {"core": {"interceptors": [NoInterceptor()]}},
        {"core": {"partitioner": lambda *_: 0}},
        {"plog_audit_enable": True},
    ],
    ids=["serializer", "interceptor", "partitioner", "audit"],
)
def test_producer_that_handles_each_record_returns_the_list(options: dict[str, Any]) -> None:
    site = ready(**options)
    assert send_all(site, b"a", b"b") == (2, [])
    assert site.values() == []


def test_batch_is_as_large_as_its_records() -> None:
    """Otherwise, it could exceed max.request.size, or be sent half full."""
    site = accumulator(batch_size=1 << 16)
    records = [record(bytes(100), b"key")] * 30
    site.append_all(TOPIC, 0, records, print)
    batch = site.take(next(iter(site.waiting)))
    assert batch.size_bytes == HEADER_SIZE + sum(map(size_of_record, records))


@pytest.mark.parametrize("partition", [-1, "0", 1.0])
def test_invalid_partition_is_rejected(partition: Any) -> None:
    site = ready()
    with pytest.raises(ValueError, match="partition"):
        site.core.send_all(TOPIC, partition, [record(b"v")], print)


def test_failing_callback_does_not_keep_the_batch(caplog: pytest.LogCaptureFixture) -> None:
    def fail(error: Exception) -> None:
        raise ZeroDivisionError("a bug") from error

    site = ready(topic={"message_timestamp_after_max_ms": "1000"})
    later_ms = int(site.sim.wall_ms()) + 3_600_000
    site.core.send_all(TOPIC, None, [record(b"v", timestamp=later_ms)], fail)
    site.flush()
    assert "a callback for failed records failed" in caplog.text
    assert site.core.metrics()["buffer-available-bytes"] == site.settings.buffer_memory
