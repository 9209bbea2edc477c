"""Compaction in plog and in Apache Kafka: the same logs must become the same.

A real Kafka compacts two topics, twice. plog's `clean` compacts copies of the same logs. What
remains must not differ in any batch, except for what depends on the time and the implementation:
the delete horizons, and the bytes of compressed records. Segments may be joined differently.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from plog.cli.main import run_tool
from plog.records.batch import iter_batches
from plog.records.control import read_markers
from plogd.log.compaction.batch_filter import NO_DATA_OFFSET, LastRecord
from plogd.log.compaction.cleaned_segment import unfinished_paths
from plogd.log.compaction.cleaning import CleaningRequest, Replacement, SourceSegment, clean
from plogd.log.segment.transaction_index import AbortedTransaction, TransactionIndex
from plogd.os_files import OsFiles
from plogd.testing.broker_process import BrokerProcess
from plogd.tools.storage.command import configure
from plogd.topic_config import TopicConfig
from tests.helpers.eventually import eventually
from tests.helpers.log.compacted_log import StoredBatch, parse_batches
from tests.helpers.programs.confluent import confluent_kafka as kafka
from tests.helpers.programs.confluent import create_topic, read
from tests.helpers.programs.kafka_server import KafkaServer, kafka_jars
from tests.helpers.programs.kafka_tools import KafkaTools

NODE_ID = 7
SETTINGS = {"node.id": str(NODE_ID), "offsets.topic.num.partitions": "4"}
SEGMENT_BYTES = 1 << 20
DAY_MS, HOUR_MS = 86_400_000, 3_600_000
RETENTION_MS = {"kept": DAY_MS, "expired": 0}
"""``delete.retention.ms`` by topic: the second round removes the tombstones of the latter."""
LEVELS = ("read_committed", "read_uncommitted")
TIMEOUT_S = 60

Records = list[tuple[int, bytes | None, bytes | None, int]]
"""The offset, key, value and timestamp of each record."""


@dataclass(frozen=True, slots=True)
class Written:
    """Kafka's directory after a clean stop, and copies of the partitions' directories.

    The copies are those before and after each round, by topic. `now_ms` is after the horizons of
    the first round with `delete.retention.ms` 0.
    """

    log_dir: Path
    before: list[dict[str, Path]]
    after: list[dict[str, Path]]
    now_ms: int
    records: dict[tuple[str, str], Records]


# -- Kafka ----------------------------------------------------------------------------------------


def _read(servers: str, topic: str, level: str) -> Records:
    return [
        (one.offset(), one.key(), one.value(), one.timestamp()[1])
        for one in read(servers, topic, isolation_level=level)
    ]


@contextmanager
def _running(directory: Path, *, backoff_ms: int) -> Iterator[KafkaServer]:
    """Run Kafka. Its cleaner looks for work when it starts, and again after each `backoff_ms`."""
    settings = {
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "1",
        "log.cleaner.backoff.ms": str(backoff_ms),
    }
    server = KafkaServer(kafka_jars("4.3.1"), directory, node_id=NODE_ID, settings=settings)
    server.start()
    try:
        yield server
    finally:
        server.stop()


class _Writers:
    """Producers that take turns: three with transactions, and one for each codec."""

    def __init__(self, servers: str, topic: str, seed: int) -> None:
        self._topic = topic
        self._chance = random.Random(f"{topic}-{seed}")
        self._plain = [
            kafka.Producer(
                {
                    "bootstrap.servers": servers,
                    "compression.type": codec,
                    "enable.idempotence": number % 2 == 0,
                    "linger.ms": 20,
                }
            )
            for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd"))
        ]
        self._transactional = [
            kafka.Producer(
                {
                    "bootstrap.servers": servers,
                    "transactional.id": f"{topic}-{number}",
                    "compression.type": codec,
                    "linger.ms": 20,
                }
            )
            for number, codec in enumerate(("none", "zstd", "lz4"))
        ]
        for producer in self._transactional:
            producer.init_transactions(TIMEOUT_S)
        self._open: set[int] = set()

    def take_turns(self, label: str, turns: int) -> None:
        """Write records, tombstones and transactions, a third of which are aborted."""
        for turn in range(turns):
            for producer in self._plain:
                self._send(producer, f"{label}-{turn}")
            for number, producer in enumerate(self._transactional):
                if number not in self._open:
                    producer.begin_transaction()
                    self._open.add(number)
                self._send(producer, f"{label}-{turn}-{number}")
                if turn == turns - 1 or self._chance.random() < 0.4:
                    is_aborted = self._chance.random() < 0.33
                    end = producer.abort_transaction if is_aborted else producer.commit_transaction
                    end(TIMEOUT_S)
                    self._open.discard(number)
        self._replace_last_records()

    def _replace_last_records(self) -> None:
        """Replace the last records of the transactional producers, whose last batches stay."""
        for producer in self._transactional:
            producer.begin_transaction()
            producer.produce(self._topic, b"value", b"last")
            producer.commit_transaction(TIMEOUT_S)
        self._plain[0].produce(self._topic, b"value", b"last")
        assert self._plain[0].flush(TIMEOUT_S) == 0

    def fill_active_segment(self, label: str) -> None:
        """Write keys that occur only once, until the other records are in older segments."""
        for number in range(300):
            self._plain[0].produce(
                self._topic, self._chance.randbytes(4_000), f"{label}-only-{number}".encode()
            )
        assert self._plain[0].flush(TIMEOUT_S) == 0

    def _send(self, producer: Any, label: str) -> None:
        chance = self._chance
        for number in range(chance.randint(1, 8)):
            # Most keys are written again, and some are not.
            key = f"key-{chance.randrange(60)}" if chance.random() < 0.95 else f"{label}-{number}"
            # Clients send records uncompressed if compression does not make them smaller.
            text = chance.randbytes(chance.randrange(3_000)).hex().encode()
            value = None if chance.random() < 0.2 else text
            producer.produce(self._topic, value, key.encode(), headers={"label": label.encode()})
        assert producer.flush(TIMEOUT_S) == 0


def _bases(partition: Path) -> list[int]:
    return sorted(int(path.stem) for path in partition.glob("*.log"))


def _wait_until_compacted(log_dir: Path) -> None:
    def is_compacted() -> bool:
        path = log_dir / "cleaner-offset-checkpoint"
        lines = path.read_text().splitlines()[2:] if path.exists() else []
        ends = {line.split()[0]: int(line.split()[2]) for line in lines}
        return all(
            ends.get(topic) == _bases(log_dir / f"{topic}-0")[-1]
            and not [*(log_dir / f"{topic}-0").glob("*.swap")]
            for topic in RETENTION_MS
        )

    eventually(is_compacted, "compacted topics")


def _copies(log_dir: Path, target: Path) -> dict[str, Path]:
    for topic in RETENTION_MS:
        (target / topic).mkdir(parents=True)
        for suffix in ("log", "txnindex"):
            for path in (log_dir / f"{topic}-0").glob(f"*.{suffix}"):
                shutil.copy(path, target / topic)
    return {topic: target / topic for topic in RETENTION_MS}


def _create_topics(servers: str) -> None:
    for topic, retention_ms in RETENTION_MS.items():
        create_topic(
            servers,
            topic,
            cleanup_policy="compact",
            segment_bytes=SEGMENT_BYTES,
            min_cleanable_dirty_ratio=0.01,
            delete_retention_ms=retention_ms,
        )


def _fill(servers: str, number: int) -> None:
    for topic in RETENTION_MS:
        writers = _Writers(servers, topic, number)
        writers.take_turns(f"round-{number}", 40)
        writers.fill_active_segment(f"round-{number}")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    directory = tmp_path_factory.mktemp("kafka")
    before, after, records = [], [], {}
    for number in range(2):
        with _running(directory, backoff_ms=HOUR_MS) as server:
            if number == 0:
                _create_topics(server.bootstrap_servers)
            _fill(server.bootstrap_servers, number)
        before.append(_copies(server.log_dir, directory / f"before-{number}"))
        with _running(directory, backoff_ms=100) as server:
            _wait_until_compacted(server.log_dir)
            for topic in RETENTION_MS:
                for level in LEVELS:
                    records[topic, level] = _read(server.bootstrap_servers, topic, level)
        after.append(_copies(server.log_dir, directory / f"after-{number}"))
    horizons = [one.horizon_ms or 0 for one in _batches(after[0]["expired"])]
    return Written(server.log_dir, before, after, max(horizons), records)


# -- plog -----------------------------------------------------------------------------------------


def _batches(partition: Path, end_offset: int | None = None) -> list[StoredBatch]:
    return [
        batch
        for base in _bases(partition)
        if end_offset is None or base < end_offset
        for batch in parse_batches((partition / f"{base:020d}.log").read_bytes())
    ]


def _producers(partition: Path) -> Mapping[int, LastRecord]:
    """Return the last batch of each producer; all of them are active."""
    last: dict[int, LastRecord] = {}
    for base in _bases(partition):
        data = (partition / f"{base:020d}.log").read_bytes()
        for position, header in iter_batches(data):
            if header.producer_id < 0:
                continue
            batch = data[position : position + header.size_bytes]
            if not header.is_control:
                last[header.producer_id] = LastRecord(header.producer_epoch, header.last_offset)
            elif [*read_markers(batch, header)]:
                known = last.get(header.producer_id)
                if known is None or known.producer_epoch != header.producer_epoch:
                    known = LastRecord(header.producer_epoch, NO_DATA_OFFSET)
                last[header.producer_id] = known
    return last


def _aborted(partition: Path) -> list[AbortedTransaction]:
    found: list[AbortedTransaction] = []
    for path in sorted(partition.glob("*.txnindex")):
        index = TransactionIndex(OsFiles(), str(path), int(path.stem))
        found += [index.entry(slot) for slot in range(index.count)]
        index.close()
    return found


def _compact(
    source: Path, target: Path, *, first_dirty_offset: int, retention_ms: int, now_ms: int
) -> Path:
    """Compact a copy of a partition with plog, up to its last segment."""
    shutil.copytree(source, target)
    bases = _bases(target)
    request = CleaningRequest(
        directory=str(target),
        segments=[
            SourceSegment(base, end, (target / f"{base:020d}.log").stat().st_size)
            for base, end in pairwise(bases)
        ],
        first_dirty_offset=first_dirty_offset,
        config=TopicConfig(segment_bytes=SEGMENT_BYTES, delete_retention_ms=retention_ms),
        producers=_producers(target),
        aborted=_aborted(target),
        now_ms=now_ms,
        max_map_bytes=1 << 20,
        load_factor=0.9,
        max_decompressed_bytes=1 << 26,
    )
    for report in clean(OsFiles(), request):
        if isinstance(report, Replacement):
            for base in report.sources:
                for path in target.glob(f"{base:020d}.*"):
                    if path.suffix in (".log", ".index", ".timeindex", ".txnindex"):
                        path.unlink()
            for name in unfinished_paths(str(target), report.base_offset):
                if Path(name).exists():
                    Path(name).rename(name.rpartition(".")[0])
    return target


@pytest.fixture(scope="module")
def compacted(written: Written, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Path]]:
    """The same logs, compacted by plog, by topic; a list element for each round."""
    directory = tmp_path_factory.mktemp("plog")
    dirty = dict.fromkeys(RETENTION_MS, 0)
    found: list[dict[str, Path]] = []
    for number, sources in enumerate(written.before):
        found.append(
            {
                topic: _compact(
                    source,
                    directory / f"{topic}-{number}",
                    first_dirty_offset=dirty[topic],
                    retention_ms=RETENTION_MS[topic],
                    now_ms=written.now_ms,
                )
                for topic, source in sources.items()
            }
        )
        dirty = {topic: _bases(source)[-1] for topic, source in sources.items()}
    return found


# -- tests ----------------------------------------------------------------------------------------


def _comparable(batch: StoredBatch) -> tuple[Any, ...]:
    """Return a batch with what does not depend on the time of the compaction."""
    return (batch._replace(horizon_ms=None), batch.horizon_ms is None)


@pytest.mark.parametrize("topic", RETENTION_MS)
@pytest.mark.parametrize("number", [0, 1])
def test_same_batches_remain_as_in_kafka(
    number: int, topic: str, written: Written, compacted: list[dict[str, Path]]
) -> None:
    before = written.before[number][topic]
    end_offset = _bases(before)[-1]
    kafkas = _batches(written.after[number][topic], end_offset)
    plogs = _batches(compacted[number][topic], end_offset)
    assert 0 < len(kafkas) < 0.8 * len(_batches(before, end_offset)), "little was compacted"
    assert [*map(_comparable, plogs)] == [*map(_comparable, kafkas)]


def test_rounds_of_kafka_cover_all_rules(written: Written) -> None:
    """Otherwise, the comparison would prove little."""
    first, second = (
        {topic: _batches(path) for topic, path in after.items()} for after in written.after
    )
    for topic in RETENTION_MS:
        assert [one for one in first[topic] if not one.records], "no batch without records"
        assert [one for one in first[topic] if one.is_control], "no marker"
        assert _aborted(written.before[0][topic]), "no aborted transaction"
        assert len({one.codec for one in first[topic] if one.records}) == 5, "codecs are missing"
        assert [one for one in first[topic] if one.horizon_ms is not None], "no horizon"
    tombstones = {
        topic: {r.offset for b in first[topic] for r in b.records if r.value is None}
        for topic in RETENTION_MS
    }
    remaining = {
        topic: {r.offset for b in second[topic] for r in b.records} for topic in RETENTION_MS
    }
    assert tombstones["kept"] & remaining["kept"]
    expired_end = _bases(written.before[0]["expired"])[-1]
    assert not {one for one in tombstones["expired"] if one < expired_end} & remaining["expired"]


@pytest.mark.parametrize("number", [0, 1])
def test_indexes_have_the_same_aborted_transactions_as_kafkas(
    number: int, written: Written, compacted: list[dict[str, Path]]
) -> None:
    for topic in RETENTION_MS:
        kafkas = _aborted(written.after[number][topic])
        assert _aborted(compacted[number][topic]) == kafkas
        assert kafkas


def test_kafkas_dump_tool_accepts_the_files_of_plog(
    compacted: list[dict[str, Path]], kafka_tools: KafkaTools
) -> None:
    for partition in (path for topics in compacted for path in topics.values()):
        segments = [partition / f"{base:020d}.log" for base in _bases(partition)[:-1]]
        files = ",".join(map(str, segments))
        dump = kafka_tools.run("DumpLogSegments", "--deep-iteration", "--files", files)
        records = sum(len(batch.records) for batch in _batches(partition, _bases(partition)[-1]))
        assert dump.count("| offset: ") == records
        assert "isvalid: false" not in dump
        indexes = [x.with_suffix(suffix) for x in segments for suffix in (".index", ".timeindex")]
        # Segments that did not change keep the indexes that Kafka wrote, which were not copied.
        present = ",".join(str(path) for path in indexes if path.exists())
        checked = kafka_tools.run("DumpLogSegments", "--index-sanity-check", "--files", present)
        assert checked.count("passed sanity check") == present.count(",") + 1
        verified = kafka_tools.run("DumpLogSegments", "--verify-index-only", "--files", present)
        assert "ismatch" not in verified
        assert "out of order" not in verified
        transactions = ",".join(map(str, partition.glob("*.txnindex")))
        listed = kafka_tools.run("DumpLogSegments", "--files", transactions)
        assert listed.count("producerId: ") == len(_aborted(partition))


def test_kafka_serves_a_log_that_plog_compacted(
    written: Written, compacted: list[dict[str, Path]], tmp_path: Path
) -> None:
    data = tmp_path / "log"
    shutil.copytree(written.log_dir, data)
    for topic in RETENTION_MS:
        target = data / f"{topic}-0"
        active = _bases(target)[-1]
        for suffix in ("log", "index", "timeindex", "txnindex"):
            for path in target.glob(f"*.{suffix}"):
                if int(path.stem) < active:
                    path.unlink()
            for path in compacted[1][topic].glob(f"*.{suffix}"):
                if int(path.stem) < active:
                    shutil.copy(path, target)
    server = KafkaServer(
        kafka_jars("4.3.1"),
        tmp_path / "kafka",
        node_id=NODE_ID,
        settings={**SETTINGS, "log.dirs": str(data), "log.cleaner.backoff.ms": str(HOUR_MS)},
    )
    server.log_dir = data
    server.start()
    try:
        for (topic, level), records in written.records.items():
            assert _read(server.bootstrap_servers, topic, level) == records
    finally:
        server.stop()


def test_plog_serves_a_log_that_kafka_compacted(
    written: Written, tmp_path: Path, start_on: Callable[..., BrokerProcess]
) -> None:
    arguments = ["import", str(written.log_dir), "--log-dirs", str(tmp_path / "data")]
    assert run_tool("storage", configure, arguments) == 0
    broker = start_on(tmp_path, **{"log.cleaner.enable": "false"})
    for (topic, level), records in written.records.items():
        assert _read(broker.bootstrap_servers, topic, level) == records
    broker.restart()
    for (topic, level), records in written.records.items():
        assert _read(broker.bootstrap_servers, topic, level) == records
