"""A pending write of `EmbeddedStore`, and the conflicts and errors that occurred in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from plogd.metadata.store import BrokerRegistration, Change, Conflict, Key, Outcome
from plogd.ports import Later

LARGE: Final = 256
"""A write is prepared and applied in slices if it has more changes than this."""


@dataclass(slots=True, kw_only=True)
class PendingWrite:
    """A write that waits for its turn, then for its records to become durable."""

    changes: Sequence[Change]
    atomic: bool
    later: Later[list[Outcome]]
    registration: BrokerRegistration | None = None
    # Sparse, because nearly all changes succeed.
    conflicts: dict[int, Conflict] = field(default_factory=dict)
    """The changes that were not made, by index."""
    error: Exception | None = None
    """The unexpected error that prevented all changes."""

    @property
    def is_large(self) -> bool:
        """Whether the write needs a separate batch, built in slices."""
        return len(self.changes) > LARGE

    def roots(self) -> set[Key]:
        """Return the keys that the write locks; a topic's key locks all keys of the topic."""
        return {_root(change.key) for change in self.changes}


def _root(key: Key) -> Key:
    # Removing a topic also removes its partitions and settings, so their keys lock the whole topic.
    match key:
        case ("partition", name, _) | ("config", "topic", name):
            return ("topic", name)
        case _:
            return key
