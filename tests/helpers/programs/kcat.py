"""kcat, the command-line client based on librdkafka: each call runs one process to its end."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.outside import need_program

# kcat has no timeout of its own; this one makes a hanging test fail at the right place.
TIMEOUT_S = 120
# These only save time: metadata of a new topic is requested again without a pause, and the end of a
# partition is detected without a long poll.
_QUICK = ("-X", "topic.metadata.refresh.fast.interval.ms=50")
_QUICK_READER = (*_QUICK, "-X", "fetch.wait.max.ms=10")


@dataclass(frozen=True, slots=True)
class Kcat:
    """kcat with the brokers `bootstrap_servers`."""

    bootstrap_servers: str

    def command(self, *arguments: str | Path) -> list[str]:
        """Return the command line, for tests that start it themselves."""
        server = ("-b", self.bootstrap_servers)
        quick = _QUICK_READER if "-C" in arguments else _QUICK
        return [need_program("kcat"), *server, *quick, *map(str, arguments)]

    def run(self, *arguments: str | Path, stdin: bytes = b"") -> bytes:
        """Run it to its end; return its standard output. Raises an error if kcat fails."""
        done = subprocess.run(
            self.command(*arguments), input=stdin, capture_output=True, timeout=TIMEOUT_S
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout

    def produce(self, topic: str, data: bytes, *arguments: str | Path) -> None:
        """Send `data`, one message per line unless `arguments` specify otherwise."""
        self.run("-P", "-t", topic, *arguments, stdin=data)

    def consume(self, topic: str, *arguments: str | Path) -> bytes:
        """Read from the beginning to the end of the topic, or as `arguments` specify."""
        return self.run("-C", "-t", topic, "-e", "-q", *arguments)
