"""Requests and responses of Kafka 3.9's controller, described in README.md."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class ControlMessage(NamedTuple):
    """A message that Kafka has written, as bytes and as JSON."""

    name: str
    version: int
    data: bytes
    json: str


def load() -> list[ControlMessage]:
    """Return all messages."""
    lines = (Path(__file__).parent / "kafka-3.9.1_lines.txt").read_text().splitlines()
    words = [line.split(" ", 3) for line in lines]
    return [
        ControlMessage(name, int(version), bytes.fromhex(data), json)
        for name, version, data, json in words
    ]
