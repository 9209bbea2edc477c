"""An already running broker in place of plog's own, to check the tests against real Kafka.

``PLOG_TEST_BOOTSTRAP=127.0.0.1:19092 ./test integration`` runs the client tests against it: a test
that passes with plog and fails there expects behavior that Kafka does not have. With
``PLOG_TEST_DATA_DIR``, its log.dirs, tests may also read its files. Tests that stop or kill their
broker are skipped.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

BOOTSTRAP_VARIABLE = "PLOG_TEST_BOOTSTRAP"
DATA_DIR_VARIABLE = "PLOG_TEST_DATA_DIR"


class OutsideBroker:
    """The part of `plogd.testing.broker_process.BrokerProcess` that needs no child process."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers

    @property
    def data_dir(self) -> Path:
        """The directory of the topics' files."""
        path = os.environ.get(DATA_DIR_VARIABLE)
        if path is None:
            pytest.skip(f"looks at the broker's files, and {DATA_DIR_VARIABLE} is not set")
        return Path(path)

    def __getattr__(self, name: str) -> object:
        pytest.skip(f"uses broker.{name}, and the broker of {BOOTSTRAP_VARIABLE} is not ours")


def outside_broker() -> OutsideBroker | None:
    """Return the broker that the environment specifies, if any."""
    bootstrap_servers = os.environ.get(BOOTSTRAP_VARIABLE)
    return OutsideBroker(bootstrap_servers) if bootstrap_servers else None
