"""Clients that run on this host, in the network of a guest."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.deb.guest import Guest
from tests.helpers.eventually import eventually
from tests.helpers.programs.kcat import Kcat

SERVER = "127.0.0.1:9092"
_TIMEOUT_S = 300.0


def kcat(guest: Guest, *arguments: str | Path, server: str = SERVER, stdin: str = "") -> str:
    """Run kcat to its end; return its output."""
    command = guest.in_network(*Kcat(server).command(*arguments))
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=_TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def produce(guest: Guest, topic: str, text: str, *, server: str = SERVER) -> None:
    """Send the lines of `text` as messages and wait until they are acknowledged."""
    kcat(guest, "-P", "-t", topic, "-X", "acks=all", server=server, stdin=text)


def consume(guest: Guest, topic: str, *, server: str = SERVER) -> str:
    """Return all messages of a topic, one per line."""
    return kcat(guest, "-C", "-t", topic, "-e", "-q", server=server)


def answers(guest: Guest, *, server: str = SERVER) -> bool:
    """Return whether the broker returns metadata."""
    command = guest.in_network(*Kcat(server).command("-L", "-m", "1"))
    return subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S).returncode == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """What a load has seen; numbers of messages are consecutive from 0."""

    acknowledged: list[int]
    longest_gap_s: float
    connections: int
    refused: int


class Load:
    """A process that produces and connects without pause until `stop`; see load.py."""

    def __init__(self, guest: Guest, topic: str, server: str = SERVER) -> None:
        command = [sys.executable, "-m", "tests.deb.load", server, topic]
        self._process = subprocess.Popen(
            guest.in_network(*command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        assert self._line() == "ready"

    def stop(self) -> LoadResult:
        """Stop the load and return its result."""
        self._process.send_signal(signal.SIGTERM)
        output, _ = self._process.communicate(timeout=_TIMEOUT_S)
        return LoadResult(**json.loads(output.splitlines()[-1]))

    def wait_for_acknowledgement(self) -> None:
        """Wait until a message that is sent from now on has been acknowledged."""
        self._process.send_signal(signal.SIGUSR1)
        assert self._line() == "acknowledged"

    def kill(self) -> None:
        """End the process if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")


@contextmanager
def load_on(guest: Guest, topic: str, *, server: str = SERVER) -> Iterator[Load]:
    """Run a load, which has begun to get acknowledgements, during the block."""
    load = Load(guest, topic, server)
    try:
        load.wait_for_acknowledgement()
        yield load
    finally:
        load.kill()


def wait_until_answering(guest: Guest, *, server: str = SERVER) -> None:
    """Wait until the broker answers."""
    eventually(lambda: answers(guest, server=server), f"answer of {server}")


def assert_kept(guest: Guest, topic: str, acknowledged: list[int], *, server: str = SERVER) -> None:
    """Check that a topic has each acknowledged number, in order and once."""
    numbers = [int(line) for line in consume(guest, topic, server=server).splitlines()]
    assert numbers == sorted(set(numbers))
    assert set(acknowledged) <= set(numbers)
