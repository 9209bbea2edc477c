"""The consumer that all faces wrap: it waits until it has records to return.

`ConsumerCore.take` never waits, and it advances the positions past all records that it returns.
This module adds the wait in an application's poll loop, which ends when data arrives, the group
needs the consumer, or `wake_up` is called. It also keeps the records that were taken but not yet
returned to the application (pending_records.py); positions and commits exclude them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from plog.client.callback_checks import check_callback
from plog.client.consumer.core import ConsumerCore
from plog.client.consumer.pending_records import PendingRecords
from plog.client.errors import ClosedError, IllegalState, NoOffsetForPartition, WokenUp
from plog.client.values import (
    ConsumerRecord,
    OffsetAndMetadata,
    checked_offset,
    checked_partition,
    checked_partitions,
)
from plog.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")

ARROW_RECORDS_MAX = 1 << 20
"""The maximum number of records that `consume_arrow` returns by default."""

Offsets = Mapping[TopicPartition, OffsetAndMetadata | int]


def _unchanged(awaitable: Awaitable[Any]) -> Awaitable[Any]:
    return awaitable


class PollingConsumer(ConsumerCore):
    """A `ConsumerCore` whose `consume` waits for records.

    Only the consuming thread may use `polled`, `take` and `unread`.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.max_records = self._settings.max_poll_records
        """The maximum number of records that `consume` returns by default."""
        self.unread = PendingRecords()
        # Commits and positions must not include records that the application has not received.
        self.positions.held_back = self.unread.offsets
        self._data = self._network.signal()
        self._is_woken = False
        self.on_data = self._data.set

    # -- reading records --------------------------------------------------------------------------

    def polled(self, *, waits: bool = False) -> None:
        """Record a poll: the application has processed the records that it received earlier.

        With `waits`, the poll lasts until the next call to this method. Any thread may call this.
        """
        self._member.polled(waits=waits)

    async def poll(self, timeout_s: float = 0.0) -> ConsumerRecord | None:
        """Return the next record, or None if none arrives within `timeout_s`."""
        records = await self.consume(1, timeout_s)
        return records[0] if records else None

    async def consume(
        self, max_records: int | None = None, timeout_s: float | None = None
    ) -> list[ConsumerRecord]:
        """Return up to `max_records` (default ``max.poll.records``) as soon as any are available.

        Without `timeout_s`, the call waits indefinitely. Otherwise, it returns an empty list if no
        records arrive within that time.

        Raises:
            OffsetOutOfRange, CorruptRecords, SerializationFailed: a record cannot be read.
            UnknownTopicOrPartition: a topic does not exist and may not be created.
            WokenUp: `wakeup` was called.
            Exception: the group coordinator returned an error, or a rebalance listener failed.
        """
        count = self.max_records if max_records is None else max_records
        # Records that an iterator has left unread come first, to keep offset order.
        if self.unread:
            return self.unread.take(count)
        return await self.until_taken(lambda: self.take(count), timeout_s)

    async def consume_arrow(
        self, max_records: int | None = None, timeout_s: float | None = None
    ) -> pyarrow.RecordBatch | None:
        """Read records as `consume` does, but return them as columns of an Arrow record batch.

        The columns are topic, partition, offset, timestamp, timestamp_type, key, value, headers and
        leader_epoch. Deserializers are not applied. Requires the extra ``plog[arrow]``.
        """
        count = ARROW_RECORDS_MAX if max_records is None else max_records
        # Arrow batches are built from fetched data, not from records that were already decoded. To
        # return those records as well, fetch them again.
        self.give_back_unread()
        return await self.until_taken(lambda: self.take_arrow(count), timeout_s)

    async def wait_for_data(self, timeout_s: float | None = None) -> bool:
        """Serve the group, and wait until `take` would return records or raise an error."""
        return await self.until_taken(lambda: self.has_data, timeout_s)

    async def until_taken(
        self,
        take: Callable[[], T],
        timeout_s: float | None,
        *,
        adapt: Callable[[Awaitable[Any]], Awaitable[Any]] = _unchanged,
    ) -> T:
        """Call `take` until its result is true or `timeout_s` has passed; return the last result.

        A caller outside the engine's coroutines passes `adapt`, which makes the engine's awaitables
        awaitable for it. Raises WokenUp, and the same errors as `prepare` and `take`.
        """
        # Without a subscription or an assignment, the wait would never end.
        if not (self._member.is_subscribed or self.positions.assigned or self._is_closed):
            raise IllegalState(
                "cannot read records: the consumer has neither a subscription nor an assignment;"
                " subscribe to topics or assign partitions"
            )
        now_s = self._network.now_s
        deadline_s = None if timeout_s is None else now_s() + timeout_s
        while True:
            # Clear the signal before the checks: data that arrives during a check must end the
            # wait below.
            self._data.clear()
            if self._is_closed:
                raise ClosedError("the consumer is closed; create a new one")
            self.raise_if_woken()
            # Each round counts as a poll: the application has processed all earlier records.
            self.polled()
            if self.needs_prepare:
                await adapt(self.prepare())
            # `prepare` may revoke partitions, so take records only afterwards.
            taken = take()
            left_s = None if deadline_s is None else deadline_s - now_s()
            if taken or (left_s is not None and left_s <= 0):
                return taken
            # A wait counts as polling: max.poll.interval.ms must not expire on an idle topic.
            self.polled(waits=True)
            try:
                await adapt(self._data.wait(left_s))
            finally:
                # Even after a cancelled wait, the application has max.poll.interval.ms until its
                # next poll.
                self.polled()

    def wake_up(self) -> None:
        """End the current or the next wait with WokenUp."""
        # The flag stays set until a call sees it, even if that call starts later.
        self._is_woken = True
        self._data.set()

    def raise_if_woken(self) -> None:
        """Raise WokenUp if `wake_up` was called since the last call to this method."""
        if self._is_woken:
            self._is_woken = False
            raise WokenUp("wakeup() was called")

    # -- records taken but not yet returned -------------------------------------------------------

    def give_back_unread(self) -> None:
        """Drop the records that have not yet been returned, and fetch them again later."""
        for partition, offset in self.unread.offsets().items():
            # A revoked partition has no position to restore.
            if partition in self.positions.assigned:
                super().seek(partition, offset)
        self.unread.drop()

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions; partitions that were already assigned keep their position.

        If a partition does not exist, the next calls that read records raise an error. Raises
        IllegalState while the consumer is subscribed to topics, and TypeError for an argument that
        is not a partition.
        """
        super().assign(partitions)
        # Records from removed partitions must no longer be returned.
        self.unread.drop(self.unread.offsets().keys() - self.positions.assigned)

    async def close(self, timeout_s: float | None = None) -> None:
        await super().close(timeout_s)
        self.unread.drop()

    async def abandon(self) -> None:
        """Leave the group without a commit, because the process is exiting."""
        await self._member.abandon()

    async def unsubscribe(self) -> None:
        """Release all partitions and leave the group."""
        self.unread.drop()
        await super().unsubscribe()

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Continue at `offset`. Raises IllegalState if the partition is not assigned."""
        super().seek(partition, offset)
        # The records that were already taken do not start at the new position.
        self.unread.drop({partition})

    def _seek_to(self, partitions: Collection[TopicPartition], where: Any) -> None:
        super()._seek_to(partitions, where)
        # An empty collection means all partitions.
        self.unread.drop(set(partitions) or None)

    async def position(self, partition: TopicPartition, timeout_s: float | None = None) -> int:
        """Return the offset of the next record that this consumer will read.

        The call waits until the offset is known. Raises IllegalState if the partition is not
        assigned, UnknownTopicOrPartition if it does not exist, and RequestTimedOut after
        `timeout_s` (default ``default.api.timeout.ms``).
        """
        # The engine's position is already past the records that were taken but not returned.
        held_back = self.unread.offsets().get(partition)
        if held_back is not None:
            return held_back
        return await super().position(partition, timeout_s)

    async def seek_to_committed(
        self, partitions: Collection[TopicPartition] = (), timeout_s: float | None = None
    ) -> None:
        """Continue at the group's committed offsets, for all assigned partitions by default.

        ``auto.offset.reset`` applies to partitions without a committed offset. Raises
        NoOffsetForPartition if that is ``none``, and the same errors as `committed`.
        """
        asked = checked_partitions(partitions) or list(self.positions.assigned)
        missing = [partition for partition in asked if partition not in self.positions.assigned]
        if missing or not asked:
            raise IllegalState(
                f"cannot seek to committed offsets: not assigned: {', '.join(map(str, missing))}"
                if missing
                else "cannot seek to committed offsets: no partitions are assigned"
            )
        committed = await self.committed(asked, timeout_s)
        default = self.positions.default_reset
        # Check all partitions first, so that the call changes either all positions or none.
        missing = [partition for partition in asked if committed[partition] is None]
        if missing and default is None:
            raise NoOffsetForPartition(
                f"group {self._settings.group_id} has no committed offset for"
                f" {', '.join(map(str, sorted(missing)))}, and auto.offset.reset=none",
                missing,
            )
        for partition, offset in committed.items():
            if offset is not None:
                self.seek(partition, offset)
            elif default is not None:
                self._seek_to([partition], default)

    def lag(self, partition: TopicPartition) -> int | None:
        """Return the number of records between this consumer's position and the partition's end.

        Returns None while the position or the end is unknown.
        """
        lag = super().lag(partition)
        if lag is None or not self.unread:
            return lag
        taken_to = self.positions.position(partition)
        given_to = self.unread.offsets().get(partition, taken_to)
        # The engine's lag does not include the records that were taken but not returned.
        return lag if taken_to is None or given_to is None else lag + taken_to - given_to

    # -- commits ----------------------------------------------------------------------------------

    async def commit(self, offsets: Offsets | None = None, timeout_s: float | None = None) -> None:
        """Commit `offsets`, by default the positions after all returned records."""
        await self._member.commit(self.to_commit(offsets), timeout_s=timeout_s)

    def commit_async(
        self, offsets: Offsets | None = None, callback: Callable[..., Any] | None = None
    ) -> None:
        """Commit without waiting; `callback` receives the offsets and the error, or None."""
        check_callback("callback", callback)
        self._member.commit_async(self.to_commit(offsets), callback)

    def to_commit(self, offsets: Offsets | None) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to commit, by default the positions after all returned records.

        A plain number is an offset without metadata.
        """
        if offsets is None:
            return self.positions.consumed()
        return {
            checked_partition(partition): checked_offset(offset)
            for partition, offset in offsets.items()
        }
