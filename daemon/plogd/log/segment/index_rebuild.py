"""Check a whole segment after a lookup has found damage in it, and rebuild its indexes.

If a batch header is damaged, or an index entry leads to a wrong position, each lookup would have to
scan the segment. Instead, jobs on the log directory's lane read the segment once, a few MiB per
job. Damage is recorded (`corrupt_ranges`) and reported, and the new indexes lead past it. Lookups
that find the damage during the check wait for its end.

The jobs open the files separately, and write the indexes under ``.cleaned`` names, which the next
startup removes after a crash. The segment switches to the new indexes on the reactor, in one step.
In an active segment, damage is only recorded; the indexes are rebuilt after the segment has been
rolled and sealed.

Called on the reactor's thread. Source: Kafka 3.9 LogSegment.recover, which runs only at startup.
Invariant: a segment is scanned at most once per `RECHECK_MS`, regardless of what the scan finds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from plogd.log.deletion import lane_of
from plogd.log.housekeeping import Housekeeping
from plogd.log.io_errors import is_refusal
from plogd.log.log import Log
from plogd.log.recovery.damage_report import DamageReport
from plogd.log.recovery.segment_recovery import RecoveredSegment, SegmentScan
from plogd.log.segment.log_segment import LogSegment
from plogd.log.segment.segment_indexes import SegmentIndexes
from plogd.log.segment.time_index import TimestampOffset
from plogd.ports import Later, Ports, ready, spawn
from plogd.waiters import Waiters

RECHECK_MS = 600_000.0
"""The time for which the result of a check is valid; a later lookup may start another check."""

_TASK = "index rebuild"
_STEP_BYTES = 4 << 20
"""Number of bytes that one job reads; other jobs for the log directory can run between two jobs."""


class IndexRebuilds:
    """The segment checks in progress in all logs."""

    def __init__(self, ports: Ports, *, housekeeping: Housekeeping) -> None:
        self._jobs = ports.jobs
        self._timers = ports.timers
        self._report = ports.report
        self._housekeeping = housekeeping
        self._waiters: dict[LogSegment, Waiters[None]] = {}
        """Lookups that wait for a check, by segment."""

    def check(self, log: Log, segment: LogSegment) -> Later[None]:
        """Check `segment` and rebuild its indexes, or wait for a check in progress.

        Never fails: errors are reported, and the lookup is retried and then fails again.
        """
        waiters = self._waiters.get(segment)
        if waiters is not None:
            return waiters.wait()
        if log.is_truncating:  # The lookup fails; a later one starts the check.
            return ready(None)
        waiters = self._waiters[segment] = Waiters()
        done = waiters.wait()

        def end(error: Exception | None = None) -> None:
            if error is not None and not log.closed:
                self._housekeeping.log_failed(_TASK, log, error)
            # Before the waiters retry, so that they do not start another check, even after an
            # error.
            segment.is_checked = True
            self._timers.call_later(RECHECK_MS, lambda: _allow_check(segment))
            self._waiters.pop(segment).succeed(None)

        spawn(self._check(log, segment)).then(lambda _: end(), end)
        return done

    def check_suspects(self, log: Log) -> None:
        """Check the segments of `log` in which lookups by jobs have found damage."""
        for segment in log.segments:
            if segment.index_is_suspect and not segment.is_checked:
                self.check(log, segment)

    async def _check(self, log: Log, segment: LogSegment) -> None:
        rewrites = log.rewrites
        rebuild = _Rebuild(
            segment,
            end_offset=log.segments.end_offset_of(segment, log.log_end_offset),
            is_active=segment is log.segments.active,
        )
        try:
            is_complete = await self._run(log, segment, rebuild, rewrites)
        except Exception:
            rebuild.close()
            raise
        rebuild.close()
        if is_complete and not _is_stale(log, rewrites):
            self._take(log, segment, rebuild)

    async def _run(self, log: Log, segment: LogSegment, rebuild: _Rebuild, rewrites: int) -> bool:
        """Run the jobs of a check; return False if it was abandoned."""
        is_done = False
        while not is_done:
            # The directory of a closed log may belong to another topic with the same name.
            if _is_stale(log, rewrites):
                return False
            is_done = await self._jobs.submit(lane_of(log.log_dir), rebuild.run_step)
        if _is_stale(log, rewrites) or not _is_in(log, segment):
            return False
        # The active segment keeps its indexes, because appends continue to add entries.
        if not rebuild.is_active:
            await self._jobs.submit(
                lane_of(log.log_dir),
                lambda: None if _is_stale(log, rewrites) else rebuild.put_in_place(),
            )
        return True

    def _take(self, log: Log, segment: LogSegment, rebuild: _Rebuild) -> None:
        """Switch to the results of the check, and report new damage."""
        found, known = rebuild.scan.corrupt_ranges, segment.corrupt_ranges
        segment.note_checked(found, rebuild.maximum)
        findings = DamageReport(log.topic_partition, log.directory, self._report)
        findings.of_segment(
            segment,
            RecoveredSegment(
                next_offset=rebuild.scan.next_offset,
                truncated_bytes=0,
                reason="",
                # Damage that is already known was reported when it was found.
                corrupt_ranges=tuple(one for one in found if one not in known),
            ),
        )
        if rebuild.maximum is not None:
            self._report(
                "rebuilt the indexes of {path}: a lookup found an invalid entry or damaged data",
                path=segment.records_file.path,
                topic_partition=log.topic_partition,
                level="warn",
            )


def _is_stale(log: Log, rewrites: int) -> bool:
    """Return whether a check that began after so many rewrites must be abandoned."""
    return log.closed or log.offline or log.rewrites != rewrites


class _Rebuild:
    """A check in progress. Its jobs never overlap; `close` is called after the last one."""

    def __init__(self, segment: LogSegment, *, end_offset: int, is_active: bool) -> None:
        self.maximum: TimestampOffset | None = None
        """The segment's largest timestamp, set once the rebuilt indexes are in place."""
        self.scan: SegmentScan
        self._segment = segment
        self._end_offset = end_offset
        self.is_active = is_active
        self._reader: LogSegment | None = None
        self._indexes: SegmentIndexes | None = None
        self._steps = self._run()

    def run_step(self) -> bool:
        """Read a few MiB; return whether the check is complete. Runs as a job. Raises OSError."""
        for _ in self._steps:
            return False
        return True

    def _run(self) -> Iterator[None]:
        segment = self._segment
        reader = self._reader = segment.open_for_reading()
        self.scan = SegmentScan(
            reader.records,
            segment.base_offset,
            # All damage is kept, because a segment in use is never truncated.
            keep_below_offset=self._end_offset,
            following_base_offset=None if self.is_active else self._end_offset,
        )
        indexes = None
        if not self.is_active:
            indexes = self._indexes = segment.indexes.begin_rebuild()
        pause_position = _STEP_BYTES
        for found in self.scan.steps():
            if found is None:
                yield
                continue
            position, header = found
            if indexes is not None:
                indexes.add(
                    position,
                    header.last_offset,
                    header.max_timestamp,
                    header.last_offset,
                    always=self.scan.is_after_damage,
                    # On a full disk, the check continues, so that the damage is recorded.
                    if_room=True,
                )
            if position >= pause_position:
                pause_position = position + _STEP_BYTES
                yield

    def put_in_place(self) -> None:
        """Sync the new indexes and rename them to the names of the old indexes. Runs as a job.

        On a full disk, the old indexes remain. Raises any other OSError.
        """
        indexes = self._indexes
        assert indexes is not None
        try:
            indexes.add_last_entry()
            # Before the rename, so that a crash does not leave incomplete indexes under the final
            # names.
            for file in indexes.open_files:
                file.sync()
            indexes.close()
            indexes.put_in_place()
        except OSError as error:
            if not is_refusal(error):
                raise
            indexes.discard()
        else:
            self.maximum = indexes.maximum

    def close(self) -> None:
        """Close the files, and remove indexes that were not put in place."""
        if self._reader is not None:
            self._reader.close()
        if self._indexes is not None and self.maximum is None:
            with contextlib.suppress(OSError):  # The next startup removes files that remain.
                self._indexes.discard()


def _is_in(log: Log, segment: LogSegment) -> bool:
    """Return whether `segment` is still in `log`, so that retention has not deleted it."""
    return next(log.segments.starting_at(segment.base_offset)) is segment


def _allow_check(segment: LogSegment) -> None:
    segment.is_checked = False
