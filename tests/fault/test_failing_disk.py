"""F9: a failing disk takes its log directory offline, and no acknowledged record is lost.

On any machine, a preloaded library fails the syncs of a real broker (bad_disk.py). Where the
machine permits it, an ext4 file system stops (devices.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plog.errors import KafkaError, KafkaStorageError
from plog.records.codec import Record
from plogd.testing.broker_process import BrokerProcess
from tests.fault.arena import SETTINGS, Arena, any_seed, arena_of
from tests.fault.bad_disk import BadDisk
from tests.fault.clients import client_of
from tests.fault.devices import ext4

CLEAN_MARK = ".kafka_cleanshutdown"


@contextmanager
def _arena(directory: Path, second: Path, environment: dict[str, str]) -> Iterator[Arena]:
    """Run clients on a broker with log directories ``a``, which has the metadata, and `second`."""
    dirs = f"{directory / 'a'},{second}"
    broker = BrokerProcess(directory, {**SETTINGS, "log.dirs": dirs}, environment=environment)
    with broker, arena_of(broker, any_seed()) as arena:
        arena.found()
        arena.start_clients()
        arena.run_until_acknowledged(500)
        yield arena


def _lose_directory(arena: Arena, second: Path, fail: Callable[[], None]) -> None:
    """Let `second` fail under load, and check that the other directory still works."""
    fail()
    log_line = f"log directory {second} is offline"
    arena.run_until(lambda: log_line in arena.broker.log_text(), "an offline directory")
    arena.run_until_acknowledged(500)
    assert "all log directories have failed" not in arena.broker.log_text()


def test_failed_sync_takes_one_directory_offline_and_loses_nothing(tmp_path: Path) -> None:
    bad, second = BadDisk(tmp_path), tmp_path / "b"
    with _arena(tmp_path, second, bad.environment) as arena:
        with arena.trouble():
            _lose_directory(arena, second, lambda: bad.fail_syncs(second))
            # The directory stays offline: the kernel may have dropped pages it failed to write.
            bad.heal()
            arena.run_until_acknowledged(500)
            arena.stop_broker()
            assert (tmp_path / "a" / CLEAN_MARK).exists()
            assert not (second / CLEAN_MARK).exists()
            arena.start_broker()
        arena.finish()


def test_lost_device_takes_one_directory_offline_and_loses_nothing(tmp_path: Path) -> None:
    with ext4(tmp_path) as disk, _arena(tmp_path, disk.path / "b", {}) as arena:
        with arena.trouble():
            _lose_directory(arena, disk.path / "b", disk.cut_power)
            arena.kill()
            disk.unmount()
            disk.mount()
            arena.start_broker()
        arena.finish()


@contextmanager
def _small_broker(directory: Path, bad: BadDisk) -> Iterator[BrokerProcess]:
    with BrokerProcess(directory, environment=bad.environment) as broker:
        with client_of(broker) as client:
            client.create_topic("t")
            client.produce("t", 0, [Record(value=b"kept")])
        yield broker
        if broker.is_running:
            broker.kill()


def test_failed_sync_fails_the_produce_and_stops_a_broker_without_directories(
    tmp_path: Path,
) -> None:
    bad = BadDisk(tmp_path)
    with _small_broker(tmp_path, bad) as broker:
        with client_of(broker) as client:
            bad.fail_syncs(broker.data_dir)
            with pytest.raises((KafkaStorageError, KafkaError)) as raised:
                client.produce("t", 0, [Record(value=b"lost")])
        process = broker._process
        assert process is not None
        assert process.wait(60) == 1
        assert "stopping: all log directories have failed" in broker.log_text()
        assert not (broker.data_dir / CLEAN_MARK).exists()
        assert isinstance(raised.value, KafkaStorageError), raised.value
        bad.heal()
        broker.start()
        with client_of(broker) as client:
            offset = client.produce("t", 0, [Record(value=b"after")])
            values = [record.value for record in client.fetch("t", 0, 0)]
        assert values[0] == b"kept"
        assert values[offset] == b"after"
