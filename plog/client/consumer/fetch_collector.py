"""The fetch collector: it returns buffered records in the consuming thread.

Its methods never wait, and they decode batches without holding the lock. Concurrent changes by the
engine, such as a seek or a revocation, take precedence: records are returned only if the position
could be moved past them.
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
    """The component that takes records from the buffer.

    Only one thread at a time may use it, except for `has_data`.
    """

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
        """Called on each poll, before any records are handed out."""
        self._network = network
        self._positions = positions
        self._buffer = buffer
        self._metrics = metrics
        self._retry_s = retry_s
        """The delay before corrupt data is fetched again."""
        self._on_room = on_room

    @property
    def has_data(self) -> bool:
        """Whether `take` would return records or raise an error. Thread-safe."""
        return self._positions.has_error or self._buffer.first() is not None

    def take(self, max_records: int) -> list[ConsumerRecord]:
        """Return up to `max_records` buffered records, or an empty list.

        The positions move past the returned records. Each error that the engine has recorded, such
        as OffsetOutOfRange, CorruptRecords or TopicAuthorizationFailed, is raised once; later calls
        return records from other partitions. Raises ValueError if `max_records` is less than 1.
        """
        self._begin(max_records)
        taken: list[ConsumerRecord] = []
        buffer = self._buffer
        while len(taken) < max_records and (one := buffer.first()) is not None:
            try:
                records = one.fetched.take(max_records - len(taken))
            except PlogError as damage:
                if taken:
                    break  # The next call raises the error.
                self._raise_if_wanted(one, damage)
                continue
            # The engine may have moved the position while this thread was decoding.
            if buffer.took(one):
                # Usually, one fetch provides all records, and its list is returned without a copy.
                if taken:
                    taken += records
                else:
                    taken = records
                self._count(one, len(records))
        if taken:
            self._metrics.took(len(taken))
        return taken

    def take_arrow(self, max_records: int) -> pyarrow.RecordBatch | None:
        """Return up to `max_records` records as Arrow columns without deserializing, or None.

        Raises the same errors as `take`, and MissingExtra if pyarrow is not installed.
        """
        from plog.client.consumer.arrow import record_batch, record_schema

        # Without pyarrow, this call fails before records are taken, so none are lost.
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
                # Return the rows before the error first; the next call raises the error.
                if rows:
                    break
                self._raise_if_wanted(one, damage)
                continue
            if buffer.took(one):
                runs += added
                self._count(one, len(columns) - rows)
            else:
                # A seek or a revocation has made these rows invalid in the meantime.
                columns.truncate(rows)
        if not runs:
            return None
        self._metrics.took(len(columns))
        return record_batch(columns, runs)

    def _begin(self, max_records: int) -> None:
        if max_records < 1:
            raise ValueError(f"max_records is {max_records}: it must be at least 1")
        # A poll means that earlier records were processed, even if it raises an error now.
        self.on_poll()
        error = self._positions.pop_error()
        if error is not None:
            raise error

    def _count(self, one: Buffered, records: int) -> None:
        one.taken += records
        if one.fetched.is_done:
            # Several calls may take records from one fetch; count it only once, at its end.
            self._metrics.fetch_consumed(one.size_bytes, one.taken)
            if self._buffer.pop_room_notice():
                self._on_room()

    def _raise_if_wanted(self, one: Buffered, error: PlogError) -> None:
        # If the generation has changed, the error is about data that is no longer needed.
        if self._buffer.failed(one, self._network.now_s() + self._retry_s):
            self._on_room()
            raise error
