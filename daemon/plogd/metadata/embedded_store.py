"""The metadata store of a single broker, kept in the log `__cluster_metadata-0`.

The log holds Kafka's KRaft metadata records in ordinary batches (docs/decisions/0002), so Kafka's
dump tool can read it, and group commit makes it durable like every other log. Clients cannot read
this log.

Writes are queued. While a batch is being synced, later writes accumulate; if they concern different
topics, they share the next batch. When the batch is durable, the store updates the image, notifies
watchers and completes the writes. If the broker crashes before that, the log keeps either the whole
batch or none of it. A write of many changes, such as a topic with thousands of partitions, is also
a single batch, but is prepared and applied to the image in slices (fair_queue.py). The next batch
begins only after the current batch has been applied.

Every write completes with an outcome or an error, even if an unexpected exception is raised. A
failed write leaves nothing in the log. If a record in the log cannot be applied to the image, the
store rejects all later writes.

Called on the reactor's thread. Source: Kafka 4.0 metadata; KIP-595 for the log's name and topic id.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import inf
from typing import Any, Final

from plog.errors import KafkaError, KafkaStorageError
from plog.types import TopicPartition, uuid_from_text
from plog.wire.internal.metadata_records import (
    FeatureLevelRecord,
    MetadataRecord,
)
from plogd.fair_queue import SLICE, FairQueue, Slices
from plogd.features import METADATA_VERSION, METADATA_VERSION_LEVEL
from plogd.log.batch_validator import AppendOrigin
from plogd.log.log import Log
from plogd.log.log_results import Writing
from plogd.metadata.image import MetadataImage, registration_record
from plogd.metadata.image_loader import LoadedImage, load_image
from plogd.metadata.pending_write import LARGE, PendingWrite
from plogd.metadata.quorum import Quorum
from plogd.metadata.record_batch import batch_in_slices, batch_of
from plogd.metadata.store import (
    ABSENT,
    BrokerRegistration,
    Change,
    Conflict,
    Key,
    Outcome,
    TopicValue,
    Watcher,
    Written,
)
from plogd.notify_all import notify_all
from plogd.ports import Clock, Files, Later, Report, Turn, ready, silence, spawn

METADATA_PARTITION: Final = TopicPartition("__cluster_metadata", 0)
METADATA_TOPIC_ID: Final = uuid_from_text("AAAAAAAAAAAAAAAAAAAAAQ")

# As in Kafka (QuorumController.MAX_RECORDS_PER_USER_OP).
_GROUP_RECORDS = 10_000
"""A batch that contains this many records is complete: no more writes are added to it."""


class EmbeddedStore:
    """A `MetadataStore` whose contents are in a single log; call `open` first."""

    max_atomic_changes = _GROUP_RECORDS
    keeps_deletion_marks = False

    def __init__(self, log: Log, *, clock: Clock, turn: Turn, fair_queue: FairQueue) -> None:
        self._log = log
        self._clock = clock
        self._turn = turn
        self._fair_queue = fair_queue
        self._image = MetadataImage()
        self._watchers: list[tuple[Key, Watcher]] = []
        self._queue: deque[PendingWrite] = deque()
        self._preparing: PendingWrite | None = None
        """A large write whose batch is being built."""
        self._in_flight: list[PendingWrite] = []
        self._in_flight_records: list[MetadataRecord] = []
        self._in_flight_base = 0
        self._in_flight_end = 0
        self._in_flight_size = self._in_flight_ms = 0
        self._in_flight_writing: Writing | None = None
        """The pending write of the batch to a slow disk; None if it was written immediately."""
        self._is_applying = False
        """Whether a batch is being applied to the image in slices."""
        self._epoch = log.leader_epochs.latest_epoch + 1  # Rises at each startup (rule R6).
        self._failure: KafkaStorageError | None = None
        self._unwritten: list[MetadataRecord] = []
        """This broker's registration records, if the disk was too full to write them."""
        self.on_applied: Callable[[int, int], None] = lambda size_bytes, timestamp_ms: None
        """Called with each batch that has been applied to the image, before the next one begins."""

    def open(self, files: Files, report: Report = silence) -> LoadedImage:
        """Load the newest snapshot and the records after it.

        Raises KafkaStorageError if records are missing, damaged or unknown.
        """
        log = self._log
        log.on_durable = self._log_is_durable
        loaded = load_image(files, log, report)
        self._image = loaded.image
        # The log may be empty, because the snapshot has replaced its records.
        if loaded.snapshot is not None:
            self._epoch = max(self._epoch, loaded.snapshot.epoch + 1)
        log.high_watermark = log.log_end_offset  # With one replica, durable means committed.
        return loaded

    @property
    def stable_image(self) -> MetadataImage | None:
        """The image, if it matches the end of the log; otherwise None."""
        is_changing = self._in_flight or self._unwritten or self._failure is not None
        return None if is_changing else self._image

    # -- reading ------------------------------------------------------------------------------

    def get(self, key: Key) -> tuple[Any, int]:
        """Return the durable value of a key, and its version."""
        return self._image.get(key)

    def load(self, prefix: Key) -> dict[Key, tuple[Any, int]]:
        """Return all durable keys that begin with `prefix`."""
        return self._image.load(prefix)

    def problem(self, key: Key) -> str | None:
        """Return None: a log with a damaged record cannot be opened."""

    def watch(self, prefix: Key, watcher: Watcher) -> None:
        """Call `watcher` for every change to matching keys, once it is durable."""
        self._watchers.append((prefix, watcher))

    @property
    def features(self) -> dict[str, int]:
        """The level of each finalized feature."""
        return {str(key[1]): level for key, (level, _) in self.load(("feature",)).items()}

    @property
    def features_epoch(self) -> int:
        """The version of the newest feature level; -1 before the first."""
        return max((version for _, version in self.load(("feature",)).values()), default=ABSENT)

    @property
    def quorum(self) -> Quorum:
        """The state of the metadata quorum. Raises KafkaStorageError."""
        if self._failure is not None:
            raise self._failure
        return Quorum(
            leader_epoch=self._epoch,
            log_end_offset=self._log.log_end_offset,
            high_watermark=self._log.high_watermark,
            log_dir=self._log.log_dir,
        )

    # -- writing ------------------------------------------------------------------------------

    def campaign(self) -> Later[int]:
        """Return the epoch: this broker is always the controller."""
        return ready(self._epoch)

    def resigned(self, callback: Callable[[], None]) -> None:
        """Do nothing: this broker never resigns."""

    def unregistered(self, callback: Callable[[], None]) -> None:
        """Do nothing: the registration ends with the process."""

    @property
    def lease_end_ms(self) -> float:
        """Infinity: no other broker can act in place of this one."""
        return inf

    def write(self, changes: Sequence[Change], term: int | None = None) -> Later[list[Outcome]]:
        """Write each change independently. Fails with KafkaStorageError if the log fails."""
        return self._submit(PendingWrite(changes=changes, atomic=False, later=Later()))

    def write_atomic(
        self, changes: Sequence[Change], term: int | None = None
    ) -> Later[list[Outcome]]:
        """Write all changes or none. Fails with KafkaStorageError if the log fails."""
        assert len(changes) <= self.max_atomic_changes
        return self._submit(PendingWrite(changes=changes, atomic=True, later=Later()))

    @property
    def log_dir(self) -> str:
        """The log directory of the metadata log."""
        return self._log.log_dir

    @property
    def has_failed(self) -> bool:
        """Whether the log directory is offline."""
        return self._failure is not None

    @property
    def is_registered(self) -> bool:
        """Whether the registration passed to `register_broker` is on disk."""
        return not self._unwritten

    def register_broker(self, registration: BrokerRegistration) -> Later[int]:
        """Write the registration of this broker; return its broker epoch, the record's offset.

        If the disk is full, the write is postponed: the image contains the registration, and other
        writes fail until `retry_registration` succeeds. Thus, a broker can start on a full disk and
        serve reads, while retention frees space.
        """
        write = PendingWrite(changes=(), atomic=True, later=Later(), registration=registration)
        key: Key = ("broker", registration.broker_id)
        return self._submit(write).map(lambda _: self._image.get(key)[1])

    def retry_registration(self) -> Later[None]:
        """Write the postponed registration; fails with KafkaStorageError on a full disk."""
        assert self._unwritten
        write = PendingWrite(changes=(), atomic=True, later=Later())
        base_offset = self._log.log_end_offset
        try:
            if self._failure is not None:
                raise self._failure
            # If a previous attempt is still being synced, this attempt shares its outcome.
            if not self._in_flight:
                now_ms = self._clock.now_ms()
                self._append(batch_of(self._unwritten, now_ms), now_ms)
                assert self._in_flight_base == base_offset, "the image already has these offsets"
        except Exception as error:
            write.later.fail(error)
        else:
            self._in_flight.append(write)
        return write.later.map(self._registered)

    def _registered(self, _: list[Outcome]) -> None:
        self._unwritten = []

    def _postpone(
        self, group: list[PendingWrite], records: list[MetadataRecord]
    ) -> Iterable[Callable[[], None]]:
        """Apply records to the image only; they will be written at the same offsets later."""
        self._unwritten = records
        for offset, record in enumerate(records, self._log.log_end_offset):
            self._image.replay(record, offset)
        return self._outcomes(group)

    def storage_failed(self) -> None:
        """Fail all pending and future writes: the log directory is offline."""
        self._fail(KafkaStorageError(f"cannot write metadata: {self._log.log_dir} is offline"))

    def _fail(self, failure: KafkaStorageError) -> None:
        self._failure = failure
        # Clear everything before the callbacks, which may write again or read the state.
        preparing = [] if self._preparing is None else [self._preparing]
        waiting = [*preparing, *self._in_flight, *self._queue]
        self._preparing = None
        self._in_flight, self._in_flight_records = [], []
        self._queue.clear()
        notify_all(partial(write.later.fail, failure) for write in waiting)

    def _submit(self, write: PendingWrite) -> Later[list[Outcome]]:
        keys = [change.key for change in write.changes]
        assert len(set(keys)) == len(keys), "a write can change each key only once"
        if self._failure is not None:
            write.later.fail(self._failure)
        elif self._unwritten:
            write.later.fail(
                KafkaStorageError(
                    f"cannot write metadata: {self._log.log_dir} does not have enough space to"
                    " register this broker; free space on the disk"
                )
            )
        else:
            self._queue.append(write)
            self._turn.defer(self._pump)  # Writes that are submitted until then share a batch.
        return write.later

    @property
    def _is_busy(self) -> bool:
        return self._preparing is not None or bool(self._in_flight)

    def _pump(self) -> None:
        """Append the next group, unless a batch is in flight."""
        try:
            while self._queue and not self._is_busy:
                if self._queue[0].is_large:
                    self._preparing = self._queue.popleft()
                    spawn(self._append_large(self._preparing)).then(_ignore, _raise)
                else:
                    group: list[PendingWrite] = []
                    notify_all(self._append_group(group))
        finally:  # A bug in a writer's callback must not block later writes.
            if self._queue and not self._is_busy:
                self._turn.defer(self._pump)

    async def _append_large(self, write: PendingWrite) -> None:
        """Append a write as a separate batch, which is built in slices."""
        try:
            records = await self._records_in_slices(write)
            now_ms = self._clock.now_ms()
            batch = await batch_in_slices(records, now_ms, self._fair_queue) if records else None
            if self._preparing is not write:
                return  # The store has failed this write.
            if batch is not None:
                self._append(batch, now_ms)
                self._in_flight, self._in_flight_records = [write], records
        except Exception as error:  # No part of the write is in the log.
            if self._preparing is write:
                write.error = error
        if self._preparing is write:
            self._preparing = None
            if not self._in_flight:
                notify_all([*self._outcomes([write]), self._pump])

    def _append_group(self, group: list[PendingWrite]) -> Iterable[Callable[[], None]]:
        """Append the next writes, and add them to `group`; return the callbacks due now."""
        records: list[MetadataRecord] = []
        try:
            self._take_group(group, records)
            if not records:
                return self._outcomes(group)
            now_ms = self._clock.now_ms()
            self._append(batch_of(records, now_ms), now_ms)
        except Exception as error:
            # None of the group's records are in the log. If the log has rejected the batch with a
            # KafkaError, for example on a full disk, the log still works.
            is_refused = isinstance(error, KafkaError) and self._failure is None
            if is_refused and group[0].registration is not None:
                return self._postpone(group, records)
            return [partial(write.later.fail, error) for write in group]
        self._in_flight, self._in_flight_records = group, records
        return ()

    def _take_group(self, group: list[PendingWrite], records: list[MetadataRecord]) -> None:
        """Move writes that may share a batch to `group`, and add their records to `records`."""
        touched: set[Key] = set()
        while self._queue and len(records) < _GROUP_RECORDS:
            write = self._queue[0]
            # Versions are compared with the image, which does not contain the group's changes yet.
            # A registration is written alone, because its record contains its own offset.
            if group and (write.registration is not None or touched & write.roots()):
                break
            if write.is_large:
                break
            self._queue.popleft()
            group.append(write)
            if write.registration is not None:
                records += self._registration_records(write.registration)
                return
            try:
                touched |= write.roots()
                records += self._records_of(write)
            except Exception as error:  # The error affects only this write.
                write.error = error

    def _registration_records(self, registration: BrokerRegistration) -> list[MetadataRecord]:
        records: list[MetadataRecord] = []
        level, _ = self._image.get(("feature", METADATA_VERSION))
        # Records for SCRAM users require this level; an older log can have a lower level.
        if level is None or level < METADATA_VERSION_LEVEL:
            records.append(
                FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_VERSION_LEVEL)
            )
        records.append(registration_record(registration, self._log.log_end_offset + len(records)))
        return records

    def _records_of(self, write: PendingWrite) -> list[MetadataRecord]:
        """Return the records for the changes that can be made; other changes become conflicts."""
        found = [(change, *self._image.get(change.key)) for change in write.changes]
        stale = [version != change.expected for change, _, version in found]
        stopped = write.atomic and any(stale)
        records: list[MetadataRecord] = []
        new_topics: dict[str, TopicValue] = {}
        for index, (change, value, version) in enumerate(found):
            if stopped or stale[index]:
                write.conflicts[index] = Conflict(value=value, version=version)
            else:
                self._add_records(change, records, new_topics)
        return records

    async def _records_in_slices(self, write: PendingWrite) -> list[MetadataRecord]:
        """Do the same as `_records_of`, but in slices."""
        # The image does not change between the slices, because no batch is in flight.
        slices = Slices(self._fair_queue)
        records: list[MetadataRecord] = []
        new_topics: dict[str, TopicValue] = {}
        found = [
            (change, *self._image.get(change.key)) async for change in slices.over(write.changes)
        ]
        stopped = write.atomic and any(version != change.expected for change, _, version in found)
        async for index, (change, value, version) in slices.over(enumerate(found)):
            if stopped or version != change.expected:
                write.conflicts[index] = Conflict(value=value, version=version)
            else:
                self._add_records(change, records, new_topics)
        return records

    def _add_records(
        self, change: Change, records: list[MetadataRecord], new_topics: dict[str, TopicValue]
    ) -> None:
        records += self._image.records_for(change, new_topics)
        if isinstance(change.value, TopicValue):
            new_topics[str(change.key[1])] = change.value

    def _append(self, batch: bytearray, now_ms: int) -> None:
        info = self._log.append_as_leader(
            memoryview(batch),
            leader_epoch=self._epoch,
            now_ms=now_ms,
            origin=AppendOrigin.RAFT_LEADER,
        )
        self._in_flight_base = info.first_offset
        self._in_flight_end = info.last_offset + 1
        self._in_flight_size, self._in_flight_ms = len(batch), now_ms
        self._in_flight_writing = info.writing

    def _log_is_durable(self) -> None:
        log = self._log
        log.high_watermark = log.durable_end_offset
        if self._in_flight:
            if self._refusal is not None:
                self._turn.defer(self._refuse)
            elif log.durable_end_offset >= self._in_flight_end:
                self._turn.defer(self._finish)

    @property
    def _refusal(self) -> KafkaError | None:
        """The error for the batch in flight, if it could not be written to a slow disk."""
        return None if self._in_flight_writing is None else self._in_flight_writing.error

    def _refuse(self) -> None:
        """Fail the batch in flight, which could not be written to a slow disk."""
        error = self._refusal
        if not self._in_flight or error is None:
            return
        group, self._in_flight, self._in_flight_records = self._in_flight, [], []
        notify_all([*(partial(write.later.fail, error) for write in group), self._pump])

    def _finish(self) -> None:
        """Apply the durable batch to the image, then notify watchers and writers."""
        if not self._in_flight or self._log.durable_end_offset < self._in_flight_end:
            return  # The log has reported the same sync twice.
        if self._is_applying:
            return
        changed: dict[Key, None] | None = None
        if len(self._in_flight_records) <= LARGE:
            changed = self._apply(self._in_flight_records, self._in_flight_base)
        # A single record can change thousands of keys: removing a topic removes its partitions, and
        # a registration raises the leader epoch of every partition.
        if changed is None or len(changed) > LARGE:
            self._is_applying = True
            spawn(self._finish_in_slices(changed)).then(_ignore, _raise)
            return
        group, self._in_flight, self._in_flight_records = self._in_flight, [], []
        # Notify watchers first: a client that has its response must not see an older state.
        calls = [*self._notifications(changed), *self._outcomes(group)]
        notify_all([*calls, self._notify_applied, self._pump])

    def _apply(self, records: Sequence[MetadataRecord], base_offset: int) -> dict[Key, None]:
        """Apply records to the image and return the keys that have changed."""
        changed: dict[Key, None] = {}
        try:
            for offset, record in enumerate(records, base_offset):
                changed.update(dict.fromkeys(self._image.replay(record, offset)))
        except Exception as error:
            # The image no longer matches the log, so versions cannot be compared with it.
            self._fail(
                KafkaStorageError(
                    f"cannot apply a record of {METADATA_PARTITION}: {error!r}; restart the broker"
                )
            )
            raise
        return changed

    async def _finish_in_slices(self, changed: dict[Key, None] | None) -> None:
        """Do the rest of `_finish` in slices; if `changed` is None, apply the records first."""
        try:
            if changed is None:
                changed = await self._apply_in_slices()
            calls: list[Callable[[], None]] = []
            async for key in Slices(self._fair_queue).over(changed):
                calls += self._notifications((key,))
            outcomes = [await self._outcome_in_slices(write) for write in self._in_flight]
        finally:
            self._is_applying = False
        if self._in_flight:  # Otherwise, the store has already failed these writes.
            self._in_flight, self._in_flight_records = [], []
            notify_all([*calls, *outcomes, self._notify_applied, self._pump])

    def _notify_applied(self) -> None:
        self.on_applied(self._in_flight_size, self._in_flight_ms)

    async def _apply_in_slices(self) -> dict[Key, None]:
        records, base_offset = self._in_flight_records, self._in_flight_base
        changed: dict[Key, None] = {}
        for start in range(0, len(records), SLICE):
            await self._fair_queue.turn()
            if not self._in_flight:  # The store failed during the turn.
                return {}
            changed |= self._apply(records[start : start + SLICE], base_offset + start)
        return changed

    async def _outcome_in_slices(self, write: PendingWrite) -> Callable[[], None]:
        if write.error is not None:
            return partial(write.later.fail, write.error)
        slices = Slices(self._fair_queue)
        changes = enumerate(write.changes)
        outcomes = [self._outcome(write, *each) async for each in slices.over(changes)]
        return partial(write.later.succeed, outcomes)

    def _notifications(self, changed: Iterable[Key]) -> Iterator[Callable[[], None]]:
        """Yield the calls that notify each watcher of each change."""
        for key in changed:
            value, version = self._image.get(key)
            for prefix, watcher in self._watchers:
                if key[: len(prefix)] == prefix:
                    yield partial(watcher, key, value, version)

    def _outcomes(self, group: Sequence[PendingWrite]) -> Iterator[Callable[[], None]]:
        """Yield the calls that complete each write."""
        for write in group:
            if write.error is not None:
                yield partial(write.later.fail, write.error)
                continue
            outcomes = [
                self._outcome(write, index, change) for index, change in enumerate(write.changes)
            ]
            yield partial(write.later.succeed, outcomes)

    def _outcome(self, write: PendingWrite, index: int, change: Change) -> Outcome:
        conflict = write.conflicts.get(index)
        return conflict or Written(version=self._image.get(change.key)[1])


def _ignore(_: None) -> None:
    """Ignore the result of work in slices: the writes have their own results."""


def _raise(error: Exception) -> None:
    """Raise a bug to the caller of the turn, which reports it; all writes are complete."""
    raise error
