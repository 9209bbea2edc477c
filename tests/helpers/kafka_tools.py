"""Apache Kafka's own Java tools: they decide whether our wire and our files are Kafka's.

tests/bench/kafka-jars fetches the jars from Maven, once, into a cache below the home folder;
tests/bench/kafka-cli starts a tool by its name. A tool is a JVM of its own: about a second.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.outside import missing, need_program

_BENCH = Path(__file__).parents[1] / "bench"
_INSTALL_TIMEOUT_S = 600
_RUN_TIMEOUT_S = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutput:
    """How a tool ended, and what it printed on both of its streams."""

    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class KafkaTools:
    """The installed tools, each called by its class name."""

    kafka_cli: Path

    @classmethod
    def installed(cls) -> KafkaTools:
        """Install the jars if they are not there; ends the test where that is not possible."""
        for program in ("bash", "java", "mvn"):
            need_program(program)
        done = subprocess.run(
            [_BENCH / "kafka-jars"], capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S
        )
        if done.returncode != 0:
            missing(f"Kafka's jars could not be fetched: {done.stderr.strip()[-500:]}")
        return cls(_BENCH / "kafka-cli")

    def attempt(self, tool: str, *arguments: str | Path, stdin: str = "") -> ToolOutput:
        """Run a tool, whatever becomes of it."""
        done = subprocess.run(
            [self.kafka_cli, tool, *map(str, arguments)],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_RUN_TIMEOUT_S,
        )
        return ToolOutput(code=done.returncode, stdout=done.stdout, stderr=done.stderr)

    def run(self, tool: str, *arguments: str | Path, stdin: str = "") -> str:
        """Run a tool that has to succeed; what it printed on its standard output."""
        output = self.attempt(tool, *arguments, stdin=stdin)
        assert output.code == 0, output.stdout + output.stderr
        return output.stdout
