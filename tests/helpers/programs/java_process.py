"""Java programs of these tests, and long-running Kafka tools: one JVM for each.

The sources, tests/integration/java/*.java, are compiled together and cached next to Kafka's jars
under a name derived from their content. A program reports its actions in lines on standard output;
tests wait for those lines.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from tests.helpers.outside import missing, need_program

BENCH = Path(__file__).parents[2] / "bench"
_SOURCES = Path(__file__).parents[2] / "integration" / "java"
_INSTALL_TIMEOUT_S = 600
_COMPILE_TIMEOUT_S = 120
WAIT_TIMEOUT_S = 60.0

T = TypeVar("T")


def installed_jars() -> Path:
    """Return the folder of Kafka's jars, downloaded on first use; end the test if that fails."""
    for program in ("bash", "java", "mvn"):
        need_program(program)
    done = subprocess.run(
        [BENCH / "kafka-jars"], capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S
    )
    if done.returncode != 0:
        missing(f"Kafka's jars could not be fetched: {done.stderr.strip()[-500:]}")
    return Path(done.stdout.splitlines()[0])


def compiled_programs(jars: Path) -> Path:
    """Return the folder of the compiled programs; javac runs only after a source has changed."""
    sources = sorted(_SOURCES.glob("*.java"))
    content = hashlib.sha256(b"".join(x.name.encode() + x.read_bytes() for x in sources))
    classes = jars.parent / f"classes-{jars.name}-{content.hexdigest()[:16]}"
    if not classes.exists():
        javac = need_program("javac")
        with tempfile.TemporaryDirectory(dir=jars.parent) as folder:
            made = Path(folder) / "classes"
            subprocess.run(
                [javac, "-nowarn", "-Xlint:-options", "-cp", f"{jars}/*", "-d", made, *sources],
                check=True,
                timeout=_COMPILE_TIMEOUT_S,
            )
            _move_unless_there(made, classes)
    return classes


def _move_unless_there(made: Path, classes: Path) -> None:
    """Move the folder, unless a concurrent test run has compiled the same."""
    try:
        made.rename(classes)
    except OSError:
        assert classes.exists()


class JavaProcess:
    """A running JVM whose output lines are read as they arrive; ``with`` stops it at the end.

    `main` is one of the test programs (``programs.X``) or the name of a tool in kafka-cli.
    """

    def __init__(self, jars: Path, main: str, *arguments: str | Path) -> None:
        self._main = main
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__.
        self._process = subprocess.Popen(
            [BENCH / "kafka-cli", main, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            env={**os.environ, "KAFKA_CLASSES": str(compiled_programs(jars))},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def lines(self) -> Sequence[str]:
        """Return all lines so far."""
        with self._changed:
            return list(self._lines)

    def tell(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def wait_for(self, pattern: str, start: int = 0) -> re.Match[str]:
        """Return the first line, from number `start` on, that matches `pattern`."""

        def found(lines: Sequence[str]) -> re.Match[str] | None:
            return next((m for line in lines[start:] if (m := re.search(pattern, line))), None)

        return self.wait_until(found, pattern)

    def wait_until(self, found: Callable[[Sequence[str]], T | None], what: str) -> T:
        """Return the first true result of `found` for the lines; `what` names it in an error."""
        deadline = time.monotonic() + WAIT_TIMEOUT_S
        with self._changed:
            result = found(self._lines)
            while not result and not self._ended:
                if not self._changed.wait(deadline - time.monotonic()):
                    break
                result = found(self._lines)
        assert result, f"{self._main}: no {what} in:\n{self.output()[-4000:]}"
        return result

    def output(self) -> str:
        """Return all output on both streams, for the text of an error."""
        self._stderr.seek(0)
        return "\n".join([*self.lines, self._stderr.read().decode(errors="replace")])

    def wait(self) -> int:
        """Wait until it exits; return the exit code."""
        code = self._process.wait(WAIT_TIMEOUT_S)
        self._reader.join()
        return code

    def end(self) -> None:
        """Close its input, which ends the test programs; they must succeed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self.wait() == 0, self.output()

    def stop(self) -> None:
        """Send SIGTERM, and wait for its end."""
        self._process.send_signal(signal.SIGTERM)
        self.wait()

    def kill(self) -> None:
        """Send SIGKILL: its connections end without a goodbye."""
        self._process.kill()
        self.wait()

    def __enter__(self) -> JavaProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill() if error else self._process.terminate()
        try:
            self.wait()
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        for stream in (self._process.stdin, self._process.stdout, self._stderr):
            if stream is not None:
                stream.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._add(line.rstrip("\n"))
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _add(self, line: str) -> None:
        with self._changed:
            self._lines.append(line)
            self._changed.notify_all()
