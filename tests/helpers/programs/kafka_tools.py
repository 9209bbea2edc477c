"""Apache Kafka's own Java tools, which show whether plog's wire format and files are Kafka's.

tests/bench/kafka-jars downloads the jars from Maven once, into a cache below the home folder. The
tools run sequentially in one JVM (tests/integration/java/ToolServer.java), so that a call takes a
fifth of a second instead of a whole one.
"""

from __future__ import annotations

import os
import re
import struct
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import IO, Protocol

from tests.helpers.programs.java_process import (
    BENCH,
    JavaProcess,
    compiled_programs,
    installed_jars,
)

_RUN_TIMEOUT_S = 120
_LENGTH = struct.Struct(">i")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutput:
    """A tool's exit status, and its output on both streams."""

    code: int
    stdout: str
    stderr: str

    @property
    def text(self) -> str:
        """Both streams: tools print errors on either."""
        return self.stdout + self.stderr


class RunTool(Protocol):
    """Runs a tool against one broker, with any exit status."""

    def __call__(self, tool: str, *arguments: str | Path, stdin: str = "") -> ToolOutput: ...


class KafkaTools:
    """The installed tools, each called by its class name; not thread-safe."""

    def __init__(self, jars: Path) -> None:
        self.jars = jars
        self._server: subprocess.Popen[bytes] | None = None

    @classmethod
    def installed(cls) -> KafkaTools:
        """Install the jars if necessary; end the test if that is impossible."""
        return cls(installed_jars())

    def attempt(self, tool: str, *arguments: str | Path, stdin: str = "") -> ToolOutput:
        """Run a tool, with any exit status."""
        server = self._started()
        assert server.stdin is not None
        assert server.stdout is not None
        words = [tool, *map(str, arguments)]
        request = b"".join([_LENGTH.pack(len(words)), *map(_framed, [*words, stdin])])
        # A tool that hangs stops the JVM; the next call starts another one.
        too_late = threading.Timer(_RUN_TIMEOUT_S, server.kill)
        too_late.start()
        try:
            server.stdin.write(request)
            server.stdin.flush()
            [code] = _LENGTH.unpack(_read(server.stdout, _LENGTH.size))
            output = ToolOutput(
                code=code, stdout=_read_text(server.stdout), stderr=_read_text(server.stdout)
            )
        except (EOFError, BrokenPipeError) as error:
            self.close()
            message = (
                f"the JVM exited during the call, or was killed after {_RUN_TIMEOUT_S} s: {words}"
            )
            raise AssertionError(message) from error
        finally:
            too_late.cancel()
        return output

    def run(self, tool: str, *arguments: str | Path, stdin: str = "") -> str:
        """Run a tool that must succeed; return its standard output."""
        output = self.attempt(tool, *arguments, stdin=stdin)
        assert output.code == 0, output.text
        return output.stdout

    def refusal(self, tool: str, *arguments: str | Path) -> str:
        """Run a tool that must fail; return all its output."""
        output = self.attempt(tool, *arguments)
        assert output.code != 0, output.text
        return output.text

    def against(self, bootstrap_servers: str) -> RunTool:
        """Return `attempt` with the address of a broker."""

        def run_tool(tool: str, *arguments: str | Path, stdin: str = "") -> ToolOutput:
            server = ("--bootstrap-server", bootstrap_servers)
            return self.attempt(tool, *server, *arguments, stdin=stdin)

        return run_tool

    def start(self, main: str, *arguments: str | Path) -> JavaProcess:
        """Start a tool, or a test program (``programs.X``), in a separate JVM."""
        return JavaProcess(self.jars, main, *arguments)

    def close(self) -> None:
        """End the JVM."""
        if self._server is None:
            return
        self._server.kill()
        self._server.wait()
        for stream in (self._server.stdin, self._server.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        self._server = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._server is None:
            self._server = subprocess.Popen(
                [BENCH / "kafka-cli", "programs.ToolServer"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "KAFKA_CLASSES": str(compiled_programs(self.jars))},
            )
        return self._server


def table(text: str) -> list[dict[str, str]]:
    """The rows of a table of ConsumerGroupCommand, from its head in capitals to another line.

    >>> table("Remark\\n\\nGROUP  TOPIC\\ng  t\\n\\nError: so it is")
    [{'GROUP': 'g', 'TOPIC': 't'}]
    """
    lines = [line.split() for line in text.splitlines()]
    start = next((i for i, words in enumerate(lines) if "".join(words).isupper()), None)
    assert start is not None, f"no table in: {text}"
    head = lines[start]
    rows = takewhile(lambda words: len(words) == len(head), lines[start + 1 :])
    return [dict(zip(head, words, strict=True)) for words in rows]


def offsets(run: RunTool, topic: str, *options: str) -> dict[int, int]:
    """Return the offset that GetOffsetShell prints for each partition."""
    out = run("GetOffsetShell", "--topic", topic, *options).stdout
    lines = [line.split(":") for line in out.split()]
    return {int(partition): int(offset) for _, partition, offset in lines}


def broker_id(run: RunTool) -> str:
    """Return the id of the only broker."""
    found = re.search(r"\(id: (\d+) ", run("BrokerApiVersionsCommand").stdout)
    assert found is not None
    return found[1]


def _framed(text: str) -> bytes:
    data = text.encode()
    return _LENGTH.pack(len(data)) + data


def _read(stream: IO[bytes], length: int) -> bytes:
    data = stream.read(length)
    if len(data) < length:
        raise EOFError
    return data


def _read_text(stream: IO[bytes]) -> str:
    [length] = _LENGTH.unpack(_read(stream, _LENGTH.size))
    return _read(stream, length).decode(errors="replace")
