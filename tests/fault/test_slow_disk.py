"""F10: a slow sync delays acknowledgements and nothing else.

One test uses a preloaded library on any machine (bad_disk.py), one a throttled device where the
machine permits it (devices.py). The tests measure no time: while a produce waits for the slow disk,
all other requests must get responses.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from plog.records.codec import Record
from plogd.testing.broker_process import BrokerProcess
from tests.fault.arena import SETTINGS, any_seed, arena_of
from tests.fault.bad_disk import BadDisk
from tests.fault.clients import client_of
from tests.fault.devices import ext4
from tests.helpers.group.raw_group import RawMember

_SLOW_MS = 5_000
_BYTES_PER_SECOND = 256  # A block of the small file system takes four seconds.
_ROUNDS = 10
_PARTITIONS = 6
_GROUP_TOPIC_PARTITIONS = 2


@contextmanager
def other_disk(directory: Path) -> Iterator[Path]:
    """Yield a directory on a different file system: each has its own sync rounds."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == directory.stat().st_dev:
        pytest.skip("this machine has no second file system")
    other = Path(tempfile.mkdtemp(prefix="plog-test-", dir=memory))
    try:
        yield other
    finally:
        shutil.rmtree(other)


def _broker(directory: Path, slow: Path, environment: dict[str, str]) -> BrokerProcess:
    settings = {
        "log.dirs": f"{directory / 'fast'},{slow}",
        "offsets.topic.num.partitions": str(_GROUP_TOPIC_PARTITIONS),
        "group.initial.rebalance.delay.ms": "0",
        # For syncfs the kernel writes on its own thread, which is not throttled with the broker.
        "plog.flush.syncfs": "never",
    }
    return BrokerProcess(directory, settings, environment=environment)


def _partition_in(directory: Path) -> int:
    return int(min(directory.glob("t-*")).name.rpartition("-")[2])


def _group_in(directory: Path) -> str:
    """Return the name of a group whose partition is in `directory`."""
    numbers = {path.name.rpartition("-")[2] for path in directory.glob("__consumer_offsets-*")}
    return next(
        name
        for name in (f"g{number}" for number in range(1000))
        if str(_java_hash(name) % _GROUP_TOPIC_PARTITIONS) in numbers
    )


def _java_hash(text: str) -> int:
    """Return Java's String.hashCode without its sign, which determines a group's partition."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value & 0x7FFFFFFF


def _member(broker: BrokerProcess, group: str) -> RawMember:
    """Return the only member of a group, in a generation that is on disk."""
    member = RawMember(broker.bootstrap_servers, group)
    member.send_join()
    member.joined()
    assert member.sync({member.member_id: b""}).error_code == 0
    return member


@contextmanager
def _workload(broker: BrokerProcess, fast: Path, slow: Path) -> Iterator[Callable[[], None]]:
    """Create a topic and two groups; yield a function that produces to the slow disk and meanwhile
    sends all other requests.
    """
    with client_of(broker) as client:
        client.create_topic("t", _PARTITIONS)
        _member(broker, "first").connection.close()  # Creates __consumer_offsets.
        members = [_member(broker, _group_in(disk)) for disk in (fast, slow)]
        waiting_partition, other_partition = _partition_in(slow), _partition_in(fast)

        def work() -> None:
            first_offset = client.produce("t", waiting_partition, [Record(value=b"first")])
            with client_of(broker) as second_client, ThreadPoolExecutor(1) as executor:
                ack = executor.submit(
                    second_client.produce, "t", waiting_partition, [Record(value=b"second")]
                )
                for number in range(_ROUNDS):
                    assert client.produce("t", other_partition, [Record(value=b"x")]) == number
                    read = client.fetch("t", waiting_partition, first_offset, 0)
                    assert [record.value for record in read] == [b"first"]
                    assert client.api_versions()
                    assert client.metadata(["t"])
                    assert [member.heartbeat() for member in members] == [0, 0]
                    assert members[0].commit("t", number) == 0
                assert not ack.done(), "the disk was not slow enough"
                assert ack.result(60) == first_offset + 1
            read = client.fetch("t", waiting_partition, first_offset + 1)
            assert [record.value for record in read] == [b"second"]

        yield work
        for member in members:
            member.connection.close()


def test_slow_sync_delays_only_acknowledgements(tmp_path: Path) -> None:
    bad = BadDisk(tmp_path)
    with (
        other_disk(tmp_path) as slow,
        _broker(tmp_path, slow, bad.environment) as broker,
        _workload(broker, tmp_path / "fast", slow) as work,
    ):
        bad.make_syncs_slow(slow, _SLOW_MS)
        work()
        bad.heal()


def test_slow_device_delays_only_acknowledgements(tmp_path: Path) -> None:
    with (
        ext4(tmp_path) as disk,
        _broker(tmp_path, disk.path / "slow", {}) as broker,
        _workload(broker, tmp_path / "fast", disk.path / "slow") as work,
        disk.throttled(broker.pid, _BYTES_PER_SECOND),
    ):
        work()


def test_slow_syncs_and_a_kill_under_load_lose_nothing(tmp_path: Path) -> None:
    bad = BadDisk(tmp_path)
    dirs = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    broker = BrokerProcess(tmp_path, {**SETTINGS, "log.dirs": dirs}, environment=bad.environment)
    with broker, arena_of(broker, any_seed(), groups=0) as arena:
        arena.found()
        arena.start_clients()
        arena.run_until_acknowledged(200)
        with arena.trouble():
            bad.make_syncs_slow(tmp_path / "b", 100)
            arena.run_for(1_500)
            arena.kill()
            arena.start_broker()
            arena.run_for(1_500)
            bad.heal()
        arena.run_until_acknowledged(200)
        arena.finish()
