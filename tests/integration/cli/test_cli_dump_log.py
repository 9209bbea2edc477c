"""``plog dump-log`` prints the same as Kafka's DumpLogSegments for the same files.

Kafka 4.3 wrote one directory, with transactions, groups, quotas and a KRaft quorum of one; plog
wrote the other. Both tools dump the files of both directories with every option that applies.
"""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import confluent_kafka as kafka
import pytest

from plog.cli.main import run_tool
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.wire.internal.metadata_records import encode_metadata_record
from plog.wire.internal.share_records import (
    SharePartitionKey,
    ShareSnapshotValue,
    ShareUpdateValue,
    StateBatch,
)
from plogd.testing.broker_process import BrokerProcess
from plogd.tools.dump.command import configure
from tests.helpers.programs.confluent import (
    admin_client,
    consumer,
    create_topic,
    produce,
    until_end,
)
from tests.helpers.programs.kafka_server import KafkaServer, kafka_jars
from tests.helpers.programs.kafka_tools import KafkaTools, ToolOutput
from tests.unit.tools.dump.test_remote_log_records import RECORDS as REMOTE_LOG_TEXTS

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SMALL = {"segment.bytes": str(1 << 20), "index.interval.bytes": "1000"}


class Dumped(NamedTuple):
    """The exit code and output of plog's tool."""

    code: int
    stdout: str
    stderr: str


def _ours(*words: str | Path) -> Dumped:
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = run_tool("dump-log", configure, [str(word) for word in words])
    return Dumped(code, out.getvalue(), err.getvalue())


def _assert_same(tools: KafkaTools, *words: str | Path) -> str:
    """Check that both tools print the same, and return it."""
    ours, theirs = _ours(*words), tools.attempt("DumpLogSegments", *words)
    assert ours.stdout.splitlines() == theirs.stdout.splitlines()
    assert sorted(ours.stderr.splitlines()) == _kafka_errors(theirs)
    assert ours.code == theirs.code
    return ours.stdout


def _kafka_errors(output: ToolOutput) -> list[str]:
    """Return the standard error of Kafka's tool, without the lines of its logging library."""
    return sorted(
        line
        for line in output.stderr.splitlines()
        if not line.startswith(("SLF4J", "WARNING", "log4j")) and " WARN " not in line
    )


def _fill(servers: str) -> None:
    """Write batches of every codec with keys, nulls, headers and sequences, in several segments."""
    for codec in CODECS:
        create_topic(servers, codec, 1, **{k.replace(".", "_"): v for k, v in SMALL.items()})
        messages = [
            {
                "key": None if i % 5 == 0 else b"k%d \xc3\xa4\xff" % i,
                "value": None if i % 7 == 0 else bytes([i % 256]) * (i % 900),
                "headers": {"n": b"%d" % i, "\u00e4": None},
            }
            for i in range(3000)
        ]
        config = {"compression.type": codec, "enable.idempotence": codec != "none"}
        assert set(produce(servers, codec, messages, config)) == {None}


def _consume(servers: str) -> None:
    """Consume a topic and commit as a group."""
    with consumer(servers, group_id="readers", **{"auto.offset.reset": "earliest"}) as client:
        client.subscribe(["none"])
        until_end(client)
        client.commit(asynchronous=False)


def _transactions(servers: str) -> None:
    create_topic(servers, "paid", 1)
    client = kafka.Producer({"bootstrap.servers": servers, "transactional.id": "tx"})
    client.init_transactions(60)
    for number in range(6):
        client.begin_transaction()
        client.produce("paid", b"value %d" % number, b"key")
        assert client.flush(60) == 0
        if number % 2:
            client.abort_transaction(60)
        else:
            client.commit_transaction(60)


def _administrate(servers: str) -> None:
    """Write records of many types to the metadata log."""
    client = admin_client(servers)
    create_topic(servers, "gone", 3)
    client.delete_topics(["gone"])["gone"].result()
    resource = kafka.admin.ConfigResource(
        kafka.admin.ConfigResource.Type.TOPIC,
        "none",
        incremental_configs=[
            kafka.admin.ConfigEntry(
                "retention.ms",
                "987654321",
                incremental_operation=kafka.admin.AlterConfigOpType.SET,
            )
        ],
    )
    client.incremental_alter_configs([resource])[resource].result()


@pytest.fixture(scope="module")
def kafka_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directory of Kafka 4.3 after a clean stop."""
    directory = tmp_path_factory.mktemp("kafka")
    settings = {
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "metadata.log.max.record.bytes.between.snapshots": "1",
    }
    server = KafkaServer(kafka_jars("4.3.1"), directory, node_id=1, settings=settings)
    server.start()
    try:
        servers = server.bootstrap_servers
        _fill(servers)
        _consume(servers)
        _transactions(servers)
        _administrate(servers)
    finally:
        server.stop()
    return Path(server.log_dir)


@pytest.fixture(scope="module")
def plog_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directory of plog after a clean stop."""
    directory = tmp_path_factory.mktemp("plog")
    broker = BrokerProcess(directory, {"offsets.topic.num.partitions": "1"})
    broker.start()
    try:
        servers = broker.bootstrap_servers
        _fill(servers)
        _consume(servers)
        _administrate(servers)
    finally:
        broker.stop()
    return broker.data_dir


@pytest.fixture(params=["kafka", "plog"])
def data_dir(request: pytest.FixtureRequest) -> Path:
    """Each of the two directories."""
    directory = request.getfixturevalue(f"{request.param}_dir")
    assert isinstance(directory, Path)
    return directory


@pytest.mark.parametrize("codec", CODECS)
def test_segments_of_every_codec_are_dumped_the_same(
    kafka_tools: KafkaTools, data_dir: Path, codec: str
) -> None:
    segments = sorted(data_dir.glob(f"{codec}-0/*.log"))
    files = ",".join(map(str, segments))
    shallow = _assert_same(kafka_tools, "--files", files)
    assert f"compresscodec: {codec} " in shallow
    deep = _assert_same(kafka_tools, "--deep-iteration", "--files", files)
    assert deep.count("| offset: ") == 3000
    _assert_same(kafka_tools, "--print-data-log", "--files", segments[0])
    _assert_same(
        kafka_tools, "--print-data-log", "--skip-record-metadata", "--max-bytes", "20000",
        "--files", segments[-1],
    )  # fmt: skip


def test_indexes_and_producer_snapshots_are_dumped_the_same(
    kafka_tools: KafkaTools, data_dir: Path
) -> None:
    for suffix in ("index", "timeindex"):
        for path in sorted(data_dir.glob(f"gzip-0/*.{suffix}")):
            _assert_same(kafka_tools, "--files", path)
            _assert_same(kafka_tools, "--index-sanity-check", "--files", path)
            assert _assert_same(kafka_tools, "--verify-index-only", "--files", path)
    snapshots = sorted(data_dir.glob("gzip-0/*.snapshot"))
    assert "producerId: " in _assert_same(kafka_tools, "--files", snapshots[-1])
    assert _assert_same(kafka_tools, "--files", data_dir / "gzip-0/leader-epoch.checkpoints")


def test_committed_offsets_and_groups_are_dumped_the_same(
    kafka_tools: KafkaTools, data_dir: Path
) -> None:
    [path] = data_dir.glob("__consumer_offsets-0/*.log")
    out = _assert_same(kafka_tools, "--offsets-decoder", "--files", path)
    assert '"group":"readers"' in out
    assert '"assignedPartitions":[{"topic":"none","partitions":[0]}]' in out
    assert "payload: <DELETE>" in out or "payload: {" in out


def test_metadata_log_is_dumped_the_same(kafka_tools: KafkaTools, data_dir: Path) -> None:
    files = sorted(
        [
            *data_dir.glob("__cluster_metadata-0/*.log"),
            *data_dir.glob("__cluster_metadata-0/*.checkpoint"),
        ]
    )
    for path in files:
        out = _assert_same(kafka_tools, "--cluster-metadata-decoder", "--files", path)
        _assert_same(
            kafka_tools, "--cluster-metadata-decoder", "--skip-record-metadata", "--files", path
        )
    assert '"type":"TOPIC_RECORD"' in out


def test_transactions_are_dumped_the_same(kafka_tools: KafkaTools, kafka_dir: Path) -> None:
    [state] = kafka_dir.glob("__transaction_state-0/*.log")
    out = _assert_same(kafka_tools, "--transaction-log-decoder", "--files", state)
    assert '"transactionalId":"tx"' in out
    [paid] = kafka_dir.glob("paid-0/*.log")
    out = _assert_same(kafka_tools, "--print-data-log", "--files", paid)
    assert " endTxnMarker: ABORT coordinatorEpoch: " in out
    [aborted] = kafka_dir.glob("paid-0/*.txnindex")
    assert _assert_same(kafka_tools, "--files", aborted).count("lastStableOffset: ") == 3


def test_share_group_and_remote_log_records_are_dumped_the_same(
    kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    """Uses generated records, because the clusters use neither feature."""
    key = SharePartitionKey(group_id="g", topic_id=bytes(15) + b"\x01", partition=2).encode(0)
    states = [StateBatch(first_offset=5, last_offset=6, delivery_state=2, delivery_count=7)]
    snapshot = ShareSnapshotValue(snapshot_epoch=1, start_offset=4, state_batches=states)
    update = ShareUpdateValue(start_offset=-1, delivery_complete_count=3, state_batches=states)
    shares = _segment(
        tmp_path / "share",
        Record(key=b"\0\0" + key, value=b"\0\0" + snapshot.encode(0)),
        Record(key=b"\0\1" + key, value=b"\0\0" + update.encode(0)),
        Record(key=b"\0\0" + key, value=None),
        Record(key=b"\0\7" + key, value=b"\0\0"),
    )
    out = _assert_same(kafka_tools, "--share-group-state-decoder", "--files", shares)
    assert '"deliveryCompleteCount":3' in out
    remote = _segment(
        tmp_path / "remote",
        *(Record(value=encode_metadata_record(record, 0)) for record, _ in REMOTE_LOG_TEXTS),
    )
    out = _assert_same(kafka_tools, "--remote-log-metadata-decoder", "--files", remote)
    for _, text in REMOTE_LOG_TEXTS:
        assert f" payload: {text}\n" in out


def _segment(directory: Path, *records: Record) -> Path:
    directory.mkdir()
    path = directory / "00000000000000000000.log"
    path.write_bytes(build_batch(records, base_offset=0, partition_leader_epoch=0))
    return path


def test_string_decoders_print_the_same(kafka_tools: KafkaTools, plog_dir: Path) -> None:
    path = min(plog_dir.glob("none-0/*.log"))
    older = "org.apache.kafka.tools.api.StringDecoder"
    words = ("--value-decoder-class", older, "--key-decoder-class", older)
    _assert_same(kafka_tools, *words, "--max-bytes", "5000", "--files", path)


def test_mismatched_files_are_dumped_the_same(
    kafka_tools: KafkaTools, plog_dir: Path, tmp_path: Path
) -> None:
    """A truncated tail, a flipped bit, and indexes that do not match the log."""
    source = min(plog_dir.glob("gzip-0/*.log"))
    for suffix in (".log", ".index", ".timeindex"):
        (tmp_path / source.name).with_suffix(suffix).write_bytes(
            source.with_suffix(suffix).read_bytes()
        )
    log = tmp_path / source.name
    data = bytearray(log.read_bytes())
    data[30] ^= 1  # In the base timestamp of the first batch, which only the checksum detects.
    log.write_bytes(data[:-10])
    out = _assert_same(kafka_tools, "--deep-iteration", "--files", log)
    assert "isvalid: false" in out
    assert f" invalid bytes at the end of {log.name}" in out
    log.write_bytes(data)
    index = log.with_suffix(".index")
    entries = bytearray(index.read_bytes())
    entries[3] ^= 1
    index.write_bytes(entries)
    _assert_same(kafka_tools, "--files", index)
    times = log.with_suffix(".timeindex")
    entries = bytearray(times.read_bytes())
    entries[7] ^= 1
    times.write_bytes(entries)
    _assert_same(kafka_tools, "--files", times)
    assert "mismatch" in _ours("--files", times).stderr


def test_damage_is_one_line_where_kafkas_tool_fails(
    kafka_tools: KafkaTools, plog_dir: Path, tmp_path: Path
) -> None:
    source = min(plog_dir.glob("none-0/*.log"))
    log = tmp_path / source.name
    log.write_bytes(source.read_bytes() + bytes(1000))
    assert kafka_tools.attempt("DumpLogSegments", "--files", log).code == 1
    ours = _ours("--files", log)
    assert ours.code == 1
    [line] = ours.stderr.splitlines()
    assert f"byte {source.stat().st_size}: found zeros instead of a batch" in line
    # Two batches, so that the records after the damaged batch are read as well.
    batches = [
        build_batch([Record(timestamp=0, value=b"x")] * 2, base_offset=offset) for offset in (0, 2)
    ]
    broken = bytearray(b"".join(batches))
    broken[61] = 0x7F
    log.write_bytes(broken)
    assert kafka_tools.attempt("DumpLogSegments", "--deep-iteration", "--files", log).code == 1
    ours = _ours("--deep-iteration", "--files", log)
    assert ours.code == 1
    [line] = ours.stderr.splitlines()
    assert str(log) in line


def test_gaps_are_printed_in_kafkas_order(kafka_tools: KafkaTools, tmp_path: Path) -> None:
    """Like Kafka's tool, a segment that does not start at offset 0 starts with a gap."""
    path = tmp_path / "00000000000000000005.log"
    record = Record(timestamp=5, value=b"v")
    path.write_bytes(b"".join(build_batch([record], base_offset=n) for n in (5, 9, 20)))
    words = ("--files", path, "--print-data-log", "--skip-record-metadata")
    ours, theirs = _ours(*words), kafka_tools.attempt("DumpLogSegments", *words)
    assert ours.stdout.splitlines() == theirs.stdout.splitlines()
    assert ours.stderr.splitlines() == theirs.stderr.splitlines()
