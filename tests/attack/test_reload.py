"""A reload that never ends: SIGHUP while the settings file is a FIFO without a writer."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.attack.target import Target

_SETTINGS = "log.retention.ms=1000000\n"


def test_settings_file_that_is_a_fifo(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Clients are served meanwhile, and SIGTERM stops the broker: that is how `Target` ends."""
    file = tmp_path / "server.properties"
    file.write_text(_SETTINGS)
    with Target(tmp_path, config_file=file) as target:
        file.unlink()
        os.mkfifo(file)
        with target.attack(request), target.connect() as peer:
            for _ in range(20):
                os.kill(target.broker.pid, signal.SIGHUP)
                peer.ping()


def test_settings_file_that_was_a_fifo_for_a_while(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """When the file is regular again, a reload reads it."""
    file = tmp_path / "server.properties"
    file.write_text(_SETTINGS)
    with Target(tmp_path, config_file=file) as target, target.attack(request):
        file.unlink()
        os.mkfifo(file)
        os.kill(target.broker.pid, signal.SIGHUP)
        with target.connect() as peer:
            peer.ping()
        with suppress(OSError):  # Fails without a reader: the broker does not wait for a writer.
            os.close(os.open(file, os.O_WRONLY | os.O_NONBLOCK))
        file.unlink()
        file.write_text(_SETTINGS)
        target.broker.reload()
