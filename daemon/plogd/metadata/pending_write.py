"""A write of `EmbeddedStore` that waits for its turn, and what becomes of each of its changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from plogd.metadata.store import BrokerRegistration, Change, Conflict, Key, Outcome
from plogd.ports import Later

LARGE: Final = 256
"""With more changes than this, a write is prepared and applied in slices."""


@dataclass(slots=True, kw_only=True)
class PendingWrite:
    """A call that waits for its turn, then for its records to become durable."""

    changes: Sequence[Change]
    atomic: bool
    later: Later[list[Outcome]]
    registration: BrokerRegistration | None = None
    conflicts: dict[int, Conflict] = field(default_factory=dict)
    """Of the changes, by index, that were not made."""
    error: Exception | None = None
    """Why none of them was made, where that was unexpected."""

    @property
    def is_large(self) -> bool:
        """Whether it has a batch of its own, which is made in slices."""
        return len(self.changes) > LARGE

    def roots(self) -> set[Key]:
        """What the write touches: whole topics, else single keys."""
        return {_root(change.key) for change in self.changes}


def _root(key: Key) -> Key:
    match key:
        case ("partition", name, _) | ("config", "topic", name):
            return ("topic", name)
        case _:
            return key
