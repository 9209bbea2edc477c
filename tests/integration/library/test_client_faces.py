"""The three faces of the client library against plog and Apache Kafka, plain and over TLS.

The same tests run with every face. Where a test needs facts that the face itself cannot show, it
uses other tools.
"""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from plog.client.errors import (
    ClosedError,
    ConfigError,
    NoOffsetForPartition,
    RecordTooLarge,
    SerializationFailed,
)
from plog.errors import KafkaError, TopicAlreadyExists, UnknownTopicOrPartition
from plog.types import TopicPartition
from tests.helpers.client.faces import NAMES, open_face
from tests.helpers.eventually import eventually
from tests.integration.client_servers import (
    KINDS,
    WITH_TLS,
    Server,
    server_of,
)

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def pairs() -> list[Any]:
    """Return each face with each broker; less informative pairs are marked as long."""
    quick = {*((name, "plog") for name in NAMES), ("blocking", "kafka")}
    return [
        pytest.param(
            (face, kind),
            id=f"{face}-{kind}",
            marks=[] if (face, kind) in quick else [pytest.mark.long],
        )
        for face in NAMES
        for kind in (*KINDS, *WITH_TLS)
    ]


@pytest.fixture(params=pairs())
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Return the names of a face and of a broker."""
    names: tuple[str, str] = request.param
    return names


@pytest.fixture
def server(request: pytest.FixtureRequest, pair: tuple[str, str]) -> Server:
    return server_of(request, pair[1])


@pytest.fixture
def face(pair: tuple[str, str]) -> Iterator[Any]:
    with open_face(pair[0]) as opened:
        yield opened


@pytest.fixture
def topic(face: Any, server: Server) -> str:
    name = f"faces-{uuid.uuid4().hex[:12]}"
    # Some tests write records with old timestamps, which retention must not delete meanwhile.
    configs = {"retention.ms": -1}
    face.admin(**server.settings).create_topic(name, partitions=3, configs=configs)
    return name


def test_awaited_send_returns_metadata_of_the_record(face: Any, server: Server, topic: str) -> None:
    producer = face.producer(**server.settings)
    sent = producer.send_and_wait(topic, b"v", partition=2)
    assert (sent.topic_partition, sent.offset) == (TopicPartition(topic, 2), 0)
    producer.flush(timeout_s=60)


def test_records_can_be_polled_one_by_one(face: Any, server: Server, topic: str) -> None:
    producer = face.producer(**server.settings)
    for value in (b"a", b"b"):
        producer.send_and_wait(topic, value, partition=0)
    client = face.consumer(topic, auto_offset_reset="earliest", **server.settings)._client
    ways = {
        "blocking": lambda: next(client),
        "aio": lambda: anext(client),
        "twisted": lambda: client.poll(60),
    }
    assert [face.wait(ways[face.name]).value for _ in range(2)] == [b"a", b"b"]


def test_group_rereads_uncommitted_records(face: Any, server: Server, topic: str) -> None:
    producer = face.producer(**server.settings)
    for value in (b"a", b"b"):
        producer.send_and_wait(topic, value, partition=0)
    consumer = face.consumer(
        topic,
        group_id=topic,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **server.settings,
    )
    first, _ = consumer.take(2)
    consumer.commit({first.topic_partition: first.offset + 1})
    consumer.seek_to_committed()
    assert consumer.take(1)[0].value == b"b"


def test_record_is_read_as_it_was_sent(face: Any, server: Server, topic: str) -> None:
    producer = face.producer(**server.settings)
    sent = producer.send(
        topic, b"value", b"key", partition=1, timestamp=1_700_000_000_123, headers={"h": b"1"}
    )
    metadata = sent.result(60)
    assert (metadata.topic, metadata.partition, metadata.offset) == (topic, 1, 0)
    consumer = face.consumer(topic, auto_offset_reset="earliest", **server.settings)
    [record] = consumer.take(1)
    assert (record.topic, record.partition, record.offset) == (topic, 1, 0)
    assert (record.key, record.value, record.timestamp) == (b"key", b"value", 1_700_000_000_123)
    assert list(record.headers) == [("h", b"1")]


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_read_back(face: Any, server: Server, topic: str, codec: str) -> None:
    producer = face.producer(compression_type=codec, linger_ms=20, **server.settings)
    values = [f"line {number} of some text".encode() * 3 for number in range(500)]
    for value in values:
        producer.send(topic, value, partition=0)
    producer.flush()
    consumer = face.consumer(topic, auto_offset_reset="earliest", **server.settings)
    assert [record.value for record in consumer.take(len(values))] == values


def test_records_of_a_key_stay_in_order(face: Any, server: Server, topic: str) -> None:
    producer = face.producer(batch_size=2000, **server.settings)
    sent = [
        producer.send(topic, b"%d" % number, b"key %d" % (number % 7)) for number in range(2000)
    ]
    partitions = [future.result(60).partition for future in sent]
    assert len({partitions[number] for number in range(0, 2000, 7)}) == 1
    consumer = face.consumer(topic, auto_offset_reset="earliest", **server.settings)
    by_key: dict[bytes, list[int]] = {}
    for record in consumer.take(2000):
        by_key.setdefault(record.key, []).append(int(record.value))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_consumer_seeks_and_queries_offsets(face: Any, server: Server, topic: str) -> None:
    producer = face.producer(**server.settings)
    first = TopicPartition(topic, 0)
    for number in range(10):
        producer.send(topic, b"%d" % number, partition=0, timestamp=1_700_000_000_000 + number)
    producer.flush()
    consumer = face.consumer(**server.settings)
    consumer.assign([first])
    assert consumer.beginning_offsets([first]) == {first: 0}
    assert consumer.end_offsets([first]) == {first: 10}
    assert consumer.offsets_for_times({first: 1_700_000_000_004})[first].offset == 4
    consumer.seek(first, 7)
    assert [record.offset for record in consumer.take(3)] == [7, 8, 9]
    assert consumer.position(first) == 10
    consumer.seek_to_time(1_700_000_000_002)
    assert consumer.take(1)[0].offset == 2
    consumer.seek_to_beginning()
    assert consumer.take(1)[0].offset == 0
    consumer.seek_to_end()
    assert consumer.position(first) == 10
    assert consumer.poll(0.2) is None
    assert consumer.lag(first) == 0


def test_paused_partition_returns_no_records(face: Any, server: Server, topic: str) -> None:
    producer = face.producer(**server.settings)
    for partition in (0, 1):
        producer.send(topic, b"%d" % partition, partition=partition)
    producer.flush()
    consumer = face.consumer(auto_offset_reset="earliest", **server.settings)
    consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
    consumer.pause([TopicPartition(topic, 0)])
    assert [record.partition for record in consumer.take(1)] == [1]
    assert consumer.poll(0.3) is None
    assert consumer.paused == {TopicPartition(topic, 0)}
    consumer.resume([TopicPartition(topic, 0)])
    assert [record.partition for record in consumer.take(1)] == [0]


def test_group_resumes_from_its_committed_offsets(face: Any, server: Server, topic: str) -> None:
    producer = face.producer(**server.settings)
    for number in range(6):
        producer.send(topic, b"%d" % number, partition=0)
    producer.flush()
    group = {"group_id": f"group of {topic}", "auto_offset_reset": "earliest"}
    consumer = face.consumer(topic, enable_auto_commit=False, **group, **server.settings)
    assert [record.offset for record in consumer.take(4)] == [0, 1, 2, 3]
    consumer.commit()
    partition = TopicPartition(topic, 0)
    assert consumer.committed([partition])[partition].offset == 4
    consumer.close()
    again = face.consumer(topic, **group, **server.settings)
    assert [record.offset for record in again.take(2)] == [4, 5]


def test_members_share_the_partitions(face: Any, server: Server, topic: str) -> None:
    group = {"group_id": f"group of {topic}", "auto_offset_reset": "earliest"}
    members = [face.consumer(topic, **group, **server.settings) for _ in range(2)]
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        for member in members:
            member.consume(1, timeout_s=0.1)
        shares = [member.assignment for member in members]
        if all(shares) and not shares[0] & shares[1]:
            break
    assert sorted(partition.partition for share in shares for partition in share) == [0, 1, 2]


def test_listener_receives_assigned_and_revoked_partitions(
    face: Any, server: Server, topic: str
) -> None:
    calls: list[tuple[str, int]] = []

    class Listener:
        def on_partitions_assigned(self, partitions: Any) -> None:
            calls.append(("assigned", len(partitions)))

        def on_partitions_revoked(self, partitions: Any) -> None:
            calls.append(("revoked", len(partitions)))

    consumer = face.consumer(group_id=f"group of {topic}", **server.settings)
    consumer.subscribe([topic], listener=Listener())
    while not calls:
        consumer.consume(1, timeout_s=0.2)
    consumer.close()
    assert calls == [("assigned", 3), ("revoked", 3)]


def test_pattern_subscribes_to_existing_and_new_topics(
    face: Any, server: Server, topic: str
) -> None:
    consumer = face.consumer(
        pattern=f"{topic}.*",
        auto_offset_reset="earliest",
        metadata_max_age_ms=500,
        **server.settings,
    )
    producer = face.producer(**server.settings)
    producer.send(topic, b"old").result(60)
    assert consumer.take(1)[0].topic == topic
    face.admin(**server.settings).create_topic(f"{topic}-new", partitions=1)
    producer.send(f"{topic}-new", b"new").result(60)
    assert consumer.take(1)[0].topic == f"{topic}-new"
    consumer.unsubscribe()
    assert consumer.subscription == frozenset()
    consumer.assign([TopicPartition(topic, 0)])


def test_serializers_and_deserializers_are_applied(face: Any, server: Server, topic: str) -> None:
    producer = face.producer(
        value_serializer=lambda value: repr(value).encode(),
        key_serializer=str.encode,
        **server.settings,
    )
    producer.send(topic, {"a": 1}, "key").result(60)
    consumer = face.consumer(
        topic,
        auto_offset_reset="earliest",
        value_deserializer=lambda data: eval(data),  # noqa: S307 - of our own making
        key_deserializer=bytes.decode,
        **server.settings,
    )
    [record] = consumer.take(1)
    assert (record.key, record.value) == ("key", {"a": 1})


def test_admin_creates_describes_and_deletes_a_topic(face: Any, server: Server, topic: str) -> None:
    admin = face.admin(**server.settings)
    assert topic in admin.list_topics()
    assert len(admin.describe_topic(topic).partitions) == 3
    with pytest.raises(TopicAlreadyExists, match=topic):
        admin.create_topic(topic)
    assert len(admin.describe_cluster().brokers) == 1
    admin.delete_topic(topic)
    # Kafka deletes it asynchronously.
    eventually(lambda: topic not in admin.list_topics(), "end of the topic")
    with pytest.raises(UnknownTopicOrPartition):
        admin.describe_topic(topic)


@pytest.mark.parametrize("pair", [(name, "plog-tls") for name in NAMES], ids=str)
def test_record_is_sent_and_read_over_tls(face: Any, server: Server) -> None:
    """The long tests run all other tests of this file over TLS."""
    topic = f"tls-{uuid.uuid4().hex[:12]}"
    face.admin(**server.settings).create_topic(topic, partitions=1)
    face.producer(**server.settings).send(topic, bytes(300_000)).result(60)
    consumer = face.consumer(topic, auto_offset_reset="earliest", **server.settings)
    assert len(consumer.take(1)[0].value) == 300_000


@pytest.mark.parametrize(
    "pair",
    [*((name, "plog-tls") for name in NAMES), ("blocking", "plog"), ("aio", "plog")],
    ids=str,
)
@pytest.mark.parametrize("size", [10, 10_000])
def test_unacknowledged_records_are_written_before_close_returns(
    face: Any, server: Server, topic: str, size: int
) -> None:
    """Nothing would send them again, so `close` must not discard unwritten bytes."""
    producer = face.producer(acks=0, **server.settings)
    sent = [producer.send(topic, bytes(size), partition=0) for _ in range(300)]
    producer.close()
    assert {future.result(60).offset for future in sent} == {-1}
    consumer = face.consumer(topic, auto_offset_reset="earliest", **server.settings)
    assert len(consumer.take(300)) == 300


# -- errors -----------------------------------------------------------------------------------


def test_missing_topic_is_named_in_the_error(face: Any, server: Server) -> None:
    with pytest.raises(KafkaError, match="no such topic"):
        face.producer(max_block_ms=1000, **server.settings).send("no such topic", b"x").result(60)


def test_too_large_record_is_refused_immediately(face: Any, server: Server, topic: str) -> None:
    producer = face.producer(max_request_size=10_000, **server.settings)
    with pytest.raises(RecordTooLarge, match=r"max\.request\.size"):
        producer.send(topic, bytes(20_000)).result(60)
    producer.send(topic, b"the next one is fine").result(60)


def test_value_that_is_not_bytes_needs_a_serializer(face: Any, server: Server, topic: str) -> None:
    producer = face.producer(**server.settings)
    with pytest.raises(SerializationFailed, match="value_serializer"):
        producer.send(topic, "text").result(60)


def test_serializer_error_names_topic_and_exception(face: Any, server: Server, topic: str) -> None:
    producer = face.producer(value_serializer=lambda _: 1 / 0, **server.settings)
    with pytest.raises(SerializationFailed, match=f"{topic}.*ZeroDivisionError"):
        producer.send(topic, b"x").result(60)


def test_missing_offset_is_an_error_without_reset_policy(
    face: Any, server: Server, topic: str
) -> None:
    consumer = face.consumer(
        topic, group_id=f"group of {topic}", auto_offset_reset="none", **server.settings
    )
    with pytest.raises(NoOffsetForPartition, match=topic):
        consumer.take(1)


def test_closed_client_raises_closed_error(face: Any, server: Server, topic: str) -> None:
    producer = face.producer(**server.settings)
    producer.send(topic, b"x").result(60)
    producer.close()
    with pytest.raises(ClosedError, match="closed"):
        producer.send(topic, b"y").result(60)


@pytest.mark.parametrize("pair", [(name, "") for name in NAMES], ids=str)
def test_invalid_setting_is_named_in_the_error(face: Any) -> None:
    with pytest.raises(ConfigError, match=r"linger_mss.*linger.ms"):
        face.producer(bootstrap_servers="localhost:9092", linger_mss=5)


@pytest.mark.parametrize("pair", [("blocking", "plog"), ("blocking", "plog-tls")], ids=str)
def test_global_reactor_is_not_imported(server: Server, topic: str) -> None:
    """The blocking and the asyncio face must leave it to the application."""
    program = f"""
import asyncio, sys
import plog, plog.aio
settings = {server.settings!r}
start = {{"auto_offset_reset": "earliest", **settings}}
with plog.Producer(**settings) as producer:
    producer.send({topic!r}, b"x").result(60)
with plog.Consumer({topic!r}, group_id="g {topic}", **start) as consumer:
    assert consumer.consume(1, timeout_s=30)
with plog.Admin(**settings) as admin:
    admin.list_topics()
async def main():
    async with plog.aio.Producer(**settings) as producer:
        await (await producer.send({topic!r}, b"x"))
    async with plog.aio.Consumer({topic!r}, **start) as consumer:
        assert await consumer.consume(1, timeout_s=30)
asyncio.run(main())
print("twisted.internet.reactor" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.stdout.strip() == b"False", done.stderr.decode()


@pytest.mark.parametrize("pair", [pytest.param(("blocking", "plog"), id="blocking-plog")])
def test_program_that_exits_without_close_loses_no_records(
    face: Any, server: Server, topic: str
) -> None:
    """At exit, records are sent, the group is left, and the last record is not committed."""
    program = f"""
import plog
settings = {server.settings!r}
producer = plog.Producer(linger_ms=60_000, **settings)
producer.send({topic!r}, b"a")
producer.flush()
producer.send({topic!r}, b"b")
for _ in plog.Consumer({topic!r}, group_id={topic!r}, auto_offset_reset="earliest", **settings):
    1 / 0
"""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", program], capture_output=True, check=False
    )
    assert b"ZeroDivisionError" in done.stderr, done.stderr.decode()
    assert b"ResourceWarning: <plog.Consumer at " in done.stderr, done.stderr.decode()
    admin = face.admin(**server.settings)
    assert admin.describe_group(topic).members == ()
    assert not any(admin.group_offsets(topic).values())
    heir = face.consumer(topic, auto_offset_reset="earliest", **server.settings)
    assert {record.value for record in heir.take(2)} == {b"a", b"b"}
