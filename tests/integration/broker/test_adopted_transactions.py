"""Transactions in the log directory of a real Apache Kafka, read from plog after an import.

Kafka writes transactions that are committed and aborted, overlap, and span segments. A
read_committed consumer must get the same records from plog as from Kafka.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import plog
from plog.cli.main import run_tool
from plogd.testing.broker_process import BrokerProcess
from plogd.tools.storage.command import configure
from tests.helpers.programs.confluent import confluent_kafka as kafka
from tests.helpers.programs.confluent import create_topic, read
from tests.helpers.programs.kafka_server import KafkaServer, kafka_jars
from tests.helpers.programs.kafka_tools import KafkaTools

TOPIC = "payments"
PARTITIONS = 2
ROUNDS = 60
NODE_ID = 7
TIMEOUT_S = 60
LEVELS = ("read_committed", "read_uncommitted")

Records = list[tuple[int, int, bytes]]
"""The partition, offset and value of each record."""


@dataclass(frozen=True, slots=True)
class Written:
    """Kafka's directory after a clean stop, and what its consumers got for each isolation level."""

    log_dir: Path
    records: dict[str, Records]


def _read(servers: str, level: str) -> Records:
    messages = read(servers, TOPIC, PARTITIONS, isolation_level=level)
    return sorted((one.partition(), one.offset(), one.value()) for one in messages)


def _send(producer: Any, chance: random.Random, label: str) -> None:
    for number in range(chance.randint(1, 4)):
        value = f"{label}-{number}-".encode() + chance.randbytes(8_000)
        producer.produce(TOPIC, value, partition=chance.randrange(PARTITIONS))
    assert producer.flush(TIMEOUT_S) == 0


def _fill(servers: str) -> None:
    """Let four transactional producers and a plain one take turns; abort half the transactions."""
    chance = random.Random(19)
    create_topic(servers, TOPIC, PARTITIONS, segment_bytes=1 << 20)
    plain = kafka.Producer({"bootstrap.servers": servers})
    producers = [
        kafka.Producer({"bootstrap.servers": servers, "transactional.id": f"till-{number}"})
        for number in range(4)
    ]
    for producer in producers:
        producer.init_transactions(TIMEOUT_S)
    is_open = [False] * len(producers)
    for turn in range(ROUNDS):
        for number, producer in enumerate(producers):
            # The first producer's transactions are long, so that they span others and segments.
            ends = chance.random() < (0.05 if number == 0 else 0.4)
            if not is_open[number]:
                producer.begin_transaction()
                is_open[number] = True
            _send(producer, chance, f"till-{number}-{turn}")
            if ends or turn == ROUNDS - 1:
                end = chance.choice([producer.commit_transaction, producer.abort_transaction])
                end(TIMEOUT_S)
                is_open[number] = False
        _send(plain, chance, f"plain-{turn}")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    directory = tmp_path_factory.mktemp("kafka")
    settings = {
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    server = KafkaServer(kafka_jars("4.3.1"), directory, node_id=NODE_ID, settings=settings)
    server.start()
    try:
        _fill(server.bootstrap_servers)
        records = {level: _read(server.bootstrap_servers, level) for level in LEVELS}
    finally:
        server.stop()
    assert len([*server.log_dir.glob(f"{TOPIC}-0/*.log")]) > 2, "expected several segments"
    committed, everything = map(len, (records[level] for level in LEVELS))
    assert 0.2 * everything < committed < 0.9 * everything
    return Written(server.log_dir, records)


@pytest.fixture
def imported(written: Written, tmp_path: Path) -> Path:
    """A directory that contains the imported data directory."""
    arguments = ["import", str(written.log_dir), "--log-dirs", str(tmp_path / "data")]
    assert run_tool("storage", configure, arguments) == 0
    return tmp_path


def _indexes(directory: Path) -> dict[str, bytes]:
    found = {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.glob(f"data/{TOPIC}-*/*.txnindex")
    }
    return {name: content for name, content in found.items() if content}


def test_consumers_get_the_same_records_as_from_kafka(
    written: Written, imported: Path, start_on: Callable[..., BrokerProcess]
) -> None:
    broker = start_on(imported)
    for level in LEVELS:
        assert _read(broker.bootstrap_servers, level) == written.records[level]
    settings = {"bootstrap_servers": broker.bootstrap_servers, "isolation_level": "read_committed"}
    with plog.Consumer(**settings) as consumer:
        partitions = [plog.TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(partitions)
        ends = consumer.end_offsets(partitions)
        found: Records = []
        while any(consumer.position(one) < ends[one] for one in partitions):
            record = consumer.poll(timeout_s=0.1)
            if record is not None:
                found.append((record.partition, record.offset, record.value or b""))
    assert sorted(found) == written.records["read_committed"]


def test_any_start_offset_gives_the_rest_of_the_records(
    written: Written, imported: Path, start_on: Callable[..., BrokerProcess]
) -> None:
    broker = start_on(imported)
    committed = written.records["read_committed"]
    for offset in range(0, committed[-1][1], 37):
        # Small fetches end inside transactions.
        messages = read(
            broker.bootstrap_servers,
            TOPIC,
            1,
            offset,
            isolation_level="read_committed",
            fetch_message_max_bytes=20_000,
        )
        assert [one.offset() for one in messages] == [
            found for partition, found, _ in committed if partition == 0 and found >= offset
        ]


def test_indexes_are_rebuilt_as_kafka_wrote_them(
    written: Written,
    imported: Path,
    start_on: Callable[..., BrokerProcess],
    kafka_tools: KafkaTools,
) -> None:
    before = _indexes(imported)
    assert len(before) > 2
    for number, name in enumerate(sorted(before)):
        path = imported / name
        # A damaged file of each kind; where it is missing, the other indexes are, too.
        if number % 3 == 0:
            path.write_bytes(before[name][:-5])
        elif number % 3 == 1:
            path.write_bytes(b"\0" * len(before[name]))
        else:
            for suffix in (".txnindex", ".index", ".timeindex"):
                path.with_suffix(suffix).unlink()
    broker = start_on(imported)
    assert _read(broker.bootstrap_servers, "read_committed") == written.records["read_committed"]
    broker.stop()
    assert _indexes(imported) == before
    files = ",".join(str(imported / name) for name in before)
    dump = kafka_tools.run("DumpLogSegments", "--files", files)
    assert dump.count("producerId: ") == sum(map(len, before.values())) // 34


def test_kill_leaves_the_indexes_complete(
    written: Written, imported: Path, start_on: Callable[..., BrokerProcess]
) -> None:
    before = _indexes(imported)
    broker = start_on(imported)
    broker.kill()
    # Without the recovery points, every segment is recovered.
    (imported / "data" / "recovery-point-offset-checkpoint").unlink()
    for path in (imported / "data").glob(f"{TOPIC}-*/*.txnindex"):
        path.unlink()
    broker.start()
    assert _read(broker.bootstrap_servers, "read_committed") == written.records["read_committed"]
    assert _indexes(imported) == before
    broker.stop()
    shutil.rmtree(imported / "data")
