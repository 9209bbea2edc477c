"""Log directories of a real Apache Kafka, adopted with `plog storage import` and then used by plog.

Kafka 4.3 in KRaft mode and Kafka 3.9 with ZooKeeper each write one small directory for all tests.
kafka-python writes the old message formats, which neither broker writes any more.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from plog.cli.main import run_tool
from plog.wire.api_keys import ApiKey
from plogd.apis.api_table import HANDLERS
from plogd.os_files import OsFiles
from plogd.testing.broker_process import BrokerProcess
from plogd.tools.storage.command import configure
from tests.corpus import legacy
from tests.helpers.programs.confluent import (
    admin,
    admin_client,
    consumer,
    create_topic,
    next_message,
    produce,
    read,
)
from tests.helpers.programs.confluent import confluent_kafka as kafka
from tests.helpers.programs.kafka_data import KafkaData
from tests.helpers.programs.kafka_server import KafkaServer, ZooKeeperServer, kafka_jars
from tests.helpers.programs.kafka_tools import KafkaTools

NODE_ID = 7
NEW = 10
GROUP = "adopted-group"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COMMITTED = {("gzip", 0): 42, ("lz4", 1): 17}
MESSAGES = 200
OFFSETS_PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Written:
    """A directory that Kafka wrote, its topics, and the error of an import while Kafka ran."""

    log_dir: Path
    topic_ids: dict[str, str]
    error_while_running: str
    zookeeper: str | None = None


def plog(*arguments: str | Path) -> int:
    """Run a `plog` command and return its exit code."""
    tool, *rest = arguments
    assert tool == "storage"
    return run_tool("storage", configure, [str(argument) for argument in rest])


def _values(topic: str) -> list[bytes]:
    """Return values so large and random that each codec fills more than one segment."""
    chance = random.Random(topic)
    return [b"%s-%d-" % (topic.encode(), i) + chance.randbytes(12_000) for i in range(MESSAGES)]


def _set_largest_message(servers: str) -> None:
    """Set a dynamic setting of the broker."""
    entry = admin.ConfigEntry(
        "message.max.bytes", "2345678", incremental_operation=admin.AlterConfigOpType.SET
    )
    resource = admin.ConfigResource(
        admin.ConfigResource.Type.BROKER, str(NODE_ID), incremental_configs=[entry]
    )
    client = admin_client(servers)
    client.incremental_alter_configs([resource])[resource].result(60)


def _fill(servers: str) -> None:
    """Create a topic for each codec, with its own settings and records, and commit offsets."""
    while admin_client(servers).list_topics(timeout=60).controller_id < 0:
        pass  # In ZooKeeper mode the controller is elected shortly after the broker starts.
    for codec in CODECS:
        create_topic(servers, codec, 2, segment_bytes=1 << 20, retention_ms=987654321)
        messages = [
            {
                "key": b"k%d" % (i % 7),
                "value": value,
                "partition": i % 2,
                "headers": {"n": b"%d" % i},
            }
            for i, value in enumerate(_values(codec))
        ]
        config = {"compression.type": codec, "enable.idempotence": True, "linger.ms": 5}
        assert set(produce(servers, codec, messages, config)) == {None}
    create_topic(servers, "compacted", 1, cleanup_policy="compact")
    _set_largest_message(servers)
    offsets = [kafka.TopicPartition(*key, offset) for key, offset in COMMITTED.items()]
    with consumer(servers, group_id=GROUP) as client:
        client.commit(offsets=offsets, asynchronous=False)


def _write(server: KafkaServer, tmp_path: Path) -> Written:
    server.start()
    try:
        _fill(server.bootstrap_servers)
        with redirect_stderr(io.StringIO()) as stderr:
            early = plog("storage", "import", server.log_dir, "--log-dirs", tmp_path / "too-early")
        assert early == 1
    finally:
        server.stop()
    metadata = [(x.parent.name, x.read_text()) for x in server.log_dir.glob("*/partition.metadata")]
    return Written(
        log_dir=server.log_dir,
        topic_ids={name.rpartition("-")[0]: text.split()[-1] for name, text in metadata},
        error_while_running=stderr.getvalue(),
    )


@pytest.fixture(scope="module")
def kafka_4(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """The directory of Kafka 4.3 in KRaft mode after a clean stop."""
    directory = tmp_path_factory.mktemp("kafka-4")
    settings = {
        "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
        "metadata.log.max.record.bytes.between.snapshots": "1",
    }
    server = KafkaServer(kafka_jars("4.3.1"), directory, node_id=NODE_ID, settings=settings)
    written = _write(server, directory)
    assert [*server.log_dir.glob("__cluster_metadata-0/*.checkpoint")], "no snapshot to read"
    return written


@pytest.fixture(scope="module")
def kafka_3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    """The directory of Kafka 3.9 in ZooKeeper mode; its ZooKeeper is still running."""
    directory = tmp_path_factory.mktemp("kafka-3")
    jars = kafka_jars("3.9.1")
    zookeeper = ZooKeeperServer(jars, directory / "zookeeper")
    zookeeper.start()
    try:
        settings = {"offsets.topic.num.partitions": str(OFFSETS_PARTITIONS)}
        server = KafkaServer(
            jars,
            directory / "kafka",
            zookeeper=zookeeper.hosts,
            node_id=NODE_ID,
            settings=settings,
        )
        written = _write(server, directory)
        yield Written(
            written.log_dir, written.topic_ids, written.error_while_running, zookeeper.hosts
        )
    finally:
        zookeeper.stop()


def _digest(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def _read_in_order(servers: str, topic: str, partitions: int = 1) -> list[Any]:
    return sorted(read(servers, topic, partitions), key=lambda m: (m.partition(), m.offset()))


def _committed(servers: str) -> dict[tuple[str, int], int]:
    """Return the group's committed offsets, from its log if the broker does not serve groups."""
    if any(row.api_key == ApiKey.OFFSET_FETCH for row in HANDLERS):
        with consumer(servers, group_id=GROUP) as client:
            found = client.committed([kafka.TopicPartition(*key) for key in COMMITTED], timeout=60)
            return {(x.topic, x.partition): x.offset for x in found}
    committed = {}
    for message in _read_in_order(servers, "__consumer_offsets", OFFSETS_PARTITIONS):
        version, length = struct.unpack_from(">hh", message.key())
        if version <= 1 and message.key()[4 : 4 + length] == GROUP.encode():
            (size,) = struct.unpack_from(">h", message.key(), 4 + length)
            topic = message.key()[6 + length : 6 + length + size].decode()
            (partition,) = struct.unpack_from(">i", message.key(), 6 + length + size)
            (committed[topic, partition],) = struct.unpack_from(">q", message.value(), 2)
    return committed


def _assert_has_kafkas_data(broker: BrokerProcess, topic_ids: dict[str, str]) -> None:
    """Check that the broker has all records, settings, topic ids and committed offsets."""
    servers = broker.bootstrap_servers
    for codec in CODECS:
        found = _read_in_order(servers, codec, 2)
        expected = _values(codec)
        assert [m.value() for m in found] == expected[0::2] + expected[1::2]
        assert [m.offset() for m in found] == 2 * list(range(MESSAGES // 2))
        assert found[3].headers() == [("n", b"6")]
    client = admin_client(servers)
    resource = admin.ConfigResource(admin.ConfigResource.Type.TOPIC, "gzip")
    config = client.describe_configs([resource])[resource].result()
    assert config["retention.ms"].value == "987654321"
    assert config["segment.bytes"].value == str(1 << 20)
    resource = admin.ConfigResource(admin.ConfigResource.Type.BROKER, str(NODE_ID))
    broker_config = client.describe_configs([resource])[resource].result()
    assert broker_config["message.max.bytes"].value == "2345678"
    for topic, topic_id in topic_ids.items():
        metadata = broker.data_dir / f"{topic}-0" / "partition.metadata"
        assert metadata.read_text().split()[-1] == topic_id
    committed = _committed(servers)
    assert committed == COMMITTED
    for (topic, partition), offset in committed.items():
        with consumer(servers) as reader:
            reader.assign([kafka.TopicPartition(topic, partition, offset)])
            message = next_message(reader)
            assert (message.offset(), message.value()) == (
                offset,
                _values(topic)[2 * offset + partition],
            )


def _assert_appends(broker: BrokerProcess, kafka_tools: KafkaTools) -> None:
    """Check that new records follow the old ones, and that Kafka's dump tool accepts both."""
    for codec in CODECS:
        more = [{"value": b"new-%d" % i, "partition": 0} for i in range(NEW)]
        config = {"compression.type": codec, "enable.idempotence": True}
        assert set(produce(broker.bootstrap_servers, codec, more, config)) == {None}
    found = read(broker.bootstrap_servers, "zstd", offset=MESSAGES // 2)
    assert [m.value() for m in found] == [b"new-%d" % i for i in range(NEW)]
    broker.restart()
    assert len(read(broker.bootstrap_servers, "gzip")) == MESSAGES // 2 + NEW
    broker.stop()
    segments = [segment for c in CODECS for segment in sorted(broker.data_dir.glob(f"{c}-0/*.log"))]
    assert len(segments) > len(CODECS), "expected several segments per topic"
    _assert_kafka_reads(kafka_tools, segments, len(CODECS) * (MESSAGES // 2 + NEW))
    epochs = (broker.data_dir / "gzip-0/leader-epoch-checkpoint").read_text().splitlines()[2:]
    numbers = [int(line.split()[0]) for line in epochs]
    assert len(numbers) == 2
    assert numbers == sorted(set(numbers)), "plog's leader epochs must be above Kafka's"


def _assert_kafka_reads(kafka_tools: KafkaTools, segments: list[Path], records: int) -> None:
    files = ",".join(map(str, segments))
    dump = kafka_tools.run("DumpLogSegments", "--deep-iteration", "--files", files)
    assert dump.count("| offset: ") == records
    assert "isvalid: false" not in dump
    indexes = [x.with_suffix(suffix) for x in segments for suffix in (".index", ".timeindex")]
    present = ",".join(str(index) for index in indexes)
    checked = kafka_tools.run("DumpLogSegments", "--index-sanity-check", "--files", present)
    assert checked.count("passed sanity check") + checked.count("is empty.") == len(indexes)


def test_import_is_refused_while_kafka_runs(kafka_4: Written, kafka_3: Written) -> None:
    for written in (kafka_4, kafka_3):
        assert "is in use: a broker is running there" in written.error_while_running


def test_directory_of_kafka_4_is_adopted_by_copy(
    kafka_4: Written,
    start_on: Callable[..., BrokerProcess],
    kafka_tools: KafkaTools,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = _digest(kafka_4.log_dir)
    assert (
        plog("storage", "import", kafka_4.log_dir, "--log-dirs", tmp_path / "data", "--json") == 0
    )
    report = json.loads(capsys.readouterr().out)
    assert report["topics"] == {**dict.fromkeys(CODECS, 2), "compacted": 1, "__consumer_offsets": 4}
    assert report["clean"]
    assert report["next_producer_id"] >= 1000
    assert _digest(kafka_4.log_dir) == before, "the import changed the original directory"
    broker = start_on(tmp_path)
    _assert_has_kafkas_data(broker, kafka_4.topic_ids)
    _assert_appends(broker, kafka_tools)


def test_directory_of_kafka_3_in_zookeeper_mode_is_adopted(
    kafka_3: Written,
    start_on: Callable[..., BrokerProcess],
    kafka_tools: KafkaTools,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = _digest(kafka_3.log_dir)
    source = ("storage", "import", kafka_3.log_dir, "--json")
    asking = ("--zookeeper", str(kafka_3.zookeeper))
    assert plog(*source, *asking, "--log-dirs", tmp_path / "data") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["topics"] == {**dict.fromkeys(CODECS, 2), "compacted": 1, "__consumer_offsets": 4}
    assert report["next_producer_id"] >= 1000
    assert _digest(kafka_3.log_dir) == before, "the import changed the original directory"
    broker = start_on(tmp_path)
    _assert_has_kafkas_data(broker, kafka_3.topic_ids)
    _assert_appends(broker, kafka_tools)


def test_import_without_zookeeper_lacks_only_topic_settings(
    kafka_3: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = ("storage", "import", kafka_3.log_dir, "--json")
    assert plog(*source, "--log-dirs", tmp_path / "data", "--dry-run") == 0
    report = capsys.readouterr()
    assert "topic settings are stored in ZooKeeper and were not read" in report.err
    assert set(json.loads(report.out)["topics"]) == set(kafka_3.topic_ids)
    assert not (tmp_path / "data").exists()


def test_directory_adopted_in_place_returns_to_kafka_with_new_records(
    kafka_4: Written,
    start_on: Callable[..., BrokerProcess],
    kafka_tools: KafkaTools,
    tmp_path: Path,
) -> None:
    """Follow docs/adoption.md, "Migrate back to Kafka", which restores Kafka's own metadata log."""
    data = tmp_path / "data"
    shutil.copytree(kafka_4.log_dir, data)
    assert plog("storage", "import", data, "--in-place") == 0
    assert plog("storage", "import", data, "--in-place") == 1, "a second import must be refused"
    # So small that the segments of Kafka also reserve space, which Kafka must not find.
    broker = start_on(tmp_path, **{"plog.log.preallocate.bytes": "65536"})
    _assert_has_kafkas_data(broker, kafka_4.topic_ids)
    _assert_appends(broker, kafka_tools)
    (data / "__cluster_metadata-0").rename(tmp_path / "plog-metadata")
    (data / "kafka-metadata-before-plog").rename(data / "__cluster_metadata-0")
    again = KafkaServer(
        kafka_jars("4.3.1"),
        tmp_path / "kafka",
        node_id=NODE_ID,
        settings={"log.dirs": str(data), "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS)},
    )
    again.log_dir = data
    again.start()
    try:
        found = read(again.bootstrap_servers, "lz4")
        assert [m.value() for m in found[-NEW:]] == [b"new-%d" % i for i in range(NEW)]
        assert len(found) == MESSAGES // 2 + NEW
        produce(again.bootstrap_servers, "lz4", [{"value": b"kafka again", "partition": 0}])
        found = read(again.bootstrap_servers, "lz4")
        assert (found[-1].value(), found[-1].offset()) == (b"kafka again", MESSAGES // 2 + NEW)
    finally:
        again.stop()


def test_old_message_formats_are_converted_and_readable_by_kafka(
    start_on: Callable[..., BrokerProcess],
    kafka_tools: KafkaTools,
    tmp_path: Path,
) -> None:
    """kafka-python wrote the messages; offsets start at 1000, as Kafka 0.10 may leave them."""
    data = KafkaData(OsFiles(), str(tmp_path / "kafka"), node_id=NODE_ID, kraft=False)
    for name in legacy.names():
        data.log(name, 0, (legacy.BASE_OFFSET, legacy.load(name)), end_offset=1005)
    data.stop()
    assert plog("storage", "import", data.path, "--log-dirs", tmp_path / "data") == 0
    broker = start_on(tmp_path, **{"log.retention.ms": "-1"})
    for name in legacy.names():
        found = read(broker.bootstrap_servers, name, offset=legacy.BASE_OFFSET)
        expected = legacy.records(int(name.split("-")[1]))
        assert [(m.offset(), m.key(), m.value()) for m in found] == [
            (record.offset, record.key, record.value) for record in expected
        ]
        if "magic-1" in name:
            assert [m.timestamp()[1] for m in found] == [record.timestamp for record in expected]
        produce(broker.bootstrap_servers, name, [{"value": b"new", "partition": 0}])
    broker.stop()
    segments = [*broker.data_dir.glob("magic-*-0/*.log")]
    _assert_kafka_reads(kafka_tools, segments, len(legacy.names()) * 6)
