"""Audits of the pipeline with ``plog audit`` and ``plog spark audit``, and the topics by minute."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from examples.pipeline.traffic import CLICKS, LINES
from plog.client.audit.record_counts import count_records
from plog.client.topic_reader import TopicReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The exit code and the result of an audit."""

    command: str
    exit_code: int
    data: dict[str, Any]
    errors: str = ""

    @property
    def accounted(self) -> dict[str, str]:
        """The reported and the found records of each topic, as text."""
        return {
            name: f"reported {one['reported']:,}, found {one['found']:,}"
            for name, one in self.data.get("topics", {}).items()
        }

    @property
    def findings(self) -> list[str]:
        """Kind, topic, minute and producer of each finding."""
        return [
            finding_text(one["kind"], one["topic"], one["window_ms"], one["producer"])
            for one in self.data.get("findings", [])
        ]


def finding_text(kind: str, topic: str, window_ms: int, producer: str | None) -> str:
    """Return a finding as text.

    >>> finding_text("lost", "clicks", 60_000, "web-1")
    'lost in clicks at 00:01 of web-1'
    """
    time = datetime.fromtimestamp(window_ms / 1000, UTC).strftime("%H:%M")
    return f"{kind} in {topic} at {time} of {producer}"


def run_audit(words: Sequence[str], bootstrap_servers: str, timeout_s: float) -> Audit:
    """Run ``plog WORDS`` for both topics."""
    command = ["plog", *words, "--topic", f"{CLICKS},{LINES}"]
    more = ["--bootstrap-server", bootstrap_servers, "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "plog.cli", *command[1:], *more],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return Audit(
        command=" ".join(command),
        exit_code=done.returncode,
        data=json.loads(done.stdout) if done.stdout.strip() else {},
        errors=done.stderr,
    )


def records_by_minute(bootstrap_servers: str) -> dict[str, Counter[int]]:
    """Return the number of records in each minute of each topic, as the topics contain them."""
    with TopicReader({"bootstrap.servers": bootstrap_servers}) as reader:
        partitions = list(reader.partitions([CLICKS, LINES]))
        ends = reader.ends(partitions)
        ranges = {partition: (0, ends[partition]) for partition in partitions}
        counts = count_records(reader, ranges, lambda _: None)
    found: dict[str, Counter[int]] = {CLICKS: Counter(), LINES: Counter()}
    for window, totals in counts.items():
        found[window.topic][window.window_ms] += totals.records
    return found
