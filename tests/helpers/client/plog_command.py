"""The `plog` command in a separate process: its output and exit status."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from tests.helpers.eventually import eventually

_TIMEOUT_S = 120
_WITH_SUBCOMMANDS = ("broker", "cluster")
T = TypeVar("T")


class Plog:
    """Runs commands against one broker."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers

    def command(self, tool: str, *arguments: str | Path) -> list[str]:
        """Return the complete command line of a tool."""
        server = ["--bootstrap-server", self.bootstrap_servers]
        words = list(map(str, arguments))
        # The options of a subcommand follow its name.
        words = words + server if tool in _WITH_SUBCOMMANDS else server + words
        return [sys.executable, "-m", "plog.cli", tool, *words]

    def attempt(
        self, tool: str, *arguments: str | Path, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a tool, with any exit status."""
        return subprocess.run(
            self.command(tool, *arguments), input=stdin, capture_output=True, timeout=_TIMEOUT_S
        )

    def run(self, tool: str, *arguments: str | Path, stdin: bytes = b"") -> bytes:
        """Run a tool that must succeed; return its standard output."""
        done = self.attempt(tool, *arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    def refusal(self, tool: str, *arguments: str | Path, stdin: bytes = b"") -> str:
        """Run a tool that must fail; return its single line of error output."""
        done = self.attempt(tool, *arguments, stdin=stdin)
        text = done.stderr.decode()
        assert done.returncode == 1, (done.returncode, text)
        assert "Traceback" not in text
        return text

    def record_count(self, topic: str) -> int:
        """Return the number of offsets in a topic; 0 if it does not exist."""
        done = self.attempt("get-offsets", "--topic", topic)
        return sum(int(line.rpartition(b":")[2]) for line in done.stdout.splitlines())

    def start(self, tool: str, *arguments: str | Path) -> RunningPlog:
        """Start a tool that runs until it is stopped."""
        return RunningPlog(self.command(tool, *arguments))


class RunningPlog:
    """A running command; ``with`` kills it at the end if it is still running."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            # A background script ignores Ctrl-C, and its children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._readers = [
            threading.Thread(target=_collect, args=(stream, lines))
            for stream, lines in (
                (self._process.stdout, self.lines),
                (self._process.stderr, self.errors),
            )
        ]
        for reader in self._readers:
            reader.start()

    def type(self, text: str) -> None:
        """Write to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def wait_until(self, found: Callable[[Sequence[str]], T | None], what: str) -> T:
        """Return the first true result of `found` for its output lines."""
        try:
            return eventually(lambda: found(list(self.lines)), what)
        except AssertionError as error:
            raise AssertionError(f"{error}; it printed {self.lines} {self.errors}") from None

    def wait_for_lines(self, count: int) -> list[str]:
        """Wait until it has printed `count` lines; return them."""
        return self.wait_until(
            lambda lines: list(lines) if len(lines) >= count else None, f"{count} lines"
        )

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Send a signal, and wait for its end; return the exit code."""
        self._process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for its end; return the exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(_TIMEOUT_S)
        for reader in self._readers:
            reader.join()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self.wait()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()


def _collect(stream: object, lines: list[str]) -> None:
    for line in stream:  # type: ignore[attr-defined]  # Popen's, which is Any to some.
        lines.append(line.rstrip("\n"))
