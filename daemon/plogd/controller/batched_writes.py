"""Split the changes of a request into several writes to the metadata store.

The store encodes, appends and replays a write of up to 256 changes in one turn; a larger write
delays all later writes. Use this module only for changes that do not depend on each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from plog.errors import PolicyViolation
from plogd.fair_queue import FairQueue
from plogd.metadata.store import Change, MetadataStore, Written

CHANGES_PER_WRITE: Final = 200  # Less than LARGE in metadata/pending_write.py.


async def write_in_batches(
    store: MetadataStore, changes: Sequence[Change], noun: str, fair_queue: FairQueue
) -> None:
    """Write `changes`; no other code may write their keys. Errors refer to the changes as `noun`.

    Raises PolicyViolation if there are too many changes.
    """
    # Checked before the first write, so that a request that is too large changes nothing.
    limit = store.max_atomic_changes
    if len(changes) > limit:
        raise PolicyViolation(
            f"a request can change at most {limit} {noun}, but this request changes {len(changes)}"
        )
    for start in range(0, len(changes), CHANGES_PER_WRITE):
        if start:  # Explicit, because a write without effect does not wait for the disk.
            await fair_queue.turn()
        outcomes = await store.write_atomic(changes[start : start + CHANGES_PER_WRITE])
        assert all(isinstance(one, Written) for one in outcomes), (
            f"only the caller may write {noun}"
        )
