"""ProducerCore against a complete broker, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from plog.client.errors import (
    BufferExhausted,
    ClosedError,
    DeliveryTimedOut,
    RecordTooLarge,
    SerializationFailed,
)
from plog.client.values import RecordMetadata
from plog.errors import (
    InvalidTimestamp,
    InvalidTopicException,
    MessageTooLarge,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from plog.wire.messages.metadata import MetadataRequest
from tests.unit.client.producer.producer_site import TOPIC, ProducerSite, ready

KIB = 1024


def deaf(**options: Any) -> ProducerSite:
    """Return a site that has sent a record and whose broker then stops responding."""
    site = ready(**options)
    site.sent(b"first")
    site.flush()
    site.sim.deaf = True
    return site


# -- outcomes of records --------------------------------------------------------------------------


def test_record_waits_when_topic_is_unknown() -> None:
    assert ProducerSite().core.send(TOPIC, b"v") is None


def test_record_is_written_with_key_headers_and_timestamp() -> None:
    site = ready()
    [handle] = site.sent(b"v", key=b"k", headers=[("a", b"1"), ("b", None)], timestamp=1_000)
    assert not handle.done()
    site.flush()
    assert handle.metadata() == RecordMetadata(TOPIC, 0, 0, 1_000, 1, 1)
    [record] = site.records()
    assert record == (0, 1_000, b"k", b"v", (("a", b"1"), ("b", None)))


def test_record_without_timestamp_gets_time_of_send() -> None:
    site = ready()
    now_ms = site.sim.wall_ms()
    [handle] = site.sent(b"v")
    site.flush()
    assert handle.metadata().timestamp == now_ms


def test_metadata_has_log_append_time_when_topic_uses_it() -> None:
    site = ready(topic={"message_timestamp_type": "LogAppendTime"})
    handles = site.sent(b"v", b"w", timestamp=1_000)
    site.flush()
    assert [x.metadata().timestamp for x in handles] == [site.records()[0].timestamp] * 2
    assert handles[0].metadata().timestamp > 1_000


def test_null_key_and_value_have_size_minus_one() -> None:
    site = ready()
    handle = site.core.send(TOPIC)
    assert handle is not None
    site.flush()
    assert handle.metadata()[-2:] == (-1, -1)
    assert site.records()[0][2:4] == (None, None)


def test_headers_may_be_a_dict_and_bytes_any_buffer() -> None:
    site = ready()
    site.core.send(TOPIC, bytearray(b"v"), memoryview(b"k"), headers={"a": b"1"})
    site.flush()
    assert site.records()[0][2:] == (b"k", b"v", (("a", b"1"),))


def test_offsets_continue_across_batches() -> None:
    site = ready(batch_size=100)
    handles = site.sent(*[b"x" * 20] * 10)
    site.flush()
    assert [x.metadata().offset for x in handles] == list(range(10))
    assert len(site.produce_requests()) > 1


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_round_trips(codec: str) -> None:
    site = ready(compression_type=codec)
    values = [b"value %d" % number for number in range(200)]
    site.sent(*values)
    site.flush()
    assert site.values() == values


def test_compression_level_is_applied() -> None:
    sizes = {}
    for level in (1, 9):
        site = ready(compression_type="gzip", compression_gzip_level=level)
        site.sent(*[b"%d %d" % (n * n, n) for n in range(300)])
        site.flush()
        sizes[level] = site.core.metrics()["batch-size-avg"]
    assert sizes[9] < sizes[1]


# -- invalid arguments ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "error"),
    [
        ({"value": "text"}, SerializationFailed),
        ({"value": b"v", "key": 7}, SerializationFailed),
        ({"value": b"v", "partition": -1}, ValueError),
        ({"value": b"v", "timestamp": -1}, ValueError),
        ({"value": b"v", "timestamp": 1.5}, ValueError),
        ({"value": b"v", "timestamp": 1 << 63}, ValueError),
        ({"value": b"v", "headers": [("a", "text")]}, ValueError),
        ({"value": b"v", "headers": [(b"a", b"1")]}, ValueError),
        ({"value": b"v", "headers": [("a",)]}, ValueError),
        ({"value": b"v", "headers": ["ab"]}, ValueError),
    ],
)
def test_invalid_record_is_refused_by_send(record: dict[str, Any], error: type[Exception]) -> None:
    site = ready()
    with pytest.raises(error):
        site.core.send(TOPIC, **record)
    site.flush()
    assert site.records() == []


def test_error_names_type_of_value_that_is_not_bytes() -> None:
    with pytest.raises(SerializationFailed, match=f"value of a record for topic {TOPIC} is dict"):
        ready().core.send(TOPIC, {"a": 1})


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"max_request_size": 1000}, "max.request.size=1000"),
        ({"buffer_memory": 1000}, "buffer.memory=1000"),
    ],
)
def test_record_larger_than_any_request_is_refused(options: dict[str, int], name: str) -> None:
    site = ready(batch_size=500, **options)
    with pytest.raises(RecordTooLarge, match=name):
        site.core.send(TOPIC, b"x" * 1000)
    [handle] = site.sent(b"x" * 900)
    site.flush()
    assert handle.error() is None


def test_record_larger_than_batch_size_is_sent_alone() -> None:
    site = ready(batch_size=100)
    site.sent(b"a", b"x" * 1000, b"b")
    site.flush()
    assert [len(x or b"") for x in site.values()] == [1, 1000, 1]


def test_missing_topic_fails_after_max_block_ms() -> None:
    site = ProducerSite(max_block_ms=2_000)
    before_s = site.sim.now_s()
    with pytest.raises(UnknownTopicOrPartition, match="topic nowhere"):
        site.run(site.core.send_soon("nowhere", b"v"))
    assert 2 <= site.sim.now_s() - before_s < 2.5


def test_missing_partition_fails_after_max_block_ms() -> None:
    site = ProducerSite(max_block_ms=1_000, partitions=2)
    with pytest.raises(
        UnknownTopicOrPartition, match=r"partition 2 of topic .* the topic has 2 partitions"
    ):
        site.run(site.core.send_soon(TOPIC, b"v", partition=2))


def test_topic_created_during_wait_is_used() -> None:
    site = ProducerSite()
    site.sim.call_later(3, lambda: site.sim.create_soon("late"))
    handle = site.run(site.core.send_soon("late", b"v"))
    site.flush()
    assert handle.metadata().offset == 0


@pytest.mark.parametrize("name", ["", "no/topic", "x" * 250, "x" * 40_000, "\ud800", b"t"])
def test_invalid_topic_name_fails_immediately(name: str) -> None:
    site = ProducerSite()
    before_s = site.sim.now_s()
    with pytest.raises(InvalidTopicException):
        site.run(site.core.send_soon(name, b"v"))
    assert site.sim.now_s() - before_s < 1


def test_idle_topic_is_forgotten_until_next_use() -> None:
    site = ready(metadata_max_age_ms=10_000, metadata_max_idle_ms=30_000)
    site.sent(b"v")
    site.sim.advance(60_000)
    site.sim.requests.clear()
    site.sim.advance(60_000)
    asked = [x for x in site.sim.requests if isinstance(x, MetadataRequest)]
    assert {len(request.topics or ()) for request in asked} == {0}
    handle = site.run(site.core.send_soon(TOPIC, b"w"))
    site.flush()
    assert handle.metadata().offset == 1


# -- partitions -----------------------------------------------------------------------------------


def test_key_maps_to_same_partition_as_in_kafka() -> None:
    site = ready(partitions=12)
    [handle] = site.sent(b"v", key=b"foobar")
    site.flush()
    assert handle.metadata().partition == 6


def test_records_without_key_stick_until_batch_is_full() -> None:
    site = ready(partitions=6, batch_size=500)
    handles = site.sent(*[b"x" * 89] * 40)  # A hundred bytes each: four are a batch.
    site.flush()
    partitions = [x.metadata().partition for x in handles]
    runs = [partitions[n : n + 4] for n in range(0, 40, 4)]
    assert all(len(set(run)) == 1 for run in runs)
    assert len(set(partitions)) > 1


def test_partitioner_can_ignore_keys() -> None:
    site = ready(partitions=12, partitioner_ignore_keys=True)
    handles = [site.sent(b"v", key=b"%d" % number)[0] for number in range(20)]
    site.flush()
    assert len({x.metadata().partition for x in handles}) == 1


def test_round_robin_uses_partitions_in_rotation() -> None:
    site = ready(partitions=3, partitioner_class="RoundRobinPartitioner")
    handles = site.sent(*[b"v"] * 6, key=b"k")
    site.flush()
    assert [x.metadata().partition for x in handles] == [0, 1, 2, 0, 1, 2]


def test_partitioner_may_be_a_function() -> None:
    asked = []

    def choose(topic: str, key: Any, value: Any, count: int, available: Any) -> int:
        asked.append((topic, key, value, count, tuple(available)))
        return 2

    site = ready(partitions=3, core={"partitioner": choose})
    [handle] = site.sent(b"v", key=b"k")
    site.sent(b"w", partition=1)
    site.flush()
    assert handle.metadata().partition == 2
    assert asked == [(TOPIC, b"k", b"v", 3, (0, 1, 2))]


def test_partitioner_cannot_choose_missing_partition() -> None:
    site = ready(core={"partitioner": lambda *_: 1})
    with pytest.raises(ValueError, match=r"partition 1 .*: topic page-views has 1 partitions"):
        site.core.send(TOPIC, b"v")


# -- batches and memory ---------------------------------------------------------------------------


def test_records_linger_for_linger_ms() -> None:
    site = ready(linger_ms=100)
    site.sent(b"a")
    site.sim.advance(90)
    assert site.produce_requests() == []
    site.sent(b"b")
    site.sim.advance(50)
    [request] = site.produce_requests()
    assert site.values() == [b"a", b"b"]
    assert request.acks == -1


def test_full_batch_does_not_linger() -> None:
    site = ready(linger_ms=10_000, batch_size=200)
    site.sent(b"x" * 150, b"y" * 150)
    site.sim.advance(100)
    assert site.values() == [b"x" * 150]


def test_flush_waits_only_for_earlier_records() -> None:
    site = ready(linger_ms=60_000)
    first = site.sent(b"a")

    async def flush_and_send() -> None:
        flushed = site.core.flush()
        site.sim.call_later(0.001, lambda: site.sent(b"b"))
        await flushed

    before_s = site.sim.now_s()
    site.run(flush_and_send())
    assert first[0].done()
    assert site.sim.now_s() - before_s < 1


def test_flush_times_out() -> None:
    site = deaf()
    [handle] = site.sent(b"a")
    with pytest.raises(RequestTimedOut, match=r"a flush \(1 batches are still pending\): timed"):
        site.run(site.core.flush(2.0))
    assert not handle.done()
    site.sim.deaf = False
    site.run(site.core.flush(60.0))
    assert handle.metadata().offset == 1


def test_flush_without_records_returns_immediately() -> None:
    site = ready()
    site.flush()
    ProducerSite().flush()


def test_send_waits_for_acknowledgement_when_buffer_is_full() -> None:
    site = ready(buffer_memory=4_000, batch_size=1_000, linger_ms=60_000)
    taken = 0
    while site.core.send(TOPIC, b"x" * 400) is not None:
        taken += 1
    assert 4 <= taken <= 10
    handle = site.run(
        site.core.send_soon(TOPIC, b"y" * 400)
    )  # While a send waits, no batch lingers.
    site.flush()
    assert handle.metadata().offset == taken
    assert site.core.metrics()["buffer-available-bytes"] == 4_000


def test_send_fails_after_max_block_ms_when_buffer_stays_full() -> None:
    site = ready(buffer_memory=2_000, batch_size=1_000, max_block_ms=500)
    site.sim.deaf = True
    while site.core.send(TOPIC, b"x" * 400) is not None:
        pass
    with pytest.raises(BufferExhausted, match=r"buffer\.memory=2000 stayed full"):
        site.run(site.core.send_soon(TOPIC, b"x"))
    assert site.core.metrics()["buffer-exhausted-total"] == 1


def test_batch_too_large_for_topic_is_split() -> None:
    site = ready(topic={"max_message_bytes": "600"}, batch_size=16 * KIB)
    values = [b"%03d" % number * 30 for number in range(40)]
    delivered: list[int] = []
    handles = [
        site.core.send(
            TOPIC, value, on_delivery=lambda m, e: delivered.append(m.offset if m else -2)
        )
        for value in values
    ]
    site.flush()
    assert site.values() == values
    assert [x.metadata().offset for x in handles if x] == list(range(40))
    assert delivered == list(range(40))
    assert site.core.metrics()["batch-split-total"] > 1


def test_record_too_large_for_topic_fails_alone() -> None:
    site = ready(topic={"max_message_bytes": "600"})
    small, large, other = site.sent(b"a", b"x" * 1000, b"b")
    site.flush()
    assert site.values() == [b"a", b"b"]
    assert isinstance(large.error(), MessageTooLarge)
    assert (small.metadata().offset, other.metadata().offset) == (0, 1)


def test_invalid_record_fails_its_batch_with_its_own_error() -> None:
    site = ready(topic={"message_timestamp_after_max_ms": "1000"})
    bad = site.sim.wall_ms() + 3_600_000
    good = site.sent(b"a")[0]
    wrong = site.sent(b"b", timestamp=bad)[0]
    site.flush()
    assert isinstance(wrong.error(), InvalidTimestamp)
    assert good.error() is not None
    after = site.sent(b"c")[0]
    site.flush()
    assert after.error() is None
    assert site.values() == [b"c"]


# -- closing and timeouts -------------------------------------------------------------------------


def test_close_sends_pending_records() -> None:
    site = ready(linger_ms=60_000)
    [handle] = site.sent(b"v")
    site.run(site.core.close())
    assert handle.metadata().offset == 0
    with pytest.raises(ClosedError):
        site.core.send(TOPIC, b"w")
    with pytest.raises(ClosedError):
        site.run(site.core.send_soon(TOPIC, b"w"))
    site.run(site.core.close())


def test_closed_producer_refuses_records() -> None:
    site = ready()
    site.run(site.core.close())
    with pytest.raises(ClosedError):
        site.run(site.core.partitions_for(TOPIC))
    with pytest.raises(ClosedError):
        site.core.send(TOPIC, b"v")


def test_close_fails_pending_records_after_timeout(caplog: pytest.LogCaptureFixture) -> None:
    site = deaf()
    [handle] = site.sent(b"v")
    site.run(site.core.close(3))
    assert "closed a producer before 1 records were acknowledged (page-views: 1)" in caplog.messages
    assert isinstance(handle.error(), ClosedError)
    assert "it may be in the log" in str(handle.error())
    site.run(site.cluster.close())
    site.sim.advance(600_000)


def test_cancelled_close_fails_pending_records() -> None:
    site = deaf()
    [handle] = site.sent(b"v")
    task = site.sim.spawn(site.core.close(), "closing")
    site.sim.advance(1_000)
    task.cancel()
    assert isinstance(handle.error(), ClosedError)


def test_close_fails_sends_waiting_for_memory() -> None:
    site = ready(buffer_memory=2_000, batch_size=1_000)
    site.sim.deaf = True
    while site.core.send(TOPIC, b"x" * 400) is not None:
        pass
    site.sim.call_later(1, lambda: site.sim.spawn(site.core.close(0), "closing"))
    with pytest.raises(ClosedError):
        site.run(site.core.send_soon(TOPIC, b"x"))


def test_unacknowledged_record_fails_after_delivery_timeout() -> None:
    site = deaf(delivery_timeout_ms=5_000, request_timeout_ms=2_000)
    [handle] = site.sent(b"v")
    site.sim.advance(4_900)
    assert not handle.done()
    site.sim.advance(200)
    assert isinstance(handle.error(), DeliveryTimedOut)
    assert "it may be in the log (last attempt: " in str(handle.error())


def test_timeout_says_not_written_when_record_was_never_sent() -> None:
    site = ready(delivery_timeout_ms=5_000, request_timeout_ms=2_000)
    site.sim.refuses = True
    site.sim.drop_all()
    [handle] = site.sent(b"v")
    site.sim.advance(5_100)
    assert isinstance(handle.error(), DeliveryTimedOut)
    assert "it was not written" in str(handle.error())


def test_close_fails_sends_waiting_for_topic() -> None:
    site = ProducerSite(max_block_ms=60_000)
    site.sim.call_later(1, lambda: site.sim.spawn(site.core.close(0), "closing"))
    with pytest.raises(ClosedError, match="before it found topic nowhere"):
        site.run(site.core.send_soon("nowhere", b"x"))
    assert site.sim.now_s() < 10
