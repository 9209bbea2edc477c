"""Metadata snapshots of a real broker: restarts, kills, damage, and Kafka's tools as readers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from plog.cli.main import run_tool
from plog.records.batch import iter_batches
from plogd.metadata.snapshot_name import SnapshotName, parse_snapshot_name
from plogd.testing.broker_process import BrokerFailed, BrokerProcess
from plogd.tools.metadata.shell import configure
from tests.helpers.programs.confluent import admin_client, create_topic
from tests.helpers.programs.kafka_tools import KafkaTools

SETTINGS = {"metadata.log.max.record.bytes.between.snapshots": "3000"}
TIMEOUT_S = 60
TOPICS = 30
BY_NAME = "/image/topics/byName"


def _change(broker: BrokerProcess, prefix: str) -> set[str]:
    """Create topics, delete every second one, and return the names of the others."""
    names = [f"{prefix}-{number}" for number in range(TOPICS)]
    for number, name in enumerate(names):
        create_topic(broker.bootstrap_servers, name, 1 + number % 3, retention_ms=1000 + number)
    client = admin_client(broker.bootstrap_servers)
    for future in client.delete_topics(names[::2], operation_timeout=TIMEOUT_S).values():
        future.result(TIMEOUT_S)
    return set(names[1::2])


def _topics(broker: BrokerProcess) -> dict[str, int]:
    """Return the topics with their partition counts."""
    found = admin_client(broker.bootstrap_servers).list_topics(timeout=TIMEOUT_S).topics
    return {name: len(topic.partitions) for name, topic in found.items()}


def _directory(broker: BrokerProcess) -> Path:
    return broker.data_dir / "__cluster_metadata-0"


def _snapshots(broker: BrokerProcess) -> list[Path]:
    return sorted(_directory(broker).glob("*.checkpoint"))


def _name(path: Path) -> SnapshotName:
    name = parse_snapshot_name(path.name)
    assert name is not None
    return name


def _shown(path: Path, directory: str, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """Return the names in a directory of `plog metadata-shell`."""
    capsys.readouterr()
    assert run_tool("metadata-shell", configure, ["--snapshot", str(path), "ls", directory]) == 0
    return set(capsys.readouterr().out.split())


@pytest.fixture
def changed(start_broker: Callable[..., BrokerProcess]) -> tuple[BrokerProcess, dict[str, int]]:
    """A stopped broker with snapshots, and its topics; it was also killed and restarted."""
    broker = start_broker(SETTINGS)
    names = _change(broker, "first")
    topics = _topics(broker)
    assert set(topics) == names
    broker.kill()
    broker.restart()
    assert _topics(broker) == topics
    names |= _change(broker, "second")
    topics = _topics(broker)
    assert set(topics) == names
    broker.stop()
    return broker, topics


def test_start_reads_the_newest_snapshot_and_the_records_after_it(
    changed: tuple[BrokerProcess, dict[str, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    broker, topics = changed
    older, newest = _snapshots(broker)
    segments = sorted(path.name for path in _directory(broker).glob("*.log"))
    assert segments[0] == f"{_name(older).end_offset:020}.log"
    assert f"{_name(newest).end_offset:020}.log" in segments
    assert _shown(broker.data_dir, BY_NAME, capsys) == set(topics)
    for _ in range(2):
        broker.restart()
        assert _topics(broker) == topics
        broker.kill()
    log = broker.log_path.read_text()
    assert f"loaded metadata snapshot {newest.name} and " in log
    assert not list(_directory(broker).glob("*.part"))


def test_start_survives_one_damaged_snapshot_and_refuses_two(
    changed: tuple[BrokerProcess, dict[str, int]], tmp_path: Path
) -> None:
    broker, topics = changed
    newest = _snapshots(broker)[-1]
    newest.write_bytes(newest.read_bytes()[:-10])
    broker.restart()
    assert _topics(broker) == topics
    broker.kill()
    assert f"cannot use a metadata snapshot: {newest}: " in broker.log_path.read_text()
    for path in _snapshots(broker):
        path.write_bytes(b"damaged")
    # A copy, because the fixture expects a broker that starts.
    shutil.copytree(broker.data_dir, tmp_path / "data")
    with pytest.raises(BrokerFailed, match="no snapshot can be used") as raised:
        BrokerProcess(tmp_path, SETTINGS).start()
    text = str(raised.value)
    for path in _snapshots(broker):
        assert path.name in text
    assert "restore the files of this directory from a backup" in text
    assert "Traceback" not in text


def test_kafkas_tools_read_the_snapshots_and_the_log(
    changed: tuple[BrokerProcess, dict[str, int]],
    kafka_tools: KafkaTools,
    capsys: pytest.CaptureFixture[str],
) -> None:
    broker, _ = changed
    for path in _snapshots(broker):
        names = _shown(path, BY_NAME, capsys)
        dump = kafka_tools.run("DumpLogSegments", "--cluster-metadata-decoder", "--files", path)
        assert f"Snapshot end offset: {_name(path).end_offset}, epoch: {_name(path).epoch}" in dump
        assert "SnapshotHeader" in dump
        assert "SnapshotFooter" in dump
        assert "isvalid: false" not in dump
        assert dump.count('"type":"TOPIC_RECORD"') == len(names)
        assert dump.count('"type":"REGISTER_BROKER_RECORD"') == 1
        assert _shown_by_kafka(kafka_tools, path) == names
    segments = sorted(_directory(broker).glob("*.log"))
    dump = kafka_tools.run(
        "DumpLogSegments", "--cluster-metadata-decoder", "--skip-record-metadata", "--files",
        ",".join(map(str, segments)),
    )  # fmt: skip
    assert '"type":"TOPIC_RECORD"' in dump
    assert "isvalid: false" not in dump


def _shown_by_kafka(tools: KafkaTools, path: Path) -> set[str]:
    """Return the topics that Kafka's shell shows."""
    with tools.start("org.apache.kafka.shell.MetadataShell", "--snapshot", path) as shell:
        shell.wait_for("Kafka Metadata Shell")
        # The shell accepts commands before it has read the file. It shows the offset in the file of
        # the last record; the footer follows it.
        footer = [header for _, header in iter_batches(path.read_bytes())][-1]
        last = f"offset {footer.base_offset - 1},"
        while True:
            start = len(shell.lines)
            shell.tell("cat /image/provenance")
            if shell.wait_for(r"offset -?\d+,", start)[0] == last:
                break
        start = len(shell.lines)
        shell.tell(f"ls {BY_NAME}")
        shell.end()
        return set(" ".join(shell.lines[start:]).split()) - {">>"}
