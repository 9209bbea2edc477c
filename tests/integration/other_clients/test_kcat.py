"""Producing and consuming with kcat: keys, headers, codecs, offsets, timestamps, sizes, metadata.

kcat also joins groups, with -G. It sends no admin requests and commits no metadata.

The tests need no Python client, so they also run on Debian's oldest packages (`make test-oldest`).
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Callable
from types import TracebackType

import pytest

import plog
from plog.client.simple import SimpleClient
from plogd.testing.broker_process import BrokerProcess
from tests.helpers.eventually import eventually
from tests.helpers.programs.kcat import TIMEOUT_S, Kcat

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def test_lines_are_read_back_unchanged(kcat: Kcat, topic: str) -> None:
    lines = b"".join(b"line %d\n" % i for i in range(1000))
    kcat.produce(topic, lines)
    assert kcat.consume(topic) == lines


@pytest.mark.parametrize("codec", CODECS)
def test_batches_keep_the_codec_of_the_client(
    kcat: Kcat, topic: str, codec: str, broker: BrokerProcess
) -> None:
    lines = b"".join(b"a compressible line, number %d\n" % i for i in range(500))
    kcat.produce(topic, lines, "-z", codec, "-X", "linger.ms=100")
    assert kcat.consume(topic) == lines
    segment = broker.data_dir / f"{topic}-0" / "00000000000000000000.log"
    # librdkafka sends a batch uncompressed if compression does not shrink it.
    assert _codecs(segment.read_bytes()) - {"none"} == {codec} - {"none"}


def _codecs(segment: bytes) -> set[str]:
    """Return the codec of each batch: three bits of the attributes, at byte 22."""
    codecs, position = set(), 0
    while position < len(segment):
        codecs.add(CODECS[segment[position + 22] & 0x07])
        position += 12 + int.from_bytes(segment[position + 8 : position + 12], "big")
    return codecs


def test_keys_empty_values_and_tombstones_are_read_back(kcat: Kcat, topic: str) -> None:
    kcat.produce(topic, b"k1=v1\nk2=\n=v3\n", "-K=")
    kcat.produce(topic, b"k4=\n", "-K=", "-Z")
    out = kcat.consume(topic, "-f", "%k:%K:%S|%s\n")
    assert out == b"k1:2:2|v1\nk2:2:0|\n:0:2|v3\nk4:2:-1|\n"


def test_headers_are_read_back(kcat: Kcat, topic: str) -> None:
    kcat.produce(topic, b"v\n", "-H", "trace=00-4bf92f35", "-H", "empty=")
    out = kcat.consume(topic, "-f", "%h %s\n")
    assert out == b"trace=00-4bf92f35,empty= v\n"


def test_start_offset_counts_from_the_start_or_the_end(kcat: Kcat, topic: str) -> None:
    kcat.produce(topic, b"".join(b"%d\n" % i for i in range(10)))
    assert kcat.consume(topic, "-o", "7") == b"7\n8\n9\n"
    assert kcat.consume(topic, "-o", "-2") == b"8\n9\n"
    assert kcat.consume(topic, "-o", "beginning", "-c", "2") == b"0\n1\n"
    assert kcat.consume(topic, "-o", "end") == b""


def test_offset_is_found_by_timestamp(kcat: Kcat, topic: str) -> None:
    kcat.produce(topic, b"first\n")
    first_ms = int(kcat.consume(topic, "-f", "%T"))
    kcat.produce(topic, b"second\n")
    assert _offset_at(kcat, topic, first_ms) == 0
    assert _offset_at(kcat, topic, first_ms + 3_600_000) == -1  # librdkafka's constant for the end.
    assert kcat.consume(topic, "-o", f"s@{first_ms}") == b"first\nsecond\n"


def _offset_at(kcat: Kcat, topic: str, timestamp_ms: int) -> int:
    out = kcat.run("-Q", "-t", f"{topic}:0:{timestamp_ms}").decode()
    found = re.search(r"offset (-?\d+)", out)
    assert found is not None, out
    return int(found[1])


def test_value_of_one_megabyte_is_read_back(kcat: Kcat, topic: str) -> None:
    value = bytes(range(256)) * 3906
    # One message: the delimiter does not occur in the value.
    kcat.produce(topic, value, "-D", "no such delimiter", "-X", "message.max.bytes=2000000")
    assert kcat.consume(topic, "-D", "") == value


def test_partitions_are_separate(kcat: Kcat, new_topic: Callable[[], str]) -> None:
    topics = [new_topic(), new_topic()]
    for topic in topics:
        kcat.produce(topic, topic.encode() + b"\n", "-p", "0")
    for topic in topics:
        assert kcat.consume(topic, "-p", "0") == topic.encode() + b"\n"


def test_metadata_lists_broker_topic_and_leader(kcat: Kcat, topic: str) -> None:
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
def test_records_are_stored_with_each_acks(kcat: Kcat, topic: str, acks: str) -> None:
    # Create the topic first: with acks=0, the client would not receive the error that it is new.
    kcat.produce(topic, b"warm\n")
    kcat.produce(topic, b"up\n", "-X", f"acks={acks}")
    assert kcat.consume(topic, "-c", "2") == b"warm\nup\n"


def test_idempotent_producer_keeps_the_order(kcat: Kcat, topic: str) -> None:
    lines = b"".join(b"%d\n" % i for i in range(5000))
    kcat.produce(topic, lines, "-X", "enable.idempotence=true", "-X", "batch.num.messages=50")
    assert kcat.consume(topic) == lines


class KcatMember:
    """A kcat process that is a member of a group; leaving its ``with`` block stops it.

    `partitions` are the partitions it owns now; `lines` contains each record that it has read, as
    "partition offset value".
    """

    def __init__(self, kcat: Kcat, group: str, topic: str, *arguments: str) -> None:
        self.partitions: frozenset[int] = frozenset()
        self.lines: list[str] = []
        settings = {
            "auto.commit.interval.ms": "200",
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": "200",
        }
        options = [x for name, value in settings.items() for x in ("-X", f"{name}={value}")]
        command = kcat.command("-G", group, topic, "-u", "-f", "%p %o %s\n", *options, *arguments)
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._threads = [
            threading.Thread(target=read, daemon=True)
            for read in (self._read_messages, self._read_rebalances)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> KcatMember:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait(TIMEOUT_S)
        for thread in self._threads:
            thread.join()
        for stream in self._process.stdout, self._process.stderr:
            assert stream is not None
            stream.close()

    def _read_messages(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip())

    def _read_rebalances(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if " assigned: " in line:
                named = re.findall(r"\[(\d+)\]", line.partition(" assigned: ")[2])
                self.partitions = frozenset(map(int, named))
            elif " revoked: " in line:
                self.partitions = frozenset()


def _create(broker: BrokerProcess, topic: str, partitions: int) -> None:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with SimpleClient(host, int(port)) as client:
        client.create_topic(topic, partitions)


def _produce_four(kcat: Kcat, topic: str, word: str) -> list[str]:
    for partition in range(4):
        kcat.produce(topic, f"{word} {partition}\n".encode(), "-p", str(partition))
    return [f"{word} {partition}" for partition in range(4)]


def _committed(broker: BrokerProcess, group: str) -> list[int]:
    with plog.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        found = admin.group_offsets(group)
    return [offset.offset for offset in found.values() if offset is not None]


def _values(*members: KcatMember) -> list[str]:
    return sorted(line.split(" ", 2)[2] for member in members for line in list(member.lines))


def test_group_of_two_members_rebalances_and_resumes(
    kcat: Kcat, topic: str, broker: BrokerProcess
) -> None:
    _create(broker, topic, 4)
    with KcatMember(kcat, topic, topic) as stays:
        eventually(lambda: len(stays.partitions) == 4, "all partitions")
        with KcatMember(kcat, topic, topic) as leaves:
            eventually(
                lambda: len(stays.partitions) == len(leaves.partitions) == 2, "two partitions each"
            )
            assert stays.partitions | leaves.partitions == set(range(4))
            first = _produce_four(kcat, topic, "first")
            eventually(lambda: _values(stays, leaves) == first, "messages")
            assert {int(line[0]) for line in leaves.lines} == leaves.partitions
            # On a busy machine, a commit during the rebalance can fail, and kcat ignores the error.
            eventually(lambda: _committed(broker, topic) == [1] * 4, "committed offsets")
        eventually(lambda: len(stays.partitions) == 4, "all partitions again")
        second = _produce_four(kcat, topic, "second")
        eventually(lambda: len(_values(stays, leaves)) >= 8, "messages")
        assert _values(stays, leaves) == first + second
        eventually(lambda: _committed(broker, topic) == [2] * 4, "committed offsets")
    third = _produce_four(kcat, topic, "third")
    with KcatMember(kcat, topic, topic) as resumes:
        eventually(lambda: len(resumes.lines) >= 4, "messages")
        assert _values(resumes) == third
