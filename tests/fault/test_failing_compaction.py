"""F8 and F9 while a real broker compacts: full disks, an unreadable segment, a killed process.

The log is named and tried again after a minute, for which the tests move the broker's clock;
clients and the compaction of other logs go on.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from plog.client.simple import EARLIEST, LATEST, SimpleClient
from plog.records.codec import Record
from plogd.testing.broker_process import BrokerProcess
from tests.fault.bad_disk import BadDisk
from tests.fault.clients import client_of
from tests.fault.devices import ext4, fill_up, small_disk
from tests.helpers.eventually import TIMEOUT_S, eventually
from tests.helpers.programs.confluent import admin_client, confluent_kafka, create_topic

_TOPIC = "prices"
_KEYS = 6_000
_REWRITTEN = 300
_VALUE = b"x" * 880
_SEGMENT_BYTES = 1 << 20
_FREE_BYTES = 256 << 10
_RETRY_S = 61.0
_SETTINGS = {
    "log.segment.bytes": str(_SEGMENT_BYTES),
    "log.segment.delete.delay.ms": "0",
    "log.retention.check.interval.ms": "50",
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.min.cleanable.ratio": "0.01",
}


@contextmanager
def _broker(
    directory: Path,
    *,
    dirs: str = "data",
    environment: Mapping[str, str] | None = None,
    **settings: str,
) -> Iterator[BrokerProcess]:
    settings = {name.replace("_", "."): value for name, value in settings.items()}
    config = {**_SETTINGS, **settings, "log.dirs": dirs}
    with BrokerProcess(directory, config, environment=environment, controls=True) as broker:
        yield broker
        if broker.is_running:
            broker.kill()


def _write(client: SimpleClient, topic: str, partition: int) -> dict[bytes, int]:
    """Write every key, some of them again, and more keys; return the last offset of each key."""
    keys = [*range(_KEYS), *range(_REWRITTEN), *range(_KEYS, _KEYS + 1500)]
    for start in range(0, len(keys), 100):
        records = [Record(key=b"%d" % key, value=_VALUE) for key in keys[start : start + 100]]
        client.produce(topic, partition, records)
    return {b"%d" % key: offset for offset, key in enumerate(keys)}


def _read(client: SimpleClient, topic: str, partition: int) -> dict[bytes | None, int]:
    """Return the last offset of each key, and check that no record is there twice."""
    offset = client.list_offset(topic, partition, EARLIEST)
    end_offset = client.list_offset(topic, partition, LATEST)
    found: dict[bytes | None, int] = {}
    while offset < end_offset:
        for record in client.fetch(topic, partition, offset):
            assert record.offset >= offset
            found[record.key] = record.offset
            offset = record.offset + 1
    return found


def _set_policy(broker: BrokerProcess, topic: str, **settings: str) -> None:
    """Change settings of a topic; their names have `_` for dots."""
    kafka = confluent_kafka.admin
    entries = [
        kafka.ConfigEntry(
            name.replace("_", "."), value, incremental_operation=kafka.AlterConfigOpType.SET
        )
        for name, value in settings.items()
    ]
    resource = kafka.ConfigResource("topic", topic, incremental_configs=entries)
    admin = admin_client(broker.bootstrap_servers)
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


def _wait_for(broker: BrokerProcess, line: str) -> None:
    eventually(lambda: line in broker.log_text(), f'line "{line}"')


def _unfinished(directory: Path) -> list[str]:
    return [one.name for one in directory.iterdir() if one.suffix in (".cleaned", ".swap")]


@contextmanager
def _disk(kind: str, directory: Path) -> Iterator[Path]:
    if kind == "tmpfs":
        with small_disk(directory, 24) as path:
            yield path
    else:
        with ext4(directory, 64) as device:
            yield device.path


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_compaction_without_space_is_retried_while_clients_go_on(kind: str, tmp_path: Path) -> None:
    """The topic's policy is delete, then compact, then delete again."""
    with (
        _disk(kind, tmp_path) as disk,
        _broker(tmp_path, dirs=f"{tmp_path / 'a'},{disk / 'b'}") as broker,
        client_of(broker) as client,
    ):
        create_topic(broker.bootstrap_servers, _TOPIC, 2, cleanup_policy="delete")
        directory = next((disk / "b").glob(f"{_TOPIC}-*"))
        partition = int(directory.name.rpartition("-")[2])
        last = _write(client, _TOPIC, partition)
        ballast = fill_up(disk)
        os.truncate(ballast, ballast.stat().st_size - _FREE_BYTES)
        _set_policy(broker, _TOPIC, cleanup_policy="compact")
        _wait_for(broker, f"compaction of {directory.name} failed: [Errno 28]")
        eventually(lambda: not _unfinished(directory), "removal of the unfinished segment")

        assert _read(client, _TOPIC, partition) == last
        for key in (b"0", b"new"):
            last[key] = client.produce(_TOPIC, partition, [Record(key=key, value=b"while full")])
        client.produce(_TOPIC, 1 - partition, [Record(key=b"other", value=b"partition")])
        # The next attempt fails in the same way.
        before = broker.log_text().count(f"compaction of {directory.name} failed")
        broker.advance_time(_RETRY_S)
        eventually(
            lambda: broker.log_text().count(f"compaction of {directory.name} failed") > before,
            "second attempt",
        )

        ballast.unlink()
        broker.advance_time(_RETRY_S)
        _wait_for(broker, f"compacted {directory.name} up to offset")
        assert client.fetch(_TOPIC, partition, 0)[0].offset == _REWRITTEN
        assert _read(client, _TOPIC, partition) == last
        assert "is offline" not in broker.log_text()

        broker.kill()
        broker.start()
        with client_of(broker) as again:
            assert _read(again, _TOPIC, partition) == last
            _set_policy(
                broker, _TOPIC, cleanup_policy="delete", retention_bytes=str(_SEGMENT_BYTES)
            )
            eventually(
                lambda: again.list_offset(_TOPIC, partition, EARLIEST) > _REWRITTEN, "retention"
            )
            start = again.list_offset(_TOPIC, partition, EARLIEST)
            kept = {key: offset for key, offset in last.items() if offset >= start}
            assert _read(again, _TOPIC, partition) == kept
        assert "lost" not in broker.log_text()


def test_segment_that_cannot_be_read_fails_only_the_compaction_of_its_log(tmp_path: Path) -> None:
    bad = BadDisk(tmp_path)
    with (
        _broker(tmp_path, dirs=str(tmp_path / "data"), environment=bad.environment) as broker,
        client_of(broker) as client,
    ):
        create_topic(broker.bootstrap_servers, _TOPIC, 2, cleanup_policy="delete")
        last = [_write(client, _TOPIC, partition) for partition in range(2)]
        segment = sorted((tmp_path / "data" / f"{_TOPIC}-0").glob("*.log"))[1]
        bad.fail_file_reads(segment)
        _set_policy(broker, _TOPIC, cleanup_policy="compact")
        _wait_for(broker, f"compaction of {_TOPIC}-0 failed: [Errno 5]")
        _wait_for(broker, f"compacted {_TOPIC}-1 up to offset")
        # The records themselves are sent with sendfile, which still works.
        assert [_read(client, _TOPIC, partition) for partition in range(2)] == last
        assert _unfinished(segment.parent) == []
        bad.heal()
        broker.advance_time(_RETRY_S)
        _wait_for(broker, f"compacted {_TOPIC}-0 up to offset")
        assert [_read(client, _TOPIC, partition) for partition in range(2)] == last
        assert "is offline" not in broker.log_text()


def test_power_loss_during_compactions_keeps_the_last_record_of_each_key(tmp_path: Path) -> None:
    """F7 and F12: the page cache is lost at any step of a compaction."""
    last: dict[bytes | None, int] = {}
    with ext4(tmp_path) as disk:
        for number in range(5):
            with _broker(tmp_path, dirs=str(disk.path / "data")) as broker:
                with client_of(broker) as client:
                    if not number:
                        create_topic(broker.bootstrap_servers, _TOPIC, 1, cleanup_policy="compact")
                    assert _read(client, _TOPIC, 0) == last
                    before = broker.log_text().count("compacted")
                    while broker.log_text().count("compacted") == before:
                        keys = [b"%d" % (number * 1000 + one * 7) for one in range(200)]
                        records = [Record(key=key, value=_VALUE) for key in keys]
                        offset = client.produce(_TOPIC, 0, records)
                        last |= {key: offset + one for one, key in enumerate(keys)}
                    disk.cut_power()
                broker.kill()
                assert "lost" not in broker.log_text()
            disk.unmount()
            disk.mount()
        with (
            _broker(tmp_path, dirs=str(disk.path / "data")) as broker,
            client_of(broker) as client,
        ):
            assert _read(client, _TOPIC, 0) == last


def test_killed_compaction_is_retried(tmp_path: Path) -> None:
    """As by the kernel's out-of-memory killer."""
    # A compaction that waits because of its limited rate can be found and killed.
    rate = str(1 << 20)
    with (
        _broker(
            tmp_path, dirs=str(tmp_path / "data"), log_cleaner_io_max_bytes_per_second=rate
        ) as broker,
        client_of(broker) as client,
    ):
        create_topic(broker.bootstrap_servers, _TOPIC, 1, cleanup_policy="delete")
        last = _write(client, _TOPIC, 0)
        _set_policy(broker, _TOPIC, cleanup_policy="compact")
        os.kill(eventually(lambda: _child(broker.pid), "process"), signal.SIGKILL)
        _go_on_until(broker, f"compaction of {_TOPIC}-0 failed: the process")
        assert _read(client, _TOPIC, 0) == last
        broker.advance_time(_RETRY_S)
        _go_on_until(broker, f"compacted {_TOPIC}-0 up to offset")
        assert client.fetch(_TOPIC, 0, 0)[0].offset == _REWRITTEN
        assert _read(client, _TOPIC, 0) == last
        assert _unfinished(tmp_path / "data" / f"{_TOPIC}-0") == []


def _go_on_until(broker: BrokerProcess, line: str) -> None:
    """Move the clock, for which a limited rate waits, until `line` is in the log."""

    def is_logged() -> bool:
        broker.advance_time(1.0)
        return line in broker.log_text()

    eventually(is_logged, f'line "{line}"')


def _child(pid: int) -> int:
    """Return the process that a broker has started; 0 without one."""
    children: list[str] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            children += (task / "children").read_text().split()
    return int(children[0]) if children else 0
