"""A 100 MB access log produced and consumed with kcat, compared line for line.

Some tests stop or kill the broker while kcat has more to send than it may keep in memory, so that
part of the file is acknowledged and part is in flight. kcat retries. It is idempotent, so no line
may be duplicated or reordered.
"""

from __future__ import annotations

import filecmp
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from plogd.testing.broker_process import BrokerProcess
from tests.helpers.access_log import write_access_log
from tests.helpers.programs.kcat import TIMEOUT_S, Kcat

SIZE_BYTES = 100_000_000
# Without idempotence, retries after a broken connection may repeat or reorder lines, as in Kafka.
SAFE = ("-X", "enable.idempotence=true", "-X", "queue.buffering.max.messages=20000")
# -E: keep retrying while the only broker is down; otherwise kcat exits.
PATIENT = ("-E", "-X", "reconnect.backoff.max.ms=200")


@pytest.fixture(scope="module")
def access_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("access") / "access.log"
    write_access_log(path, SIZE_BYTES)
    return path


def test_file_is_read_back_line_for_line(
    kcat: Kcat, topic: str, access_log: Path, tmp_path: Path
) -> None:
    kcat.run("-P", "-t", topic, "-p", "0", "-l", access_log)
    _assert_read_back(kcat, topic, access_log, tmp_path / "out.log")


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_file_is_read_back_line_for_line_when_compressed(
    kcat: Kcat, topic: str, access_log: Path, tmp_path: Path, codec: str
) -> None:
    kcat.run("-P", "-t", topic, "-p", "0", "-z", codec, "-l", access_log)
    _assert_read_back(kcat, topic, access_log, tmp_path / "out.log")


def test_file_is_read_back_line_for_line_after_a_restart_in_the_middle(
    own_broker: BrokerProcess, topic: str, access_log: Path, tmp_path: Path
) -> None:
    kcat = Kcat(own_broker.bootstrap_servers)
    _send_interrupted(kcat, topic, access_log, own_broker.restart)
    _assert_read_back(kcat, topic, access_log, tmp_path / "out.log")


def test_file_is_read_back_line_for_line_after_a_kill_in_the_middle(
    own_broker: BrokerProcess, topic: str, access_log: Path, tmp_path: Path
) -> None:
    kcat = Kcat(own_broker.bootstrap_servers)

    def kill() -> None:
        own_broker.kill()
        own_broker.restart()

    _send_interrupted(kcat, topic, access_log, kill)
    # Kill it again while idle: acknowledged records also survive a second recovery.
    kill()
    _assert_read_back(kcat, topic, access_log, tmp_path / "out.log")


def test_consumer_continues_after_a_kill_in_the_middle(
    own_broker: BrokerProcess, topic: str, access_log: Path
) -> None:
    kcat = Kcat(own_broker.bootstrap_servers)
    kcat.run("-P", "-t", topic, "-p", "0", "-l", access_log)
    # kcat prefetches at most 100,000 lines, a third of those left when the broker is killed.
    command = kcat.command("-C", "-t", topic, "-p", "0", "-e", "-q", *PATIENT)
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as reader,
        access_log.open("rb") as expected,
    ):
        assert reader.stdout is not None
        for start in range(0, SIZE_BYTES, SIZE_BYTES // 4):
            if start == SIZE_BYTES // 2:
                own_broker.kill()
                own_broker.restart()
            chunk = expected.read(SIZE_BYTES // 4)
            assert reader.stdout.read(len(chunk)) == chunk
        assert reader.stdout.read() == expected.read()
        assert reader.wait(TIMEOUT_S) == 0


def _send_interrupted(
    kcat: Kcat, topic: str, access_log: Path, interrupt: Callable[[], None]
) -> None:
    """Pass half of the file to kcat, interrupt, pass the rest and wait until all is sent."""
    command = kcat.command("-P", "-t", topic, "-p", "0", *SAFE, *PATIENT)
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE) as sender,
        access_log.open("rb") as lines,
    ):
        assert sender.stdin is not None
        # The write returns when at most the capacity of the pipe is unread.
        sender.stdin.write(lines.read(SIZE_BYTES // 2))
        sender.stdin.flush()
        interrupt()
        sender.stdin.write(lines.read())
        sender.stdin.close()
        assert sender.wait(TIMEOUT_S) == 0


def _assert_read_back(kcat: Kcat, topic: str, expected: Path, out: Path) -> None:
    with out.open("wb") as file:
        command = kcat.command("-C", "-t", topic, "-p", "0", "-e", "-q")
        subprocess.run(command, stdout=file, check=True, timeout=TIMEOUT_S)
    assert filecmp.cmp(out, expected, shallow=False), _difference(out, expected)


def _difference(out: Path, expected: Path) -> str:
    got, wanted = out.read_bytes().splitlines(), expected.read_bytes().splitlines()
    first = next((i for i, (a, b) in enumerate(zip(got, wanted, strict=False)) if a != b), None)
    repeated, lost = len(got) - len(set(got)), len(set(wanted) - set(got))
    return f"{repeated} lines are duplicates, {lost} are missing; first difference: line {first}"
