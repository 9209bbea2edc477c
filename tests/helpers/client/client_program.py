"""Clients in other languages: programs that read commands from stdin and respond on stdout.

Every line is a JSON object. A command is ``{"id": 1, "op": "seek", …}``, its response ``{"id": 1,
"ok": …}``, or ``"refused"`` with the broker's error, or ``"failed"`` for any other error. Between
them, the program prints its members' events: ``{"member": 1, "partitions": [0, 3]}`` and
``{"member": 1, "read": [partition, offset, value]}``.

The programs are below tests/integration/node and tests/integration/go. They and their dependencies
are built on first use, in a folder of the user's cache whose name is derived from their content.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from tests.helpers.client.client_under_test import (
    FETCH_WAIT_MS,
    HEARTBEAT_MS,
    SESSION_TIMEOUT_MS,
    TIMEOUT_S,
    GroupFacts,
    Place,
    Read,
    Refused,
)
from tests.helpers.outside import missing, need_program

_INTEGRATION = Path(__file__).parents[2] / "integration"
_MAKE_TIMEOUT_S = 600

# The newest franz-go for Debian 13's version of Go, and an old one for Debian 12's.
_GO_MODULES = [((1, 24), "go.mod"), ((1, 19), "debian12.mod")]
# Use the installed Go, without a C compiler.
_GO_SETTINGS = {"GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false", "CGO_ENABLED": "0"}


class ClientProgram:
    """A `Client` (client_under_test.py) in a separate process."""

    def __init__(
        self, command: Sequence[str | Path], bootstrap_servers: str, **environment: str
    ) -> None:
        settings = {
            "BOOTSTRAP_SERVERS": bootstrap_servers,
            "SESSION_TIMEOUT_MS": str(SESSION_TIMEOUT_MS),
            "HEARTBEAT_MS": str(HEARTBEAT_MS),
            "FETCH_WAIT_MS": str(FETCH_WAIT_MS),
        }
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **settings, **environment},
        )
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._members: list[ProgramMember] = []
        self._reader = threading.Thread(target=self._read_lines, daemon=True)
        self._reader.start()

    def call(self, op: str, **arguments: Any) -> Any:
        """Send a command and wait for its response. Raises Refused."""
        future: Future[Any] = Future()
        stdin = self._process.stdin
        assert stdin is not None
        with self._lock:
            number = len(self._waiting)
            self._waiting[number] = future
            stdin.write(json.dumps({"id": number, "op": op, **arguments}).encode() + b"\n")
            stdin.flush()
        return future.result(TIMEOUT_S)

    def close(self) -> None:
        """Close the program's input: it leaves its groups and exits."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            assert self._process.wait(TIMEOUT_S) == 0
        finally:
            self._process.kill()
        self._reader.join()

    def join(self, group: str, topic: str) -> ProgramMember:
        """Start a new member."""
        member = ProgramMember(self, len(self._members))
        self._members.append(member)
        self.call("join", member=member.number, group=group, topic=topic)
        return member

    def produce(self, topic: str, values: Mapping[int, list[str]]) -> None:
        """Send the messages, and wait for all acknowledgments."""
        self.call("produce", topic=topic, values=values)

    def committed(self, group: str, topic: str) -> dict[int, Place]:
        """OffsetFetch."""
        places = self.call("committed", group=group, topic=topic)
        return {int(partition): Place(*place) for partition, place in places.items()}

    def create_topic(
        self, topic: str, partitions: int, settings: Mapping[str, str] | None = None
    ) -> None:
        """CreateTopics."""
        self.call("create_topic", topic=topic, partitions=partitions, settings=settings or {})

    def delete_topic(self, topic: str) -> None:
        """DeleteTopics."""
        self.call("delete_topic", topic=topic)

    def topics(self) -> set[str]:
        """Metadata of all topics."""
        return set(self.call("topics"))

    def partition_count(self, topic: str) -> int:
        """Metadata of one topic."""
        return int(self.call("partition_count", topic=topic))

    def add_partitions(self, topic: str, total: int) -> None:
        """CreatePartitions."""
        self.call("add_partitions", topic=topic, total=total)

    def settings(self, topic: str) -> dict[str, str]:
        """DescribeConfigs."""
        return dict(self.call("settings", topic=topic))

    def alter_settings(self, topic: str, changes: Mapping[str, str]) -> None:
        """AlterConfigs or IncrementalAlterConfigs."""
        self.call("alter_settings", topic=topic, changes=changes)

    def groups(self) -> set[str]:
        """ListGroups."""
        return set(self.call("groups"))

    def describe_group(self, group: str) -> GroupFacts:
        """DescribeGroups."""
        state, members = self.call("describe_group", group=group)
        return GroupFacts(state, tuple(members))

    def delete_group(self, group: str) -> None:
        """DeleteGroups."""
        self.call("delete_group", group=group)

    def alter_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """OffsetCommit without a member id."""
        self.call("alter_offsets", group=group, topic=topic, offsets=offsets)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """DeleteRecords."""
        self.call("delete_records", topic=topic, before=before)

    def offsets(self, topic: str, when: str | int) -> dict[int, int]:
        """ListOffsets."""
        offsets = self.call("offsets", topic=topic, when=str(when))
        return {int(partition): offset for partition, offset in offsets.items()}

    def _read_lines(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if "member" in message:
                self._members[message["member"]].on_event(message)
            elif "ok" in message:
                self._waiting[message["id"]].set_result(message["ok"])
            elif "refused" in message:
                self._waiting[message["id"]].set_exception(Refused(message["refused"]))
            else:
                error = RuntimeError(message["failed"])
                self._waiting[message["id"]].set_exception(error)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(RuntimeError("the program has ended"))


class ProgramMember:
    """A `Member` inside the program."""

    def __init__(self, program: ClientProgram, number: int) -> None:
        self.number = number
        self.partitions: frozenset[int] = frozenset()
        self.reads: list[Read] = []
        self._program = program

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Handle an event that the program reports for this member."""
        if "partitions" in event:
            self.partitions = frozenset(event["partitions"])
        else:
            self.reads.append(Read(*event["read"]))

    def commit(self, places: Mapping[int, Place]) -> None:
        """Commit, and wait for the response."""
        offsets = {partition: (place.offset, place.metadata) for partition, place in places.items()}
        self._program.call("commit", member=self.number, places=offsets)

    def seek(self, partition: int, offset: int) -> None:
        """Continue reading from this position."""
        self._program.call("seek", member=self.number, partition=partition, offset=offset)

    def leave(self) -> None:
        """Leave the group."""
        self._program.call("leave", member=self.number)
        self.partitions = frozenset()


def node_modules() -> Path:
    """Return the folder of the packages in tests/integration/node, downloaded on first use."""
    need_program("node")
    npm, lists = need_program("npm"), _INTEGRATION / "node"
    files = [lists / "package.json", lists / "package-lock.json"]

    def install(folder: Path) -> None:
        for file in files:
            (folder / file.name).write_bytes(file.read_bytes())
        _make([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], folder, "npm's packages")

    return _made_once("node", files, install) / "node_modules"


def go_program() -> Path:
    """Return the compiled tests/integration/go, built on first use for the installed Go."""
    go, sources = need_program("go"), _INTEGRATION / "go"
    modules = next((name for least, name in _GO_MODULES if _go_version(go) >= least), None)
    if modules is None:
        missing("Go is too old for franz-go")
    sums = str(Path(modules).with_suffix(".sum"))
    files = [*sorted(sources.glob("*.go")), sources / modules, sources / sums]

    def build(folder: Path) -> None:
        command = [go, "build", f"-modfile={modules}", "-o", str(folder / "client"), "."]
        _make(command, sources, "the Go client", **_GO_SETTINGS)

    return _made_once("go", files, build) / "client"


def _go_version(go: str) -> tuple[int, ...]:
    """Return (1, 24) for ``go version go1.24.4 linux/amd64``."""
    output = subprocess.run([go, "version"], capture_output=True, text=True, check=True).stdout
    return tuple(map(int, output.split()[2].removeprefix("go").split(".")[:2]))


def _make(command: Sequence[str], folder: Path, what: str, **environment: str) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=_MAKE_TIMEOUT_S,
    )
    if done.returncode != 0:
        missing(f"{what} could not be made: {(done.stdout + done.stderr).strip()[-500:]}")


def _made_once(name: str, files: Sequence[Path], make: Callable[[Path], None]) -> Path:
    """Return a cached folder that `make` has filled from these files."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "plog-bench"
    content = hashlib.sha256(b"".join(x.name.encode() + x.read_bytes() for x in files))
    made = cache / f"{name}-{content.hexdigest()[:16]}"
    if not made.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as outer:
            folder = Path(outer) / "made"
            folder.mkdir()
            make(folder)
            try:
                folder.rename(made)
            except OSError:
                assert made.exists()  # Another test run finished first.
    return made
