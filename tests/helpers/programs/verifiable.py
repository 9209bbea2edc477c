"""VerifiableConsumer, Kafka's consumer that reports each of its steps as a line of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.helpers.programs.java_process import JavaProcess
from tests.helpers.programs.kafka_tools import KafkaTools

# A member learns of a rebalance from its heartbeat, by default every 3 s.
QUICK_MEMBER = "heartbeat.interval.ms=100\nfetch.max.wait.ms=50\nmetadata.max.age.ms=1000\n"


class VerifiableMember:
    """One member of a group on one topic; ``with member.process:`` stops it at the end."""

    def __init__(self, process: JavaProcess) -> None:
        self.process = process

    @classmethod
    def start(
        cls,
        tools: KafkaTools,
        bootstrap_servers: str,
        config: Path,
        topic: str,
        group: str,
        *options: str,
    ) -> VerifiableMember:
        """Start it; `config` is a file of client settings."""
        return cls(
            tools.start(
                "VerifiableConsumer", "--bootstrap-server", bootstrap_servers, "--topic", topic,
                "--group-id", group, "--command-config", config, *options,
            )
        )  # fmt: skip

    def partitions(self) -> set[int]:
        """Return its current partitions."""
        return _assigned(_events(self.process.lines))

    def wait_until_it_has(self, count: int) -> set[int]:
        """Wait until it has `count` partitions; return them."""

        def found(lines: Sequence[str]) -> set[int] | None:
            partitions = _assigned(_events(lines))
            return partitions if len(partitions) == count else None

        return self.process.wait_until(found, f"assignment of {count} partitions")

    def wait_until_committed(self, expected: Mapping[int, int]) -> None:
        """Return when its last commit in each of these partitions is this offset."""

        def found(lines: Sequence[str]) -> bool:
            return expected.items() <= _committed(_events(lines)).items()

        self.process.wait_until(found, f"commit of {expected}")


def _events(lines: Sequence[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines if line.startswith("{")]


def _assigned(events: list[dict[str, Any]]) -> set[int]:
    assigned: set[int] = set()
    for event in events:
        partitions = {each["partition"] for each in event.get("partitions", ())}
        if event["name"] == "partitions_assigned":
            assigned |= partitions
        elif event["name"] == "partitions_revoked":
            assigned -= partitions
    return assigned


def _committed(events: list[dict[str, Any]]) -> dict[int, int]:
    commits = [event for event in events if event["name"] == "offsets_committed"]
    assert all(commit["success"] for commit in commits), commits
    return {x["partition"]: x["offset"] for commit in commits for x in commit["offsets"]}
