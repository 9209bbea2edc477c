"""F47: a broker out of file descriptors: it waits, logs the reason, and recovers with the limit.

The test lowers the limit of the running process (prlimit) to the number of its open files.
"""

from __future__ import annotations

import os
import resource
import selectors
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plog.errors import KafkaStorageError
from plog.records.codec import Record
from plog.wire.header import RequestHeader, encode_request
from plog.wire.messages.api_versions import ApiVersionsRequest
from plogd.testing.broker_process import BrokerProcess
from tests.fault.arena import SETTINGS, any_seed, arena_of
from tests.fault.clients import client_of, connect
from tests.helpers.eventually import eventually

_SPARE = 5
_CLIENTS = 40
_REMEDY = "raise LimitNOFILE or ulimit -n"


def _open_files(broker: BrokerProcess) -> int:
    return max(map(int, os.listdir(f"/proc/{broker.pid}/fd"))) + 1


@contextmanager
def _no_more_files(broker: BrokerProcess, spare: int = 0) -> Iterator[None]:
    """Limit the broker to `spare` more open files within the block."""
    before = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    limit = (_open_files(broker) + spare, before[1])
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, limit)
    try:
        yield
    finally:
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, before)


def test_new_clients_wait_for_a_descriptor_while_others_are_served(tmp_path: Path) -> None:
    hello = encode_request(RequestHeader(18, 0, 1, "waits"), ApiVersionsRequest())
    with BrokerProcess(tmp_path) as broker, client_of(broker) as client:
        client.create_topic("t")
        client.produce("t", 0, [Record(value=b"x")])
        with _no_more_files(broker, _SPARE):
            waiting = [connect(broker) for _ in range(_CLIENTS)]
            try:
                for each in waiting:
                    each.sendall(hello)
                eventually(
                    lambda: "paused accepting connections" in broker.log_text(), "the log line"
                )
                assert _REMEDY in broker.log_text()
                for number in range(1, 50):
                    assert client.produce("t", 0, [Record(value=b"x")]) == number
                    assert len(client.fetch("t", 0, number)) == 1
                ready = _with_response(waiting)
                assert len(ready) < _CLIENTS
                # Connections that are served close, so that waiting ones are served.
                served = 0
                while waiting:
                    ready = eventually(lambda: _with_response(waiting), "responses")
                    for each in ready:
                        assert each.recv(1 << 16)
                        waiting.remove(each)
                        each.close()
                        served += 1
                assert served == _CLIENTS
            finally:
                for each in waiting:
                    each.close()


def _with_response(connections: list) -> list:  # type: ignore[type-arg]
    """Return the connections on which a response has arrived."""
    with selectors.DefaultSelector() as selector:
        for each in connections:
            selector.register(each, selectors.EVENT_READ)
        return [key.fileobj for key, _ in selector.select(0.2)]


def test_failed_topic_creation_reports_a_remedy_and_leaves_no_files(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, client_of(broker) as client:
        with _no_more_files(broker, 1):
            with pytest.raises(KafkaStorageError, match=_REMEDY):
                client.create_topic("t", 20)
            assert "is offline" not in broker.log_text()
        assert not list(broker.data_dir.glob("t-*"))
        client.create_topic("t", 20)
        assert client.produce("t", 19, [Record(value=b"x")]) == 0


def test_writes_are_refused_without_loss_when_a_segment_cannot_roll(tmp_path: Path) -> None:
    large = [Record(value=bytes(600_000))]
    with BrokerProcess(tmp_path, {"log.segment.bytes": str(1 << 20)}) as broker:
        with client_of(broker) as client:
            client.create_topic("t")
            client.produce("t", 0, large)
            assert client.fetch("t", 0, 0)  # Keeps the segment's indexes open.
            with _no_more_files(broker):
                for _ in range(3):
                    with pytest.raises(KafkaStorageError, match=_REMEDY):
                        client.produce("t", 0, large)
                assert [record.offset for record in client.fetch("t", 0, 0)] == [0]
            assert client.produce("t", 0, large) == 1
            assert "is offline" not in broker.log_text()
        broker.restart()
        with client_of(broker) as client:
            assert [record.offset for record in client.fetch("t", 0, 1)] == [1]


def test_lack_of_descriptors_under_load_loses_nothing(tmp_path: Path) -> None:
    dirs = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    broker = BrokerProcess(tmp_path, {**SETTINGS, "log.dirs": dirs})
    with broker, arena_of(broker, any_seed()) as arena:
        arena.found()
        arena.start_clients()
        arena.run_until_acknowledged(300)
        with arena.trouble():
            for _ in range(3):
                with _no_more_files(broker):
                    arena.run_for(700)
                arena.run_until_acknowledged(300)
            with _no_more_files(broker):
                arena.run_for(300)
                arena.kill()
                arena.start_broker()
        arena.finish()
        assert "is offline" not in broker.log_text()
        assert "Traceback" not in broker.log_text()
