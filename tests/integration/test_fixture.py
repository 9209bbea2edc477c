"""The pytest fixture that plog gives to applications: quick, private, and honest about failures."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import plog.testing
from plogd.testing.broker_process import BrokerFailed, BrokerProcess
from plogd.testing.plugin import BrokerFactory
from tests.helpers.kcat import Kcat


def test_the_broker_is_there_for_the_test(plog_broker: BrokerProcess) -> None:
    kcat = Kcat(plog_broker.bootstrap_servers)
    kcat.produce("greetings", b"hello\n")
    assert kcat.consume("greetings") == b"hello\n"
    assert (plog_broker.data_dir / "greetings-0").is_dir()
    os.kill(plog_broker.pid, 0)


def test_data_and_address_outlive_a_restart_and_a_kill(plog_broker: BrokerProcess) -> None:
    address = plog_broker.bootstrap_servers
    Kcat(address).produce("kept", b"one\n")
    plog_broker.restart()
    Kcat(address).produce("kept", b"two\n")
    plog_broker.kill()
    assert not plog_broker.is_running
    plog_broker.restart()
    assert plog_broker.bootstrap_servers == address
    assert Kcat(address).consume("kept") == b"one\ntwo\n"


def test_two_brokers_know_nothing_of_each_other(plog_broker_factory: BrokerFactory) -> None:
    one, two = plog_broker_factory(), plog_broker_factory()
    assert one.bootstrap_servers != two.bootstrap_servers
    Kcat(one.bootstrap_servers).produce("here", b"x\n")
    assert not (two.data_dir / "here-0").exists()


def test_settings_are_kafkas(plog_broker_factory: BrokerFactory) -> None:
    broker = plog_broker_factory({"num.partitions": "5"})
    Kcat(broker.bootstrap_servers).produce("wide", b"x\n")
    assert len(list(broker.data_dir.glob("wide-*"))) == 5


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    broker = plog.testing.broker(tmp_path, {"num.partitions": "none"})
    with pytest.raises(BrokerFailed, match=r"num\.partitions"):
        broker.start()
    assert not broker.is_running
