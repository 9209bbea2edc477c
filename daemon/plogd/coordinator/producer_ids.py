"""Producer ids for idempotent producers, each given once in the life of the cluster.

Ids come in blocks of a thousand. A block belongs to this broker once the store says so, durably,
and before its first id is given; what is left of it at a stop is lost, cheaper than a write
for each id. Two brokers can ask at the same time: compare-and-set decides, the other tries again.

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

BLOCK_SIZE: Final = 1000
_KEY: Final[Key] = ("producer_ids",)
_MAX_TRIES = 10


class ProducerIds:
    """The ids this broker may give. `next_id` is ready at once, but for one in a thousand."""

    def __init__(self, store: MetadataStore, *, broker_id: int, broker_epoch: int) -> None:
        self._store = store
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._next = 0
        self._end = 0
        self._waiting: dict[Later[int], None] = {}
        """Requests without an id, the oldest one first; those that give up are removed."""
        self._is_fetching = False

    def next_id(self) -> MaybeLater[int]:
        """An id nobody has. Fails with CoordinatorNotAvailable when there is no block to be had."""
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
        spawn(self._new_block()).then(self._serve, self._refuse)

    async def _new_block(self) -> int:
        """Reserve a block; its first id."""
        value, version = self._store.load(_KEY).get(_KEY, (None, ABSENT))
        for _ in range(_MAX_TRIES):
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
        raise CoordinatorNotAvailable("no block of producer ids could be reserved, try again")

    def _serve(self, first: int) -> None:
        self._next, self._end = first, first + BLOCK_SIZE
        while self._waiting and self._next < self._end:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.succeed(self._take())
        self._is_fetching = False
        if self._waiting:
            self._fetch_block()

    def _refuse(self, error: Exception) -> None:
        self._is_fetching = False
        waiting, self._waiting = self._waiting, {}
        reason = error if isinstance(error, PlogError) else CoordinatorNotAvailable(str(error))
        for later in waiting:
            later.fail(reason)
