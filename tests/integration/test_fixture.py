"""The pytest fixtures that plog provides for tests of applications."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import plog.testing
from plogd.testing.broker_process import BrokerFailed, BrokerProcess
from plogd.testing.plugin import BrokerFactory
from tests.helpers.kcat import Kcat


def test_broker_serves_the_test(plog_broker: BrokerProcess) -> None:
    kcat = Kcat(plog_broker.bootstrap_servers)
    kcat.produce("greetings", b"hello\n")
    assert kcat.consume("greetings") == b"hello\n"
    assert (plog_broker.data_dir / "greetings-0").is_dir()
    os.kill(plog_broker.pid, 0)


def test_data_and_address_survive_a_restart_and_a_kill(plog_broker: BrokerProcess) -> None:
    address = plog_broker.bootstrap_servers
    Kcat(address).produce("kept", b"one\n")
    plog_broker.restart()
    Kcat(address).produce("kept", b"two\n")
    plog_broker.kill()
    assert not plog_broker.is_running
    plog_broker.restart()
    assert plog_broker.bootstrap_servers == address
    assert Kcat(address).consume("kept") == b"one\ntwo\n"


def test_two_brokers_are_independent(plog_broker_factory: BrokerFactory) -> None:
    one, two = plog_broker_factory(), plog_broker_factory()
    assert one.bootstrap_servers != two.bootstrap_servers
    Kcat(one.bootstrap_servers).produce("here", b"x\n")
    assert not (two.data_dir / "here-0").exists()


def test_kafka_settings_take_effect(plog_broker_factory: BrokerFactory) -> None:
    broker = plog_broker_factory({"num.partitions": "5"})
    Kcat(broker.bootstrap_servers).produce("wide", b"x\n")
    assert len(list(broker.data_dir.glob("wide-*"))) == 5


def test_start_that_fails_raises_the_reason(tmp_path: Path) -> None:
    broker = plog.testing.broker(tmp_path, {"num.partitions": "none"})
    with pytest.raises(BrokerFailed, match=r"num\.partitions"):
        broker.start()
    assert not broker.is_running
