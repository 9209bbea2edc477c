"""F1 and F8: the space that segments reserve ahead of their appends, on real file systems.

It is released when the segment or the broker is closed, when the disk is full, and by the restart
after a kill or a power loss; no record is lost in any of these cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plog.client.simple import SimpleClient
from plog.errors import KafkaStorageError
from plog.records.codec import Record
from plogd.testing.broker_process import BrokerProcess
from tests.fault.clients import client_of
from tests.fault.devices import Ext4, ext4, fill_up, small_disk
from tests.helpers.eventually import eventually

_RESERVED = 512 << 10
_RECORD = 100 << 10
_UNUSED_MAX = 64 << 10
"""Blocks that a file system may allocate after the end of a file on its own."""
_SETTINGS = {"plog.log.preallocate.bytes": str(_RESERVED), "num.partitions": "1"}


def _unused_bytes(segment: Path) -> int:
    """Return the space that is allocated after the end of a file."""
    found = segment.stat()
    return found.st_blocks * 512 - found.st_size


def _segment(broker: BrokerProcess, data: Path, topic: str = "t") -> Path:
    """Return the newest segment of a topic."""
    return max((data / f"{topic}-0").glob("*.log"))


def _produce(client: SimpleClient, count: int, topic: str = "t") -> None:
    for number in range(count):
        client.produce(topic, 0, [Record(value=bytes([number]) * _RECORD)])


def _values(client: SimpleClient, topic: str = "t") -> list[bytes]:
    """Return the first byte of each record."""
    values: list[bytes] = []
    while records := client.fetch(topic, 0, len(values)):
        values += [record.value[:1] for record in records if record.value]
    return values


@contextmanager
def _reserving_broker(directory: Path, data: Path) -> Iterator[BrokerProcess]:
    """A broker with six records in topic ``t``, whose segment has reserved space."""
    broker = BrokerProcess(directory, {**_SETTINGS, "log.dirs": str(data)})
    with broker:
        with client_of(broker) as client:
            client.create_topic("t")
            _produce(client, 6)
        segment = _segment(broker, data)
        eventually(lambda: _unused_bytes(segment) > _UNUSED_MAX, "reserved space")
        yield broker


def _check_after_restart(broker: BrokerProcess, data: Path) -> None:
    """Check that nothing is reserved or lost, and that the next appends reserve space again."""
    segment = _segment(broker, data)
    assert _unused_bytes(segment) <= _UNUSED_MAX
    with client_of(broker) as client:
        assert _values(client) == [bytes([number]) for number in range(6)]
        _produce(client, 1)
        eventually(lambda: _unused_bytes(segment) > _UNUSED_MAX, "reserved space")
        assert len(_values(client)) == 7


@pytest.mark.parametrize("how", ["kill", "stop"])
@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_restart_releases_reserved_space(tmp_path: Path, kind: str, how: str) -> None:
    with small_disk(tmp_path, 32) if kind == "tmpfs" else ext4(tmp_path) as disk:
        data = (disk.path if isinstance(disk, Ext4) else disk) / "data"
        with _reserving_broker(tmp_path, data) as broker:
            segment = _segment(broker, data)
            if how == "kill":
                broker.kill()
                # The kernel may take unused pages of a tmpfs back when it reclaims memory.
                assert kind == "tmpfs" or _unused_bytes(segment) > _UNUSED_MAX
            else:
                broker.stop()
                assert _unused_bytes(segment) <= _UNUSED_MAX
            broker.start()
            _check_after_restart(broker, data)


def test_power_loss_with_reserved_space_loses_nothing(tmp_path: Path) -> None:
    with ext4(tmp_path) as disk:
        data = disk.path / "data"
        with _reserving_broker(tmp_path, data) as broker:
            disk.cut_power()
            broker.kill()
            disk.unmount()
            disk.mount()
            broker.start()
            _check_after_restart(broker, data)


def test_full_disk_releases_reserved_space_for_other_logs(tmp_path: Path) -> None:
    with small_disk(tmp_path, 32) as disk, _reserving_broker(tmp_path, disk / "data") as broker:
        with client_of(broker) as client:
            client.create_topic("u")
            client.produce("u", 0, [Record(value=b"first")])
            ballast = fill_up(disk)
            with pytest.raises(KafkaStorageError):
                _produce(client, 1, "u")
            # The rejection releases the space, so that a retry of the producer succeeds.
            segment = _segment(broker, disk / "data")
            eventually(lambda: _unused_bytes(segment) <= _UNUSED_MAX, "free space")
            _produce(client, 1, "u")
            assert _values(client, "u") == [b"f", b"\0"]
            assert _values(client) == [bytes([number]) for number in range(6)]
            ballast.unlink()
            _produce(client, 1)
        assert "is offline" not in broker.log_text()
