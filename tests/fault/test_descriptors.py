"""F47: a broker that may open no more files: it waits, says why, and goes on when it may again.

The limit is lowered below the running process (prlimit), to what it has open.
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
    """The broker may open no more than `spare` files more than it has open."""
    before = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    limit = (_open_files(broker) + spare, before[1])
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, limit)
    try:
        yield
    finally:
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, before)


def test_new_clients_wait_for_a_descriptor_and_the_others_do_not_notice(tmp_path: Path) -> None:
    hello = encode_request(RequestHeader(18, 0, 1, "waits"), ApiVersionsRequest())
    with BrokerProcess(tmp_path) as broker, client_of(broker) as client:
        client.create_topic("t")
        client.produce("t", 0, [Record(value=b"x")])
        with _no_more_files(broker, _SPARE):
            waiting = [connect(broker) for _ in range(_CLIENTS)]
            try:
                for each in waiting:
                    each.sendall(hello)
                eventually(lambda: "paused accepting connections" in broker.log_text(), "line")
                assert _REMEDY in broker.log_text()
                for number in range(1, 50):
                    assert client.produce("t", 0, [Record(value=b"x")]) == number
                    assert len(client.fetch("t", 0, number)) == 1
                answered = _answered(waiting)
                assert len(answered) < _CLIENTS
                # Who is served goes: then who waits is served.
                served = 0
                while waiting:
                    answered = eventually(lambda: _answered(waiting), "answers")
                    for each in answered:
                        assert each.recv(1 << 16)
                        waiting.remove(each)
                        each.close()
                        served += 1
                assert served == _CLIENTS
            finally:
                for each in waiting:
                    each.close()


def _answered(connections: list) -> list:  # type: ignore[type-arg]
    """Those on which something has come."""
    with selectors.DefaultSelector() as selector:
        for each in connections:
            selector.register(each, selectors.EVENT_READ)
        return [key.fileobj for key, _ in selector.select(0.2)]


def test_a_topic_that_cannot_be_made_says_what_to_do_and_leaves_nothing(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker, client_of(broker) as client:
        with _no_more_files(broker, 1):
            with pytest.raises(KafkaStorageError, match=_REMEDY):
                client.create_topic("t", 20)
            assert "is offline" not in broker.log_text()
        assert not list(broker.data_dir.glob("t-*"))
        client.create_topic("t", 20)
        assert client.produce("t", 19, [Record(value=b"x")]) == 0


def test_a_segment_that_cannot_be_rolled_refuses_writes_and_loses_nothing(tmp_path: Path) -> None:
    large = [Record(value=bytes(600_000))]
    with BrokerProcess(tmp_path, {"log.segment.bytes": str(1 << 20)}) as broker:
        with client_of(broker) as client:
            client.create_topic("t")
            client.produce("t", 0, large)
            assert client.fetch("t", 0, 0)  # Its indexes are open from now on.
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


def test_under_load_want_of_descriptors_loses_nothing(tmp_path: Path) -> None:
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
