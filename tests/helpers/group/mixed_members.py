"""Members of one group with different clients: their assignments, and how they join and leave.

Only assignments matter here, so plog's is a `GroupMember` without a consumer, on a reactor in its
own thread; the others are complete consumers. Each polls in the background until it leaves or dies.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from tests.helpers.client.client_under_test import (
    FETCH_WAIT_MS,
    HEARTBEAT_MS,
    SESSION_TIMEOUT_MS,
    TIMEOUT_S,
)
from tests.helpers.eventually import eventually
from tests.helpers.programs.kafka_tools import KafkaTools
from tests.helpers.programs.verifiable import VerifiableMember

ROOT = Path(__file__).parents[3]
_JAVA_PACKAGE = "org.apache.kafka.clients.consumer"
_IN_JAVA = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}


class MixedMember(Protocol):
    """A member that polls in the background."""

    @property
    def partitions(self) -> frozenset[int]:
        """Return its current partitions."""

    def leave(self) -> None:
        """Leave in an orderly way, and exit."""

    def kill(self) -> None:
        """Exit without leaving."""


class ProcessMember:
    """A member in a separate Python process, so that it can be killed; see mixed_member.py."""

    def __init__(
        self, client: str, bootstrap_servers: str, group: str, topic: str, strategy: str
    ) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `_end`.
        self._told = tempfile.NamedTemporaryFile()  # noqa: SIM115 - the same.
        self._process = subprocess.Popen(
            [
                sys.executable, "-m", "tests.helpers.group.mixed_member", client, bootstrap_servers,
                group, topic, strategy, self._told.name,
            ],
            stdin=subprocess.PIPE,
            stderr=self._errors,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "daemon")])},
        )  # fmt: skip

    @property
    def partitions(self) -> frozenset[int]:
        """Return the partitions in its last report."""
        assert self._process.poll() is None, self._error_output()
        lines = Path(self._told.name).read_text().splitlines()
        return frozenset(json.loads(lines[-1])) if lines else frozenset()

    def _error_output(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-3000:]

    def leave(self) -> None:
        """See `MixedMember`."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(TIMEOUT_S) == 0, self._error_output()
        self._end()

    def kill(self) -> None:
        """See `MixedMember`."""
        self._process.kill()
        self._process.wait()
        self._end()

    def _end(self) -> None:
        for file in (self._errors, self._told):
            file.close()


class JavaMember:
    """Kafka's own consumer."""

    def __init__(self, member: VerifiableMember) -> None:
        self._member = member

    @property
    def partitions(self) -> frozenset[int]:
        """See `MixedMember`."""
        return frozenset(self._member.partitions())

    def leave(self) -> None:
        """See `MixedMember`."""
        self._member.process.stop()

    def kill(self) -> None:
        """See `MixedMember`."""
        self._member.process.kill()


class MixedGroup:
    """One group on one topic; ``with`` ends all remaining members."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        strategy: str,
        tools: Callable[[], KafkaTools],
        folder: Path,
    ) -> None:
        self._place = bootstrap_servers, topic, topic, strategy
        self._tools = tools
        self._config = folder / f"{strategy}.properties"
        self._config.write_text(
            f"heartbeat.interval.ms={HEARTBEAT_MS}\nfetch.max.wait.ms={FETCH_WAIT_MS}\n"
            f"session.timeout.ms={SESSION_TIMEOUT_MS}\nmetadata.max.age.ms=1000\n"
        )
        self.members: list[MixedMember] = []

    def join(self, client: str) -> MixedMember:
        """Start a new member: "plog", "confluent", "kafka-python" or "java"."""
        bootstrap_servers, group, topic, strategy = self._place
        member: MixedMember
        if client == "java":
            consumer = VerifiableMember.start(
                self._tools(),
                bootstrap_servers,
                self._config,
                topic,
                group,
                "--assignment-strategy",
                f"{_JAVA_PACKAGE}.{_IN_JAVA[strategy]}",
            )
            member = JavaMember(consumer)
        else:
            member = ProcessMember(client, bootstrap_servers, group, topic, strategy)
        self.members.append(member)
        return member

    def leave(self, member: MixedMember) -> None:
        """Make it leave."""
        self.members.remove(member)
        member.leave()

    def kill(self, member: MixedMember) -> None:
        """Kill it."""
        self.members.remove(member)
        member.kill()

    def settle(self, count: int) -> None:
        """Wait until the members together own all `count` partitions, evenly, each once."""

        def shared() -> bool:
            owned = [member.partitions for member in self.members]
            sizes = sorted(map(len, owned))
            every = sorted(partition for each in owned for partition in each)
            return every == list(range(count)) and sizes[-1] - sizes[0] <= 1

        try:
            eventually(shared, f"even shares of {count} for {len(self.members)} members")
        except AssertionError as error:
            owned = [sorted(member.partitions) for member in self.members]
            raise AssertionError(f"{error}: {owned}") from None

    def __enter__(self) -> MixedGroup:
        return self

    def __exit__(self, *_: Any) -> None:
        for member in self.members:
            member.kill()
