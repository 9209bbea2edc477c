"""The metadata store of a single broker: a log of its own, `__cluster_metadata-0`.

The log holds Kafka's KRaft metadata records in ordinary batches (docs/decisions/0002), so Kafka's
dump tool reads it, and it becomes durable by the same group commit as every other log. It is never
served to clients.

Writes queue. While one batch is on its way to the disk the next ones gather, and those that touch
different topics share the batch after it. The image moves on, watchers hear and outcomes are told
only when the batch is durable; a crash before that leaves either the whole batch or nothing of it.
A write of many changes, such as a topic with thousands of partitions, is one batch, too, but it is
prepared and applied to the image in slices (fair_queue.py); no other batch begins meanwhile.
Every write gets an outcome or an error, whatever is raised on the way. After an error nothing of it
is in the log; if the image could not follow the log, the store takes no more writes.

Called on the reactor's thread. Source: Kafka 4.0 metadata; KIP-595 for the log's name and topic id.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
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
from plogd.metadata.log_replay import replay_log
from plogd.metadata.pending_write import LARGE, PendingWrite
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
from plogd.ports import Clock, Later, Turn, ready, spawn

METADATA_PARTITION: Final = TopicPartition("__cluster_metadata", 0)
METADATA_TOPIC_ID: Final = uuid_from_text("AAAAAAAAAAAAAAAAAAAAAQ")

_GROUP_RECORDS = 10_000
"""A batch takes no further write once it holds this many records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quorum:
    """The metadata log of the one broker that votes for itself."""

    leader_epoch: int
    log_end_offset: int
    high_watermark: int
    log_dir: str
    """The log directory it lies in."""


class EmbeddedStore:
    """A `MetadataStore` over one log; `open` before anything else."""

    max_atomic_changes = _GROUP_RECORDS

    def __init__(self, log: Log, *, clock: Clock, turn: Turn, fair_queue: FairQueue) -> None:
        self._log = log
        self._clock = clock
        self._turn = turn
        self._fair_queue = fair_queue
        self._image = MetadataImage()
        self._watchers: list[tuple[Key, Watcher]] = []
        self._queue: deque[PendingWrite] = deque()
        self._preparing: PendingWrite | None = None
        """A large write whose batch is being made."""
        self._in_flight: list[PendingWrite] = []
        self._in_flight_records: list[MetadataRecord] = []
        self._in_flight_base = 0
        self._in_flight_end = 0
        self._in_flight_writing: Writing | None = None
        """Whether a slow disk has taken the batch; None if it was taken at once."""
        self._is_applying = False
        """Whether the image moves on in slices."""
        self._epoch = log.leader_epochs.latest_epoch + 1
        self._failure: KafkaStorageError | None = None
        self._unwritten: list[MetadataRecord] = []
        """The records of this start, if there was no room for them yet."""

    def open(self) -> None:
        """Replay the log. Raises KafkaStorageError if it is damaged or not understood."""
        log = self._log
        log.on_durable = self._log_is_durable
        replay_log(log, self._image)
        log.high_watermark = log.log_end_offset

    # -- reading ------------------------------------------------------------------------------

    def get(self, key: Key) -> tuple[Any, int]:
        """The durable value of a key, and its version."""
        return self._image.get(key)

    def load(self, prefix: Key) -> dict[Key, tuple[Any, int]]:
        """All durable keys that begin with `prefix`."""
        return self._image.load(prefix)

    def watch(self, prefix: Key, watcher: Watcher) -> None:
        """Tell `watcher` of every change, once it is durable."""
        self._watchers.append((prefix, watcher))

    @property
    def features(self) -> dict[str, int]:
        """The level of each finalized feature."""
        return {str(key[1]): level for key, (level, _) in self.load(("feature",)).items()}

    @property
    def features_epoch(self) -> int:
        """Rises whenever the level of a feature changes; -1 before there is one."""
        return max((version for _, version in self.load(("feature",)).values()), default=ABSENT)

    @property
    def quorum(self) -> Quorum:
        """Who keeps the metadata, and how far they have got. Raises KafkaStorageError."""
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
        """Nobody else can be the controller."""
        return ready(self._epoch)

    def write(self, changes: Sequence[Change], term: int | None = None) -> Later[list[Outcome]]:
        """Make the changes, each by itself. Fails with KafkaStorageError if the log does."""
        return self._submit(PendingWrite(changes=changes, atomic=False, later=Later()))

    def write_atomic(
        self, changes: Sequence[Change], term: int | None = None
    ) -> Later[list[Outcome]]:
        """Make all changes or none. Fails with KafkaStorageError if the log does."""
        assert len(changes) <= self.max_atomic_changes
        return self._submit(PendingWrite(changes=changes, atomic=True, later=Later()))

    @property
    def log_dir(self) -> str:
        """The log directory of the metadata log."""
        return self._log.log_dir

    @property
    def has_failed(self) -> bool:
        """Whether that directory is offline."""
        return self._failure is not None

    @property
    def is_registered(self) -> bool:
        """Whether what `register_broker` was told is written down."""
        return not self._unwritten

    def register_broker(self, registration: BrokerRegistration) -> Later[int]:
        """Write down that the broker has started; its epoch is the offset of that record.

        A full disk only puts that off: it is so in the image, and nothing else is written before
        `retry_registration` has succeeded. Else a broker would not start where there is no room,
        and could neither be read from nor make room.
        """
        write = PendingWrite(changes=(), atomic=True, later=Later(), registration=registration)
        key: Key = ("broker", registration.broker_id)
        return self._submit(write).map(lambda _: self._image.get(key)[1])

    def retry_registration(self) -> Later[None]:
        """Write down what there was no room for; fails with KafkaStorageError if there is none."""
        assert self._unwritten
        write = PendingWrite(changes=(), atomic=True, later=Later())
        base_offset = self._log.log_end_offset
        try:
            if self._failure is not None:
                raise self._failure
            if not self._in_flight:
                now_ms = self._clock.now_ms()
                self._append(batch_of(self._unwritten, now_ms), now_ms)
                assert self._in_flight_base == base_offset, "the image has it there already"
        except Exception as error:
            write.later.fail(error)
        else:
            self._in_flight.append(write)
        return write.later.map(self._registered)

    def _registered(self, _: list[Outcome]) -> None:
        self._unwritten = []

    def _put_off(
        self, group: list[PendingWrite], records: list[MetadataRecord]
    ) -> Iterable[Callable[[], None]]:
        """The image moves on without the log; the records will have the same offsets in it."""
        self._unwritten = records
        for offset, record in enumerate(records, self._log.log_end_offset):
            self._image.replay(record, offset)
        return self._outcomes(group)

    def storage_failed(self) -> None:
        """The log directory is offline: fail all writes, those that wait and those to come."""
        self._fail(KafkaStorageError(f"the metadata log is offline: {self._log.log_dir} failed"))

    def _fail(self, failure: KafkaStorageError) -> None:
        self._failure = failure
        preparing = [] if self._preparing is None else [self._preparing]
        waiting = [*preparing, *self._in_flight, *self._queue]
        self._preparing = None
        self._in_flight, self._in_flight_records = [], []
        self._queue.clear()
        notify_all(partial(write.later.fail, failure) for write in waiting)

    def _submit(self, write: PendingWrite) -> Later[list[Outcome]]:
        keys = [change.key for change in write.changes]
        assert len(set(keys)) == len(keys), "one change a key in one write"
        if self._failure is not None:
            write.later.fail(self._failure)
        elif self._unwritten:
            write.later.fail(
                KafkaStorageError(
                    f"there was no room in {self._log.log_dir} for this broker's start; nothing "
                    "can be changed before there is"
                )
            )
        else:
            self._queue.append(write)
            self._turn.defer(self._pump)
        return write.later

    @property
    def _is_busy(self) -> bool:
        return self._preparing is not None or bool(self._in_flight)

    def _pump(self) -> None:
        """Append the next group, unless one is on its way."""
        try:
            while self._queue and not self._is_busy:
                if self._queue[0].is_large:
                    self._preparing = self._queue.popleft()
                    spawn(self._append_large(self._preparing)).then(_ignore, _raise)
                else:
                    group: list[PendingWrite] = []
                    notify_all(self._append_group(group))
        finally:  # A writer's bug must not stop the writes after it.
            if self._queue and not self._is_busy:
                self._turn.defer(self._pump)

    async def _append_large(self, write: PendingWrite) -> None:
        """Append a write as a batch of its own, which is made in slices."""
        try:
            records = await self._records_in_slices(write)
            now_ms = self._clock.now_ms()
            batch = await batch_in_slices(records, now_ms, self._fair_queue) if records else None
            if self._preparing is not write:
                return  # The store has failed, and the write with it.
            if batch is not None:
                self._append(batch, now_ms)
                self._in_flight, self._in_flight_records = [write], records
        except Exception as error:  # Nothing of it is in the log.
            if self._preparing is write:
                write.error = error
        if self._preparing is write:
            self._preparing = None
            if not self._in_flight:
                notify_all([*self._outcomes([write]), self._pump])

    def _append_group(self, group: list[PendingWrite]) -> Iterable[Callable[[], None]]:
        """Append the next writes, now in `group`; the answers that are due already."""
        records: list[MetadataRecord] = []
        try:
            self._take_group(group, records)
            if not records:
                return self._outcomes(group)
            now_ms = self._clock.now_ms()
            self._append(batch_of(records, now_ms), now_ms)
        except Exception as error:
            # Nothing of the group is in the log.
            is_refused = isinstance(error, KafkaError) and self._failure is None
            if is_refused and group[0].registration is not None:
                return self._put_off(group, records)
            return [partial(write.later.fail, error) for write in group]
        self._in_flight, self._in_flight_records = group, records
        return ()

    def _take_group(self, group: list[PendingWrite], records: list[MetadataRecord]) -> None:
        """Fill in the writes that may share a batch, in order, and their records."""
        touched: set[Key] = set()
        while self._queue and len(records) < _GROUP_RECORDS:
            write = self._queue[0]
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
            except Exception as error:  # The others in the group are not to blame.
                write.error = error

    def _registration_records(self, registration: BrokerRegistration) -> list[MetadataRecord]:
        records: list[MetadataRecord] = []
        level, _ = self._image.get(("feature", METADATA_VERSION))
        if level is None or level < METADATA_VERSION_LEVEL:
            records.append(
                FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_VERSION_LEVEL)
            )
        records.append(registration_record(registration, self._log.log_end_offset + len(records)))
        return records

    def _records_of(self, write: PendingWrite) -> list[MetadataRecord]:
        """The records of the changes that may be made; the others become conflicts."""
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
        """As `_records_of`. The image does not move on meanwhile."""
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
        """Why the batch on its way will not be in the log."""
        return None if self._in_flight_writing is None else self._in_flight_writing.error

    def _refuse(self) -> None:
        """A slow disk has not taken the batch: as if it had been refused at once."""
        error = self._refusal
        if not self._in_flight or error is None:
            return
        group, self._in_flight, self._in_flight_records = self._in_flight, [], []
        notify_all([*(partial(write.later.fail, error) for write in group), self._pump])

    def _finish(self) -> None:
        """The batch is durable: the image moves on, then everybody is told."""
        if not self._in_flight or self._log.durable_end_offset < self._in_flight_end:
            return  # Told twice of the same sync.
        if self._is_applying:
            return
        changed: dict[Key, None] | None = None
        if len(self._in_flight_records) <= LARGE:
            changed = self._apply(self._in_flight_records, self._in_flight_base)
        if changed is None or len(changed) > LARGE:
            self._is_applying = True
            spawn(self._finish_in_slices(changed)).then(_ignore, _raise)
            return
        group, self._in_flight, self._in_flight_records = self._in_flight, [], []
        notify_all([*self._news(changed), *self._outcomes(group), self._pump])

    def _apply(self, records: Sequence[MetadataRecord], base_offset: int) -> dict[Key, None]:
        """Move the image on; the keys that have changed."""
        changed: dict[Key, None] = {}
        try:
            for offset, record in enumerate(records, base_offset):
                changed.update(dict.fromkeys(self._image.replay(record, offset)))
        except Exception as error:
            self._fail(
                KafkaStorageError(
                    f"cannot apply a record of {METADATA_PARTITION}: {error!r}; restart the broker"
                )
            )
            raise
        return changed

    async def _finish_in_slices(self, changed: dict[Key, None] | None) -> None:
        """As `_finish`. `changed`: None if the image is to move on first, in several turns."""
        try:
            if changed is None:
                changed = await self._apply_in_slices()
            calls: list[Callable[[], None]] = []
            async for key in Slices(self._fair_queue).over(changed):
                calls += self._news((key,))
            outcomes = [await self._outcome_in_slices(write) for write in self._in_flight]
        finally:
            self._is_applying = False
        if self._in_flight:  # Else the store has failed, and these writes with it.
            self._in_flight, self._in_flight_records = [], []
            notify_all([*calls, *outcomes, self._pump])

    async def _apply_in_slices(self) -> dict[Key, None]:
        records, base_offset = self._in_flight_records, self._in_flight_base
        changed: dict[Key, None] = {}
        for start in range(0, len(records), SLICE):
            await self._fair_queue.turn()
            if not self._in_flight:
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

    def _news(self, changed: Iterable[Key]) -> Iterator[Callable[[], None]]:
        """To tell each watcher of each change."""
        for key in changed:
            value, version = self._image.get(key)
            for prefix, watcher in self._watchers:
                if key[: len(prefix)] == prefix:
                    yield partial(watcher, key, value, version)

    def _outcomes(self, group: Sequence[PendingWrite]) -> Iterator[Callable[[], None]]:
        """To tell each of those who wrote what has become of it."""
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
    """Nobody waits for the end of a batch that is made or applied in slices."""


def _raise(error: Exception) -> None:
    """A bug, after which every write has got its outcome: for whoever runs the turn to report."""
    raise error
