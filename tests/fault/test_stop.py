"""F46: SIGTERM under load and with thousands of idle connections: a clean stop within a minute."""

from __future__ import annotations

import resource
import socket
from pathlib import Path

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.fault.arena import SETTINGS, any_seed, arena_of
from tests.fault.clients import client_of, connect
from tests.fault.real_producer import RealProducer

CLEAN_MARK = ".kafka_cleanshutdown"
STOPS = 4
IDLE = 3_000


def test_stop_under_load_is_clean_and_clients_continue(tmp_path: Path) -> None:
    dirs = [tmp_path / "a", tmp_path / "b"]
    broker = BrokerProcess(tmp_path, {**SETTINGS, "log.dirs": ",".join(map(str, dirs))})
    with broker, arena_of(broker, any_seed()) as arena:
        arena.found()
        arena.start_clients()
        real = RealProducer(arena, "real", "kept", 0)
        arena.start(real.run(), real.name)
        for _ in range(STOPS):
            real.run_until_delivered()
            arena.run_until_acknowledged(100)
            arena.stop_broker()
            assert all((path / CLEAN_MARK).exists() for path in dirs)
            arena.start_broker()
        arena.finish()
        assert real.errors == []
        log = broker.log_text()
        assert "was not stopped cleanly" not in log
        assert "Traceback" not in log


def test_thousands_of_idle_connections_do_not_delay_a_stop(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * IDLE:
        pytest.skip(f"NOT RUN: the limit of open files is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * IDLE), hard))
    idle: list[socket.socket] = []
    try:
        with BrokerProcess(tmp_path, {"socket.listen.backlog.size": str(IDLE)}) as broker:
            idle += [connect(broker) for _ in range(IDLE)]
            with client_of(broker) as client:
                client.create_topic("t")
            broker.stop()
            assert {each.recv(1) for each in idle} == {b""}
            assert (broker.data_dir / CLEAN_MARK).exists()
            broker.start()
    finally:
        for each in idle:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
