"""``./run`` as a process: a message through the broker, then a clean stop by a signal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SETTINGS = ("listeners=PLAINTEXT://127.0.0.1:0", "plog.http.port=0")
COMMAND = [sys.executable, "-m", "plogd.tools.quickstart"]
TIMEOUT_S = 60


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_message_is_read_back_and_a_signal_stops_the_broker_cleanly(
    tmp_path: Path, end: signal.Signals
) -> None:
    options = [word for setting in SETTINGS for word in ("-o", setting)]
    with subprocess.Popen(
        [*COMMAND, *options], cwd=tmp_path, env=_environment(), stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        listens, sent, read, where = (running.stdout.readline() for _ in range(4))
        assert re.fullmatch(r"The broker listens on 127\.0\.0\.1:\d+\.\n", listens)
        text = sent.split("'")[1]
        assert read == f"Read back '{text}' from offset 0.\n"
        assert where == f"The data is in {tmp_path}/plog-data. Ctrl-C stops the broker.\n"
        running.send_signal(end)
        assert running.wait(TIMEOUT_S) == 0
    # The stop was clean, so the next start has nothing to recover.
    assert (tmp_path / "plog-data" / ".kafka_cleanshutdown").exists()


def test_invalid_setting_is_reported_before_anything_starts(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "-o", "num.partitions=none"],
        cwd=tmp_path,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 2
    assert "num.partitions" in done.stderr
    assert list(tmp_path.iterdir()) == []
