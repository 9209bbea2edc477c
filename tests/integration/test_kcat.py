"""kcat in and out: keys, headers, codecs, offsets, times, empty and large values, topic listings.

Needs no Python client, so this file also runs on Debian's oldest packages (`make test-oldest`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.kcat import Kcat

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def test_lines_come_out_as_they_went_in(kcat: Kcat, topic: str) -> None:
    lines = b"".join(b"line %d\n" % i for i in range(1000))
    kcat.produce(topic, lines)
    assert kcat.consume(topic) == lines


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_passes_through_as_the_client_compressed_it(
    kcat: Kcat, topic: str, codec: str, broker: BrokerProcess
) -> None:
    lines = b"".join(b"a compressible line, number %d\n" % i for i in range(500))
    kcat.produce(topic, lines, "-z", codec, "-X", "linger.ms=100")
    assert kcat.consume(topic) == lines
    segment = broker.data_dir / f"{topic}-0" / "00000000000000000000.log"
    # librdkafka sends a batch plain where compressing, say a single line, does not make it smaller.
    assert _codecs(segment.read_bytes()) - {"none"} == {codec} - {"none"}


def _codecs(segment: bytes) -> set[str]:
    """The codec of each batch: three bits of the attributes, 22 bytes into it."""
    codecs, position = set(), 0
    while position < len(segment):
        codecs.add(CODECS[segment[position + 22] & 0x07])
        position += 12 + int.from_bytes(segment[position + 8 : position + 12], "big")
    return codecs


def test_keys_and_empty_values_and_tombstones(kcat: Kcat, topic: str) -> None:
    kcat.produce(topic, b"k1=v1\nk2=\n=v3\n", "-K=")
    kcat.produce(topic, b"k4=\n", "-K=", "-Z")
    out = kcat.consume(topic, "-f", "%k:%K:%S|%s\n")
    assert out == b"k1:2:2|v1\nk2:2:0|\n:0:2|v3\nk4:2:-1|\n"


def test_headers(kcat: Kcat, topic: str) -> None:
    kcat.produce(topic, b"v\n", "-H", "trace=00-4bf92f35", "-H", "empty=")
    out = kcat.consume(topic, "-f", "%h %s\n")
    assert out == b"trace=00-4bf92f35,empty= v\n"


def test_offsets_count_from_the_start_and_from_the_end(kcat: Kcat, topic: str) -> None:
    kcat.produce(topic, b"".join(b"%d\n" % i for i in range(10)))
    assert kcat.consume(topic, "-o", "7") == b"7\n8\n9\n"
    assert kcat.consume(topic, "-o", "-2") == b"8\n9\n"
    assert kcat.consume(topic, "-o", "beginning", "-c", "2") == b"0\n1\n"
    assert kcat.consume(topic, "-o", "end") == b""


def test_a_time_finds_its_offset(kcat: Kcat, topic: str) -> None:
    kcat.produce(topic, b"first\n")
    first_ms = int(kcat.consume(topic, "-f", "%T"))
    kcat.produce(topic, b"second\n")
    assert _offset_at(kcat, topic, first_ms) == 0
    assert _offset_at(kcat, topic, first_ms + 3_600_000) == -1  # librdkafka's name for the end.
    assert kcat.consume(topic, "-o", f"s@{first_ms}") == b"first\nsecond\n"


def _offset_at(kcat: Kcat, topic: str, timestamp_ms: int) -> int:
    out = kcat.run("-Q", "-t", f"{topic}:0:{timestamp_ms}").decode()
    found = re.search(r"offset (-?\d+)", out)
    assert found is not None, out
    return int(found[1])


def test_a_value_of_one_megabyte(kcat: Kcat, topic: str) -> None:
    value = bytes(range(256)) * 3906
    # One message: no byte of the value is its end.
    kcat.produce(topic, value, "-D", "no such delimiter", "-X", "message.max.bytes=2000000")
    assert kcat.consume(topic, "-D", "") == value


def test_partitions_are_kept_apart(kcat: Kcat, new_topic: Callable[[], str]) -> None:
    topics = [new_topic(), new_topic()]
    for topic in topics:
        kcat.produce(topic, topic.encode() + b"\n", "-p", "0")
    for topic in topics:
        assert kcat.consume(topic, "-p", "0") == topic.encode() + b"\n"


def test_the_listing_names_broker_topic_and_leader(kcat: Kcat, topic: str) -> None:
    kcat.produce(topic, b"x\n")
    listing = json.loads(kcat.run("-L", "-J", "-t", topic))
    [broker] = listing["brokers"]
    assert broker["name"] == kcat.bootstrap_servers
    [listed] = listing["topics"]
    assert listed["topic"] == topic
    [partition] = listed["partitions"]
    assert partition["leader"] == broker["id"]
    assert [replica["id"] for replica in partition["replicas"]] == [broker["id"]]
    assert [replica["id"] for replica in partition["isrs"]] == [broker["id"]]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement(kcat: Kcat, topic: str, acks: str) -> None:
    kcat.produce(topic, b"warm\n")  # With acks=0 nobody would hear that the topic is new.
    kcat.produce(topic, b"up\n", "-X", f"acks={acks}")
    assert kcat.consume(topic, "-c", "2") == b"warm\nup\n"


def test_an_idempotent_producer(kcat: Kcat, topic: str) -> None:
    lines = b"".join(b"%d\n" % i for i in range(5000))
    kcat.produce(topic, lines, "-X", "enable.idempotence=true", "-X", "batch.num.messages=50")
    assert kcat.consume(topic) == lines
