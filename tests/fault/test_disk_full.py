"""F8: a small real disk fills up under load, has space again, and is full when the broker starts.

While it is full, the broker refuses writes and serves everything else; it never loses an
acknowledged record.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plog.client.simple import EARLIEST, LATEST, SimpleClient
from plog.errors import KafkaStorageError
from plog.records.codec import Record
from plogd.testing.broker_process import BrokerFailed, BrokerProcess
from tests.fault.arena import SETTINGS, Arena, any_seed, arena_of
from tests.fault.clients import client_of
from tests.fault.devices import fill_up, small_disk
from tests.fault.real_producer import RealProducer
from tests.helpers.eventually import TIMEOUT_S, eventually
from tests.helpers.programs.confluent import admin_client, confluent_kafka

MIB = 16
_WHILE_FULL_MS = 1_500.0


@contextmanager
def _arena_on(disk: Path, directory: Path) -> Iterator[Arena]:
    broker = BrokerProcess(directory, {**SETTINGS, "log.dirs": str(disk / "data")})
    with broker, arena_of(broker, any_seed()) as arena:
        arena.found()
        arena.start_clients()
        yield arena


def test_full_disk_refuses_writes_until_there_is_space_and_loses_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path, MIB) as disk, _arena_on(disk, tmp_path) as arena:
        real = RealProducer(arena, "real", "kept", 0)
        arena.start(real.run(), real.name)
        real.run_until_delivered(500)
        with arena.trouble():
            for _ in range(3):
                ballast = fill_up(disk)
                arena.run_for(_WHILE_FULL_MS)
                ballast.unlink()
                real.run_until_delivered(500)
        arena.finish()
        assert real.errors == []
        assert f"writes to {disk}/data are rejected: [Errno 28]" in arena.broker.log_text()
        assert "is offline" not in arena.broker.log_text()


def test_broker_killed_on_a_full_disk_restarts_and_loses_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path, MIB) as disk, _arena_on(disk, tmp_path) as arena:
        arena.run_until_acknowledged(1000)
        with arena.trouble():
            ballast = fill_up(disk)
            arena.run_for(_WHILE_FULL_MS)
            arena.kill()
            arena.start_broker()
            arena.run_for(_WHILE_FULL_MS)
            arena.restart()  # The broker can also stop cleanly on a full disk.
            ballast.unlink()
            arena.run_until_acknowledged(1000)
        arena.finish()


@pytest.fixture
def broker_on_full_disk(tmp_path: Path) -> Iterator[tuple[BrokerProcess, Path]]:
    """A broker with one record per segment of topic ``t``, and its disk, which is full."""
    with small_disk(tmp_path, MIB) as disk:
        settings = {
            "log.dirs": str(disk / "data"),
            "log.segment.delete.delay.ms": "0",
            "log.retention.check.interval.ms": "50",
        }
        with BrokerProcess(tmp_path, settings) as broker:
            topic = confluent_kafka.admin.NewTopic(
                "t", 1, 1, config={"segment.bytes": str(1 << 20)}
            )
            admin = admin_client(broker.bootstrap_servers)
            admin.create_topics([topic])["t"].result(TIMEOUT_S)
            with client_of(broker) as client:
                for number in range(9):
                    client.produce("t", 0, [Record(value=bytes([number]) * 900_000)])
            fill_up(disk)
            yield broker, disk
            if broker.is_running:
                broker.kill()


def _refused(client: SimpleClient) -> bool:
    try:
        client.produce("t", 0, [Record(value=bytes(100_000))])
    except KafkaStorageError:
        return True
    return False


def _deletion_refused(broker: BrokerProcess) -> bool:
    """Delete the records below offset 5; return whether the full disk prevented it."""
    admin = admin_client(broker.bootstrap_servers)
    where = confluent_kafka.TopicPartition("t", 0, 5)
    [deleted] = admin.delete_records([where]).values()
    try:
        assert deleted.result(TIMEOUT_S).low_watermark == 5
    except confluent_kafka.KafkaException as error:
        if error.args[0].code() != confluent_kafka.KafkaError.KAFKA_STORAGE_ERROR:
            raise
        return True
    return False


def test_reads_and_deletions_succeed_on_a_full_disk_and_free_space(
    broker_on_full_disk: tuple[BrokerProcess, Path],
) -> None:
    broker, _ = broker_on_full_disk
    with client_of(broker) as client:
        assert _refused(client)
        assert [r.offset for r in client.fetch("t", 0, 0)] == [0]
        assert client.list_offset("t", 0, LATEST) == 9
        if _deletion_refused(broker):
            # The disk had no space for the new log start offset; deleting segments frees some.
            eventually(lambda: not _deletion_refused(broker), "the deletion of records")
        assert client.list_offset("t", 0, EARLIEST) == 5
        eventually(lambda: not _refused(client), "space for a record")
        assert client.fetch("t", 0, 8)[0].offset == 8


def test_retention_frees_space(broker_on_full_disk: tuple[BrokerProcess, Path]) -> None:
    broker, _ = broker_on_full_disk
    with client_of(broker) as client:
        assert _refused(client)
        admin = admin_client(broker.bootstrap_servers)
        resource = confluent_kafka.admin.ConfigResource("topic", "t")
        entry = confluent_kafka.admin.ConfigEntry(
            "retention.bytes",
            "2000000",
            incremental_operation=confluent_kafka.admin.AlterConfigOpType.SET,
        )
        resource.add_incremental_config(entry)
        [altered] = admin.incremental_alter_configs([resource]).values()
        altered.result(TIMEOUT_S)
        eventually(lambda: not _refused(client), "space for a record")


def test_deleting_a_topic_frees_space(
    broker_on_full_disk: tuple[BrokerProcess, Path],
) -> None:
    broker, disk = broker_on_full_disk
    admin = admin_client(broker.bootstrap_servers)
    with client_of(broker) as client:
        assert _refused(client)
    admin.delete_topics(["t"])["t"].result(TIMEOUT_S)
    eventually(lambda: not list((disk / "data").glob("t-0*")), "room")
    admin.create_topics([confluent_kafka.admin.NewTopic("t", 1, 1)])["t"].result(TIMEOUT_S)
    with client_of(broker) as client:
        assert not _refused(client)


def test_full_disk_at_first_start_is_reported_with_the_cause(tmp_path: Path) -> None:
    with small_disk(tmp_path, MIB) as disk:
        ballast = fill_up(disk)
        broker = BrokerProcess(tmp_path, {"log.dirs": str(disk / "data")})
        with pytest.raises(BrokerFailed, match="No space left on device"):
            broker.start()
        ballast.unlink()
        with broker, client_of(broker) as client:
            client.create_topic("t")
            assert client.produce("t", 0, [Record(value=b"x")]) == 0
