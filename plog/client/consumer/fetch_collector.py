"""Handing out what is buffered: the part of a consumer that runs in the consuming thread.

Nothing here waits, and the only lock is held for moments: a batch is decoded outside of it. What
the engine does meanwhile (a seek, a partition taken away) wins: records are handed out only if the
position could be moved behind them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from plog.client.consumer.completed_fetch import ColumnRun
from plog.client.consumer.fetch_buffer import Buffered, FetchBuffer
from plog.client.consumer.fetch_metrics import FetchMetrics
from plog.client.consumer.subscription_state import SubscriptionState
from plog.client.network.ports import Network
from plog.client.values import ConsumerRecord
from plog.errors import PlogError
from plog.records.record_columns import RecordColumns

if TYPE_CHECKING:
    import pyarrow


class FetchCollector:
    """See the module's text. For one thread at a time, but for `has_data`."""

    def __init__(
        self,
        network: Network,
        positions: SubscriptionState,
        buffer: FetchBuffer,
        metrics: FetchMetrics,
        *,
        retry_s: float,
        on_room: Callable[[], None],
    ) -> None:
        self.on_poll: Callable[[], None] = lambda: None
        """Called when records are asked for, before any are handed out."""
        self._network = network
        self._positions = positions
        self._buffer = buffer
        self._metrics = metrics
        self._retry_s = retry_s
        """When what was damaged is fetched again."""
        self._on_room = on_room

    @property
    def has_data(self) -> bool:
        """Whether `take` would return or raise something. Any thread."""
        return self._positions.has_error or self._buffer.first() is not None

    def take(self, max_records: int) -> list[ConsumerRecord]:
        """Up to `max_records` of what is buffered; none if there is nothing.

        The positions move behind what is returned. Raises what the engine has found out, each
        thing once: OffsetOutOfRange, CorruptRecords, TopicAuthorizationFailed, ...; what other
        partitions have is handed out by the next calls. Raises ValueError for less than one.
        """
        self._begin(max_records)
        taken: list[ConsumerRecord] = []
        buffer = self._buffer
        while len(taken) < max_records and (one := buffer.first()) is not None:
            try:
                records = one.fetched.take(max_records - len(taken))
            except PlogError as damage:
                if taken:
                    break  # The next call begins with it.
                self._raise_if_wanted(one, damage)
                continue
            if buffer.took(one):
                if taken:
                    taken += records
                else:
                    taken = records
                self._count(one, len(records))
        if taken:
            self._metrics.took(len(taken))
        return taken

    def take_arrow(self, max_records: int) -> pyarrow.RecordBatch | None:
        """As `take`, as Arrow columns; None if there is nothing. Deserializers are not applied.

        Raises MissingExtra without pyarrow, before anything is taken.
        """
        from plog.client.consumer.arrow import record_batch, record_schema

        record_schema()
        self._begin(max_records)
        columns = RecordColumns()
        runs: list[ColumnRun] = []
        buffer = self._buffer
        while (rows := len(columns)) < max_records and not columns.is_full:
            one = buffer.first()
            if one is None:
                break
            try:
                added = one.fetched.take_columns(columns, max_records - rows)
            except PlogError as damage:
                if rows:
                    break
                self._raise_if_wanted(one, damage)
                continue
            if buffer.took(one):
                runs += added
                self._count(one, len(columns) - rows)
            else:
                columns.truncate(rows)
        if not runs:
            return None
        self._metrics.took(len(columns))
        return record_batch(columns, runs)

    def _begin(self, max_records: int) -> None:
        if max_records < 1:
            raise ValueError(f"max_records is {max_records}; nobody waits for less than one")
        self.on_poll()
        error = self._positions.pop_error()
        if error is not None:
            raise error

    def _count(self, one: Buffered, records: int) -> None:
        one.taken += records
        if one.fetched.is_done:
            self._metrics.used_up(one.size_bytes, one.taken)
            if self._buffer.pop_wish_for_room():
                self._on_room()

    def _raise_if_wanted(self, one: Buffered, error: PlogError) -> None:
        if self._buffer.failed(one, self._network.now_s() + self._retry_s):
            self._on_room()
            raise error
