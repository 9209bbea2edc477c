"""Random requests from several connections, while a well-behaved client produces and fetches.

The requests are the fuzzers' seeds with a few changed bytes, so that many of them reach a handler.
Afterwards the broker still runs, has logged no unexpected error and uses little more memory, and
all records of the well-behaved client are present.
"""

from __future__ import annotations

import random
import struct
import threading
import time
from pathlib import Path

import pytest

from plog.client.simple import SimpleClient
from plog.records.codec import Record
from plogd.testing.broker_process import BrokerProcess
from plogd.testing.plugin import BrokerFactory
from tests.fuzz.targets.dispatch import TARGET
from tests.helpers.hostile import HostileConnection, host_and_port, memory_mb

_CONNECTIONS = 4
_MEMORY_GROWTH_MB = 150
_INTERESTING = (0, 1, 2, 0x7F, 0x80, 0xFF)


class _FuzzingThread(threading.Thread):
    """A thread that sends changed requests over a series of connections."""

    def __init__(self, broker: BrokerProcess, seed: int, deadline: float) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._chance = random.Random(seed)
        self._deadline = deadline
        self._seeds = [*TARGET.seeds(), *(path.read_bytes() for path in TARGET.corpus_files())]
        self.sent = 0
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while time.monotonic() < self._deadline:
                with HostileConnection(self._broker) as connection:
                    for _ in range(self._chance.randint(1, 5)):
                        connection.send(self._frame())
                        self.sent += 1
                    connection.drain(0.01)
        except Exception as error:
            self.error = error

    def _frame(self) -> bytes:
        chance = self._chance
        data = bytearray(chance.choice(self._seeds))
        for _ in range(chance.choice((0, 1, 1, 2, 5))):
            # Mostly after the header: an error in the header would end nearly all requests there.
            at = chance.randrange(min(8, len(data) - 1), len(data))
            match chance.randrange(4):
                case 0:
                    data[at] = chance.choice(_INTERESTING)
                case 1:
                    data[at] = chance.randrange(256)
                case 2:
                    del data[at : at + chance.randrange(4)]
                case _:
                    data[at:at] = chance.randbytes(chance.randrange(4))
            if len(data) < 9:
                break
        size = len(data) if chance.random() < 0.98 else chance.randrange(-1, 1 << 20)
        return struct.pack(">i", size) + bytes(data)


class _WellBehavedClient:
    """A well-behaved client: produces to its own topic and reads everything back."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._client = SimpleClient(*host_and_port(broker), timeout_s=30)
        self._client.create_topic("kept-apart")
        self._sent: list[bytes] = []

    def once(self) -> None:
        values = [b"%d" % number for number in range(len(self._sent), len(self._sent) + 10)]
        offset = self._client.produce("kept-apart", 0, [Record(value=value) for value in values])
        assert offset == len(self._sent)
        self._sent += values
        assert [one.value for one in self._client.fetch("kept-apart", 0, offset)] == values

    def check_all(self) -> int:
        found: list[bytes | None] = []
        while len(found) < len(self._sent):
            found += [one.value for one in self._client.fetch("kept-apart", 0, len(found))]
        assert found == self._sent
        self._client.close()
        return len(found)


def _fuzz(broker: BrokerProcess, seconds: float, seed: int) -> None:
    client = _WellBehavedClient(broker)
    client.once()
    before_mb = memory_mb(broker)
    deadline = time.monotonic() + seconds
    threads = [_FuzzingThread(broker, seed + number, deadline) for number in range(_CONNECTIONS)]
    for thread in threads:
        thread.start()
    while time.monotonic() < deadline:
        client.once()
    for thread in threads:
        thread.join(60)
    assert [thread.error for thread in threads] == [None] * _CONNECTIONS
    assert all(thread.sent > 20 for thread in threads)
    assert client.check_all() > 100
    assert memory_mb(broker) - before_mb < _MEMORY_GROWTH_MB
    broker.stop()
    _assert_nothing_unexpected(broker.log_path)


def _assert_nothing_unexpected(log: Path) -> None:
    lines = log.read_text().splitlines()
    found = [line for line in lines if "Traceback" in line or "unexpected" in line]
    assert found == [], "\n".join(lines[max(0, lines.index(found[0]) - 5) :][:60])


@pytest.fixture
def fuzzed_broker(start_broker: BrokerFactory) -> BrokerProcess:
    """A broker with few partitions of `__consumer_offsets`: creating more would take too long."""
    return start_broker({"offsets.topic.num.partitions": "2", "num.partitions": "1"})


def test_random_requests_do_not_affect_another_client(fuzzed_broker: BrokerProcess) -> None:
    _fuzz(fuzzed_broker, 6, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("seed", [100, 200, 300])
def test_many_random_requests_do_not_affect_another_client(
    fuzzed_broker: BrokerProcess, seed: int
) -> None:
    _fuzz(fuzzed_broker, 60, seed=seed)
