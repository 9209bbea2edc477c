"""The ids of topics: random UUIDs, as in Kafka (KIP-516)."""

from __future__ import annotations

from typing import Final

from plog.types import ZERO_UUID, Uuid, uuid_to_text
from plogd.ports import Random

_RESERVED_IDS: Final = (ZERO_UUID, bytes(15) + b"\x01")
"""Ids that no topic may have: the value for "no id", and the metadata log's id."""


def new_topic_id(random: Random) -> Uuid:
    """Return a new id."""
    while True:
        raw = bytearray(random.random_bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40  # UUID version 4 (RFC 9562).
        raw[8] = raw[8] & 0x3F | 0x80  # The variant of RFC 9562.
        topic_id = bytes(raw)
        # Like Kafka, avoid ids whose text looks like a command-line option.
        if topic_id not in _RESERVED_IDS and not uuid_to_text(topic_id).startswith("-"):
            return topic_id
