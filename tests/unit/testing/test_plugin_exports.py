"""`plog.testing` exports the types of the fixtures and imports them on first use."""

from __future__ import annotations

import subprocess
import sys

import pytest

import plog.testing
from plogd.testing.plugin import BrokerFactory
from plogd.testing.running_broker import RunningBroker


def test_types_of_fixtures_are_exported() -> None:
    assert plog.testing.RunningBroker is RunningBroker
    assert plog.testing.BrokerFactory is BrokerFactory
    for name in plog.testing.__all__:
        assert getattr(plog.testing, name) is not None


def test_both_kinds_of_brokers_are_running_brokers() -> None:
    assert issubclass(plog.testing.BrokerProcess, RunningBroker)
    assert issubclass(plog.testing.BrokerThread, RunningBroker)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'NoSuchName'"):
        _ = plog.testing.NoSuchName


def test_import_does_not_import_the_broker() -> None:
    program = "import plog.testing, sys; print([x for x in sys.modules if x.startswith('plogd')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"
