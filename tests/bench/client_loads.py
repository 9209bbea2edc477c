"""Loads that measure the client library, the command line and the test fixtures, not the broker.

All use one plog. Each library runs in a separate process (library_load.py); within a round they run
in turn, so that a ratio compares the same minute of the machine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.peers import Peer
from tests.bench.rounds import Round

if TYPE_CHECKING:
    from tests.bench.session import Session

_TIMEOUT_S = 600
_QUICK_DIVISOR = 25
PRODUCERS = ("plog", "plog-interpreted", "confluent", "aiokafka", "kafka-python")
CONSUMERS = ("plog", "plog-interpreted", "plog-arrow", "confluent", "aiokafka", "kafka-python")
AUDITED = ("plog", "plog-audit")
LATE = ("plog", "aiokafka")
_TESTS = 100
_TEST_FILE = f"""
import pytest

@pytest.mark.parametrize("number", range({_TESTS}))
def test_has_its_own_topic(plog_session_broker, plog_topic, number):
    assert plog_topic
"""
_READY = """
import sys, time
began = time.perf_counter()
from pathlib import Path
from plogd.testing.broker_thread import BrokerThread
with BrokerThread(Path(sys.argv[1])) as broker:
    print(time.perf_counter() - began)
"""


def produce(session: Session) -> Generator[Round]:
    """Produce a million records to a new topic with each library."""
    return _libraries(session, "produce", PRODUCERS, records=1_000_000)


def produce_audit(session: Session) -> Generator[Round]:
    """Produce a million records to a new topic with and without the audit."""
    return _libraries(session, "produce", AUDITED, records=1_000_000)


def consume(session: Session) -> Generator[Round]:
    """Consume the same records with each library, in batches as librdkafka creates them."""
    return _libraries(session, "consume", CONSUMERS, records=1_000_000)


def latency(session: Session) -> Generator[Round]:
    """Send 200 records a second; measure the time until a consumer of the same library has each."""
    return _libraries(session, "latency", LATE, records=2000)


def compare(
    session: Session, mode: str, before: str, environment: Mapping[str, str]
) -> Generator[Round]:
    """Compare this tree's blocking client with that of `environment`, which is named `before`."""
    return _libraries(
        session, mode, ("plog", before), records=1_000_000, environments={before: environment}
    )


def _libraries(
    session: Session,
    mode: str,
    libraries: Sequence[str],
    *,
    records: int,
    environments: Mapping[str, Mapping[str, str]] | None = None,
) -> Generator[Round]:
    """Run rounds of one mode; a library with an environment is plog from another checkout."""
    others = environments or {}
    peer = session.peer("plog")
    records //= _QUICK_DIVISOR if session.quick else 1
    number = 0
    while True:
        number += 1
        round_ = {}
        if mode == "consume":
            _run(peer, "confluent", "produce", f"clients-{mode}-{number}", 2 * records)
        turn = libraries if number % 2 else libraries[::-1]
        for library in turn:
            topic = f"clients-{mode}-{number}"
            if mode != "consume":
                topic += f"-{library}"
            name = "plog" if library in others else library
            round_[library] = _run(peer, name, mode, topic, records, others.get(library))
            session.results.say(f"client-{mode}", library, "", round_[library])
        yield round_


def _run(
    peer: Peer,
    library: str,
    mode: str,
    topic: str,
    records: int,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.bench.library_load", "--library", library]
    command += ["--mode", mode, "--bootstrap", peer.bootstrap, "--topic", topic]
    command += ["--n", str(records), "--warmup", str(records // 20)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=True,
        env={**os.environ, **(environment or {})},
    )
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def commands(session: Session) -> Generator[Round]:
    """Measure the wall time of two command lines, the best of five."""
    peer = session.peer("plog")
    plog = [sys.executable, "-m", "plog.cli"]
    while True:
        figures = {
            "help_s": _best_wall_s([*plog, "--help"]),
            "list_s": _best_wall_s(
                [*plog, "topics", "--list", "--bootstrap-server", peer.bootstrap]
            ),
        }
        session.results.say("commands", "plog", "", figures)
        yield {"plog": figures}


def _best_wall_s(command: Sequence[str]) -> float:
    walls = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=True)
        walls.append(time.perf_counter() - began)
    return round(min(walls), 3)


def fixture(session: Session) -> Generator[Round]:
    """Measure the start of a broker thread, and a hundred tests with a topic each."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    while True:
        folder = Path(tempfile.mkdtemp(dir=session.folder))
        try:
            ready = [sys.executable, "-c", _READY, str(folder / "broker")]
            done = subprocess.run(
                ready, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
            )
            (folder / "test_topics.py").write_text(_TEST_FILE)
            command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
            began = time.perf_counter()
            subprocess.run(
                command,
                capture_output=True,
                env=environment,
                cwd=folder,
                timeout=_TIMEOUT_S,
                check=True,
            )
            figures = {
                "ready_s": round(float(done.stdout), 3),
                "tests_s": round(time.perf_counter() - began, 3),
            }
        finally:
            shutil.rmtree(folder)
        session.results.say("fixture", "plog", "", figures)
        yield {"plog": figures}
