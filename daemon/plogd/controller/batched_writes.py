"""Split the changes of a request into several writes to the metadata store.

The embedded store encodes, appends and replays a write of up to 256 changes in one turn; a larger
write delays all later writes. Use this module only for changes that do not depend on each other.

Any broker may write these keys. If another broker has changed a key in the meantime, the new value
is computed again from the value that the other broker has written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from plog.errors import InvalidRequest, KafkaError, KafkaStorageError, PolicyViolation
from plogd.fair_queue import FairQueue
from plogd.metadata.store import Change, Key, MetadataStore, Outcome, Written

MAX_CHANGES: Final = 10_000
"""Maximum number of changes in a request, Kafka's QuorumController.MAX_RECORDS_PER_USER_OP."""
CHANGES_PER_WRITE: Final = 200  # Less than LARGE in metadata/pending_write.py.
_MAX_TRIES: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """A change of a key that depends on its present value."""

    key: Key
    new_value: Callable[[Any], Any]
    """Returns the new value for the present value; None if the key is missing, or to remove it.
    Raises the KafkaError for the client."""


async def write_in_batches(
    store: MetadataStore, updates: Sequence[Update], noun: str, fair_queue: FairQueue
) -> list[KafkaError | None]:
    """Write `updates`, each with a different key; return an error or None for each.

    Messages refer to the updates as `noun`. Raises PolicyViolation if there are too many,
    InvalidRequest if the store cannot hold a key, and KafkaStorageError if other brokers change the
    same keys again and again. Earlier updates may have been written then.
    """
    # Checked before the first write, so that a request that is too large changes nothing.
    check_count(len(updates), noun)
    errors: list[KafkaError | None] = []
    size = min(CHANGES_PER_WRITE, store.max_atomic_changes)
    for start in range(0, len(updates), size):
        if start:  # Explicit, because a write without effect does not wait for the disk.
            await fair_queue.turn()
        errors += await _write(store, updates[start : start + size], noun)
    return errors


def check_count(count: int, noun: str) -> None:
    """Raise PolicyViolation if a request makes too many changes."""
    if count > MAX_CHANGES:
        raise PolicyViolation(
            f"a request can change at most {MAX_CHANGES} {noun}, but this request changes {count}"
        )


async def _write(
    store: MetadataStore, updates: Sequence[Update], noun: str
) -> list[KafkaError | None]:
    for _ in range(_MAX_TRIES):
        changes: list[Change] = []
        # After a conflict, the store has the values that other brokers have written.
        errors = [_add_change(changes, update, *store.get(update.key)) for update in updates]
        if not changes or _all_written(await _outcomes(store, changes)):
            return errors
    raise KafkaStorageError(
        f"cannot change {len(updates)} {noun}: other brokers changed them {_MAX_TRIES} times at the"
        " same time; try again"
    )


def _add_change(
    changes: list[Change], update: Update, value: Any, version: int
) -> KafkaError | None:
    try:
        new = update.new_value(value)
    except KafkaError as error:
        # Drop the traceback: thousands of tracebacks would use a lot of memory.
        return error.bare()
    if new != value:
        changes.append(Change(key=update.key, value=new, expected=version))
    return None


async def _outcomes(store: MetadataStore, changes: Sequence[Change]) -> list[Outcome]:
    try:
        return await store.write_atomic(changes)
    except ValueError as error:
        # For example, ZooKeeper cannot store ACLs for a name with a slash.
        raise InvalidRequest(str(error)) from None


def _all_written(outcomes: Sequence[Outcome]) -> bool:
    return all(isinstance(one, Written) for one in outcomes)
