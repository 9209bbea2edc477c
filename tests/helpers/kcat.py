"""kcat, the command-line client over librdkafka: one call, one finished process."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.outside import need_program

# kcat waits for ever by itself; a test that hangs should say where.
TIMEOUT_S = 120
# Only to save time: a new topic is asked for again without a pause, the end of a partition is known
# without a long poll.
_QUICK = ("-X", "topic.metadata.refresh.fast.interval.ms=50")
_QUICK_READER = (*_QUICK, "-X", "fetch.wait.max.ms=10")


@dataclass(frozen=True, slots=True)
class Kcat:
    """kcat against the brokers `bootstrap_servers`."""

    bootstrap_servers: str

    def command(self, *arguments: str | Path) -> list[str]:
        """The command line, for tests that want to run it themselves."""
        server = ("-b", self.bootstrap_servers)
        quick = _QUICK_READER if "-C" in arguments else _QUICK
        return [need_program("kcat"), *server, *quick, *map(str, arguments)]

    def run(self, *arguments: str | Path, stdin: bytes = b"") -> bytes:
        """Run it to its end; what it wrote to its standard output. An error of kcat is raised."""
        done = subprocess.run(
            self.command(*arguments), input=stdin, capture_output=True, timeout=TIMEOUT_S
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout

    def produce(self, topic: str, data: bytes, *arguments: str | Path) -> None:
        """Send `data`, a message a line unless `arguments` say otherwise."""
        self.run("-P", "-t", topic, *arguments, stdin=data)

    def consume(self, topic: str, *arguments: str | Path) -> bytes:
        """Everything from the beginning to the end of the topic, or as `arguments` say."""
        return self.run("-C", "-t", topic, "-e", "-q", *arguments)
