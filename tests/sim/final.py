"""After the faults: read everything again and compare it with the history.

`FinalReader` reads each partition from its start to its end and requests offsets by time;
`check_log` decides whether the result can be the log that the history describes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plog.errors import ErrorCode
from plog.records.codec import Record
from plog.wire.api_keys import ApiKey
from plog.wire.messages.fetch import FetchResponse
from tests.sim.checker import Anomaly, History, Origin, PartitionKey, value_of
from tests.sim.client import PASSING_ERRORS, check_code
from tests.sim.compacted_log import outdated_records
from tests.sim.network import ConnectionLost
from tests.sim.reader import (
    EARLIEST,
    FIRST_TOPIC_ID_VERSION,
    FIRST_ZSTD_VERSION,
    MAX_TIMESTAMP,
    Assigned,
    Found,
    Reader,
    Session,
    match_partitions,
)

if TYPE_CHECKING:
    from tests.sim.world import World

_PATIENCE = 20
_LOOK_UPS = 4
_SETTLING_MS = 2_000.0
_REREADS = 5
"""A compaction that runs meanwhile may remove a tombstone, but not the older records that were read
before it. Without new records, no other compaction follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalLog:
    """The contents of a partition at the end of the run."""

    start_offset: int
    end_offset: int
    records: Sequence[Record]


class FinalReader(Reader):
    """Reads all partitions; fills `logs`."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.logs: dict[Assigned, FinalLog] = {}
        self._rereads = 0

    async def run(self) -> None:
        """Read all partitions of all topics, with retries."""
        for attempt in range(_PATIENCE):
            try:
                sights = await self.topics()
                for name, sight in sorted(sights.items()):
                    for number in range(sight.partitions if self.world.may_read(name) else 0):
                        self.go_to(name, number)
                        await self._read(Assigned(name, sight.topic_id, number))
                return
            except (ConnectionLost, _NotYet):
                self.logs.clear()
                await self.world.sleep(100 * attempt)
        raise Anomaly("stuck", f"not everything could be read in {_PATIENCE} attempts")

    async def _read(self, assigned: Assigned) -> None:
        start = await self._need(assigned, EARLIEST)
        end_offset = await self.end_offset(assigned)
        if end_offset is None:
            raise _NotYet
        position, records = start.offset, list[Record]()
        while position < end_offset:
            found, next_position = await self._fetch(assigned, position)
            if next_position == position:
                raise Anomaly(
                    "unseen",
                    f"{assigned.topic}-{assigned.partition}: nothing at {position}, "
                    f"but it ends at {end_offset}",
                )
            records += [record for record in found if record.offset >= position]
            position = next_position
        log = FinalLog(start_offset=start.offset, end_offset=end_offset, records=records)
        if assigned.topic in self.world.history.compacted:
            self._check_outdated(assigned, log)
        self.logs[assigned] = log
        await self._look_up_times(assigned, log)

    def _check_outdated(self, assigned: Assigned, log: FinalLog) -> None:
        """Check that no tombstone is missing; read again if one may have been removed meanwhile."""
        history = self.world.history
        known = history.partition(assigned.key)
        try:
            outdated_records(history, known, log.records, self.world.clock.now_ms())
        except Anomaly as anomaly:
            self._rereads += 1
            if self._rereads > _REREADS:
                raise
            raise _NotYet from anomaly

    async def _need(self, assigned: Assigned, timestamp: int) -> Found:
        found = await self.list_offset(assigned, timestamp)
        if found is None:
            raise _NotYet
        return found

    async def _fetch(self, assigned: Assigned, position: int) -> tuple[Sequence[Record], int]:
        connection = await self.connected()
        at_least = FIRST_ZSTD_VERSION
        if self.serves_topic_ids(ApiKey.FETCH, FIRST_TOPIC_ID_VERSION):
            at_least = FIRST_TOPIC_ID_VERSION
        session = Session(self.version(ApiKey.FETCH, at_least))
        request = self.fetch_request(session, {assigned: position}, 0)
        request.session_epoch = -1
        known_end = self.world.history.known_end(assigned.key)
        answer = await self.ask(request, session.version, FetchResponse, connection)
        check_code(answer.error_code, "Fetch")
        data = match_partitions(answer, [assigned], by_id=session.by_id)[assigned]
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise _NotYet  # Retention deleted the position before it was read.
        if data.error_code:
            check_code(data.error_code, f"Fetch of {assigned.topic}", PASSING_ERRORS)
            raise _NotYet
        return self.take(assigned, data, position, known_end)

    async def _look_up_times(self, assigned: Assigned, log: FinalLog) -> None:
        """Check that ListOffsets agrees with a scan of the records."""
        if self.world.history.is_compacted(map(value_of, log.records)):
            return  # A compaction may remove the record meanwhile.
        if not log.records or (await self._need(assigned, EARLIEST)).offset != log.start_offset:
            return
        timestamps = [record.timestamp for record in log.records]
        for _ in range(_LOOK_UPS):
            asked_ms = self.chance.choice(timestamps) + self.chance.choice((-1, 0, 1, 10_000))
            expected = next(
                (Found(r.timestamp, r.offset) for r in log.records if r.timestamp >= asked_ms),
                Found(-1, -1),
            )
            await self._compare_times(assigned, log, asked_ms, expected)
        newest = max(log.records, key=lambda record: (record.timestamp, -record.offset))
        expected = Found(newest.timestamp, newest.offset)
        await self._compare_times(assigned, log, MAX_TIMESTAMP, expected)

    async def _compare_times(
        self, assigned: Assigned, log: FinalLog, timestamp: int, expected: Found
    ) -> None:
        found = await self._need(assigned, timestamp)
        if found == expected:
            return
        # Retention may have deleted the record, or records may have been appended without an
        # acknowledgment: a record above the high watermark is not returned, and no other is
        # searched for.
        await self.world.sleep(_SETTLING_MS)
        start = await self._need(assigned, EARLIEST)
        end_offset = await self.end_offset(assigned)
        found = await self._need(assigned, timestamp)
        unchanged = (start.offset, end_offset) == (log.start_offset, log.end_offset)
        if unchanged and found != expected:
            raise Anomaly(
                "wrong-time",
                f"{assigned.topic}-{assigned.partition} [{log.start_offset}, {log.end_offset}): "
                f"the record for {timestamp} is {expected}, ListOffsets says {found}",
            )


class _NotYet(Exception):
    """A retriable error."""


def check_log(history: History, key: PartitionKey, log: FinalLog, *, now_ms: int = 0) -> None:
    """Raise Anomaly unless `log` contains all known records, in order, from its start."""
    known = history.partition(key)
    there = {record.offset: value_of(record) for record in log.records}
    is_compacted = history.is_compacted(known.values.values())
    if is_compacted:
        there.update(outdated_records(history, known, log.records, now_ms))
    for offset, value in known.acknowledged.items():
        if offset >= log.start_offset and there.get(offset) != value:
            later = any(other > offset for other in there)
            raise Anomaly(
                "lost-write" if later else "unseen",
                f"{known.name} offset {offset}: {value!r} was acknowledged, "
                f"the log is [{log.start_offset}, {log.end_offset})",
            )
    for offset in known.values:
        if log.start_offset <= offset and offset not in there:
            raise Anomaly("lost-write", f"{known.name} offset {offset} was read and is missing")
    _check_senders(history, known.name, log, may_skip=is_compacted)


def _check_senders(history: History, name: str, log: FinalLog, *, may_skip: bool) -> None:
    """Check that each sender's records are in order, and each of its batches is complete.

    With `may_skip`, records may be missing.
    """
    last_of_session: dict[str, Origin] = {}
    before: Origin | None = None
    for record in log.records:
        origin = history.origins[value_of(record)]
        last = last_of_session.get(origin.session)
        if last is not None and origin.number <= last.number:
            inside = origin.batch == last.batch
            raise Anomaly(
                "int-nonmonotonic-send" if inside else "nonmonotonic-send",
                f"{name} offset {record.offset}: {origin} after {last}",
            )
        last_of_session[origin.session] = origin
        if before is None:
            # A log may start inside a batch after retention or DeleteRecords.
            whole = origin.place == 0 or record.offset > 0
        elif before.is_last:
            whole = origin.place == 0
        else:
            whole = (origin.batch, origin.place) == (before.batch, before.place + 1)
        if not whole and not may_skip:
            raise Anomaly(
                "int-send-skip", f"{name} offset {record.offset}: {origin} after {before}"
            )
        before = origin
    if before is not None and not before.is_last and not may_skip:
        raise Anomaly("int-send-skip", f"{name} ends with {before}")


def check_retention(
    world: World, assigned: Assigned, log: FinalLog, *, largest_now_ms: int
) -> None:
    """Raise Anomaly if records are missing that retention had to keep."""
    plan = world.plan_of(assigned.topic)
    if plan is None or not log.start_offset:
        return
    name = f"{assigned.topic}-{assigned.partition}"
    if plan.keeps_everything:
        raise Anomaly("early-deletion", f"{name} starts at {log.start_offset}, but had to keep all")
    retention_ms = int(plan.settings.get("retention.ms", "-1"))
    if "retention.bytes" in plan.settings or retention_ms < 0:
        return
    for offset, timestamp in world.history.partition(assigned.key).timestamps.items():
        if offset < log.start_offset and timestamp >= largest_now_ms - retention_ms:
            raise Anomaly("early-deletion", f"{name} offset {offset} of {timestamp} is missing")
