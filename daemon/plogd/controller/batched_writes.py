"""Many changes to the metadata store, a few in each write.

A write's records are encoded, appended and replayed in one turn each, so a write of thousands would
delay all clients. Used where the changes of one request do not depend on each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from plog.errors import PolicyViolation
from plogd.fair_queue import FairQueue
from plogd.metadata.store import Change, MetadataStore, Written

CHANGES_AT_ONCE: Final = 200


async def write_in_parts(
    store: MetadataStore, changes: Sequence[Change], what: str, fair_queue: FairQueue
) -> None:
    """Make `changes`, which only the caller makes. Raises PolicyViolation if there are too many."""
    limit = store.max_atomic_changes
    if len(changes) > limit:
        raise PolicyViolation(f"one request may change {limit} {what}, not {len(changes)}")
    for start in range(0, len(changes), CHANGES_AT_ONCE):
        if start:  # A write that changes nothing does not wait for the disk.
            await fair_queue.turn()
        outcomes = await store.write_atomic(changes[start : start + CHANGES_AT_ONCE])
        assert all(isinstance(one, Written) for one in outcomes), f"only the caller writes {what}"
