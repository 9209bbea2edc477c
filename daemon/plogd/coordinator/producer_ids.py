"""Allocation of producer ids for idempotent producers; each id is unique in the cluster forever.

The broker reserves ids in blocks of a thousand. It allocates ids from a block only after the
metadata store has durably recorded the reservation. Unused ids are lost when the broker stops,
which costs less than a write per id. If two brokers reserve a block at the same time,
compare-and-set lets only one of them succeed, and the other retries.

Source: Kafka 4.0 ProducerIdManager, ProducerIdControlManager (block size, first id 0).
"""

from __future__ import annotations

from typing import Final

from plog.errors import CoordinatorNotAvailable, PlogError
from plogd.metadata.store import (
    ABSENT,
    Change,
    Conflict,
    Key,
    MetadataStore,
    ProducerIdsValue,
    Written,
)
from plogd.ports import Later, MaybeLater, spawn

BLOCK_SIZE: Final = 1000  # As in Kafka (ProducerIdsBlock).
_KEY: Final[Key] = ("producer_ids",)
_MAX_TRIES = 10  # An attempt fails only if another broker has reserved a block.


class ProducerIds:
    """This broker's current block of ids. Only one in a thousand calls to `next_id` waits."""

    def __init__(self, store: MetadataStore, *, broker_id: int, broker_epoch: int) -> None:
        self._store = store
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._next = 0
        self._end = 0
        self._waiting: dict[Later[int], None] = {}
        """Requests waiting for an id, oldest first; cancelled requests are removed."""
        self._is_fetching = False

    def next_id(self) -> MaybeLater[int]:
        """Return a new id. Fails with CoordinatorNotAvailable if no block can be reserved."""
        # A callback of `_on_block` may request an id; it must not overtake older requests.
        if self._next < self._end and not self._waiting:
            return self._take()
        later: Later[int] = Later(lambda: self._waiting.pop(later, None))
        self._waiting[later] = None
        if not self._is_fetching:
            self._fetch_block()
        return later

    def _take(self) -> int:
        taken = self._next
        self._next += 1
        return taken

    def _fetch_block(self) -> None:
        self._is_fetching = True
        spawn(self._reserve_block()).then(self._on_block, self._on_error)

    async def _reserve_block(self) -> int:
        """Reserve a block and return its first id."""
        value, version = self._store.load(_KEY).get(_KEY, (None, ABSENT))
        for _ in range(_MAX_TRIES):
            # The stored id is the first one that no broker has reserved.
            first: int = 0 if value is None else value.next_producer_id
            reserved = ProducerIdsValue(
                broker_id=self._broker_id,
                broker_epoch=self._broker_epoch,
                next_producer_id=first + BLOCK_SIZE,
            )
            change = Change(key=_KEY, value=reserved, expected=version)
            [outcome] = await self._store.write([change])
            match outcome:
                case Written():
                    return first
                case Conflict():
                    value, version = outcome.value, outcome.version
        raise CoordinatorNotAvailable(
            f"cannot reserve a block of producer ids within {_MAX_TRIES} attempts; try again"
        )

    def _on_block(self, first: int) -> None:
        self._next, self._end = first, first + BLOCK_SIZE
        while self._waiting and self._next < self._end:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.succeed(self._take())
        # After the loop: a callback that requests an id must not start a second fetch.
        self._is_fetching = False
        if self._waiting:
            self._fetch_block()

    def _on_error(self, error: Exception) -> None:
        self._is_fetching = False
        # Replace the dict before the loop, because a callback may request another id.
        waiting, self._waiting = self._waiting, {}
        # Producers repeat InitProducerId after COORDINATOR_NOT_AVAILABLE.
        reason = error if isinstance(error, PlogError) else CoordinatorNotAvailable(str(error))
        for later in waiting:
            later.fail(reason)
