"""A consumer as every face shows it: asked for records, it waits until there are some.

`ConsumerCore` never waits in `take`, and its positions are behind all that was taken. Here is what
lies between that and an application's loop: waiting for data, for the group and for `wake_up`; and
records that were taken and not yet given out (pending_records.py), which count as not consumed.
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
"""How many `consume_arrow` gives at once if it is not told."""

Offsets = Mapping[TopicPartition, OffsetAndMetadata | int]


def _as_it_is(awaitable: Awaitable[Any]) -> Awaitable[Any]:
    return awaitable


class PollingConsumer(ConsumerCore):
    """See the module's text. `polled`, `take` and `unread` are the consuming thread's."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.max_records = self._settings.max_poll_records
        """How many `consume` gives at once if it is not told."""
        self.unread = PendingRecords()
        self.positions.held_back = self.unread.offsets
        self._data = self._network.signal()
        self._is_woken = False
        self.on_data = self._data.set

    # -- asking for records -----------------------------------------------------------------------

    def polled(self, *, waits: bool = False) -> None:
        """The application asks for records, and is done with those it had. Any thread.

        If it `waits`, it counts as asking until the next call of this.
        """
        self._member.polled(waits=waits)

    async def poll(self, timeout_s: float = 0.0) -> ConsumerRecord | None:
        """The next record, None if there is none within `timeout_s`."""
        records = await self.consume(1, timeout_s)
        return records[0] if records else None

    async def consume(
        self, max_records: int | None = None, timeout_s: float | None = None
    ) -> list[ConsumerRecord]:
        """Return up to `max_records` (``max.poll.records``), as soon as there are any.

        Without `timeout_s` it waits for ever; otherwise the list is empty when that is over. Raises
        what was found out in the meantime: OffsetOutOfRange, CorruptRecords, SerializationFailed,
        UnknownTopicOrPartition for a topic that does not exist and may not be created, errors of
        the group's coordinator and of a listener; WokenUp after `wakeup`.
        """
        count = self.max_records if max_records is None else max_records
        if self.unread:
            return self.unread.take(count)
        return await self.until_taken(lambda: self.take(count), timeout_s)

    async def consume_arrow(
        self, max_records: int | None = None, timeout_s: float | None = None
    ) -> pyarrow.RecordBatch | None:
        """As `consume`, as columns: topic, partition, offset, timestamp, key, value, headers …

        Deserializers are not applied. Needs the extra ``plog[arrow]``.
        """
        count = ARROW_RECORDS_MAX if max_records is None else max_records
        self.give_back_unread()
        return await self.until_taken(lambda: self.take_arrow(count), timeout_s)

    async def wait_for_data(self, timeout_s: float | None = None) -> bool:
        """Do what the group wants done, and wait until `take` would give or raise something."""
        return await self.until_taken(lambda: self.has_data, timeout_s)

    async def until_taken(
        self,
        take: Callable[[], T],
        timeout_s: float | None,
        *,
        here: Callable[[Awaitable[Any]], Awaitable[Any]] = _as_it_is,
    ) -> T:
        """What `take` gives as soon as that is something; what it gave last when time is over.

        Who does not run it as a coroutine of the engine says how the engine's awaitables are to be
        awaited `here`. Raises WokenUp, and what `prepare` and `take` raise.
        """
        if not (self._member.is_subscribed or self.positions.assigned or self._is_closed):
            raise IllegalState("there is nothing to read: subscribe to topics or assign partitions")
        now_s = self._network.now_s
        deadline_s = None if timeout_s is None else now_s() + timeout_s
        while True:
            self._data.clear()
            if self._is_closed:
                raise ClosedError("the consumer is closed: make a new one")
            self.raise_if_woken()
            self.polled()
            if self.needs_prepare:
                await here(self.prepare())
            taken = take()
            left_s = None if deadline_s is None else deadline_s - now_s()
            if taken or (left_s is not None and left_s <= 0):
                return taken
            self.polled(waits=True)
            try:
                await here(self._data.wait(left_s))
            finally:  # Also if the wait is cancelled: who does not wait has to ask again in time.
                self.polled()

    def wake_up(self) -> None:
        """End the wait that is under way, or the next one, with WokenUp."""
        self._is_woken = True
        self._data.set()

    def raise_if_woken(self) -> None:
        """Raise WokenUp, once for all calls of `wake_up` up to now."""
        if self._is_woken:
            self._is_woken = False
            raise WokenUp("wakeup() was called")

    # -- what was taken and is not read -----------------------------------------------------------

    def give_back_unread(self) -> None:
        """Have what was not given out fetched again."""
        for partition, offset in self.unread.offsets().items():
            if partition in self.positions.assigned:
                super().seek(partition, offset)
        self.unread.drop()

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions; those that stay keep their position.

        A partition that does not exist is reported by the next calls that ask for records. Raises
        IllegalState while topics are subscribed to, TypeError for what is not a partition.
        """
        super().assign(partitions)
        self.unread.drop(self.unread.offsets().keys() - self.positions.assigned)

    async def close(self, timeout_s: float | None = None) -> None:
        await super().close(timeout_s)
        self.unread.drop()

    async def abandon(self) -> None:
        """Leave the group without a commit: the process ends."""
        await self._member.abandon()

    async def unsubscribe(self) -> None:
        """Give up all partitions, and leave the group."""
        self.unread.drop()
        await super().unsubscribe()

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Continue at `offset`. Raises IllegalState if the partition is not assigned."""
        super().seek(partition, offset)
        self.unread.drop({partition})

    def _seek_to(self, partitions: Collection[TopicPartition], where: Any) -> None:
        super()._seek_to(partitions, where)
        self.unread.drop(set(partitions) or None)

    async def position(self, partition: TopicPartition, timeout_s: float | None = None) -> int:
        """Return the offset of the next record that this consumer reads, once that is known.

        Raises IllegalState if the partition is not assigned, UnknownTopicOrPartition if it does not
        exist, RequestTimedOut after `timeout_s` (``default.api.timeout.ms``).
        """
        held_back = self.unread.offsets().get(partition)
        if held_back is not None:
            return held_back
        return await super().position(partition, timeout_s)

    async def seek_to_committed(
        self, partitions: Collection[TopicPartition] = (), timeout_s: float | None = None
    ) -> None:
        """Go on where the group has committed, of all partitions if none are given.

        Where it has committed nothing, auto.offset.reset says where. Raises NoOffsetForPartition if
        that is ``none``, and as `committed`.
        """
        asked = checked_partitions(partitions) or list(self.positions.assigned)
        missing = [partition for partition in asked if partition not in self.positions.assigned]
        if missing or not asked:
            raise IllegalState(
                f"there is nowhere to seek: {', '.join(map(str, missing))} is not assigned"
                if missing
                else "there is nowhere to seek: nothing is assigned"
            )
        committed = await self.committed(asked, timeout_s)
        default = self.positions.default_reset
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
        """Records between the position and the end, None while one of the two is not known."""
        lag = super().lag(partition)
        if lag is None or not self.unread:
            return lag
        taken_to = self.positions.position(partition)
        given_to = self.unread.offsets().get(partition, taken_to)
        return lag if taken_to is None or given_to is None else lag + taken_to - given_to

    # -- commits ----------------------------------------------------------------------------------

    async def commit(self, offsets: Offsets | None = None, timeout_s: float | None = None) -> None:
        """Commit `offsets`, by default those of all that the application has had."""
        await self._member.commit(self.to_commit(offsets), timeout_s=timeout_s)

    def commit_async(
        self, offsets: Offsets | None = None, callback: Callable[..., Any] | None = None
    ) -> None:
        """As `commit`, without waiting; `callback` is called with the offsets and the error."""
        check_callback("callback", callback)
        self._member.commit_async(self.to_commit(offsets), callback)

    def to_commit(self, offsets: Offsets | None) -> dict[TopicPartition, OffsetAndMetadata]:
        """What to commit: a number stands for an offset without metadata."""
        if offsets is None:
            return self.positions.consumed()
        return {
            checked_partition(partition): checked_offset(offset)
            for partition, offset in offsets.items()
        }
