"""Common value types: topic partitions, and UUIDs with their text form."""

from __future__ import annotations

import base64
from typing import NamedTuple, TypeAlias

Uuid: TypeAlias = bytes
"""A topic, cluster or directory id: 16 bytes as on the wire; see `uuid_to_text`."""

ZERO_UUID: Uuid = bytes(16)
"""The id that means "no id" in Kafka."""


class TopicPartition(NamedTuple):
    """A partition of a topic; its text form is also the name of its directory.

    >>> str(TopicPartition("page-views", 3))
    'page-views-3'
    """

    # A tuple is the fastest key of a dictionary: with a frozen dataclass, whose hash and comparison
    # run in Python, a lookup takes four times as long.
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def uuid_to_text(uuid: Uuid) -> str:
    """Return an id in Kafka's text form: URL-safe base64 without padding, 22 characters.

    >>> uuid_to_text(ZERO_UUID)
    'AAAAAAAAAAAAAAAAAAAAAA'
    """
    return base64.urlsafe_b64encode(uuid).decode("ascii").rstrip("=")


def uuid_from_text(text: str) -> Uuid:
    """Return the 16 bytes of an id in its text form. Raises ValueError.

    >>> uuid_from_text("AAAAAAAAAAAAAAAAAAAAAA") == ZERO_UUID
    True
    """
    # Kafka omits the padding, but the decoder requires it.
    uuid = base64.urlsafe_b64decode(text + "==")
    # The decoder skips characters outside its alphabet, so only the length reveals them.
    if len(uuid) != 16:
        raise ValueError(f"{text!r} is not a 22-character id")
    return uuid
